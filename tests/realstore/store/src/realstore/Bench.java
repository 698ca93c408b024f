package realstore;

import com.alibaba.fastjson.JSONObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;

/** A large store of uniform messages, and how long the store's own recovery of it takes. */
final class Bench {
    private static final int BODIES = 64;
    private static final int TAGS = 8;
    /** Record head, topic and properties of these messages. */
    private static final int OVERHEAD = 190;

    private Bench() {
    }

    /**
     * Job entry: root, settings, bytes, message_bytes, topics, queues. Three index entries a message; of 40 topics the
     * first gets 29 messages in 100, the last one in 120.
     */
    static Map<String, Object> write(JSONObject job) throws Exception {
        Files.createDirectories(Paths.get(job.getString("root")));
        OpenStore open = OpenStore.load(job, null);
        open.start();
        long bytes = job.getLongValue("bytes");
        int topics = job.getIntValue("topics");
        int queues = job.getIntValue("queues");
        Random random = new Random(1);
        byte[][] bodies = bodies(random, job.getIntValue("message_bytes"));
        InetSocketAddress born = new InetSocketAddress(InetAddress.getByAddress(new byte[] {10, 1, 2, 3}), 4321);
        InetSocketAddress host = new InetSocketAddress(InetAddress.getByAddress(new byte[] {10, 1, 2, 4}), 10911);
        Map<String, String> none = new HashMap<>();
        int[] sent = new int[topics];
        long count = 0;
        long began = System.nanoTime();
        while (open.store.getMaxPhyOffset() < bytes) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            double draw = random.nextDouble();
            int topic = (int) (topics * draw * draw * draw);
            message.setTopic("bench-topic-" + topic);
            message.setQueueId(sent[topic]++ % queues);
            message.setBody(bodies[(int) (count % BODIES)]);
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(born);
            message.setStoreHost(host);
            MessageAccessor.setProperties(message, none);
            message.setPropertiesString("UNIQ_KEY\1" + hex(count * 0x9E3779B97F4A7C15L) + hex(count) + "\2KEYS\1order-"
                + count + " user-" + random.nextInt(1_000_000) + "\2TAGS\1Tag" + count % TAGS + "\2");
            OpenStore.stored(open.store.putMessage(message));
            count++;
        }
        Map<String, Object> result = timed(open, began);
        result.put("messages", count);
        open.close();
        return result;
    }

    /** Job entry: root, settings (storePathCommitLog may name a log elsewhere). Load and start, all dispatched. */
    static Map<String, Object> recover(JSONObject job) throws Exception {
        long began = System.nanoTime();
        OpenStore open = OpenStore.load(job, null);
        open.start();
        Map<String, Object> result = timed(open, began);
        long closing = System.nanoTime();
        open.close();
        result.put("shutdown_seconds", (System.nanoTime() - closing) / 1e9);
        return result;
    }

    private static Map<String, Object> timed(OpenStore open, long began) throws Exception {
        double seconds = (System.nanoTime() - began) / 1e9;
        Map<String, Object> result = new LinkedHashMap<>(open.describe());
        result.put("seconds", seconds);
        return result;
    }

    /** Bodies of slightly different lengths, so that records lie at no regular distance. */
    private static byte[][] bodies(Random random, int messageBytes) {
        byte[][] bodies = new byte[BODIES][];
        for (int i = 0; i < BODIES; i++) {
            bodies[i] = new byte[Math.max(1, messageBytes - OVERHEAD + random.nextInt(17) - 8)];
            random.nextBytes(bodies[i]);
        }
        return bodies;
    }

    private static String hex(long value) {
        char[] digits = new char[16];
        for (int i = 15; i >= 0; i--, value >>>= 4) {
            digits[i] = "0123456789ABCDEF".charAt((int) (value & 15));
        }
        return new String(digits);
    }
}
