import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;

/** Pops messages of a topic, acknowledges every second one, and leaves; arguments: name server, topic, group, count. */
public final class PopSome {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(300_000);
        consumer.subscribe(args[1], "*");
        AtomicInteger took = new AtomicInteger();
        CountDownLatch enough = new CountDownLatch(Integer.parseInt(args[3]));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            enough.countDown();
            boolean held = took.getAndIncrement() % 2 == 0;
            return held ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean done = enough.await(240, TimeUnit.SECONDS);
        Thread.sleep(1_000);
        System.out.println((done ? "popped " : "in vain: popped ") + took);
        Runtime.getRuntime().halt(done ? 0 : 1);
    }
}
