package realstore;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs one job on a batch of stores with the DefaultMessageStore of the release on the class path.
 *
 * <p>Arguments: job file, result file, both JSON. The job holds {@code command} and {@code stores}, a list of
 * {@code {root, settings, ...}}; the result holds {@code stores} in the same order. Stores run side by side, because
 * most of a store's short life is spent in the sleeps of its own shutdown.
 */
public final class StoreDriver {
    private static final int SIDE_BY_SIDE = 32;
    private static final int SECONDS_TO_FAIL = 45;

    private interface Command {
        Map<String, Object> run(JSONObject store) throws Exception;
    }

    public static void main(String[] args) {
        // What a store leaves running must not keep the process; and "halt" stores are meant to end without shutdown.
        try {
            run(args);
            Runtime.getRuntime().halt(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] args) throws Exception {
        JSONObject job = JSON.parseObject(read(Paths.get(args[0])), Feature.OrderedField);
        Command command = command(job.getString("command"));
        ExecutorService pool = Executors.newFixedThreadPool(SIDE_BY_SIDE);
        List<Future<Map<String, Object>>> running = new ArrayList<>();
        for (Object store : job.getJSONArray("stores")) {
            running.add(pool.submit(() -> command.run((JSONObject) store)));
        }
        List<Object> done = new ArrayList<>();
        for (int number = 0; number < running.size(); number++) {
            JSONObject store = job.getJSONArray("stores").getJSONObject(number);
            if (!store.getBooleanValue("may_fail")) {
                done.add(running.get(number).get());
                continue;
            }
            try {
                done.add(running.get(number).get(SECONDS_TO_FAIL, TimeUnit.SECONDS));
            } catch (ExecutionException | TimeoutException failure) {  // 4.x waits in its start until all is dispatched
                Map<String, Object> failed = new LinkedHashMap<>();
                failed.put("root", store.getString("root"));
                failed.put("failure", String.valueOf(failure.getCause() == null ? failure : failure.getCause()));
                done.add(failed);
            }
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("stores", done);
        write(Paths.get(args[1]), result);
    }

    private static Command command(String name) {
        switch (name) {
            case "write":
                return RandomStore::write;
            case "recover":
                return StoreDriver::recover;
            case "open":
                return Answers::open;
            case "load":
                return StoreDriver::load;
            case "clean":
                return Aftermath::clean;
            case "deliver":
                return Aftermath::deliver;
            case "fill":
                return Aftermath::fill;
            case "overwritten":
                return DLedgerTail::write;
            case "rocksdb_pairs":
                return Release::rocksdbPairs;
            case "load_timers":
                return Release::loadTimers;
            case "bench_write":
                return Bench::write;
            case "bench_recover":
                return Bench::recover;
            default:
                throw new IllegalArgumentException("no such command: " + name);
        }
    }

    /** Lets the store rebuild what is missing, as its own recovery sees fit. */
    private static Map<String, Object> recover(JSONObject job) throws Exception {
        try (OpenStore open = OpenStore.load(job, null)) {
            open.start();
            return open.describe();
        }
    }

    /** Loads the store, and so lets it recover, but does not start it: what a member does before it meets its group. */
    private static Map<String, Object> load(JSONObject job) throws Exception {
        return OpenStore.load(job, null).describe();
    }

    static String read(Path file) throws Exception {
        return new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
    }

    static void write(Path file, Object json) throws Exception {
        Files.write(file, JSON.toJSONString(json).getBytes(StandardCharsets.UTF_8));
    }
}
