-- Functions that read what a broker encodes. A NULL argument gives NULL, and so does a value of another form.
-- `jobs.report.functions.register(spark)` runs this file; functions with a leading underscore are those of
-- udfs/functions/scalar.py.
-- DESCRIBE FUNCTION EXTENDED rmq_uniq_key_time; shows what stands here.

CREATE OR REPLACE TEMPORARY FUNCTION rmq_java_hash(text STRING COMMENT 'any text')
RETURNS INT
COMMENT 'Java''s String.hashCode() of a text.'
RETURN _rmq_java_hash(text);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_tags_code(tags STRING COMMENT 'the whole TAGS property, also with ||')
RETURNS BIGINT
COMMENT 'The tags code that a consume queue holds for these tags; of a message without tags it is 0.'
RETURN CAST(_rmq_java_hash(tags) AS BIGINT);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_index_key_hash(
  topic STRING COMMENT 'the topic it is stored under',
  key STRING COMMENT 'one word of KEYS, or the UNIQ_KEY; for a tag in the index of 5.4 and later: T#tags')
RETURNS INT
COMMENT 'The key hash that index files hold for a key of a topic.'
RETURN _rmq_index_key_hash(topic, key);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_index_slot(
  topic STRING COMMENT 'the topic it is stored under',
  key STRING COMMENT 'as for rmq_index_key_hash',
  slots INT DEFAULT 5000000 COMMENT 'maxHashSlotNum of the broker')
RETURNS INT
COMMENT 'The slot of an index file in which a key of a topic is.'
RETURN CASE WHEN slots > 0 THEN _rmq_index_key_hash(topic, key) % slots END;

CREATE OR REPLACE TEMPORARY FUNCTION rmq_offset_msg_id(
  store_host STRING COMMENT 'ip:port or [v6]:port of the broker',
  commit_log_offset BIGINT)
RETURNS STRING
COMMENT 'The offset message id, which mqadmin''s queryMsgById takes.'
RETURN _rmq_offset_msg_id(store_host, commit_log_offset);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_offset_msg_id_parts(msg_id STRING COMMENT 'an offset message id')
RETURNS STRUCT<host: STRING, port: INT, commit_log_offset: BIGINT>
COMMENT 'Broker and commit-log offset that an offset message id names. A unique key of a client has the same length.'
RETURN _rmq_offset_msg_id_parts(msg_id);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_uniq_key_parts(uniq_key STRING COMMENT 'UNIQ_KEY, made by a client')
RETURNS STRUCT<ip: STRING, mac: STRING, pid: INT, class_loader: BIGINT, span: BIGINT, counter: BIGINT>
COMMENT 'What a client put into a unique key: ip and milliseconds of its month, or (gRPC) mac and seconds since 2021.'
RETURN _rmq_uniq_key_parts(uniq_key);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_uniq_key_ip(uniq_key STRING COMMENT 'UNIQ_KEY, made by a client')
RETURNS STRING
COMMENT 'The address of the client that made a unique key; NULL for gRPC clients.'
RETURN _rmq_uniq_key_parts(uniq_key).ip;

CREATE OR REPLACE TEMPORARY FUNCTION rmq_uniq_key_pid(uniq_key STRING COMMENT 'UNIQ_KEY, made by a client')
RETURNS INT
COMMENT 'The low 16 bits of the process id of the client that made a unique key (4.6.0 and 4.6.1: the high ones).'
RETURN _rmq_uniq_key_parts(uniq_key).pid;

CREATE OR REPLACE TEMPORARY FUNCTION rmq_uniq_key_time(
  uniq_key STRING COMMENT 'UNIQ_KEY, made by a client',
  near TIMESTAMP COMMENT 'a time less than half a month away, best born_timestamp: the id does not name its month',
  utc_offset_minutes INT DEFAULT 0 COMMENT 'time zone of the client')
RETURNS TIMESTAMP
COMMENT 'When a client made a unique key.'
RETURN _rmq_uniq_key_time(uniq_key, near, utc_offset_minutes);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_host_text(host BINARY COMMENT 'BORNHOST or STOREHOST, 8 or 20 bytes')
RETURNS STRING
COMMENT 'ip:port or [v6]:port of a host as a record stores it.'
RETURN _rmq_host_text(host);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_host_ip(host STRING COMMENT 'ip:port or [v6]:port')
RETURNS STRING
COMMENT 'The address without port and brackets: one producer machine, whatever port it happened to use.'
-- Without a regular expression: spark.sql.parser.escapedStringLiterals changes what a backslash says.
RETURN nullif(trim(BOTH '[]' FROM left(host, length(host) - length(substring_index(host, ':', -1)) - 1)), '');

CREATE OR REPLACE TEMPORARY FUNCTION rmq_properties_map(properties BINARY COMMENT 'of a record, as stored')
RETURNS MAP<STRING, STRING>
COMMENT 'Properties by name; the last of equal names wins, pieces without name or value are left out.'
RETURN _rmq_properties_map(properties);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_transaction_type(sys_flag INT)
RETURNS STRING
COMMENT 'none, prepared, commit or rollback.'
RETURN CASE sys_flag & 12 WHEN 0 THEN 'none' WHEN 4 THEN 'prepared' WHEN 8 THEN 'commit' WHEN 12 THEN 'rollback' END;

CREATE OR REPLACE TEMPORARY FUNCTION rmq_delay_ms(
  level INT COMMENT 'the DELAY property',
  levels STRING DEFAULT '1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h' COMMENT 'messageDelayLevel')
RETURNS BIGINT
COMMENT 'Milliseconds of a delay level: 0 below 1, that of the last level above it.'
RETURN CASE
  WHEN level IS NULL OR levels IS NULL THEN NULL
  WHEN level < 1 THEN 0
  ELSE transform(
         split(trim(levels), ' +'),
         l -> try_multiply(try_cast(left(l, length(l) - 1) AS BIGINT),
                           map('s', 1000, 'm', 60000, 'h', 3600000, 'd', 86400000)[right(l, 1)])
       )[least(level, size(split(trim(levels), ' +'))) - 1]
END;

CREATE OR REPLACE TEMPORARY FUNCTION rmq_delay_level(properties MAP<STRING, STRING>)
RETURNS INT
COMMENT 'The delay level that the producer asked for; NULL for a message without one.'
RETURN try_cast(properties['DELAY'] AS INT);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_real_topic(topic STRING, properties MAP<STRING, STRING>)
RETURNS STRING
COMMENT 'The producer''s topic of a message that waits, is tried again, or is dead; NULL for one in its own topic.'
RETURN nullif(
  CASE WHEN topic IS NULL THEN NULL
       WHEN startswith(topic, '%DLQ%') THEN coalesce(properties['DLQ_ORIGIN_TOPIC'], properties['RETRY_TOPIC'])
       WHEN startswith(topic, '%RETRY%') THEN properties['RETRY_TOPIC']
       -- A delayed message of a retry has the retry topic there.
       WHEN startswith(properties['REAL_TOPIC'], '%RETRY%')
            THEN coalesce(properties['RETRY_TOPIC'], properties['REAL_TOPIC'])
       ELSE properties['REAL_TOPIC'] END,
  topic);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_uncompressed_body(body BINARY, sys_flag INT)
RETURNS BINARY
COMMENT 'The body as the producer had it (zlib, LZ4, zstd); NULL where the bytes are not what the flags say.'
RETURN _rmq_uncompressed_body(body, sys_flag);

CREATE OR REPLACE TEMPORARY FUNCTION rmq_trace_messages(body BINARY COMMENT 'uncompressed body in RMQ_SYS_TRACE_TOPIC')
RETURNS ARRAY<STRUCT<step: STRING, time: TIMESTAMP, region: STRING, group_name: STRING, topic: STRING, msg_id: STRING,
  tags: STRING, keys: STRING, store_host: STRING, body_size: INT, cost_ms: INT, message_type: STRING,
  offset_msg_id: STRING, success: BOOLEAN, request_id: STRING, retry_times: INT, context_code: INT,
  transaction_id: STRING, transaction_state: STRING, from_transaction_check: BOOLEAN>>
COMMENT 'What clients traced: SELECT inline(steps) FROM (SELECT rmq_trace_messages(body) AS steps FROM messages)'
RETURN _rmq_trace_messages(body);
