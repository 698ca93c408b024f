package realstore;

import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;

/** What a broker does to its store, and with it, once it is up: expiry of segments, delivery of delayed messages. */
final class Aftermath {
    private static final int CLEANINGS = 4;

    private Aftermath() {
    }

    /** Runs the cleaning that a broker runs every ten seconds, until it has nothing to do, by the settings told. */
    static Map<String, Object> clean(JSONObject job) throws Exception {
        OpenStore open = OpenStore.load(job, null);
        open.start();
        Field field = DefaultMessageStore.class.getDeclaredField("cleanCommitLogService");
        field.setAccessible(true);
        Object service = field.get(open.store);
        Method run = service.getClass().getDeclaredMethod("run");
        run.setAccessible(true);
        for (int i = 0; i < CLEANINGS; i++) {  // ten segments each
            run.invoke(service);
        }
        return open.describe();  // a full disk is never closed cleanly
    }

    /** Puts {@code count} messages of a kilobyte, and says how many of them the store has taken. */
    static Map<String, Object> fill(JSONObject job) throws Exception {
        OpenStore open = OpenStore.load(job, null);
        open.start();
        InetSocketAddress host = new InetSocketAddress(InetAddress.getByAddress(new byte[] {10, 1, 2, 3}), 4321);
        int taken = 0;
        for (int i = 0; i < job.getIntValue("count"); i++) {
            taken += Release.put(open.store, "Filling", new byte[1024], host) ? 1 : 0;
        }
        Map<String, Object> described = open.describe();
        described.put("taken", taken);
        return described;
    }

    /** Puts a message of delay level 1, and waits for its delivery; {@code delivered} says whether that came. */
    static Map<String, Object> deliver(JSONObject job) throws Exception {
        OpenStore open = OpenStore.load(job, null);
        open.start();
        String topic = "Delivered";
        Release.startDelivery(open.store, topic);
        long deadline = System.currentTimeMillis() + job.getIntValue("wait_ms");
        while (open.store.getMaxOffsetInQueue(topic, 0) == 0 && System.currentTimeMillis() < deadline) {
            Thread.sleep(20);
        }
        Map<String, Object> described = open.describe();
        described.put("delivered", open.store.getMaxOffsetInQueue(topic, 0) > 0);
        open.close();
        return described;
    }
}
