-- When did the broker's clock go backwards? In a log written by one clock store times never fall.
-- The log is compared in pieces of 256 MiB, so that no task sorts a whole broker, and then their ends with each other.
CREATE OR REPLACE TEMPORARY VIEW clock_steps (
  cluster, broker,
  commit_log_offset COMMENT 'Of the first record after the step',
  previous_stored, stored,
  milliseconds COMMENT 'How far back'
) AS
WITH followed AS (
  SELECT cluster, broker, commit_log_offset, store_timestamp,
         lag(store_timestamp) OVER piece AS within,
         lead(store_timestamp) OVER piece AS following
    FROM messages
   WHERE store_timestamp IS NOT NULL
  WINDOW piece AS (PARTITION BY commit_log_offset DIV 268435456, cluster, broker ORDER BY commit_log_offset)
),
ends_and_steps AS (
  SELECT *,
         coalesce(within, lag(store_timestamp) OVER (PARTITION BY cluster, broker ORDER BY commit_log_offset)) AS previous
    FROM followed
   WHERE within IS NULL OR following IS NULL OR store_timestamp < within
)
SELECT cluster, broker, commit_log_offset, previous, store_timestamp, unix_millis(previous) - unix_millis(store_timestamp)
  FROM ends_and_steps
 WHERE store_timestamp < previous;
