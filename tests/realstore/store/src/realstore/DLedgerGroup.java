package realstore;

import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.HashSet;
import java.util.Set;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;

/** A store as the only member of a DLedger group on the loopback: what a broker does around it, without the broker. */
final class DLedgerGroup {
    static final String SWITCH = "enableDLegerCommitLog";
    private static final Set<Integer> PORTS = new HashSet<>();

    private DLedgerGroup() {
    }

    /** Returns the group of the one member {@code n0}, at a free port that no other store of this process was given. */
    static synchronized String peers() throws Exception {
        while (true) {
            try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                if (PORTS.add(socket.getLocalPort())) {
                    return "n0-127.0.0.1:" + socket.getLocalPort();
                }
            }
        }
    }

    static void awaitLeader(DefaultMessageStore store, long timeoutMs) throws Exception {
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (!server(store).getMemberState().isLeader()) {
            pause(deadline, "the only member of the group is not its leader");
        }
    }

    /** Returns when every entry is committed: only those are dispatched. */
    static void awaitCommit(DefaultMessageStore store, long timeoutMs) throws Exception {
        long deadline = System.currentTimeMillis() + timeoutMs;
        DLedgerMmapFileStore entries = (DLedgerMmapFileStore) server(store).getdLedgerStore();
        while (entries.getCommittedIndex() < entries.getLedgerEndIndex()) {
            pause(deadline, "entries are not committed");
        }
    }

    /** DLedgerRoleChangeHandler, before it lets producers in: the next queue offsets come from the queues. */
    static void becomeMaster(DefaultMessageStore store) {
        store.recoverTopicQueueTable();
    }

    private static DLedgerServer server(DefaultMessageStore store) {
        return ((DLedgerCommitLog) store.getCommitLog()).getdLedgerServer();
    }

    private static void pause(long deadline, String what) throws Exception {
        if (System.currentTimeMillis() > deadline) {
            throw new IllegalStateException(what);
        }
        Thread.sleep(1);
    }
}
