package realstore;

import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Constructor;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What differs in 4.x: the store would deliver delayed messages itself, and knows no topic types. */
final class Release {
    private Release() {
    }

    static DefaultMessageStore create(MessageStoreConfig config, List<String> batchTopics) throws Exception {
        if (!batchTopics.isEmpty()) {
            throw new IllegalArgumentException("4.x has no batch consume queues");
        }
        return new DefaultMessageStore(config, stats(), (topic, queueId, offset, tag, time, bits, properties) -> { },
            new BrokerConfig()) {
            @Override
            public void handleScheduleMessageService(BrokerRole role) {
            }
        };
    }

    /** 4.x has one boundary only. */
    static Long upperOffsetByTime(DefaultMessageStore store, String topic, int queueId, long time) {
        return null;
    }

    static Map<String, Object> loadTimers(JSONObject job) {
        throw new IllegalArgumentException("4.x has no timer");
    }

    static Map<String, Object> rocksdbPairs(JSONObject job) {
        throw new IllegalArgumentException("4.x has no queues in RocksDB");
    }

    /** The store itself moves a message with a delay level to the schedule topic. */
    static void prepareDelay(MessageExtBrokerInner message) {
    }

    /** Starts the delivery of delayed messages, which the store itself does in 4.x, and puts one. */
    static void startDelivery(DefaultMessageStore store, String topic) throws Exception {
        Object schedule = DefaultMessageStore.class.getMethod("getScheduleMessageService").invoke(store);
        schedule.getClass().getMethod("start").invoke(schedule);
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setBody(new byte[] {1});
        message.setBornTimestamp(System.currentTimeMillis());
        InetSocketAddress host = new InetSocketAddress(InetAddress.getByAddress(new byte[] {10, 1, 2, 3}), 4321);
        message.setBornHost(host);
        message.setStoreHost(host);
        message.setDelayTimeLevel(1);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        OpenStore.stored(store.putMessage(message));
    }

    /** Returns whether the store has taken a message. */
    static boolean put(DefaultMessageStore store, String topic, byte[] body, InetSocketAddress host) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(host);
        message.setStoreHost(host);
        message.setPropertiesString("");
        return store.putMessage(message).isOk();
    }

    private static BrokerStatsManager stats() throws Exception {
        for (Constructor<?> constructor : BrokerStatsManager.class.getConstructors()) {
            return (BrokerStatsManager) (constructor.getParameterCount() == 1
                ? constructor.newInstance("test") : constructor.newInstance("test", false));
        }
        throw new IllegalStateException("BrokerStatsManager has no constructor");
    }
}
