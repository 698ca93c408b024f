package realbroker;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** One member of a consumer group: takes messages, commits what it took, and leaves. */
final class Consuming {
    private static final int QUIET_MS = 3_000;

    private Consuming() {
    }

    /**
     * A step has {@code group, topic} and {@code messages}, how many to take at least; {@code to_the_end} goes on until
     * no more come. Returns {@code took} ([queue id, queue offset] in the order they came) and {@code committed}, the
     * offsets of the group by queue id as the broker has them after it.
     */
    static Map<String, Object> consume(Clients clients, JSONObject step) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(step.getString("group"));
        consumer.setNamesrvAddr(clients.nameServer);
        consumer.setInstanceName("consuming-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(8);
        consumer.subscribe(step.getString("topic"), "*");
        consumer.start();
        List<Object> took = new ArrayList<>();
        long deadline = System.currentTimeMillis() + Clients.PATIENCE_MS;
        long last = System.currentTimeMillis();
        int wanted = step.getIntValue("messages");
        boolean toTheEnd = step.getBooleanValue("to_the_end");
        while (System.currentTimeMillis() < deadline) {
            boolean enough = took.size() >= wanted;
            if (enough && (!toTheEnd || System.currentTimeMillis() > last + QUIET_MS)) {
                break;
            }
            List<MessageExt> messages = consumer.poll(200);
            for (MessageExt message : messages) {
                took.add(Arrays.asList(message.getQueueId(), message.getQueueOffset()));
                last = System.currentTimeMillis();
            }
        }
        Map<MessageQueue, Long> consumed = new LinkedHashMap<>();
        for (Object pair : took) {
            List<?> at = (List<?>) pair;
            for (MessageQueue queue : consumer.assignment()) {
                if (queue.getQueueId() == (Integer) at.get(0)) {
                    consumed.merge(queue, (Long) at.get(1) + 1, Math::max);
                }
            }
        }
        commit(consumer, consumed, deadline);
        Map<String, Object> committed = new TreeMap<>();
        consumed.forEach((queue, offset) -> committed.put(String.valueOf(queue.getQueueId()), offset));
        consumer.shutdown();
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("took", took);
        answer.put("committed", committed);
        return answer;
    }

    /** Commits until the broker has it: a commit is a request without an answer, and may be lost. */
    private static void commit(DefaultLitePullConsumer consumer, Map<MessageQueue, Long> consumed, long deadline)
        throws Exception {
        for (Map.Entry<MessageQueue, Long> entry : consumed.entrySet()) {
            MessageQueue queue = entry.getKey();
            while (consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE) < entry.getValue()) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("not committed: " + entry);
                }
                consumer.commit(consumed, true);
                Thread.sleep(100);
            }
        }
    }
}
