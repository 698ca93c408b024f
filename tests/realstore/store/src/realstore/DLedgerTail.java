package realstore;

import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.SplittableRandom;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * A group of three whose leader is cut off with entries that nobody else has, and comes back when the others have put
 * entries of another term into their place.
 *
 * <p>Leaves the members' stores in {@code n0}, {@code n1}, {@code n2} as they are at the end, all of one log, and two
 * copies of the old leader's before it came back: {@code killed}, made while it ran, and {@code stopped}, after its
 * shutdown.
 */
final class DLedgerTail {
    private static final int MEMBERS = 3;
    private static final long TIMEOUT_MS = 120_000;
    private static final String CHECKPOINT = "checkpoint";

    private final JSONObject job;
    private final Path root;
    private final OpenStore.Clock clock;
    private final RandomMessages messages;
    private final Random random;
    private final String peers = DLedgerGroup.peers(MEMBERS);

    private DLedgerTail(JSONObject job) throws Exception {
        this.job = job;
        this.root = Files.createDirectories(Paths.get(job.getString("root")));
        this.random = new Random(new SplittableRandom(job.getLongValue("seed")).nextLong());
        this.clock = new OpenStore.Clock(RandomStore.EPOCH + random.nextInt(1_000_000_000));
        this.messages = new RandomMessages(random, clock, new ArrayList<>());
    }

    /** Job entry: root, seed, settings, messages, tail (entries nobody else has), others, from_killed (comes back so). */
    static Map<String, Object> write(JSONObject job) throws Exception {
        return new DLedgerTail(job).write();
    }

    private Map<String, Object> write() throws Exception {
        List<OpenStore> group = new ArrayList<>();
        for (int member = 0; member < MEMBERS; member++) {
            group.add(start("n" + member));
        }
        OpenStore leader = lead(group);
        put(leader, group, job.getIntValue("messages"));
        group.remove(leader);
        for (OpenStore other : group) {
            other.close();
        }
        String old = leader.root.getFileName().toString();
        long committed = DLedgerGroup.committedIndex(leader.store);
        awaitCheckpoint(leader, old, committed);
        int tail = job.getIntValue("tail");
        for (int number = 0; number < tail; number++) {
            messages.putAndForget();
        }
        if (DLedgerGroup.endIndex(leader.store) != committed + tail
            || DLedgerGroup.committedIndex(leader.store) != committed) {
            throw new IllegalStateException("the leader was not alone, or did not lead any more");
        }
        copy(leader.root, root.resolve("killed"));
        leader.store.shutdown();
        copy(leader.root, root.resolve("stopped"));

        List<OpenStore> others = new ArrayList<>(Arrays.asList(
            start(group.get(0).root.getFileName().toString()), start(group.get(1).root.getFileName().toString())));
        leader = lead(others);
        put(leader, others, job.getIntValue("others"));
        if (job.getBooleanValue("from_killed")) {
            Files.move(root.resolve(old), root.resolve("unused"));
            copy(root.resolve("killed"), root.resolve(old));
        }
        OpenStore back = start(old);
        DLedgerGroup.awaitCommit(back.store, DLedgerGroup.endIndex(leader.store), TIMEOUT_MS);
        others.remove(leader);
        others.add(back);
        others.add(leader);
        Map<String, Object> written = new LinkedHashMap<>();
        written.put("old_leader", old);
        written.put("committed_index", committed);
        List<Object> members = new ArrayList<>();
        for (OpenStore member : others) {
            while (member.store.dispatchBehindBytes() > 0) {
                Thread.sleep(1);
            }
            members.add(member.describe());
        }
        written.put("members", members);
        for (OpenStore member : others) {
            member.store.shutdown();
        }
        return written;
    }

    private OpenStore start(String name) throws Exception {
        JSONObject member = new JSONObject(new LinkedHashMap<>(job));
        JSONObject settings = new JSONObject(new LinkedHashMap<>(job.getJSONObject("settings")));
        settings.put(DLedgerGroup.SWITCH, true);
        settings.put(DLedgerGroup.PEERS, peers);
        settings.put("dLegerSelfId", name);
        member.put("settings", settings);
        member.put("root", Files.createDirectories(root.resolve(name)).toString());
        OpenStore open = OpenStore.load(member, clock);
        if (!open.loaded) {
            throw new IllegalStateException("the store refuses to load " + open.root);
        }
        open.store.start();
        return open;
    }

    private static OpenStore lead(List<OpenStore> group) throws Exception {
        List<DefaultMessageStore> stores = new ArrayList<>();
        for (OpenStore open : group) {
            stores.add(open.store);
        }
        OpenStore leader = group.get(stores.indexOf(DLedgerGroup.awaitLeader(stores, TIMEOUT_MS)));
        leader.awaitDispatch();
        DLedgerGroup.becomeMaster(leader.store);
        return leader;
    }

    /** Returns when all of the group have committed and dispatched what the leader was given. */
    private void put(OpenStore leader, List<OpenStore> group, int steps) throws Exception {
        messages.putInto(leader);
        for (int step = 0; step < steps; step++) {
            messages.putSomething();
        }
        messages.putPlain();
        for (OpenStore open : group) {
            DLedgerGroup.awaitCommit(open.store, DLedgerGroup.endIndex(leader.store), TIMEOUT_MS);
            open.awaitDispatch();
        }
    }

    /** A checkpoint is written every few seconds; a member that is killed has the last one. */
    private static void awaitCheckpoint(OpenStore open, String name, long committed) throws Exception {
        Path checkpoint = open.root.resolve("dledger-" + name).resolve(CHECKPOINT);
        long deadline = System.currentTimeMillis() + TIMEOUT_MS;
        while (!Files.exists(checkpoint)
            || !StoreDriver.read(checkpoint).matches("(?s).*committedIndex=" + committed + "\\s.*")) {
            DLedgerGroup.pause(deadline, "no checkpoint of what is committed");
        }
    }

    private static void copy(Path from, Path to) throws IOException {
        Files.walkFileTree(from, new SimpleFileVisitor<Path>() {
            @Override
            public FileVisitResult preVisitDirectory(Path directory, BasicFileAttributes known) throws IOException {
                Files.createDirectories(to.resolve(from.relativize(directory)));
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes known) throws IOException {
                Files.copy(file, to.resolve(from.relativize(file)));
                return FileVisitResult.CONTINUE;
            }
        });
    }
}
