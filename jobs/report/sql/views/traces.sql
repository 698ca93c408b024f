-- What did producers and consumers trace? One row a step. Needs bodies (load --with-bodies) and the rmq_ functions.
CREATE OR REPLACE TEMPORARY VIEW traces AS
SELECT cluster, broker, commit_log_offset, store_timestamp, inline(steps)
  FROM (
    SELECT *, rmq_trace_messages(rmq_uncompressed_body(body, sys_flag)) AS steps
      FROM messages
     WHERE topic = 'RMQ_SYS_TRACE_TOPIC'
  );
