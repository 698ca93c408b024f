import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.io.FileReader;
import java.io.Reader;
import java.util.Properties;
import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.deploy.k8s.KubernetesConf;
import org.apache.spark.deploy.k8s.SparkPod;
import org.apache.spark.internal.config.package$;
import org.apache.spark.resource.ResourceProfile$;
import org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder;
import scala.Option;

/**
 * {@code ExecutorPod.java FILE} prints the pod, as JSON, that Spark would ask a Kubernetes cluster for, for an executor
 * with the settings in FILE: what {@code ExecutorPodsAllocator#requestNewExecutors} does before it calls the cluster.
 */
public final class ExecutorPod {
    private ExecutorPod() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader file = new FileReader(arguments[0])) {
            settings.load(file);
        }
        SparkConf conf = new SparkConf(false).setAppName("test");
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.port", "7078");
        for (String name : settings.stringPropertyNames()) {
            conf.set(name, settings.getProperty(name).strip());
        }
        Config nowhere = Config.empty();
        nowhere.setMasterUrl("http://127.0.0.1:1");
        try (KubernetesClient client = new KubernetesClientBuilder().withConfig(nowhere).build()) {
            SparkPod made = new KubernetesExecutorBuilder().buildFromFeatures(
                KubernetesConf.createExecutorConf(conf, "1", "spark-app", Option.<Pod>empty(), 0),
                new SecurityManager(conf, Option.<byte[]>empty(), package$.MODULE$.AUTH_SECRET_FILE()),
                client,
                ResourceProfile$.MODULE$.getOrCreateDefaultProfile(conf)).pod();
            Pod pod = new PodBuilder(made.pod()).editOrNewSpec().addToContainers(made.container()).endSpec().build();
            System.out.println(Serialization.asJson(pod));
        }
    }
}
