-- Is a topic spread evenly over its queues?
CREATE OR REPLACE TEMPORARY VIEW storage_by_queue (
  cluster, broker, topic, queue_id,
  messages COMMENT 'Records in the log',
  bytes COMMENT 'Bytes of whole records',
  body_bytes COMMENT 'Bytes of their bodies, as stored',
  share COMMENT 'Part of all bytes of this broker',
  first_queue_offset, last_queue_offset COMMENT 'In the log; a queue without gaps holds all between',
  first_stored, last_stored
) AS
SELECT cluster, broker, topic, queue_id,
       count(*),
       sum(size),
       sum(body_size),
       sum(size) / sum(sum(size)) OVER (PARTITION BY cluster, broker),
       min(queue_offset),
       max(queue_offset),
       min(store_timestamp),
       max(store_timestamp)
  FROM messages
 GROUP BY cluster, broker, topic, queue_id;
