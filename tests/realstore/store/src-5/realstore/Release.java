package realstore;

import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What differs in 5.x: topics have types, and the broker, not the store, handles delayed messages. */
final class Release {
    private Release() {
    }

    static DefaultMessageStore create(MessageStoreConfig config, List<String> batchTopics) throws Exception {
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        for (String name : batchTopics) {
            TopicConfig topic = new TopicConfig(name);
            topic.setAttributes(Collections.singletonMap("queue.type", "BatchCQ"));
            topics.put(name, topic);
        }
        BrokerStatsManager stats = new BrokerStatsManager("test", false);
        MessageArrivingListener listener = (topic, queueId, offset, tag, time, bits, properties) -> { };
        if (config.getStoreType().equals("defaultRocksDB")) {  // 5.2.0 and later
            return (DefaultMessageStore) Class.forName("org.apache.rocketmq.store.RocksDBMessageStore")
                .getConstructor(MessageStoreConfig.class, BrokerStatsManager.class, MessageArrivingListener.class,
                    BrokerConfig.class, ConcurrentMap.class)
                .newInstance(config, stats, listener, new BrokerConfig(), topics);
        }
        return new DefaultMessageStore(config, stats, listener, new BrokerConfig(), topics);
    }

    /** Returns the queue offset of a time with the upper boundary; the interface has the lower one alone. */
    static Long upperOffsetByTime(DefaultMessageStore store, String topic, int queueId, long time) {
        return store.getOffsetInQueueByTime(topic, queueId, time, BoundaryType.UPPER);
    }

    /** Returns whether the store has taken a message. */
    static boolean put(DefaultMessageStore store, String topic, byte[] body, InetSocketAddress host) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(host);
        message.setStoreHost(host);
        MessageAccessor.setProperties(message, new HashMap<>());
        message.setPropertiesString("");
        return store.putMessage(message).isOk();
    }

    static void startDelivery(DefaultMessageStore store, String topic) {
        throw new IllegalArgumentException("in 5.x the broker delivers, not the store");
    }

    static Map<String, Object> loadTimers(JSONObject job) throws Exception {
        return Timers.load(job);
    }

    static Map<String, Object> rocksdbPairs(JSONObject job) throws Exception {
        return RocksQueues.pairs(job);
    }

    /** Does what the broker's put hook does with a message that has a delay level. */
    static void prepareDelay(MessageExtBrokerInner message) {
        int level = message.getDelayTimeLevel();
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID,
            String.valueOf(message.getQueueId()));
        message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
        message.setQueueId(level - 1);
    }
}
