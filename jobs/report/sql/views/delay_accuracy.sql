-- How late do delayed messages come?
CREATE OR REPLACE TEMPORARY VIEW delay_accuracy (
  cluster, broker,
  level COMMENT 'Delay level; NULL for the timer of 5.x',
  scheduled, delivered,
  waiting COMMENT 'Not due when the log ends',
  overdue COMMENT 'Due, but not in the log',
  min_late_ms, median_late_ms, p99_late_ms, max_late_ms
) AS
SELECT cluster, broker, level,
       count(*),
       count_if(state = 'delivered'),
       count_if(state = 'waiting'),
       count_if(state = 'overdue'),
       min(late_ms),
       median(late_ms),
       percentile(late_ms, 0.99),
       max(late_ms)
  FROM delays
 GROUP BY cluster, broker, level;
