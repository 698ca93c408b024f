import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.TreeMap;
import org.apache.rocketmq.broker.offset.LmqConsumerOffsetManager;

/** Reads a file of committed offsets as a broker with enableLmq=true; prints those of light groups, then the others. */
public final class LightOffsets {
    public static void main(String[] words) throws Exception {
        LmqConsumerOffsetManager offsets = new LmqConsumerOffsetManager();
        offsets.decode(new String(Files.readAllBytes(Paths.get(words[0])), StandardCharsets.UTF_8));
        System.out.println(new TreeMap<>(offsets.getLmqOffsetTable()) + " " + new TreeMap<>(offsets.getOffsetTable()));
        System.exit(0);
    }
}
