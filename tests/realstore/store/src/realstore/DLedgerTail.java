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
    private static final long TIMEOUT_MS = 600_000;

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

    /**
     * Job entry: root, seed, settings, messages, tail (entries nobody else has), others, from_killed (comes back so),
     * forgets (one of the others starts again without its checkpoint).
     */
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
        if (job.getBooleanValue("forgets")) {
            Files.delete(DLedgerGroup.checkpoint(group.get(0).store));
        }
        String old = leader.root.getFileName().toString();
        long committed = DLedgerGroup.committedIndex(leader.store);
        awaitCheckpoint(leader, committed);
        int tail = job.getIntValue("tail");
        for (int number = 0; number < tail; number++) {
            messages.putAndForget();
        }
        if (DLedgerGroup.endIndex(leader.store) != committed + tail
            || DLedgerGroup.committedIndex(leader.store) != committed) {
            throw new IllegalStateException("the leader was not alone, or did not lead any more");
        }
        copy(leader.root, root.resolve("killed"));
        leader.shutdown();
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
        written.put("forgetful", group.get(0).root.getFileName().toString());
        written.put("committed_index", committed);
        List<Object> members = new ArrayList<>();
        for (OpenStore member : others) {
            member.awaitDispatch();
            members.add(member.describe());
        }
        written.put("members", members);
        for (OpenStore member : others) {
            member.shutdown();
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
        DLedgerGroup.bePatient(open.store);
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

    /** Returns when the member's checkpoint, written every few seconds, says so; it stays as it is then. */
    private static void awaitCheckpoint(OpenStore open, long committed) throws Exception {
        long deadline = System.currentTimeMillis() + TIMEOUT_MS;
        while (!DLedgerGroup.isInCheckpoint(open.store, committed)) {
            DLedgerGroup.pause(deadline, "no checkpoint of what is committed");
        }
        DLedgerGroup.stopCheckpoints(open.store);
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
