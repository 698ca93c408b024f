package realstore;

import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;

/** Opens a store as a broker would, asks it everything it can be asked, and lets it take further messages. */
final class Answers {
    private static final int MAX_NUM = 64;
    private static final int TIMES = 40;
    private static final String GROUP = "judge";
    private static final int PHYSICAL_OFFSET_AT = 28;
    private static final int MOST_PULLED = 100_000;

    private final OpenStore open;
    private final DefaultMessageStore store;

    private Answers(OpenStore open) {
        this.open = open;
        this.store = open.store;
    }

    /** Job entry: root, settings, put (one message more for every queue), ask, pull, may_fail. */
    static Map<String, Object> open(JSONObject job) throws Exception {
        OpenStore open = OpenStore.load(job, null);
        if (!open.loaded) {
            return open.describe();
        }
        open.start();
        Answers answers = new Answers(open);
        Map<String, Object> result = new LinkedHashMap<>(open.describe());
        if (job.getBooleanValue("ask")) {
            result.put("answers", answers.all());
        }
        if (job.getBooleanValue("pull")) {
            result.put("pulled", answers.pulled());
        }
        if (job.getBooleanValue("put")) {
            result.put("put", answers.putOnePerQueue());
        }
        open.close();
        return result;
    }

    private Map<String, Object> all() throws Exception {
        TreeSet<Long> storeTimes = new TreeSet<>();
        Set<List<String>> keys = new LinkedHashSet<>();
        readLog(storeTimes, keys);
        List<Long> times = sample(storeTimes);
        List<Object> queues = new ArrayList<>();
        for (Map.Entry<String, List<Integer>> topic : open.queues().entrySet()) {
            for (int queueId : topic.getValue()) {
                queues.add(queue(topic.getKey(), queueId, times));
            }
        }
        List<Object> queries = new ArrayList<>();
        for (List<String> key : keys) {
            Map<String, Object> query = query(key.get(0), key.get(1), key.get(2));
            if (query != null) {
                queries.add(query);
            }
        }
        Map<String, Object> answers = new LinkedHashMap<>();
        answers.put("minPhyOffset", store.getMinPhyOffset());
        answers.put("maxPhyOffset", store.getMaxPhyOffset());
        answers.put("times", times);
        answers.put("queues", queues);
        answers.put("queries", queries);
        return answers;
    }

    /** Walks the log record by record; collects store times and (type, topic, key) of everything indexable. */
    private void readLog(Set<Long> times, Set<List<String>> keys) {
        long segment = open.config.getMappedFileSizeCommitLog();
        long offset = store.getMinPhyOffset();
        while (offset < store.getMaxPhyOffset()) {
            MessageExt message = store.lookMessageByOffset(offset);
            if (message == null || message.getStoreSize() <= 0) {
                offset = offset - offset % segment + segment;
                continue;
            }
            times.add(message.getStoreTimestamp());
            for (String key : (message.getProperty("UNIQ_KEY") + " " + message.getKeys()).split(" ")) {
                if (!key.isEmpty() && !key.equals("null")) {
                    keys.add(Arrays.asList("K", message.getTopic(), key));
                }
            }
            if (message.getTags() != null) {
                keys.add(Arrays.asList("T", message.getTopic(), message.getTags()));
            }
            offset += message.getStoreSize();
        }
    }

    private static List<Long> sample(TreeSet<Long> storeTimes) {
        TreeSet<Long> times = new TreeSet<>();
        List<Long> all = new ArrayList<>(storeTimes);
        for (int i = 0; i < TIMES && !all.isEmpty(); i++) {
            long time = all.get((int) ((long) i * (all.size() - 1) / (TIMES - 1)));
            times.add(time + i % 3 - 1);
        }
        if (!all.isEmpty()) {
            times.add(all.get(0) - 1000);
            times.add(all.get(all.size() - 1) + 1000);
        }
        return new ArrayList<>(times);
    }

    private Map<String, Object> queue(String topic, int queueId, List<Long> times) throws Exception {
        Map<String, Object> queue = open.describe(topic, queueId);
        List<Object> offsetByTime = new ArrayList<>();
        List<Object> upperOffsetByTime = new ArrayList<>();
        for (long time : times) {
            offsetByTime.add(store.getOffsetInQueueByTime(topic, queueId, time));
            upperOffsetByTime.add(Release.upperOffsetByTime(store, topic, queueId, time));
        }
        queue.put("offsetByTime", offsetByTime);
        queue.put("upperOffsetByTime", upperOffsetByTime);
        List<Long> commitLogOffsets = new ArrayList<>();
        List<Long> queueOffsets = new ArrayList<>();
        List<Integer> sizes = new ArrayList<>();
        long next = (Long) queue.get("minOffset");
        long max = (Long) queue.get("maxOffset");
        while (next < max) {
            GetMessageResult result = store.getMessage(GROUP, topic, queueId, next, 32, null);
            if (result.getStatus() != GetMessageStatus.FOUND) {
                queue.put("notFoundAt", next);
                queue.put("status", result.getStatus().toString());
                result.release();
                break;
            }
            for (ByteBuffer record : result.getMessageBufferList()) {
                MessageExt message = MessageDecoder.decode(record);
                commitLogOffsets.add(message.getCommitLogOffset());
                queueOffsets.add(message.getQueueOffset());
                sizes.add(message.getStoreSize());
            }
            next = result.getNextBeginOffset();
            result.release();
        }
        queue.put("commitLogOffsets", commitLogOffsets);
        queue.put("queueOffsets", queueOffsets);
        queue.put("sizes", sizes);
        return queue;
    }

    /** Returns null for a query by tag where the release has none. */
    /** What a consumer gets that asks each queue for one message after the other: (offset to ask for next, its record's
     *  offset in the log) of each. */
    private List<Object> pulled() throws Exception {
        List<Object> queues = new ArrayList<>();
        for (Map.Entry<String, List<Integer>> topic : open.queues().entrySet()) {
            for (int queueId : topic.getValue()) {
                Map<String, Object> queue = open.describe(topic.getKey(), queueId);
                List<Object> records = new ArrayList<>();
                long next = (Long) queue.get("minOffset");
                while (next < (Long) queue.get("maxOffset") && records.size() < MOST_PULLED) {
                    GetMessageResult result = store.getMessage(GROUP, topic.getKey(), queueId, next, 1, null);
                    for (ByteBuffer record : result.getMessageBufferList()) {
                        if (record.getInt(record.position()) == record.remaining()) {  // a client can decode it
                            records.add(Arrays.asList(result.getNextBeginOffset(),
                                record.getLong(record.position() + PHYSICAL_OFFSET_AT)));
                        }
                    }
                    result.release();
                    if (result.getNextBeginOffset() <= next) {
                        break;
                    }
                    next = result.getNextBeginOffset();
                }
                queue.put("records", records);
                queues.add(queue);
            }
        }
        return queues;
    }

    private Map<String, Object> query(String type, String topic, String key) throws Exception {
        QueryMessageResult result;
        if (type.equals("K")) {
            result = store.queryMessage(topic, key, MAX_NUM, 0, Long.MAX_VALUE);
        } else {
            Method typed = typedQuery();
            if (typed == null) {
                return null;
            }
            result = (QueryMessageResult) typed.invoke(store, topic, key, MAX_NUM, 0L, Long.MAX_VALUE, type, null);
        }
        List<Long> offsets = new ArrayList<>();
        for (ByteBuffer record : result.getMessageBufferList()) {
            offsets.add(record.getLong(record.position() + PHYSICAL_OFFSET_AT));
        }
        Collections.sort(offsets);
        result.release();
        Map<String, Object> query = new LinkedHashMap<>();
        query.put("type", type);
        query.put("topic", topic);
        query.put("key", key);
        query.put("maxNum", MAX_NUM);
        query.put("begin", 0);
        query.put("end", Long.MAX_VALUE);
        query.put("commitLogOffsets", offsets);
        return query;
    }

    private static Method typedQuery() {
        for (Method method : DefaultMessageStore.class.getMethods()) {
            if (method.getName().equals("queryMessage") && method.getParameterCount() == 7) {
                return method;
            }
        }
        return null;
    }

    /** Light queues are left out: a broker fills them through other topics only. */
    private List<Object> putOnePerQueue() throws Exception {
        List<Map<String, Object>> puts = new ArrayList<>();
        for (Map.Entry<String, List<Integer>> topic : open.queues().entrySet()) {
            for (int queueId : topic.getKey().startsWith("%LMQ%") ? Collections.<Integer>emptyList()
                : topic.getValue()) {
                puts.add(put(topic.getKey(), queueId));
            }
        }
        open.awaitDispatch();
        for (Map<String, Object> put : puts) {
            GetMessageResult result = store.getMessage(GROUP, (String) put.get("topic"), (Integer) put.get("queueId"),
                (Long) put.get("queueOffset"), 1, null);
            boolean served = result.getStatus() == GetMessageStatus.FOUND
                && MessageDecoder.decode(result.getMessageBufferList().get(0)).getCommitLogOffset()
                == (Long) put.get("commitLogOffset");
            put.put("served", served);
            result.release();
        }
        return new ArrayList<>(puts);
    }

    private Map<String, Object> put(String topic, int queueId) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setBody("one more".getBytes(StandardCharsets.UTF_8));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress(InetAddress.getByAddress(new byte[] {10, 1, 2, 3}), 4321));
        message.setStoreHost(new InetSocketAddress(InetAddress.getByAddress(new byte[] {10, 1, 2, 4}), 10911));
        MessageAccessor.setProperties(message, new HashMap<>());
        message.setPropertiesString("");
        AppendMessageResult stored = OpenStore.stored(store.putMessage(message)).getAppendMessageResult();
        Map<String, Object> put = new LinkedHashMap<>();
        put.put("topic", topic);
        put.put("queueId", queueId);
        put.put("queueOffset", stored.getLogicsOffset());
        put.put("commitLogOffset", stored.getWroteOffset());
        return put;
    }
}
