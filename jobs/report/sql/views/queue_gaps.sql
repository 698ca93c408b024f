-- Where do queue offsets not go on by one? In a queue every message has the next number: a gap counts lost messages.
CREATE OR REPLACE TEMPORARY VIEW queue_gaps (
  cluster, broker, topic, queue_id,
  kind COMMENT 'gap: numbers are missing; restart: the topic was created again; repeat: numbers were given twice',
  expected COMMENT 'The queue offset that should have come',
  found COMMENT 'The one that came',
  missing COMMENT 'Messages between them; 0 unless it is a gap',
  previous_stored, stored, commit_log_offset
) AS
WITH numbered AS (
  -- An inner batch is one record with many numbers. A producer may send anything under these names, and a damaged head
  -- any number: neither may end the query.
  SELECT *,
         try_cast(properties['INNER_BASE'] AS BIGINT) AS inner_base,
         try_cast(properties['INNER_NUM'] AS INT) AS inner_num,
         CASE WHEN inner_base IS NOT NULL AND inner_num IS NOT NULL THEN inner_base ELSE queue_offset END AS number,
         try_add(number, CASE WHEN inner_base IS NOT NULL THEN coalesce(inner_num, 1) ELSE 1 END) AS next
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
       CASE WHEN number > expected THEN coalesce(try_subtract(number, expected), 9223372036854775807) ELSE 0L END,
       previous_stored,
       store_timestamp,
       commit_log_offset
  FROM followed
 WHERE number <> expected;
