-- When was it written, hour by hour?
CREATE OR REPLACE TEMPORARY VIEW storage_by_hour (
  cluster, broker, hour COMMENT 'Of store_timestamp, in the time zone of the session',
  messages COMMENT 'Records in the log',
  bytes COMMENT 'Bytes of whole records',
  body_bytes COMMENT 'Bytes of their bodies, as stored',
  share COMMENT 'Part of all bytes of this broker',
  first_stored, last_stored
) AS
SELECT cluster, broker, date_trunc('HOUR', store_timestamp) AS hour,
       count(*),
       sum(size),
       sum(body_size),
       sum(size) / sum(sum(size)) OVER (PARTITION BY cluster, broker),
       min(store_timestamp),
       max(store_timestamp)
  FROM messages
 GROUP BY cluster, broker, hour;
