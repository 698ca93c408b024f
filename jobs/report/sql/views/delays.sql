-- When was each delayed message due, and when did it come? One row a message in a delay queue or timer.
-- A delivered message is a new record in its real topic with the same unique key and number of retries; where several
-- have one key, the first due is matched with the first delivered. What waits longer than the timer's wheel reaches is
-- stored in its topic again and again (TIMER_ROLL_TIMES) and is one message; TIMER_DEL_UNIQKEY asks to forget one.
CREATE OR REPLACE TEMPORARY VIEW delays (
  cluster, broker,
  level COMMENT 'Delay level; NULL for the timer of 5.x',
  topic COMMENT 'Where it is to be delivered',
  uniq_key,
  commit_log_offset COMMENT 'Of the record that waits',
  scheduled, due, delivered,
  late_ms COMMENT 'From due to delivered',
  state COMMENT 'delivered; recalled; waiting: not due when the log ends; overdue: due, but not in the log'
) AS
WITH asked AS (
  -- What waits, and what asks to forget one: that names its key, from 5.3 on after its topic and a plus sign.
  SELECT *,
         CASE topic WHEN 'SCHEDULE_TOPIC_XXXX' THEN queue_id + 1 END AS level,
         CASE topic WHEN 'SCHEDULE_TOPIC_XXXX' THEN tags_code
                    ELSE try_cast(properties['TIMER_OUT_MS'] AS BIGINT) END AS due_ms,
         -- As other times: NULL outside of years 1 to 9999.
         CASE WHEN due_ms >= -62135510400000 AND due_ms < 253402214400000 THEN timestamp_millis(due_ms) END AS due,
         properties['TIMER_DEL_UNIQKEY'] AS forgets,
         CASE WHEN forgets IS NULL THEN uniq_key
              WHEN startswith(forgets, concat(real_topic, '+')) THEN substring(forgets, length(real_topic) + 2)
              ELSE forgets END AS key
    FROM messages
   WHERE topic IN ('SCHEDULE_TOPIC_XXXX', 'rmq_sys_wheel_timer')
),
delayed AS (
  SELECT *,
         bool_or(forgets IS NOT NULL AND topic = 'rmq_sys_wheel_timer')
           OVER (PARTITION BY cluster, broker, real_topic, key) AS recalled
    FROM asked
),
stored AS (
  SELECT *,
         properties['TIMER_ROLL_TIMES'] IS NOT NULL AND 1 < row_number() OVER (
           PARTITION BY cluster, broker, real_topic, key, topic, reconsume_times, due_ms ORDER BY commit_log_offset
         ) AS again
    FROM delayed
   WHERE forgets IS NULL AND real_topic <> topic
),
waiting AS (
  SELECT *, row_number() OVER (PARTITION BY cluster, broker, real_topic, key, reconsume_times
                               ORDER BY due_ms, commit_log_offset) AS turn
    FROM stored
   WHERE NOT again
),
delivered AS (
  SELECT *, row_number() OVER (PARTITION BY cluster, broker, topic, uniq_key, reconsume_times
                               ORDER BY commit_log_offset) AS turn
    FROM messages
   WHERE (delay_level IS NOT NULL OR timer_due IS NOT NULL) AND real_topic = topic AND dispatched
),
log_end AS (SELECT cluster, broker, max(store_timestamp) AS stored FROM messages GROUP BY cluster, broker)
SELECT w.cluster, w.broker, w.level, w.real_topic, w.uniq_key, w.commit_log_offset, w.store_timestamp, w.due,
       d.store_timestamp,
       unix_millis(d.store_timestamp) - unix_millis(w.due),
       CASE WHEN d.turn IS NOT NULL THEN 'delivered' WHEN w.recalled AND w.level IS NULL THEN 'recalled'
            WHEN w.due_ms > unix_millis(e.stored) THEN 'waiting' ELSE 'overdue' END
  FROM waiting w
  JOIN log_end e ON e.cluster <=> w.cluster AND e.broker <=> w.broker
  LEFT JOIN delivered d ON d.cluster <=> w.cluster AND d.broker <=> w.broker AND d.topic = w.real_topic
                       AND d.uniq_key <=> w.uniq_key AND d.reconsume_times = w.reconsume_times AND d.turn = w.turn;
