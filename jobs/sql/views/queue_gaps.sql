-- Where do queue offsets not go on by one? In a queue every message has the next number: a gap counts lost messages.
CREATE OR REPLACE TEMPORARY VIEW queue_gaps (
  cluster, broker, topic, queue_id,
  kind COMMENT 'gap: numbers are missing; restart: the topic was made anew; repeat: numbers were given twice',
  expected COMMENT 'The queue offset that should have come',
  found COMMENT 'The one that came',
  missing COMMENT 'Messages between them; 0 unless it is a gap',
  previous_stored, stored, commit_log_offset
) AS
WITH numbered AS (
  -- An inner batch is one record with many numbers.
  SELECT *,
         properties['INNER_BASE'] IS NOT NULL AND properties['INNER_NUM'] IS NOT NULL AS batch,
         CASE WHEN batch THEN CAST(properties['INNER_BASE'] AS BIGINT) ELSE queue_offset END AS number,
         number + CASE WHEN batch THEN CAST(properties['INNER_NUM'] AS INT) ELSE 1 END AS next
    FROM messages
   WHERE dispatched
),
followed AS (
  SELECT *,
         lag(next) OVER queue AS expected,
         lag(store_timestamp) OVER queue AS previous_stored
    FROM numbered
  WINDOW queue AS (PARTITION BY cluster, broker, topic, queue_id ORDER BY commit_log_offset)
)
SELECT cluster, broker, topic, queue_id,
       CASE WHEN number > expected THEN 'gap' WHEN number = 0 THEN 'restart' ELSE 'repeat' END,
       expected,
       number,
       greatest(number - expected, 0),
       previous_stored,
       store_timestamp,
       commit_log_offset
  FROM followed
 WHERE number <> expected;
