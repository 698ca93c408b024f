SELECT topic, messages, duplicated_keys, surplus, surplus_share, median_seconds_between
  FROM duplicates_by_topic WHERE surplus > 0 ORDER BY surplus DESC, topic;
