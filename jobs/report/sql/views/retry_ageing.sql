-- How long do retries linger, and what is in the dead letter queues? One row an attempt of a group at a topic.
CREATE OR REPLACE TEMPORARY VIEW retry_ageing (
  cluster, broker,
  kind COMMENT 'retry or dlq',
  consumer_group,
  origin_topic COMMENT 'The topic of the first attempt; NULL where the record does not say',
  reconsume_times COMMENT 'How often consumers had sent the message back',
  messages, bytes,
  median_seconds_since_born COMMENT 'From the producer to this attempt, or to the dead letter queue',
  max_seconds_since_born,
  oldest_stored, newest_stored,
  oldest_age_seconds COMMENT 'Of the oldest one, at the end of the broker''s log'
) AS
WITH attempts AS (
  SELECT *,
         CASE WHEN startswith(topic, '%RETRY%') THEN 'retry' ELSE 'dlq' END AS kind,
         unix_millis(store_timestamp) - unix_millis(born_timestamp) AS lingered_ms
    FROM messages
   WHERE startswith(topic, '%RETRY%') OR startswith(topic, '%DLQ%')
),
log_end AS (SELECT cluster, broker, max(store_timestamp) AS stored FROM messages GROUP BY cluster, broker)
SELECT a.cluster, a.broker, kind,
       substring(topic, CASE kind WHEN 'retry' THEN 8 ELSE 6 END) AS consumer_group,
       coalesce(properties['DLQ_ORIGIN_TOPIC'], properties['RETRY_TOPIC']) AS origin_topic,
       reconsume_times,
       count(*),
       sum(size),
       median(lingered_ms) / 1000,
       max(lingered_ms) / 1000,
       min(store_timestamp),
       max(store_timestamp),
       (unix_millis(max(e.stored)) - unix_millis(min(store_timestamp))) / 1000
  FROM attempts a JOIN log_end e ON e.cluster <=> a.cluster AND e.broker <=> a.broker
 GROUP BY a.cluster, a.broker, kind, consumer_group, origin_topic, reconsume_times;
