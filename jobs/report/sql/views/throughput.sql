-- How fast do messages come in, minute by minute?
CREATE OR REPLACE TEMPORARY VIEW throughput (
  cluster, broker, topic,
  minute COMMENT 'Begin of the minute; minutes without a message have no row',
  messages, bytes,
  messages_per_second COMMENT 'Mean over the minute',
  bytes_per_second COMMENT 'Mean over the minute, whole records'
) AS
SELECT cluster, broker, topic, date_trunc('MINUTE', store_timestamp) AS minute,
       count(*),
       sum(size),
       count(*) / 60,
       sum(size) / 60
  FROM messages
 GROUP BY cluster, broker, topic, minute;
