-- Which stretches of its log does the table lack of a broker? Retention took them before a load, they are damaged, rows
-- were deleted, or --topic left them out. Rows that were deleted inside a run of the log are not seen.
CREATE OR REPLACE TEMPORARY VIEW messages_gaps (
  cluster, broker,
  begin_offset COMMENT 'Commit-log offset after the row before',
  end_offset COMMENT 'Where rows go on',
  bytes,
  previous_stored, stored
) AS
WITH followed AS (
  SELECT *,
         lag(commit_log_offset + size) OVER log AS begin_offset,
         lag(log_run) OVER log AS previous_run,
         lag(store_timestamp) OVER log AS previous_stored
    FROM messages
   WHERE log_run > 0 OR log_run IS NULL
  WINDOW log AS (PARTITION BY cluster, broker ORDER BY commit_log_offset)
)
SELECT cluster, broker, begin_offset, commit_log_offset, commit_log_offset - begin_offset, previous_stored,
       store_timestamp
  FROM followed
  -- Less than the next record needs may be the end of a segment, into which that did not fit.
 WHERE commit_log_offset >= begin_offset + size + 8 AND coalesce(log_run, 1) <> 2 AND coalesce(previous_run, 2) <> 1;
