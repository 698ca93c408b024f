SELECT level, sum(scheduled) AS scheduled, sum(delivered) AS delivered, sum(waiting) AS waiting,
       sum(overdue) AS overdue, min(min_late_ms) AS min_late_ms, max(median_late_ms) AS median_late_ms,
       max(max_late_ms) AS max_late_ms
  FROM delay_accuracy GROUP BY level ORDER BY level;
