-- Whose clock is wrong? A message cannot be stored before it is made: where it is, the producer's clock runs ahead.
-- Retries, deliveries after a delay and everything of transactions keep the time of the first attempt and are left out.
CREATE OR REPLACE TEMPORARY VIEW clock_skew_by_host (
  cluster, broker,
  host COMMENT 'Producer, without its port',
  messages,
  from_the_future COMMENT 'Made after they were stored',
  min_ms COMMENT 'From made to stored; below 0 the producer''s clock is ahead of the broker''s by at least that much',
  median_ms, max_ms
) AS
SELECT cluster, broker,
       left(born_host, length(born_host) - length(substring_index(born_host, ':', -1)) - 1) AS host,
       count(*),
       count_if(store_timestamp < born_timestamp),
       min(unix_millis(store_timestamp) - unix_millis(born_timestamp)),
       median(unix_millis(store_timestamp) - unix_millis(born_timestamp)),
       max(unix_millis(store_timestamp) - unix_millis(born_timestamp))
  FROM messages
 WHERE reconsume_times = 0 AND transaction_type = 'none' AND delay_level IS NULL AND real_topic IS NULL
   AND NOT startswith(topic, '%DLQ%')
   AND store_timestamp IS NOT NULL AND born_timestamp IS NOT NULL
 GROUP BY cluster, broker, host;
