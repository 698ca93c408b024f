-- How do transactions of a producer group end, and how long does a decision take?
CREATE OR REPLACE TEMPORARY VIEW transaction_outcomes (
  cluster, broker, producer_group, topic,
  outcome COMMENT 'As in transactions',
  transactions,
  checks COMMENT 'How often the broker had to ask',
  median_seconds, max_seconds COMMENT 'From the half message to the decision'
) AS
SELECT cluster, broker, producer_group, topic, outcome, count(*), sum(checks), median(seconds), max(seconds)
  FROM transactions
 GROUP BY cluster, broker, producer_group, topic, outcome;
