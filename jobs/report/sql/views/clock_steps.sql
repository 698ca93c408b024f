-- When did the broker's clock go backwards? In a log written by one clock store times never fall.
-- The log is compared in pieces of 256 MiB, each with the end of the one before, so that no task sorts a whole broker.
CREATE OR REPLACE TEMPORARY VIEW clock_steps (
  cluster, broker,
  commit_log_offset COMMENT 'Of the first record after the step',
  previous_stored, stored,
  milliseconds COMMENT 'How far back'
) AS
WITH pieces AS (
  SELECT cluster, broker, commit_log_offset DIV 268435456 AS piece, commit_log_offset, store_timestamp
    FROM messages
   WHERE store_timestamp IS NOT NULL
),
ends AS (
  SELECT cluster, broker, piece,
         lag(max_by(store_timestamp, commit_log_offset)) OVER (PARTITION BY cluster, broker ORDER BY piece) AS before
    FROM pieces
   GROUP BY cluster, broker, piece
),
followed AS (
  SELECT *,
         lag(store_timestamp) OVER (PARTITION BY cluster, broker, piece ORDER BY commit_log_offset) AS within
    FROM pieces
)
SELECT f.cluster, f.broker, f.commit_log_offset,
       coalesce(f.within, e.before) AS previous_stored,
       f.store_timestamp,
       unix_millis(previous_stored) - unix_millis(f.store_timestamp)
  FROM followed f JOIN ends e ON e.cluster <=> f.cluster AND e.broker <=> f.broker AND e.piece = f.piece
 WHERE f.store_timestamp < coalesce(f.within, e.before);
