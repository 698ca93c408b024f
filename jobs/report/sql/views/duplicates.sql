-- Which messages are in the log more than once? A producer that hears no answer sends again, under the same unique key.
-- Topics in which a broker itself stores a message once more (retries, delays, half messages) are left out.
CREATE OR REPLACE TEMPORARY VIEW duplicates (
  cluster, topic, uniq_key,
  copies,
  brokers COMMENT 'How many brokers hold a copy',
  bodies COMMENT 'How many different bodies; 1 is a true duplicate',
  one_batch COMMENT 'The copies are one batch: brokers up to 5.3 store all messages of a batch under one key',
  first_stored, last_stored,
  seconds_between COMMENT 'From the first copy to the last'
) AS
WITH own AS (
  SELECT *, xxhash64(cluster, topic, uniq_key) AS hash
    FROM messages
   WHERE uniq_key IS NOT NULL AND dispatched
     AND NOT startswith(topic, '%RETRY%') AND NOT startswith(topic, 'rmq_sys_')
     AND topic NOT IN ('SCHEDULE_TOPIC_XXXX', 'RMQ_SYS_TRANS_HALF_TOPIC', 'RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC')
),
-- Nearly all keys occur once: only the others are looked at closely. Two keys with one hash do no harm: HAVING tells.
repeated AS (
  SELECT hash FROM own GROUP BY hash HAVING count(*) > 1
)
SELECT cluster, topic, uniq_key,
       count(*),
       count(DISTINCT struct(broker)),
       count(DISTINCT body_crc, body_size),
       count(DISTINCT struct(broker, queue_id, born_timestamp)) = 1 AND max(queue_offset) - min(queue_offset) = count(*) - 1,
       min(store_timestamp),
       max(store_timestamp),
       (unix_millis(max(store_timestamp)) - unix_millis(min(store_timestamp))) / 1000
  FROM own LEFT SEMI JOIN repeated USING (hash)
 GROUP BY cluster, topic, uniq_key
HAVING count(*) > 1;
