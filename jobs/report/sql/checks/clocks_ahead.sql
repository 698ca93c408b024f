SELECT host, sum(messages) AS messages, sum(from_the_future) AS from_the_future, min(min_ms) AS min_ms
  FROM clock_skew_by_host GROUP BY host HAVING from_the_future > 0 ORDER BY min_ms, host;
