SELECT producer_group, topic, outcome, sum(transactions) AS transactions, sum(checks) AS checks,
       max(median_seconds) AS median_seconds, max(max_seconds) AS max_seconds
  FROM transaction_outcomes GROUP BY ALL ORDER BY transactions DESC, producer_group, topic, outcome;
