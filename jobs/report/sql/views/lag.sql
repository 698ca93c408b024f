-- How far are groups behind the ends of their queues, as of the last load of each broker?
CREATE OR REPLACE TEMPORARY VIEW lag (
  cluster, broker, `group`, topic, queue_id,
  as_of COMMENT 'When the offsets were read',
  committed, queue_begin, queue_end,
  lag COMMENT 'Messages that the group can still read',
  deleted COMMENT 'Messages that retention took before the group had read them'
) AS
SELECT cluster, broker, `group`, topic, queue_id, loaded_at, committed, queue_begin, queue_end, lag, deleted
  FROM consumer_offsets
  JOIN (SELECT cluster, broker, max(loaded_at) AS loaded_at FROM consumer_offsets GROUP BY cluster, broker)
 USING (cluster, broker, loaded_at);
