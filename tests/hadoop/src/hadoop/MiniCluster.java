package hadoop;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.attempt.RMAppAttempt;
import org.apache.hadoop.yarn.server.resourcemanager.rmnode.RMNodeEvent;
import org.apache.hadoop.yarn.server.resourcemanager.rmnode.RMNodeEventType;

/**
 * One name node and two data nodes in this process, on loopback; where asked for, a resource manager and two node
 * managers.
 *
 * <p>{@code MiniCluster CONF [yarn]} writes what clients need into the directory CONF, then says {@code READY}. It ends
 * with its standard input, on which {@code put}, a local path and one there, tabs between them, copies a file or a
 * directory, and {@code lose} ends a node manager that runs executors and no application master; the answer is
 * {@code LOST} and the number of containers it had, or {@code NONE}.
 */
public final class MiniCluster {
    private static final int NODES = 2;
    private static final String QUEUE = "yarn.scheduler.capacity.root.";

    private MiniCluster() {}

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1); // threads of what has started would keep the process
        }
    }

    private static void run(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        MiniDFSCluster files = startFiles(new File("dfs").getAbsoluteFile());
        MiniYARNCluster yarn = arguments.length > 1 ? startYarn() : null;
        writeConf(new File(arguments[0]), files, yarn == null ? new Configuration(false) : yarn.getConfig());
        answers.println("READY");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            if (words[0].equals("put")) {
                files.getFileSystem().copyFromLocalFile(new Path(words[1]), new Path(words[2]));
                answers.println("PUT");
            } else {
                answers.println(lose(yarn));
            }
        }
        for (int number = 0; yarn != null && number < NODES; number++) {
            NodeManager node = yarn.getNodeManager(number);
            if (!node.getNMContext().getContainers().isEmpty()) {
                node.stop(); // and with it the containers of jobs that a test left running
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static MiniDFSCluster startFiles(File directory) throws Exception {
        Configuration conf = new Configuration();
        conf.set("dfs.permissions.enabled", "false");
        conf.set("dfs.namenode.http-address", "127.0.0.1:0");
        MiniDFSCluster files = new MiniDFSCluster.Builder(conf, directory).numDataNodes(NODES).build();
        files.waitActive();
        return files;
    }

    private static MiniYARNCluster startYarn() {
        Configuration conf = new YarnConfiguration();
        conf.set(QUEUE + "queues", "default");
        conf.set(QUEUE + "default.capacity", "100");
        conf.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1.0");
        conf.set("yarn.scheduler.capacity.resource-calculator",
            "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator");
        conf.set("yarn.scheduler.minimum-allocation-mb", "256");
        // Room for one executor of conf/yarn.properties and a master on each node; nothing is set aside.
        conf.set(YarnConfiguration.YARN_MINICLUSTER_NM_PMEM_MB, "6144");
        conf.set("yarn.nodemanager.resource.cpu-vcores", "3");
        conf.set("yarn.nodemanager.pmem-check-enabled", "false");
        conf.set("yarn.nodemanager.vmem-check-enabled", "false");
        // How full the disk is does not matter here.
        conf.set("yarn.nodemanager.disk-health-checker.enable", "false");
        conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
        conf.set("yarn.nodemanager.heartbeat.interval-ms", "200");
        conf.set("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", "200");
        MiniYARNCluster yarn = new MiniYARNCluster("yarn", NODES, 1, 1);
        yarn.init(conf);
        yarn.start();
        return yarn;
    }

    /** The addresses alone: all that was set names classes that clients do not have. */
    private static void writeConf(File directory, MiniDFSCluster files, Configuration yarn) throws Exception {
        Map<String, String> site = new LinkedHashMap<>();
        for (String name : new String[] {"", ".scheduler", ".resource-tracker", ".admin", ".webapp"}) {
            String key = "yarn.resourcemanager" + name + ".address";
            if (yarn.get(key) != null) {
                site.put(key, yarn.get(key));
            }
        }
        Files.createDirectories(directory.toPath());
        write(new File(directory, "yarn-site.xml"), site);
        write(new File(directory, "core-site.xml"),
            Map.of("fs.defaultFS", "hdfs://127.0.0.1:" + files.getNameNodePort()));
    }

    private static void write(File file, Map<String, String> settings) throws Exception {
        Configuration conf = new Configuration(false);
        settings.forEach(conf::set);
        try (PrintStream out = new PrintStream(file, "UTF-8")) {
            conf.writeXml(out);
        }
    }

    private static String lose(MiniYARNCluster yarn) {
        Set<NodeId> masters = new HashSet<>();
        for (RMApp app : yarn.getResourceManager().getRMContext().getRMApps().values()) {
            RMAppAttempt attempt = app.getCurrentAppAttempt();
            if (attempt != null && attempt.getMasterContainer() != null && app.getFinishTime() == 0) {
                masters.add(attempt.getMasterContainer().getNodeId());
            }
        }
        for (int number = 0; number < NODES; number++) {
            NodeManager node = yarn.getNodeManager(number);
            int containers = node.getNMContext().getContainers().size();
            if (containers > 0 && !masters.contains(node.getNMContext().getNodeId())) {
                node.stop();
                // It does not sign off, as little as a machine that is gone: this is what its silence leads to after
                // ten minutes. Until then Spark waits two minutes to be told why it lost the executors.
                yarn.getResourceManager().getRMContext().getDispatcher().getEventHandler().handle(
                    new RMNodeEvent(node.getNMContext().getNodeId(), RMNodeEventType.EXPIRE));
                return "LOST " + containers;
            }
        }
        return "NONE";
    }
}
