package realbroker;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages of every kind, one after the other, and says what the broker answered to each: {@code kind, topic,
 * queueId, queueOffset, uniqKey, offsetMsgId, tags, keys, fate}.
 *
 * <p>For delayed, timed and half messages the broker answers with the place where the message waits.
 */
final class Sending {
    private static final String[] TAGS = {"red", "green", "\u9752", "AaAa", "BBBB"};  // the last two: one hash code
    private static final int QUEUES = 4;

    private final Clients clients;
    private final List<Object> sent = new ArrayList<>();

    Sending(Clients clients) {
        this.clients = clients;
    }

    /** A step has {@code round} (in all keys, and first of all kinds to create topics) and a count for each kind. */
    List<Object> send(JSONObject step) throws Exception {
        String round = step.getString("round");
        for (Object topic : step.getJSONArray("create")) {
            TopicConfig config = new TopicConfig((String) topic, QUEUES, QUEUES);
            clients.admin.createAndUpdateTopicConfig(clients.broker, config);
        }
        TransactionMQProducer producer = new TransactionMQProducer("sending");
        producer.setNamesrvAddr(clients.nameServer);
        producer.setInstanceName("sending");
        producer.setSendMsgTimeout(Clients.TIMEOUT_MS);
        producer.setTransactionListener(new Decider());
        producer.start();
        for (Map.Entry<String, Object> kind : step.getJSONObject("counts").entrySet()) {
            for (int number = 0; number < (Integer) kind.getValue(); number++) {
                send(producer, kind.getKey(), round, number);
            }
        }
        producer.shutdown();
        return sent;
    }

    private void send(TransactionMQProducer producer, String kind, String round, int number) throws Exception {
        String key = kind + "-" + round + "-" + number;
        switch (kind) {
            case "normal":
                Message normal = message("Normal", "", key + " group-" + number % 7, 900 + number * 37 % 1200);
                note(kind, normal, sending(() -> producer.send(normal)), "");
                break;
            case "large":  // compressed by the client
                Message large = message("Normal", "", key, 9_000);
                note(kind, large, sending(() -> producer.send(large)), "");
                break;
            case "tagged":
                Message tagged = message("Tagged", TAGS[number % TAGS.length], key, 300);
                note(kind, tagged, sending(() -> producer.send(tagged)), "");
                break;
            case "batch":
                sendBatch(producer, key);
                break;
            case "delayed":
                Message delayed = message("Delayed", "late", key, 200);
                delayed.setDelayTimeLevel(number % 2 == 0 ? 1 : 18);
                note(kind, delayed, sending(() -> producer.send(delayed)), number % 2 == 0 ? "delivered" : "waiting");
                break;
            case "timed":
                Message timed = message("Delayed", "timed", key, 200);
                timed.setDelayTimeSec(3_600);
                note(kind, timed, sending(() -> producer.send(timed)), "waiting");
                break;
            case "soon":  // due when its sender is gone
                Message soon = message("Delayed", "soon", key, 200);
                soon.setDelayTimeSec(45);
                note(kind, soon, sending(() -> producer.send(soon)), "waiting");
                break;
            case "brief":  // due while its sender still asks
                Message brief = message("Delayed", "brief", key, 200);
                brief.setDelayTimeSec(3);
                note(kind, brief, sending(() -> producer.send(brief)), "waiting");
                break;
            case "transaction":
                Message half = message("Transaction", "", key, 200);
                LocalTransactionState fate = LocalTransactionState.values()[number % 3];
                note(kind, half, sending(() -> producer.sendMessageInTransaction(half, fate)), fate.name());
                break;
            default:
                throw new IllegalArgumentException("no such kind: " + kind);
        }
    }

    private void sendBatch(DefaultMQProducer producer, String key) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int member = 0; member < 5; member++) {
            batch.add(message("Batch", "", key + "-" + member, 150));
        }
        SendResult result = sending(() -> producer.send((Collection<Message>) batch));
        String[] ids = result.getOffsetMsgId().split(",");
        String[] uniqueKeys = result.getMsgId().split(",");
        for (int member = 0; member < ids.length; member++) {
            note("batch", batch.get(member), uniqueKeys[member], ids[member], result, member, "");
        }
    }

    private static Message message(String topic, String tags, String keys, int bodySize) {
        String phrase = keys + " / ";
        String body = String.join("", Collections.nCopies(bodySize / phrase.length() + 1, phrase));
        return new Message(topic, tags, keys, body.substring(0, bodySize).getBytes(StandardCharsets.UTF_8));
    }

    /** A route to a topic just made, or to a broker just started, takes a moment to spread. */
    private static SendResult sending(Callable<SendResult> call) throws Exception {
        long deadline = System.currentTimeMillis() + Clients.PATIENCE_MS;
        while (true) {
            try {
                SendResult result = call.call();
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IllegalStateException("not sent: " + result);
                }
                return result;
            } catch (MQClientException failure) {
                boolean noRoute = String.valueOf(failure.getMessage()).contains("No route info");
                if (!noRoute || System.currentTimeMillis() > deadline) {
                    throw failure;
                }
                Thread.sleep(200);
            }
        }
    }

    private void note(String kind, Message message, SendResult result, String fate) {
        note(kind, message, result.getMsgId(), result.getOffsetMsgId(), result, 0, fate);
    }

    private void note(
        String kind, Message message, String uniqueKey, String id, SendResult result, int member, String fate) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("kind", kind);
        row.put("topic", message.getTopic());
        row.put("queueId", result.getMessageQueue().getQueueId());
        row.put("queueOffset", result.getQueueOffset() + member);
        row.put("uniqKey", uniqueKey);
        row.put("offsetMsgId", id);
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("fate", fate);
        sent.add(row);
    }

    /** Ends a transaction as its sender said it should. */
    private static final class Decider implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object fate) {
            return (LocalTransactionState) fate;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }
}
