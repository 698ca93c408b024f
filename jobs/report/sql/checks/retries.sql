SELECT consumer_group, origin_topic, kind, reconsume_times, sum(messages) AS messages, sum(bytes) AS bytes,
       max(median_seconds_since_born) AS median_seconds_since_born, min(oldest_stored) AS oldest_stored
  FROM retry_ageing GROUP BY ALL
 ORDER BY messages DESC, consumer_group, kind DESC, reconsume_times, origin_topic;
