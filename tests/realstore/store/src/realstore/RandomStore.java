package realstore;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.SplittableRandom;

/** Writes a store that follows from a seed alone: its settings, its messages, its clock. */
final class RandomStore {
    static final long EPOCH = 1_700_000_000_000L;

    private RandomStore() {
    }

    /** Job entry: root, seed, features, settings (they win over the seed's), messages (0: the seed's), halt. */
    static Map<String, Object> write(JSONObject job) throws Exception {
        Random random = new Random(new SplittableRandom(job.getLongValue("seed")).nextLong());
        List<String> features = features(job.getJSONArray("features"));
        Map<String, Object> settings = settings(random, features);
        if (features.contains("multi_path")) {
            String log = Paths.get(job.getString("root"), "commitlog").toString();
            settings.put("storePathCommitLog", log + "-b," + log + "-a");
        }
        if (features.contains("read_only_path")) {
            String log = Paths.get(job.getString("root"), "commitlog").toString();
            settings.put("storePathCommitLog", log + "-c," + log + "-b");
            settings.put("readOnlyCommitLogStorePaths", log + "-a");
        }
        settings.putAll(job.getJSONObject("settings"));
        job.put("settings", new JSONObject(settings));
        int steps = job.getIntValue("messages") > 0 ? job.getIntValue("messages") : 80 + random.nextInt(220);

        Path root = Files.createDirectories(Paths.get(job.getString("root")));
        OpenStore.Clock clock = new OpenStore.Clock(EPOCH + random.nextInt(1_000_000_000));
        RandomMessages messages = new RandomMessages(random, clock, features);
        if (features.contains("mixed_log")) {
            writeBefore(job, Collections.singletonMap(DLedgerGroup.SWITCH, false), clock, messages, steps / 2);
        }
        if (features.contains("read_only_path")) {
            String readOnly = settings.get("readOnlyCommitLogStorePaths").toString();
            Map<String, Object> before = new LinkedHashMap<>();
            before.put("storePathCommitLog", readOnly + "," + settings.get("storePathCommitLog"));
            before.put("readOnlyCommitLogStorePaths", "");
            writeBefore(job, before, clock, messages, steps / 2);
        }
        OpenStore open = OpenStore.load(job, clock);
        open.start();
        messages.putInto(open);
        for (int step = 0; step < steps; step++) {
            messages.putSomething();
        }
        // A store that ends in a record without queue entry makes 4.x dispatch, and index, that record again.
        messages.putPlain();
        open.awaitDispatch();

        Map<String, Object> written = new LinkedHashMap<>();
        written.put("seed", job.getLongValue("seed"));
        written.put("features", features);
        written.put("settings", settings);
        written.put("counts", messages.counts());
        written.putAll(open.describe());
        if (!job.getBooleanValue("halt")) {
            open.close();
        }
        return written;
    }

    /** What the broker wrote when it had other settings: alone, or with a path that has since become read-only. */
    private static void writeBefore(JSONObject job, Map<String, Object> other, OpenStore.Clock clock,
        RandomMessages messages, int steps) throws Exception {
        JSONObject settings = new JSONObject(new LinkedHashMap<>(job.getJSONObject("settings")));
        settings.putAll(other);
        JSONObject before = new JSONObject(new LinkedHashMap<>(job));
        before.put("settings", settings);
        try (OpenStore open = OpenStore.load(before, clock)) {
            open.start();
            messages.putInto(open);
            for (int step = 0; step < steps; step++) {
                messages.putSomething();
            }
            messages.putPlain();
        }
    }

    private static List<String> features(JSONArray names) {
        List<String> features = new ArrayList<>();
        for (Object name : names) {
            if (!RandomMessages.FEATURES.contains(name)) {
                throw new IllegalArgumentException("no such feature: " + name);
            }
            features.add((String) name);
        }
        return features;
    }

    private static Map<String, Object> settings(Random random, List<String> features) {
        Map<String, Object> settings = new LinkedHashMap<>();
        settings.put("mappedFileSizeCommitLog", pick(random, 65536, 65536, 65536, 49152, 131072));
        settings.put("mappedFileSizeConsumeQueue", pick(random, 1000, 1000, 400, 990, 2000));
        settings.put("maxHashSlotNum", pick(random, 100, 100, 37, 500));
        settings.put("maxIndexNum", pick(random, 60, 60, 41, 250));
        if (random.nextInt(8) == 0) {
            settings.put("messageDelayLevel", "1s 7s 1m 90m 3h 2d");
        }
        if (features.contains("dledger") || features.contains("mixed_log")) {
            settings.put(DLedgerGroup.SWITCH, true);
        }
        if (features.contains("lmq")) {
            settings.put("enableLmq", true);
            settings.put("enableMultiDispatch", true);
        }
        if (features.contains("cq_ext")) {
            settings.put("enableConsumeQueueExt", true);
            settings.put("mappedFileSizeConsumeQueueExt", pick(random, 1000, 4096));
        }
        if (features.contains("property_crc")) {
            settings.put("enabledAppendPropCRC", true);
        }
        if (features.contains("batch_cq")) {
            settings.put("mapperFileSizeBatchConsumeQueue", pick(random, 460, 920));
            settings.put("batch_topics", RandomMessages.BATCH_TOPICS);
        }
        return settings;
    }

    private static int pick(Random random, int... choices) {
        return choices[random.nextInt(choices.length)];
    }
}
