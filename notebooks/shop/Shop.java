import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Some minutes in the life of a web shop: a name server, a broker, three producers and three consumers in one process.
 * <pre>java -cp "out:jars/*" Shop ROOT SECONDS</pre>
 */
public class Shop {
    static final String NAME_SERVER = "127.0.0.1:19876";
    static final String[] TAGS = {"created", "created", "created", "paid", "shipped", "cancelled"};
    static final String[] WORDS = ("the order of customer was moved to page cart with coupon and paid by card in shop region "
        + "price total item shipped address").split(" ");
    static final Random RANDOM = new Random(7);
    static volatile boolean outage;

    interface Check {
        boolean accepts(MessageExt message);
    }

    public static void main(String[] arguments) throws Exception {
        NettyServerConfig port = new NettyServerConfig();
        port.setListenPort(19876);
        NamesrvController nameServer = new NamesrvController(new NamesrvConfig(), port);
        nameServer.initialize();
        nameServer.start();
        BrokerController broker = broker(arguments[0]);

        DefaultMQProducer orders = new DefaultMQProducer("order-service");
        orders.setEnableTrace(true);
        start(orders);
        DefaultMQProducer logs = new DefaultMQProducer("web-frontend");
        start(logs);
        TransactionMQProducer payments = new TransactionMQProducer("payment-gateway");
        payments.setTransactionListener(new Bank());
        start(payments);
        waitForRoutes(broker, orders, logs);

        consumer("invoice-service", "orders", 4, message -> !outage);
        consumer("warehouse", "orders", 4, message -> !message.getKeys().contains("sku-13") || message.getReconsumeTimes() >= 2);
        consumer("ledger", "payments", 3, message -> (message.getKeys().hashCode() & 31) != 0);
        Thread.sleep(4000);
        long sold = sell(orders, logs, payments, Integer.parseInt(arguments[1]) * 1000L);
        Thread.sleep(25_000);
        orders.shutdown();
        logs.shutdown();
        payments.shutdown();
        Thread.sleep(2000);
        System.out.println("orders " + sold);
        broker.shutdown();
        nameServer.shutdown();
        System.exit(0);
    }

    static long sell(DefaultMQProducer orders, DefaultMQProducer logs, TransactionMQProducer payments, long milliseconds)
        throws Exception {
        long begin = System.currentTimeMillis();
        long sold = 0;
        Message last = null;
        while (System.currentTimeMillis() - begin < milliseconds) {
            double time = (System.currentTimeMillis() - begin) / (double) milliseconds;
            outage = time > 0.45 && time < 0.60;
            boolean burst = time > 0.30 && time < 0.38;
            sold++;
            String order = "order-" + (100_000 + sold);
            String tag = TAGS[RANDOM.nextInt(TAGS.length)];
            Message message = new Message("orders", tag, order + " sku-" + RANDOM.nextInt(60), body(60 + RANDOM.nextInt(150)));
            orders.send(message);
            if (sold % 40 == 0 && last != null) {
                orders.send(last);  // as after a time-out: the same message under the same UNIQ_KEY
            }
            last = message;
            if (sold % 3 == 0) {
                logs.send(new Message("app-logs", burst ? "error" : "info", body((burst ? 500 : 150) + RANDOM.nextInt(400))));
            }
            for (int more = 0; burst && more < 3; more++) {
                logs.send(new Message("app-logs", "error", body(400 + RANDOM.nextInt(400))));
            }
            if (sold % 5 == 0) {
                payments.sendMessageInTransaction(new Message("payments", "card", order, body(180)), RANDOM.nextInt(100));
            }
            if (sold % 12 == 0) {
                Message reminder = new Message("reminders", "cart", "cart-" + sold, body(90));
                reminder.setDelayTimeLevel(5 + RANDOM.nextInt(5));
                orders.send(reminder);
            }
            Thread.sleep(burst ? 70 : 180 + RANDOM.nextInt(160));
        }
        return sold;
    }

    /** Commits 80 of 100, rolls 13 back, and has to be asked about the rest: a third of those it never knows. */
    static class Bank implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object percent) {
            int number = (Integer) percent;
            return number < 80 ? LocalTransactionState.COMMIT_MESSAGE
                : number < 93 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            boolean unknown = message.getTransactionId().hashCode() % 3 == 0;
            return unknown ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    static BrokerController broker(String root) throws Exception {
        BrokerConfig broker = new BrokerConfig();
        broker.setNamesrvAddr(NAME_SERVER);
        broker.setBrokerName("shop-a");
        broker.setBrokerClusterName("shop");
        broker.setBrokerIP1("127.0.0.1");
        broker.setTraceTopicEnable(true);
        broker.setDefaultTopicQueueNums(4);
        broker.setTransactionCheckInterval(15_000);
        broker.setTransactionTimeOut(6000);
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(root);
        store.setStorePathCommitLog(root + "/commitlog");
        store.setMappedFileSizeCommitLog(1 << 18);
        store.setMappedFileSizeConsumeQueue(4000);
        store.setMaxHashSlotNum(500);
        store.setMaxIndexNum(2000);
        store.setMessageDelayLevel("1s 2s 2s 3s 4s 6s 8s 10s 15s 20s 30s 1m");
        store.setHaListenPort(20912);
        store.setTimerWheelEnable(false);
        store.setEnableCompaction(false);
        NettyServerConfig port = new NettyServerConfig();
        port.setListenPort(20911);
        BrokerController controller = new BrokerController(broker, port, new NettyClientConfig(), store);
        if (!controller.initialize()) {
            throw new IllegalStateException("the broker does not start");
        }
        controller.start();
        for (String topic : new String[] {"orders", "app-logs", "payments", "reminders"}) {
            controller.getTopicConfigManager().updateTopicConfig(new TopicConfig(topic, 4, 4));
        }
        controller.registerBrokerAll(true, false, true);
        return controller;
    }

    static void waitForRoutes(BrokerController broker, DefaultMQProducer orders, DefaultMQProducer logs) throws Exception {
        for (int tries = 0; tries < 100; tries++) {
            try {
                orders.fetchPublishMessageQueues("orders");
                logs.fetchPublishMessageQueues("app-logs");
                return;
            } catch (MQClientException notYet) {
                Thread.sleep(1000);
                broker.registerBrokerAll(true, false, true);
            }
        }
        throw new IllegalStateException("no routes");
    }

    static void start(DefaultMQProducer producer) throws MQClientException {
        producer.setNamesrvAddr(NAME_SERVER);
        producer.start();
    }

    static void consumer(String group, String topic, int retries, Check check) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setEnableTrace(!group.equals("invoice-service"));
        consumer.setNamesrvAddr(NAME_SERVER);
        consumer.setMaxReconsumeTimes(retries);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            messages.stream().allMatch(check::accepts)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        consumer.start();
    }

    static byte[] body(int size) {
        StringBuilder text = new StringBuilder(size + 12);
        while (text.length() < size) {
            text.append(WORDS[RANDOM.nextInt(WORDS.length)]).append(' ');
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }
}
