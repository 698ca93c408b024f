package realbroker;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;

/** One member of a group whose messages the broker hands out one by one (POP), each to be acknowledged. */
final class Popping {
    private static final int QUIET_MS = 5_000;
    private static final int INVISIBLE_MS = 10_000;

    private Popping() {
    }

    /**
     * A step has {@code group, topic, messages} (how many to take at least) and {@code for_good}: false leaves what comes
     * unacknowledged. Returns {@code took}: the keys of the messages, in the order they came; ends when no more come.
     */
    static Map<String, Object> pop(Clients clients, JSONObject step) throws Exception {
        String topic = step.getString("topic");
        String group = step.getString("group");
        boolean forGood = step.getBooleanValue("for_good");
        List<Object> took = Collections.synchronizedList(new ArrayList<>());
        AtomicLong last = new AtomicLong(System.currentTimeMillis());
        clients.admin.setMessageRequestMode(clients.broker, topic, group, MessageRequestMode.POP, 0, Clients.TIMEOUT_MS);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(clients.nameServer);
        consumer.setInstanceName("popping-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(INVISIBLE_MS);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                took.add(message.getKeys());
            }
            last.set(System.currentTimeMillis());
            if (!forGood) {
                park();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long deadline = System.currentTimeMillis() + Clients.PATIENCE_MS;
        while (System.currentTimeMillis() < deadline
            && (took.size() < step.getIntValue("messages") || System.currentTimeMillis() < last.get() + QUIET_MS)) {
            Thread.sleep(100);
        }
        if (forGood) {
            consumer.shutdown();
        }
        return Collections.singletonMap("took", new ArrayList<>(took));
    }

    private static void park() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }
}
