package realstore;

import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;

/** Members of DLedger groups on the loopback: what a broker does around such a store, without the broker. */
final class DLedgerGroup {
    static final String SWITCH = "enableDLegerCommitLog";
    static final String PEERS = "dLegerPeers";
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

    /** Returns when the store knows that the entries up to this one are committed, and has no others. */
    static void awaitCommit(DefaultMessageStore store, long index, long timeoutMs) throws Exception {
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (committedIndex(store) != index || endIndex(store) != index) {
            pause(deadline, "entries are not committed: " + committedIndex(store) + " of " + index);
        }
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
