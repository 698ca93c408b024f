-- The views storage_by_KEY, from the rows of storage_by.ini.
CREATE OR REPLACE TEMPORARY VIEW storage_by_${key} (
  cluster, broker, ${columns},
  messages COMMENT 'Records in the log',
  bytes COMMENT 'Bytes of whole records',
  body_bytes COMMENT 'Bytes of their bodies, as stored',
  share COMMENT 'Part of all bytes of this broker'${more_columns},
  first_stored, last_stored
) AS
SELECT cluster, broker, ${values},
       count(*),
       sum(size),
       sum(body_size),
       sum(size) / sum(sum(size)) OVER (PARTITION BY cluster, broker)${more_values},
       min(store_timestamp),
       max(store_timestamp)
  FROM messages
 GROUP BY cluster, broker, ${values};
