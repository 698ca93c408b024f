package realbroker;

import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;

/** Asks a broker for everything it serves, in every way there is: by offset, tag, key, id and time. */
final class Asking {
    private static final int BATCH = 32;
    private static final int TIME_STEP = 5;

    private final Clients clients;
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("asking");
    private final Map<String, Object> keys = new TreeMap<>();
    private final Map<String, Object> uniqueKeys = new TreeMap<>();
    private final Map<String, Object> ids = new TreeMap<>();

    Asking(Clients clients) {
        this.clients = clients;
    }

    /**
     * A step has {@code topics}. Returns {@code log} (its range, and how far dispatch is behind), {@code queues} ("topic:id" to
     * range, messages, offsets by tag and by time), {@code keys}, {@code uniqKeys} and {@code ids}: what was found, as
     * offsets in the log.
     */
    Map<String, Object> ask(JSONObject step) throws Exception {
        consumer.setNamesrvAddr(clients.nameServer);
        consumer.setInstanceName("asking-" + System.nanoTime());
        consumer.start();
        Map<String, Object> queues = new TreeMap<>();
        for (Object topic : step.getJSONArray("topics")) {
            for (Map.Entry<MessageQueue, TopicOffset> queue
                : clients.admin.examineTopicStats((String) topic).getOffsetTable().entrySet()) {
                queues.put(topic + ":" + queue.getKey().getQueueId(), ask(queue.getKey(), queue.getValue()));
            }
        }
        Map<String, String> state = clients.admin.fetchBrokerRuntimeStats(clients.broker).getTable();
        consumer.shutdown();
        Map<String, Object> log = new LinkedHashMap<>();
        for (String name : new String[] {"commitLogMinOffset", "commitLogMaxOffset", "dispatchBehindBytes"}) {
            log.put(name, Long.parseLong(state.get(name)));
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("log", log);
        answer.put("queues", queues);
        answer.put("keys", keys);
        answer.put("uniqKeys", uniqueKeys);
        answer.put("ids", ids);
        return answer;
    }

    private Map<String, Object> ask(MessageQueue queue, TopicOffset range) throws Exception {
        List<Object> messages = new ArrayList<>();
        TreeSet<Long> times = new TreeSet<>();
        TreeSet<String> tags = new TreeSet<>();
        for (MessageExt message : pull(queue, range, "*")) {
            messages.add(describe(message));
            times.add(message.getStoreTimestamp());
            if (message.getTags() != null) {
                tags.add(message.getTags());
            }
            askFor(message);
        }
        Map<String, Object> byTag = new TreeMap<>();
        for (String tag : tags) {
            byTag.put(tag, offsets(pull(queue, range, tag)));
        }
        if (tags.size() > 1) {
            String two = tags.first() + " || " + tags.last();
            byTag.put(two, offsets(pull(queue, range, two)));
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("minOffset", range.getMinOffset());
        answer.put("maxOffset", range.getMaxOffset());
        answer.put("messages", messages);
        answer.put("byTag", byTag);
        answer.put("byTime", byTime(queue, times));
        return answer;
    }

    private Map<String, Object> byTime(MessageQueue queue, TreeSet<Long> times) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        if (times.isEmpty()) {
            return found;
        }
        List<Long> asked = new ArrayList<>();
        asked.add(times.first() - 1);
        asked.add(times.last() + 1);
        List<Long> known = new ArrayList<>(times);
        for (int at = 0; at < known.size(); at += TIME_STEP) {
            asked.add(known.get(at));
            asked.add(known.get(at) + 1);
        }
        for (long time : asked) {
            found.put(String.valueOf(time), clients.admin.searchOffset(queue, time));
        }
        return found;
    }

    private List<MessageExt> pull(MessageQueue queue, TopicOffset range, String tags) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        long offset = range.getMinOffset();
        while (offset < range.getMaxOffset()) {
            PullResult result = consumer.pull(queue, tags, offset, BATCH, Clients.TIMEOUT_MS);
            if (result.getPullStatus() == PullStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException(queue + " does not get past " + offset + ": " + result);
            }
            offset = result.getNextBeginOffset();
        }
        return found;
    }

    private void askFor(MessageExt message) throws Exception {
        String topic = message.getTopic();
        if (message.getKeys() != null) {
            for (String key : message.getKeys().split(" ")) {
                String question = topic + "#" + key;
                if (!keys.containsKey(question)) {
                    keys.put(question, query(() -> clients.admin.queryMessage(topic, key, 64, 0, Long.MAX_VALUE)));
                }
            }
        }
        String unique = message.getMsgId();
        uniqueKeys.put(topic + "#" + unique, query(() -> byUniqueKey(topic, unique)));
        String id = ((MessageClientExt) message).getOffsetMsgId();
        ids.put(id, clients.admin.viewMessage(topic, id).getCommitLogOffset());
    }

    /** Calls {@code queryMessageByUniqKey}, which asks for the cluster first from 5.2 on. */
    private QueryResult byUniqueKey(String topic, String unique) throws Exception {
        for (Method method : clients.admin.getClass().getMethods()) {
            if (method.getName().equals("queryMessageByUniqKey")) {
                List<Object> arguments = new ArrayList<>(Arrays.asList(topic, unique, BATCH, 0L, Long.MAX_VALUE));
                if (method.getParameterCount() > arguments.size()) {
                    arguments.add(0, null);
                }
                try {
                    return (QueryResult) method.invoke(clients.admin, arguments.toArray());
                } catch (InvocationTargetException failed) {
                    throw (Exception) failed.getCause();
                }
            }
        }
        throw new NoSuchMethodException("queryMessageByUniqKey");
    }

    private interface Query {
        QueryResult run() throws Exception;
    }

    private static List<Long> query(Query query) throws Exception {
        TreeSet<Long> found = new TreeSet<>();
        try {
            for (MessageExt message : query.run().getMessageList()) {
                found.add(message.getCommitLogOffset());
            }
        } catch (MQClientException nothing) {
            if (!String.valueOf(nothing.getMessage()).contains("no message")) {
                throw nothing;
            }
        }
        return new ArrayList<>(found);
    }

    private static List<Object> offsets(List<MessageExt> messages) {
        List<Object> offsets = new ArrayList<>();
        for (MessageExt message : messages) {
            offsets.add(message.getQueueOffset());
        }
        return offsets;
    }

    private static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("queueOffset", message.getQueueOffset());
        row.put("commitLogOffset", message.getCommitLogOffset());
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("uniqKey", message.getMsgId());
        row.put("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("body", UtilAll.crc32(message.getBody()));
        return row;
    }
}
