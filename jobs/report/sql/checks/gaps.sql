SELECT cluster, broker, topic, queue_id, kind, count(*) AS places,
       CAST(least(sum(CAST(missing AS DECIMAL(38))), 9223372036854775807) AS BIGINT) AS missing,
       min(stored) AS first, max(stored) AS last
  FROM queue_gaps GROUP BY ALL ORDER BY missing DESC, cluster, broker, topic, queue_id, kind;
