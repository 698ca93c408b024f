package realbroker;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;

/** One member of a group whose messages the broker hands out one by one (POP), each to be acknowledged. */
final class Popping {
    private static final int QUIET_MS = 5_000;
    private static final int INVISIBLE_MS = 10_000;
    private static final int ATTEMPTS = 4;

    private Popping() {
    }

    /**
     * A step has {@code group, topic, messages} (how many to take at least). Returns {@code took}: the keys of the
     * messages, in the order they came; ends when no more come. On a slow machine a client that does not hear of its
     * assignment in time pulls instead: then another group tries it. {@code group} is the last one, {@code popped} says
     * whether it was served by POP.
     */
    static Map<String, Object> pop(Clients clients, JSONObject step) throws Exception {
        String group = step.getString("group");
        for (int attempt = 1; attempt <= ATTEMPTS; attempt++) {
            AtomicBoolean pulled = new AtomicBoolean();
            List<Object> took = take(clients, step, group, pulled);
            if (!pulled.get() || !step.getBooleanValue("new_group") || attempt == ATTEMPTS) {
                Map<String, Object> answer = new LinkedHashMap<>();
                answer.put("group", group);
                answer.put("popped", !pulled.get());
                answer.put("took", took);
                return answer;
            }
            group = step.getString("group") + "-" + attempt;
        }
        throw new IllegalStateException("no attempt");
    }

    private static List<Object> take(Clients clients, JSONObject step, String group, AtomicBoolean pulled)
        throws Exception {
        String topic = step.getString("topic");
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
                if (message.getProperty(MessageConst.PROPERTY_POP_CK) == null) {
                    pulled.set(true);
                }
            }
            last.set(System.currentTimeMillis());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long deadline = System.currentTimeMillis() + Clients.PATIENCE_MS;
        while (System.currentTimeMillis() < deadline
            && (took.size() < step.getIntValue("messages") || System.currentTimeMillis() < last.get() + QUIET_MS)) {
            Thread.sleep(100);
        }
        consumer.shutdown();
        return new ArrayList<>(took);
    }
}
