SELECT cluster, broker, count(*) AS steps, max(milliseconds) AS max_milliseconds, min(stored) AS first,
       max(stored) AS last
  FROM clock_steps GROUP BY cluster, broker ORDER BY cluster, broker;
