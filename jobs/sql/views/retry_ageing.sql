-- How long do retries linger, and what lies in the dead letter queues? One row an attempt of a group at a topic.
CREATE OR REPLACE TEMPORARY VIEW retry_ageing (
  cluster, broker,
  kind COMMENT 'retry or dlq',
  consumer_group,
  origin_topic COMMENT 'The topic of the first attempt; NULL where the record does not say',
  reconsume_times COMMENT 'The how-manieth retry',
  messages, bytes,
  median_seconds_since_born COMMENT 'From the producer to this attempt, or to the dead letter queue',
  max_seconds_since_born,
  oldest_stored, newest_stored,
  oldest_age_seconds COMMENT 'Of the oldest one, at the end of the broker''s log'
) AS
WITH attempts AS (
  SELECT *,
         CASE WHEN startswith(topic, '%RETRY%') THEN 'retry' WHEN startswith(topic, '%DLQ%') THEN 'dlq' END AS kind,
         unix_millis(store_timestamp) - unix_millis(born_timestamp) AS lingered_ms,
         max(store_timestamp) OVER (PARTITION BY cluster, broker) AS log_end
    FROM messages
)
SELECT cluster, broker, kind,
       substring(topic, CASE kind WHEN 'retry' THEN 8 ELSE 6 END) AS consumer_group,
       coalesce(properties['DLQ_ORIGIN_TOPIC'], properties['RETRY_TOPIC']) AS origin_topic,
       reconsume_times,
       count(*),
       sum(size),
       median(lingered_ms) / 1000,
       max(lingered_ms) / 1000,
       min(store_timestamp),
       max(store_timestamp),
       (unix_millis(max(log_end)) - unix_millis(min(store_timestamp))) / 1000
  FROM attempts
 WHERE kind IS NOT NULL
 GROUP BY cluster, broker, kind, consumer_group, origin_topic, reconsume_times;
