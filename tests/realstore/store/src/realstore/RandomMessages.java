package realstore;

import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.zip.DeflaterOutputStream;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.*;

/** Puts messages of every kind a broker meets, the kind and everything in it drawn from one random source. */
final class RandomMessages {
    static final List<String> FEATURES =
        Arrays.asList("lmq", "cq_ext", "property_crc", "batch_cq", "long_topics", "dledger", "mixed_log",
            "multi_path", "read_only_path", "unsteady_clock", "odd_names",
            "many_queues");
    static final List<String> BATCH_TOPICS = Arrays.asList("BatchOrders", "batch-2");

    private static final String HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC";
    private static final String OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
    private static final String[] TOPICS =
        {"A", "TopicPay", "stock-level_2", "user_events", "%RETRY%group-1", "%DLQ%group-1", "ns%orders", "T|x"};
    private static final String[] TAGS =
        {"TagA", "TagB", "a||b", "two words", "polygenelubricants", "\u6807\u7b7e", "\u6807\u7b7e\ud83d\ude00", "*"};
    private static final String[] KEYS = {"order", "user", "sku", "\u8ba2\u5355", "\ud83d\ude80", "a#b", "T#z", "-"};
    private static final String[] ODD_TOPICS =
        {"\u4e3b\u9898", "\ud83d\ude80\ud83d\ude00", "%RETRY%\u7ec4%100|", "a%20b||c", "\u00e9te\u0301", "..x"};
    private static final int[] ODD_QUEUE_IDS = {65535, 0, 32768, 255, 65534, 256};
    private static final int LONGEST_TOPIC = 255;
    private static final int DELAY_LEVELS = 20;

    private final Random random;
    private OpenStore open;
    private final OpenStore.Clock clock;
    private final List<String> features;
    private final List<String> topics = new ArrayList<>();
    private final int queues;
    private int nextQueue;
    private int messages;
    private int prepared;
    private int rolledBack;
    private int innerBatched;

    RandomMessages(Random random, OpenStore.Clock clock, List<String> features) {
        this.random = random;
        this.clock = clock;
        this.features = features;
        this.queues = 1 + random.nextInt(6);
        for (String topic : TOPICS) {
            if (topics.isEmpty() || random.nextBoolean()) {
                topics.add(topic);
            }
        }
        if (features.contains("odd_names")) {
            topics.addAll(Arrays.asList(ODD_TOPICS));
        }
        if (features.contains("long_topics")) {
            String longest = "%RETRY%";
            topics.add(longest + letters(LONGEST_TOPIC - longest.length()));
            topics.add("%RETRY%" + letters(123 + random.nextInt(100)));
            topics.add(letters(127));
            topics.add(letters(128));
        }
    }

    /** From now on messages go into this store. */
    void putInto(OpenStore store) {
        open = store;
    }

    /** Returns how many records were put, and of which kind; an inner batch is one record. */
    Map<String, Object> counts() {
        Map<String, Object> counts = new LinkedHashMap<>();
        counts.put("messages", messages);
        counts.put("prepared", prepared);
        counts.put("rolled_back", rolledBack);
        counts.put("inner_batched", innerBatched);
        return counts;
    }

    void putSomething() throws Exception {
        int kind = random.nextInt(100);
        if (kind < 8) {
            putDelayed();
        } else if (kind < 14) {
            putTransaction();
        } else if (kind < 17) {
            putOfType(MessageSysFlag.TRANSACTION_PREPARED_TYPE);
            prepared++;
        } else if (kind < 20) {
            putOfType(MessageSysFlag.TRANSACTION_ROLLBACK_TYPE);
            rolledBack++;
        } else if (kind < 28) {
            putProducerBatch();
        } else if (kind < 36) {
            putOddProperties();
        } else if (kind < 50 && features.contains("batch_cq")) {
            putInnerBatch();
        } else {
            putPlain();
        }
    }

    AppendMessageResult putPlain() throws Exception {
        return put(message(topic()));
    }

    /** Gives the store a message and does not wait until it says that it has it. */
    void putAndForget() throws Exception {
        MessageExtBrokerInner message = message(topic());
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        tick();
        // 4.7.0 and later
        DefaultMessageStore.class.getMethod("asyncPutMessage", MessageExtBrokerInner.class).invoke(open.store, message);
    }

    private void putDelayed() throws Exception {
        MessageExtBrokerInner message = message(topic());
        message.setDelayTimeLevel(1 + random.nextInt(DELAY_LEVELS));
        if (message.getDelayTimeLevel() > levels()) {
            message.setDelayTimeLevel(levels());
        }
        Release.prepareDelay(message);
        put(message);
    }

    private int levels() {
        return open.config.getMessageDelayLevel().split(" ").length;
    }

    /** Half message, then mostly its end: the op message and, if committed, the message under its own topic. */
    private void putTransaction() throws Exception {
        MessageExtBrokerInner real = message(topic());
        MessageExtBrokerInner half = message(HALF_TOPIC);
        half.setQueueId(0);
        MessageAccessor.putProperty(half, "REAL_TOPIC", real.getTopic());
        MessageAccessor.putProperty(half, "REAL_QID", String.valueOf(real.getQueueId()));
        MessageAccessor.putProperty(half, "TRAN_MSG", "true");
        AppendMessageResult stored = put(half);
        int outcome = random.nextInt(10);
        if (outcome == 0) {
            return;
        }
        if (outcome < 8) {
            real.setSysFlag(real.getSysFlag() | MessageSysFlag.TRANSACTION_COMMIT_TYPE);
            real.setPreparedTransactionOffset(stored.getWroteOffset());
            put(real);
        }
        MessageExtBrokerInner op = new MessageExtBrokerInner();
        address(op, OP_TOPIC, 0);
        op.setTags("d");
        op.setBody(Long.toString(stored.getLogicsOffset()).getBytes(StandardCharsets.UTF_8));
        put(op);
    }

    private void putOfType(int type) throws Exception {
        MessageExtBrokerInner message = message(topic());
        message.setSysFlag(message.getSysFlag() | type);
        put(message);
    }

    private void putProducerBatch() throws Exception {
        MessageExtBatch batch = new MessageExtBatch();
        // The first entry is short: 5.1.4 cannot put a batch under a topic of more than 127 characters.
        String topic = topic();
        address(batch, topic.length() > Byte.MAX_VALUE ? topics.get(0) : topic, queueId());
        List<Message> parts = parts(batch.getTopic());
        if (random.nextBoolean()) {
            MessageAccessor.putProperty(batch, "UNIQ_KEY", uniqueKey());
        }
        if (random.nextInt(4) == 0) {
            MessageAccessor.putProperty(batch, "CLUSTER", "DefaultCluster");
        }
        batch.setBody(MessageDecoder.encodeMessages(parts));
        tick();
        OpenStore.stored(open.store.putMessages(batch));
        messages += parts.size();
    }

    /** One record that holds several messages, for a topic of type BatchCQ. */
    private void putInnerBatch() throws Exception {
        MessageExtBrokerInner message = message(BATCH_TOPICS.get(random.nextInt(BATCH_TOPICS.size())));
        if (random.nextInt(4) > 0) {
            List<Message> parts = parts(message.getTopic());
            message.setBody(MessageDecoder.encodeMessages(parts));
            // NEED_UNWRAP and INNER_BATCH; 4.x has no names for them
            message.setSysFlag(message.getSysFlag() & ~MessageSysFlag.COMPRESSED_FLAG | 0x40 | 0x80);
            MessageAccessor.putProperty(message, "INNER_NUM", String.valueOf(parts.size()));
            innerBatched += parts.size();
        } else {
            innerBatched++;
        }
        put(message);
    }

    private List<Message> parts(String topic) throws Exception {
        List<Message> parts = new ArrayList<>();
        for (int part = 1 + random.nextInt(6); part > 0; part--) {
            Message message = new Message(topic, bytes(random.nextInt(300)));
            properties(message);
            parts.add(message);
        }
        return parts;
    }

    /** The property string as some client might send it, never seen by the encoder of this release. */
    private void putOddProperties() throws Exception {
        String[] pieces = {
            "TAGS\1" + tag() + "\2", "KEYS\1a b  c\2", "KEYS\1\2", "UNIQ_KEY\1" + uniqueKey() + "\2", "DELAY\1" + "3\2",
            "x\1a\1b\2", "\1v\2", "k\1\2", "\2", "\2\2", "no separator\2", "TAGS\1first\2TAGS\1second\2", "a\1b",
            "KEYS\1 lead trail \2", "UNIQ_KEY\1\2", "\u5c5e\u6027\1\u503c\ud83d\ude00\2", "k\1\u0003\u0000\2", "TAGS\1"};
        StringBuilder odd = new StringBuilder();
        for (int piece = 1 + random.nextInt(4); piece > 0; piece--) {
            odd.append(pieces[random.nextInt(pieces.length)]);
        }
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        address(message, topic(), queueId());
        message.setBody(bytes(random.nextInt(100)));
        message.setPropertiesString(odd.toString());
        putAsIs(message);
    }

    private AppendMessageResult put(MessageExtBrokerInner message) throws Exception {
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return putAsIs(message);
    }

    private AppendMessageResult putAsIs(MessageExtBrokerInner message) throws Exception {
        tick();
        AppendMessageResult stored = OpenStore.stored(open.store.putMessage(message)).getAppendMessageResult();
        messages++;
        return stored;
    }

    /** Mostly milliseconds, sometimes none, now and then minutes or hours. */
    private void tick() {
        int size = random.nextInt(20);
        if (size == 0) {
            clock.advance(random.nextInt(10_000_000));
        } else if (size == 1 && features.contains("unsteady_clock")) {
            clock.advance(-random.nextInt(5000));
        } else if (size > 4) {
            clock.advance(random.nextInt(size > 8 ? 10 : 3000));
        }
    }

    private MessageExtBrokerInner message(String topic) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        address(message, topic, queueId());
        properties(message);
        if (features.contains("lmq") && random.nextInt(3) == 0) {
            MessageAccessor.putProperty(message, "INNER_MULTI_DISPATCH", lightQueues());
        }
        message.setFlag(random.nextInt(5) == 0 ? random.nextInt() : 0);
        message.setReconsumeTimes(random.nextInt(8) == 0 ? random.nextInt(16) : 0);
        int shape = random.nextInt(20);
        if (shape == 0) {
            message.setBody(new byte[0]);
        } else if (shape == 1) {
            message.setBody(bytes(4000 + random.nextInt(16000)));
        } else if (shape == 2) {
            message.setBody(deflated(bytes(500 + random.nextInt(2000))));
            message.setSysFlag(message.getSysFlag() | MessageSysFlag.COMPRESSED_FLAG);
        } else {
            message.setBody(bytes(random.nextInt(600)));
        }
        return message;
    }

    private void address(MessageExt message, String topic, int queueId) throws Exception {
        if (message.getProperties() == null) {
            MessageAccessor.setProperties(message, new HashMap<>());
        }
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setBornTimestamp(clock.now() - random.nextInt(5000));
        message.setBornHost(host(random.nextInt(6) == 0, 1024 + random.nextInt(60000)));
        message.setStoreHost(host(random.nextInt(6) == 0, 10911));
        // As the broker's send processor does; the store itself sets the bits for single messages only in some releases.
        if (((InetSocketAddress) message.getBornHost()).getAddress().getAddress().length == 16) {
            message.setBornHostV6Flag();
        }
        if (((InetSocketAddress) message.getStoreHost()).getAddress().getAddress().length == 16) {
            message.setStoreHostAddressV6Flag();
        }
    }

    private InetSocketAddress host(boolean v6, int port) throws Exception {
        byte[] address = {10, 1, (byte) random.nextInt(4), (byte) random.nextInt(256)};
        if (v6) {
            address = new byte[16];
            random.nextBytes(address);
            address[0] = 0x20;
        }
        return new InetSocketAddress(InetAddress.getByAddress(address), port);
    }

    private void properties(Message message) {
        if (random.nextInt(7) > 0) {
            MessageAccessor.putProperty(message, "UNIQ_KEY", uniqueKey());
        }
        if (random.nextInt(3) > 0) {
            message.setTags(tag());
        }
        int keys = random.nextInt(5);
        if (keys > 0) {
            StringBuilder text = new StringBuilder(random.nextInt(10) == 0 ? " " : "");
            for (; keys > 1; keys--) {
                text.append(key()).append(random.nextInt(4) == 0 ? "  " : " ");
            }
            MessageAccessor.putProperty(message, "KEYS", text + key());
        }
        if (random.nextInt(4) == 0) {
            MessageAccessor.putProperty(message, "trace", letters(1 + random.nextInt(200)));
        }
        if (random.nextInt(4) == 0) {
            MessageAccessor.putProperty(message, "WAIT", "true");
        }
    }

    /** Names of light queues: distinct, because a name given twice makes the writer's counters run ahead. */
    private String lightQueues() {
        List<String> names = new ArrayList<>(Arrays.asList("%LMQ%a", "%LMQ%b", "%LMQ%device-1"));
        if (random.nextInt(10) == 0) {
            names.add("not-light");
        }
        while (names.size() > 1 && random.nextBoolean()) {
            names.remove(random.nextInt(names.size()));
        }
        return String.join(",", names);
    }

    private int queueId() {
        if (features.contains("many_queues")) {  // every id from 0 to 65,535 once, the last one first
            return 0xFFFF + nextQueue++ * 40503 & 0xFFFF;
        }
        int number = random.nextInt(queues);
        return features.contains("odd_names") ? ODD_QUEUE_IDS[number] : number;
    }

    private String topic() {
        return topics.get(random.nextInt(topics.size()));
    }

    private String tag() {
        return random.nextInt(10) == 0 ? letters(random.nextInt(40)) : TAGS[random.nextInt(TAGS.length)];
    }

    private String key() {
        return KEYS[random.nextInt(KEYS.length)] + (random.nextInt(6) == 0 ? "" : random.nextInt(200));
    }

    private String uniqueKey() {
        return String.format("%016X%016X", random.nextLong(), random.nextLong());
    }

    private String letters(int length) {
        StringBuilder text = new StringBuilder();
        while (text.length() < length) {
            text.append((char) ('a' + random.nextInt(26)));
        }
        return text.toString();
    }

    private byte[] bytes(int length) {
        byte[] bytes = new byte[length];
        random.nextBytes(bytes);
        return bytes;
    }

    private static byte[] deflated(byte[] body) throws Exception {
        ByteArrayOutputStream deflated = new ByteArrayOutputStream();
        try (OutputStream out = new DeflaterOutputStream(deflated)) {
            out.write(body);
        }
        return deflated.toByteArray();
    }
}
