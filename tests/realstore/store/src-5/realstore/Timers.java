package realstore;

import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Field;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.store.timer.TimerCheckpoint;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerMetrics;

/** What the timer of a store makes of its files when it starts; nothing is delivered. */
final class Timers {
    private Timers() {
    }

    /**
     * Loads the timer beside a store that runs, and shuts both down: wheel, log and checkpoint are on disk then. Returns
     * {@code loaded}, and {@code queue_offset}, from which message of its queue on the timer would go on.
     */
    static Map<String, Object> load(JSONObject job) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        try (OpenStore open = OpenStore.load(job, null)) {
            open.start();
            Path config = open.root.resolve("config");
            TimerMessageStore timers;
            try {
                timers = new TimerMessageStore(open.store, open.config,
                    new TimerCheckpoint(config.resolve("timercheck").toString()),
                    new TimerMetrics(config.resolve("timermetrics").toString()), null);
            } catch (RuntimeException refused) {
                found.put("loaded", false);
                found.put("queue_offset", -1);
                return found;
            }
            found.put("loaded", timers.load());
            Field offset = TimerMessageStore.class.getDeclaredField("currQueueOffset");
            offset.setAccessible(true);
            found.put("queue_offset", offset.get(timers));
            timers.getTimerWheel().flush();
            timers.shutdown();
        }
        return found;
    }
}
