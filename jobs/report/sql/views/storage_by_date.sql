-- When was it written, day by day? What does one day more of retention cost?
CREATE OR REPLACE TEMPORARY VIEW storage_by_date (
  cluster, broker, store_date COMMENT 'In the time zone of the table',
  messages COMMENT 'Records in the log',
  bytes COMMENT 'Bytes of whole records',
  body_bytes COMMENT 'Bytes of their bodies, as stored',
  share COMMENT 'Part of all bytes of this broker',
  first_stored, last_stored
) AS
SELECT cluster, broker, store_date,
       count(*),
       sum(size),
       sum(body_size),
       sum(size) / sum(sum(size)) OVER (PARTITION BY cluster, broker),
       min(store_timestamp),
       max(store_timestamp)
  FROM messages
 GROUP BY cluster, broker, store_date;
