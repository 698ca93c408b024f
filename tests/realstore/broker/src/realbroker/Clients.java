package realbroker;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What users of a broker do: creates topics, sends, consumes, asks. One process runs the steps of one job in order.
 *
 * <p>Arguments: job file, result file, both JSON. The job holds {@code name_server, broker} (addresses) and
 * {@code steps}, a list of {@code {command, ...}}; the result holds {@code steps}, one answer each.
 */
public final class Clients {
    /** How long to wait for what will come, on a machine that has much else to do. */
    static final int PATIENCE_MS = 240_000;
    static final int TIMEOUT_MS = 60_000;

    final String nameServer;
    final String broker;
    final DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MS);

    private Clients(JSONObject job) {
        nameServer = job.getString("name_server");
        broker = job.getString("broker");
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("admin");
    }

    public static void main(String[] args) {
        try {
            String text = new String(Files.readAllBytes(Paths.get(args[0])), StandardCharsets.UTF_8);
            JSONObject job = JSON.parseObject(text, Feature.OrderedField);
            Clients clients = new Clients(job);
            clients.admin.start();
            clients.awaitRoute();
            List<Object> answers = new ArrayList<>();
            for (Object step : job.getJSONArray("steps")) {
                answers.add(clients.run((JSONObject) step));
            }
            // one object may stand in several places, and each place must show it
            String result = JSON.toJSONString(
                Collections.singletonMap("steps", answers), SerializerFeature.DisableCircularReferenceDetect);
            Files.write(Paths.get(args[1]), result.getBytes(StandardCharsets.UTF_8));
            Runtime.getRuntime().halt(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private Object run(JSONObject step) throws Exception {
        switch (step.getString("command")) {
            case "send":
                return new Sending(this).send(step);
            case "await":
                return awaitMessages(step.getString("topic"), step.getLongValue("messages"));
            case "pause":
                Thread.sleep(step.getLongValue("ms"));
                return null;
            case "consume":
                return Consuming.consume(this, step);
            case "ask":
                return new Asking(this).ask(step);
            default:
                throw new IllegalArgumentException("no such command: " + step.getString("command"));
        }
    }

    /** Returns when the name server knows the broker by a topic that every broker has. */
    private void awaitRoute() throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            try {
                admin.examineTopicRouteInfo("SELF_TEST_TOPIC");
                return;
            } catch (MQClientException unknown) {
                if (System.currentTimeMillis() > deadline) {
                    throw unknown;
                }
                Thread.sleep(200);
            }
        }
    }

    /** Returns the log's end once the topic's queues hold so many messages, and nothing moves any more. */
    private Map<String, String> awaitMessages(String topic, long messages) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        String end = "";
        int steady = 0;
        while (steady < 4) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("in vain: " + messages + " messages in " + topic + ", log end " + end);
            }
            Thread.sleep(250);
            long found = admin.examineTopicStats(topic).getOffsetTable().values().stream()
                .mapToLong(queue -> queue.getMaxOffset() - queue.getMinOffset()).sum();
            Map<String, String> state = admin.fetchBrokerRuntimeStats(broker).getTable();
            String now = state.get("commitLogMaxOffset");
            boolean dispatched = "0".equals(state.get("dispatchBehindBytes"));
            steady = found >= messages && dispatched && now.equals(end) ? steady + 1 : 0;
            end = now;
        }
        return Collections.singletonMap("commitLogMaxOffset", end);
    }
}
