package realstore;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Base64;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;

/** The pairs that a store of type defaultRocksDB has left in its database of consume queues. */
final class RocksQueues {
    private static final List<String> FAMILIES = Arrays.asList("default", "offset");

    private RocksQueues() {
    }

    /** Job entry: root of a store that was shut down. Returns key and value, in base 64, of every pair by family. */
    static Map<String, Object> pairs(JSONObject job) throws Exception {
        RocksDB.loadLibrary();
        List<ColumnFamilyDescriptor> descriptors = new ArrayList<>();
        for (String family : FAMILIES) {
            descriptors.add(new ColumnFamilyDescriptor(family.getBytes(StandardCharsets.UTF_8)));
        }
        List<ColumnFamilyHandle> handles = new ArrayList<>();
        Map<String, Object> pairs = new LinkedHashMap<>();
        try (RocksDB database = RocksDB.openReadOnly(job.getString("root") + "/consumequeue", descriptors, handles)) {
            for (int number = 0; number < FAMILIES.size(); number++) {
                List<Object> rows = new ArrayList<>();
                try (RocksIterator rowAt = database.newIterator(handles.get(number))) {
                    for (rowAt.seekToFirst(); rowAt.isValid(); rowAt.next()) {
                        rows.add(Arrays.asList(text(rowAt.key()), text(rowAt.value())));
                    }
                }
                pairs.put(FAMILIES.get(number), rows);
                handles.get(number).close();
            }
        }
        return pairs;
    }

    private static String text(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
