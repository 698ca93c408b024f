-- Which producer machine sends the most?
CREATE OR REPLACE TEMPORARY VIEW storage_by_host (
  cluster, broker, host COMMENT 'Producer, without its port',
  messages COMMENT 'Records in the log',
  bytes COMMENT 'Bytes of whole records',
  body_bytes COMMENT 'Bytes of their bodies, as stored',
  share COMMENT 'Part of all bytes of this broker',
  first_stored, last_stored
) AS
SELECT cluster, broker,
       left(born_host, length(born_host) - length(substring_index(born_host, ':', -1)) - 1) AS host,
       count(*),
       sum(size),
       sum(body_size),
       sum(size) / sum(sum(size)) OVER (PARTITION BY cluster, broker),
       min(store_timestamp),
       max(store_timestamp)
  FROM messages
 GROUP BY cluster, broker, host;
