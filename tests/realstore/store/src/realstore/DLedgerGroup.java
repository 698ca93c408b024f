package realstore;

import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;

/** Members of DLedger groups on the loopback: what a broker does around such a store, without the broker. */
final class DLedgerGroup {
    static final String SWITCH = "enableDLegerCommitLog";
    static final String PEERS = "dLegerPeers";
    private static final int HEARTBEATS_TO_MISS = 300;
    private static final int WAIT_ACK_MS = 60_000;
    private static final Set<Integer> PORTS = new HashSet<>();

    private DLedgerGroup() {
    }

    /** Returns a group of members {@code n0, n1, ..}, at free ports that no other store of this process was given. */
    static synchronized String peers(int members) throws Exception {
        StringBuilder peers = new StringBuilder();
        for (int member = 0; member < members;) {
            try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                if (PORTS.add(socket.getLocalPort())) {
                    peers.append(member > 0 ? ";" : "").append("n").append(member++).append("-127.0.0.1:")
                        .append(socket.getLocalPort());
                }
            }
        }
        return peers.toString();
    }

    /** Returns the store that leads its group, as soon as one of these does. */
    static DefaultMessageStore awaitLeader(List<DefaultMessageStore> stores, long timeoutMs) throws Exception {
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (true) {
            for (DefaultMessageStore store : stores) {
                if (server(store).getMemberState().isLeader()) {
                    return store;
                }
            }
            pause(deadline, "no member of the group is its leader");
        }
    }

    /** Returns when every entry is committed: only those are dispatched. */
    static void awaitCommit(DefaultMessageStore store, long timeoutMs) throws Exception {
        awaitCommit(store, endIndex(store), timeoutMs);
    }

    /**
     * Returns when the store knows that the entries up to this one are committed, and has no others; and how far that
     * is in the log, which it notes a moment later (DLedgerMmapFileStore#updateCommittedIndex), and dispatches by.
     */
    static void awaitCommit(DefaultMessageStore store, long index, long timeoutMs) throws Exception {
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (committedIndex(store) != index || endIndex(store) != index
            || index >= 0 && entries(store).getCommittedPos() != end(entries(store).get(index))) {
            pause(deadline, "entries are not committed: " + committedIndex(store) + " of " + index);
        }
    }

    private static long end(DLedgerEntry entry) {
        return entry.getPos() + entry.getSize();
    }

    /**
     * Makes a group keep its leader, and its leader wait for the others, when they do not get to work, or are shut
     * down: by default six seconds without a heartbeat end a term, and 2.5 without an answer fail a message. Who starts
     * asks for votes at once, whatever this says.
     */
    static void bePatient(DefaultMessageStore store) {
        server(store).getdLedgerConfig().setMaxHeartBeatLeak(HEARTBEATS_TO_MISS);
        server(store).getdLedgerConfig().setMaxWaitAckTimeMs(WAIT_ACK_MS);
    }

    /**
     * Shuts the store down, with a checkpoint.
     *
     * <p>A DLedger store writes it every three seconds and when it is shut down, with nothing that keeps these two
     * threads apart (IOUtils#string2File): when both write, none may be left. The interval is read each time, and the
     * shutdown begins with three seconds of sleep.
     */
    static void shutdown(DefaultMessageStore store) throws Exception {
        stopCheckpoints(store);
        long committed = committedIndex(store);
        store.shutdown();
        if (!isInCheckpoint(store, committed)) {
            throw new IllegalStateException("no checkpoint after the shutdown of "
                + server(store).getdLedgerConfig().getDefaultPath());
        }
    }

    /** From now on the store writes its checkpoint when it is shut down, and not before. */
    static void stopCheckpoints(DefaultMessageStore store) {
        server(store).getdLedgerConfig().setCheckPointInterval(Long.MAX_VALUE);
    }

    /** Returns whether the file says that this entry is the last that is committed; it is away while it is written. */
    static boolean isInCheckpoint(DefaultMessageStore store, long index) throws Exception {
        try {
            return StoreDriver.read(checkpoint(store)).matches("(?s).*committedIndex=" + index + "\\s.*");
        } catch (NoSuchFileException none) {
            return false;
        }
    }

    static Path checkpoint(DefaultMessageStore store) {
        return Paths.get(server(store).getdLedgerConfig().getDefaultPath(), "checkpoint");
    }

    static long endIndex(DefaultMessageStore store) {
        return entries(store).getLedgerEndIndex();
    }

    static long committedIndex(DefaultMessageStore store) {
        return entries(store).getCommittedIndex();
    }

    /** DLedgerRoleChangeHandler, before it lets producers in: the next queue offsets come from the queues. */
    static void becomeMaster(DefaultMessageStore store) {
        store.recoverTopicQueueTable();
    }

    static void pause(long deadline, String what) throws Exception {
        if (System.currentTimeMillis() > deadline) {
            throw new IllegalStateException(what);
        }
        Thread.sleep(1);
    }

    private static DLedgerMmapFileStore entries(DefaultMessageStore store) {
        return (DLedgerMmapFileStore) server(store).getdLedgerStore();
    }

    private static DLedgerServer server(DefaultMessageStore store) {
        return ((DLedgerCommitLog) store.getCommitLog()).getdLedgerServer();
    }
}
