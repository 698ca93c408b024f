-- Which stretches of its log does the table lack of a broker? Retention took them before a load, they are damaged, rows
-- were deleted, or --topic left them out. Rows that were deleted inside a run of the log are not seen.
CREATE OR REPLACE TEMPORARY VIEW messages_gaps (
  cluster, broker,
  begin_offset COMMENT 'Commit-log offset after the row before',
  end_offset COMMENT 'Where rows go on',
  bytes,
  previous_stored, stored
) AS
WITH unknown AS (SELECT DISTINCT cluster, broker, TRUE AS whole FROM messages WHERE log_run IS NULL),
ends AS (
  SELECT /*+ BROADCAST(unknown) */ messages.*, if(whole, NULL, log_run) AS run
    FROM messages LEFT JOIN unknown ON unknown.cluster <=> messages.cluster AND unknown.broker <=> messages.broker
   WHERE whole OR log_run > 0
),
followed AS (
  SELECT *,
         lag(commit_log_offset + size) OVER log AS begin_offset,
         lag(run) OVER log AS previous_run,
         lag(store_timestamp) OVER log AS previous_stored
    FROM ends
  WINDOW log AS (PARTITION BY cluster, broker ORDER BY commit_log_offset)
)
SELECT cluster, broker, begin_offset, commit_log_offset, commit_log_offset - begin_offset, previous_stored,
       store_timestamp
  FROM followed
  -- Less than the next record needs may be the end of a segment, into which that did not fit.
 WHERE commit_log_offset >= begin_offset + size + 8 AND coalesce(run, 1) <> 2 AND coalesce(previous_run, 2) <> 1;
