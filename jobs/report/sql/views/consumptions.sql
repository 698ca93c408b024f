-- How did consumers fare with each message? One row an attempt that a consumer group traced. Needs traces.
CREATE OR REPLACE TEMPORARY VIEW consumptions (
  cluster, consumer_group,
  msg_id COMMENT 'uniq_key of the message',
  keys, retry_times,
  begun, cost_ms,
  success COMMENT 'NULL: the consumer never told how it ended',
  context_code COMMENT '0 success, 1 time out, 2 exception, 3 null returned, 4 failed'
) AS
SELECT b.cluster, b.group_name, b.msg_id, b.keys, b.retry_times, b.time, a.cost_ms, a.success, a.context_code
  FROM traces b
  LEFT JOIN traces a ON a.step = 'SubAfter' AND a.cluster <=> b.cluster
                    AND a.request_id = b.request_id AND a.msg_id = b.msg_id
 WHERE b.step = 'SubBefore';
