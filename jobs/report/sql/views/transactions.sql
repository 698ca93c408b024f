-- What became of each transactional message? One row a transaction whose half message is in the log.
-- A commit is a record that names the half message's offset. A rollback leaves an entry in the op topic only, whose
-- body names the half message's place in its queue: without bodies (load --with-bodies) rolled back and open cannot be
-- told apart. A half message that is checked is stored again: its records are counted, and no join gives one twice.
CREATE OR REPLACE TEMPORARY VIEW transactions (
  cluster, broker, transaction_id, producer_group,
  topic COMMENT 'Where a commit puts the message',
  outcome COMMENT 'committed, rolled back, given up (after too many checks), open; not committed where bodies lack',
  checks COMMENT 'How often the broker stored the half message again to ask its producer',
  begun, decided,
  seconds COMMENT 'From begun to decided'
) AS
WITH related AS (
  -- rand() keeps Spark from reading the table once for each place below: what it cannot know to be the same it keeps.
  SELECT * FROM messages
   WHERE (topic IN ('RMQ_SYS_TRANS_HALF_TOPIC', 'RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC', 'RMQ_SYS_TRANS_OP_HALF_TOPIC',
                    'RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC', 'TRANS_CHECK_MAX_TIME_TOPIC')
          OR transaction_type IN ('prepared', 'commit', 'rollback'))
     AND rand() >= 0
),
halves AS (
  SELECT *, coalesce(properties['__transactionId__'], uniq_key, offset_msg_id) AS transaction_id
    FROM related
   WHERE topic IN ('RMQ_SYS_TRANS_HALF_TOPIC', 'RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC') OR transaction_type = 'prepared'
),
decisions AS (
  SELECT cluster, broker, prepared_transaction_offset AS half_offset,
         min(store_timestamp) AS decided,
         bool_or(transaction_type = 'commit') AS committed
    FROM related
   WHERE transaction_type IN ('commit', 'rollback')
   GROUP BY cluster, broker, half_offset
),
operations AS (
  SELECT cluster, broker, replace(topic, '_OP_', '_') AS half_topic,
         coalesce(try_cast(properties['TRANS_OFFSET'] AS BIGINT), try_cast(named AS BIGINT)) AS half,
         min(store_timestamp) AS decided
    FROM related LATERAL VIEW explode(split(CAST(body AS STRING), ',')) AS named
   WHERE topic IN ('RMQ_SYS_TRANS_OP_HALF_TOPIC', 'RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC') AND tags = 'd'
   GROUP BY cluster, broker, half_topic, half
),
given_up AS (
  SELECT cluster, broker, uniq_key, min(store_timestamp) AS decided
    FROM related
   WHERE topic = 'TRANS_CHECK_MAX_TIME_TOPIC'
   GROUP BY cluster, broker, uniq_key
),
bodies AS (
  SELECT cluster, broker, count_if(body IS NOT NULL) > 0 AS present
    FROM related
   WHERE topic IN ('RMQ_SYS_TRANS_OP_HALF_TOPIC', 'RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC')
   GROUP BY cluster, broker
)
SELECT h.cluster, h.broker, h.transaction_id,
       min(h.properties['PGROUP']),
       min(coalesce(h.properties['REAL_TOPIC'], h.topic)),
       CASE WHEN bool_or(d.committed) THEN 'committed'
            WHEN bool_or(NOT d.committed) THEN 'rolled back'
            WHEN count(g.decided) > 0 THEN 'given up'
            WHEN count(o.decided) > 0 THEN 'rolled back'
            WHEN bool_or(b.present) THEN 'open'
            ELSE 'not committed'
       END AS outcome,
       count(*) - 1,
       min(h.store_timestamp) AS begun,
       coalesce(min(d.decided), min(g.decided), min(o.decided)) AS ended,
       (unix_millis(ended) - unix_millis(begun)) / 1000
  FROM halves h
  LEFT JOIN decisions d ON d.cluster <=> h.cluster AND d.broker <=> h.broker AND d.half_offset = h.commit_log_offset
  LEFT JOIN operations o ON o.cluster <=> h.cluster AND o.broker <=> h.broker AND o.half_topic = h.topic
                        AND o.half = if(h.topic LIKE '%ROCKSDB%', h.commit_log_offset, h.queue_offset)
  LEFT JOIN given_up g ON g.cluster <=> h.cluster AND g.broker <=> h.broker AND g.uniq_key = h.uniq_key
  LEFT JOIN bodies b ON b.cluster <=> h.cluster AND b.broker <=> h.broker
 GROUP BY h.cluster, h.broker, h.transaction_id;
