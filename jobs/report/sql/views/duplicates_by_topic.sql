-- How much of a topic is duplicates? Batches that share a key are not counted.
CREATE OR REPLACE TEMPORARY VIEW duplicates_by_topic (
  cluster, topic,
  messages COMMENT 'All of the topic',
  duplicated_keys COMMENT 'Unique keys that occur more than once',
  surplus COMMENT 'Messages that would not be there without duplicates',
  surplus_share COMMENT 'Part of the topic''s messages',
  median_seconds_between
) AS
SELECT m.cluster, m.topic, m.messages,
       count(d.uniq_key),
       coalesce(sum(d.copies - 1), 0),
       coalesce(sum(d.copies - 1), 0) / m.messages,
       median(d.seconds_between)
  FROM (SELECT cluster, topic, count(*) AS messages FROM messages GROUP BY cluster, topic) m
  LEFT JOIN duplicates d ON d.cluster <=> m.cluster AND d.topic = m.topic AND NOT d.one_batch
 GROUP BY m.cluster, m.topic, m.messages;
