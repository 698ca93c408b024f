-- Where do queue offsets not go on by one? In a queue every message has the next number: a gap counts lost messages.
CREATE OR REPLACE TEMPORARY VIEW queue_gaps (
  cluster, broker, topic, queue_id,
  kind COMMENT 'gap: numbers are missing; restart: the topic was created again; repeat: numbers were given twice',
  expected COMMENT 'The queue offset that should have come',
  found COMMENT 'The one that came',
  missing COMMENT 'Messages between them; 0 unless it is a gap',
  previous_stored, stored, commit_log_offset
) AS
WITH unknown AS (SELECT DISTINCT cluster, broker, TRUE AS whole FROM messages WHERE queue_run IS NULL),
ends AS (
  -- The loader has seen that within a run every number follows the one before: only the ends are put in order, and all
  -- rows of a broker where some say nothing (those of an older load, or of a repair). An inner batch is one record
  -- with many numbers. A damaged head may hold any number, and must not end the query.
  SELECT /*+ BROADCAST(unknown) */ messages.*, if(whole, NULL, queue_run) AS run,
         try_add(queue_offset, coalesce(inner_num, 1)) AS next
    FROM messages LEFT JOIN unknown ON unknown.cluster <=> messages.cluster AND unknown.broker <=> messages.broker
   WHERE dispatched AND (whole OR queue_run > 0)
),
followed AS (
  SELECT *,
         lag(next) OVER queue AS expected,
         lag(run) OVER queue AS previous_run,
         lag(store_timestamp) OVER queue AS previous_stored
    FROM ends
  WINDOW queue AS (PARTITION BY cluster, broker, topic, queue_id ORDER BY commit_log_offset)
)
SELECT cluster, broker, topic, queue_id,
       CASE WHEN queue_offset > expected THEN 'gap' WHEN queue_offset = 0 THEN 'restart' ELSE 'repeat' END,
       expected,
       queue_offset,
       CASE WHEN queue_offset > expected THEN coalesce(try_subtract(queue_offset, expected), 9223372036854775807)
            ELSE 0L END,
       previous_stored,
       store_timestamp,
       commit_log_offset
  FROM followed
  -- The first row of a run is compared with the last of the one before. Where that was deleted, nothing can be said.
 WHERE queue_offset <> expected AND coalesce(run, 1) <> 2 AND coalesce(previous_run, 2) <> 1;
