-- When did the broker's clock go backwards? In a log written by one clock store times never fall.
-- The loader has seen that within a run of the log no time falls: only the ends of runs are put in order.
CREATE OR REPLACE TEMPORARY VIEW clock_steps (
  cluster, broker,
  commit_log_offset COMMENT 'Of the first record after the step',
  previous_stored, stored,
  milliseconds COMMENT 'How far back'
) AS
WITH unknown AS (SELECT DISTINCT cluster, broker, TRUE AS whole FROM messages WHERE log_run IS NULL),
ends AS (
  SELECT /*+ BROADCAST(unknown) */ messages.*
    FROM messages LEFT JOIN unknown ON unknown.cluster <=> messages.cluster AND unknown.broker <=> messages.broker
   WHERE store_timestamp IS NOT NULL AND (whole OR log_run > 0)
),
followed AS (
  SELECT cluster, broker, commit_log_offset, store_timestamp,
         lag(store_timestamp) OVER (PARTITION BY cluster, broker ORDER BY commit_log_offset) AS previous
    FROM ends
)
SELECT cluster, broker, commit_log_offset, previous, store_timestamp, unix_millis(previous) - unix_millis(store_timestamp)
  FROM followed
 WHERE store_timestamp < previous;
