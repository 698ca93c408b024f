-- How large are messages? Buckets are powers of two: a record of 600 bytes is in the bucket from 512 to 1024.
CREATE OR REPLACE TEMPORARY VIEW size_buckets (
  cluster, broker, topic,
  from_size COMMENT 'Inclusive, bytes of the whole record',
  to_size COMMENT 'Exclusive',
  messages, bytes
) AS
SELECT cluster, broker, topic,
       from_size,
       2 * from_size,
       count(*),
       sum(size)
  FROM (SELECT *, shiftleft(1L, length(bin(size)) - 1) AS from_size FROM messages)
 GROUP BY cluster, broker, topic, from_size;
