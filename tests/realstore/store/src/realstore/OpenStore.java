package realstore;

import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.store.CommitLogDispatcher;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A running DefaultMessageStore: no delivery, no expiry, free port; everything is dispatched before it closes. */
final class OpenStore implements AutoCloseable {
    private static final long DISPATCH_TIMEOUT_MS =
        Long.getLong("realstore.dispatchTimeoutMs", 600_000);
    private static final String BATCH_TOPICS = "batch_topics";

    /** Keep the machine out of it: no expiry by age or disk space, no refusal while it is busy, no fixed port, no
     *  services beside the store. */
    private static final Map<String, Object> SURROUNDINGS = new LinkedHashMap<>();

    static {
        SURROUNDINGS.put("haListenPort", 0);
        SURROUNDINGS.put("fileReservedTime", 24 * 365 * 100);
        SURROUNDINGS.put("diskMaxUsedSpaceRatio", 99);
        SURROUNDINGS.put("cleanFileForciblyEnable", false);
        SURROUNDINGS.put("osPageCacheBusyTimeOutMills", 600_000);
        SURROUNDINGS.put("timerWheelEnable", false);
        SURROUNDINGS.put("enableCompaction", false);
        SURROUNDINGS.put("dLegerGroup", "group");
        SURROUNDINGS.put("dLegerSelfId", "n0");
    }

    /** A clock that only its owner moves: store times then follow from the seed, and may lie hours apart. */
    static final class Clock extends SystemClock {
        private volatile long now;

        Clock(long now) {
            this.now = now;
        }

        void advance(long millis) {
            now += millis;
        }

        @Override
        public long now() {
            return now;
        }
    }

    final Path root;
    final MessageStoreConfig config;
    final DefaultMessageStore store;
    final boolean loaded;
    private long loadedMaxOffset;

    private final Map<String, Object> known;

    private OpenStore(Path root, MessageStoreConfig config, DefaultMessageStore store, Map<String, Object> known) {
        this.root = root;
        this.known = known;
        this.config = config;
        this.store = store;
        this.loaded = store.load();
        this.loadedMaxOffset = loaded ? store.getMaxPhyOffset() : -1;
    }

    /** Returns the store of a job entry, loaded but not started. A null clock leaves the wall clock. */
    static OpenStore load(JSONObject job, Clock clock) throws Exception {
        Path root = Paths.get(job.getString("root"));
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        for (Map.Entry<String, Object> setting : SURROUNDINGS.entrySet()) {
            set(config, setting.getKey(), setting.getValue());
        }
        Map<String, Object> settings = job.getJSONObject("settings");
        if (job.getJSONObject("settings").getBooleanValue(DLedgerGroup.SWITCH)
            && !settings.containsKey(DLedgerGroup.PEERS)) {
            set(config, DLedgerGroup.PEERS, DLedgerGroup.peers(1));
        }
        List<String> batchTopics = new ArrayList<>();
        for (Map.Entry<String, Object> setting : settings.entrySet()) {
            if (setting.getKey().equals(BATCH_TOPICS)) {
                batchTopics.addAll(job.getJSONObject("settings").getJSONArray(BATCH_TOPICS).toJavaList(String.class));
            } else if (!set(config, setting.getKey(), setting.getValue())) {
                throw new IllegalArgumentException("this release has no setting " + setting.getKey());
            }
        }
        DefaultMessageStore store;
        synchronized (OpenStore.class) {  // the constructors fill a static TreeMap (StoreStatsService)
            store = Release.create(config, batchTopics);
        }
        if (clock != null) {
            Field field = DefaultMessageStore.class.getDeclaredField("systemClock");
            field.setAccessible(true);
            field.set(store, clock);
        }
        store.getDispatcherList().addLast(new IndexPace(config.getMaxIndexNum()));
        return new OpenStore(root, config, store,
            job.containsKey("known") ? job.getJSONObject("known") : Collections.emptyMap());
    }

    /** Returns false where this release has no such setting. */
    private static boolean set(MessageStoreConfig config, String name, Object value) throws Exception {
        for (Method method : MessageStoreConfig.class.getMethods()) {
            if (method.getName().equalsIgnoreCase("set" + name) && !method.getParameterTypes()[0].isEnum()) {
                method.invoke(config, new JSONObject(Collections.singletonMap("v", value))
                    .getObject("v", method.getParameterTypes()[0]));
                return true;
            }
        }
        return false;
    }

    /** Starts the services; returns when the log is dispatched to its end. */
    void start() throws Exception {
        if (!loaded) {
            throw new IllegalStateException("the store refuses to load " + root);
        }
        store.start();
        if (config.isEnableDLegerCommitLog()) {
            DLedgerGroup.awaitLeader(Collections.singletonList(store), DISPATCH_TIMEOUT_MS);
            awaitDispatch();
            DLedgerGroup.becomeMaster(store);
        }
        awaitDispatch();
        // A store of RocksDB queues knows a queue when it is asked for it.
        for (Map.Entry<String, Object> topic : known.entrySet()) {
            for (Object queueId : (List<?>) topic.getValue()) {
                store.findConsumeQueue(topic.getKey(), ((Number) queueId).intValue());
            }
        }
    }

    void awaitDispatch() throws Exception {
        long deadline = System.currentTimeMillis() + DISPATCH_TIMEOUT_MS;
        if (config.isEnableDLegerCommitLog()) {
            DLedgerGroup.awaitCommit(store, DISPATCH_TIMEOUT_MS);
        }
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("dispatch of " + root + " stalls, " + store.dispatchBehindBytes()
                    + " bytes behind");
            }
            Thread.sleep(1);
        }
    }

    static PutMessageResult stored(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException("put failed: " + result.getPutMessageStatus());
        }
        return result;
    }

    /** Returns the ids of all queues the store knows, by topic, in order. */
    Map<String, List<Integer>> queues() {
        Map<String, List<Integer>> queues = new TreeMap<>();
        for (Map.Entry<String, ? extends Map<Integer, ?>> topic : store.getConsumeQueueTable().entrySet()) {
            List<Integer> ids = new ArrayList<>(topic.getValue().keySet());
            Collections.sort(ids);
            queues.put(topic.getKey(), ids);
        }
        return queues;
    }

    Map<String, Object> describe() throws Exception {
        Map<String, Object> log = new LinkedHashMap<>();
        log.put("min_offset", loaded ? store.getMinPhyOffset() : -1);
        log.put("loaded_end_offset", loadedMaxOffset);
        log.put("end_offset", loaded ? store.getMaxPhyOffset() : -1);
        List<Object> queues = new ArrayList<>();
        for (Map.Entry<String, List<Integer>> topic : queues().entrySet()) {
            for (int queueId : topic.getValue()) {
                queues.add(describe(topic.getKey(), queueId));
            }
        }
        Map<String, Object> description = new LinkedHashMap<>();
        description.put("root", root.toString());
        description.put("loaded", loaded);
        description.put("log", log);
        description.put("queues", queues);
        return description;
    }

    Map<String, Object> describe(String topic, int queueId) throws Exception {
        Map<String, Object> queue = new LinkedHashMap<>();
        queue.put("topic", topic);
        queue.put("queueId", queueId);
        queue.put("minOffset", store.getMinOffsetInQueue(topic, queueId));
        queue.put("maxOffset", store.getMaxOffsetInQueue(topic, queueId));
        return queue;
    }

    @Override
    public void close() throws Exception {
        if (loaded) {
            awaitDispatch();
            shutdown();
            if (Files.exists(root.resolve("abort"))) {
                throw new IllegalStateException("not a clean shutdown: " + root);
            }
        }
    }

    void shutdown() throws Exception {
        if (config.isEnableDLegerCommitLog()) {
            DLedgerGroup.shutdown(store);
        } else {
            store.shutdown();
        }
    }

    /**
     * Index files are named by the millisecond of their creation, and two of one name would be mapped twice. This
     * dispatcher, last in line, lets no more entries through in a millisecond than one file takes.
     */
    private static final class IndexPace implements CommitLogDispatcher {
        private static final int LONGEST_MESSAGE = 12;
        private final int room;
        private long millisecond;
        private int entries;

        IndexPace(int maxIndexNum) {
            this.room = maxIndexNum - 1 - LONGEST_MESSAGE;
        }

        @Override
        public void dispatch(DispatchRequest request) {
            entries += 2 + (request.getKeys() == null ? 0 : request.getKeys().split(" ").length);
            if (entries < room) {
                return;
            }
            millisecond = System.currentTimeMillis();
            while (System.currentTimeMillis() == millisecond) {
                Thread.yield();
            }
            entries = 0;
        }
    }
}
