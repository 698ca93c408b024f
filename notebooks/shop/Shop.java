import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Four minutes in the life of a web shop: a name server, a broker, three producers and three consumers in one process.
 * java -cp "out:jars/*" Shop ROOT SECONDS
 */
public class Shop {
  static final String NAMESRV = "127.0.0.1:19876";
  static volatile boolean outage;
  public static void main(String[] a) throws Exception {
    String root = a[0]; int seconds = Integer.parseInt(a[1]);
    Random random = new Random(7);
    NettyServerConfig ns = new NettyServerConfig(); ns.setListenPort(19876);
    NamesrvController namesrv = new NamesrvController(new NamesrvConfig(), ns); namesrv.initialize(); namesrv.start();
    BrokerConfig b = new BrokerConfig(); b.setNamesrvAddr(NAMESRV); b.setBrokerName("shop-a"); b.setBrokerClusterName("shop"); b.setBrokerIP1("127.0.0.1");
    b.setTraceTopicEnable(true); b.setAutoCreateTopicEnable(true); b.setDefaultTopicQueueNums(4); b.setTransactionCheckInterval(15000); b.setTransactionTimeOut(6000);
    MessageStoreConfig s = new MessageStoreConfig(); s.setStorePathRootDir(root); s.setStorePathCommitLog(root + "/commitlog");
    s.setMappedFileSizeCommitLog(1 << 18); s.setMappedFileSizeConsumeQueue(4000); s.setMaxHashSlotNum(500); s.setMaxIndexNum(2000);
    s.setMessageDelayLevel("1s 2s 2s 3s 4s 6s 8s 10s 15s 20s 30s 1m"); s.setHaListenPort(20912); s.setTimerWheelEnable(false); s.setEnableCompaction(false);
    NettyServerConfig bs = new NettyServerConfig(); bs.setListenPort(20911);
    BrokerController broker = new BrokerController(b, bs, new NettyClientConfig(), s);
    if (!broker.initialize()) throw new IllegalStateException("broker"); broker.start(); for (String t : new String[] {"orders", "app-logs", "payments", "reminders"}) broker.getTopicConfigManager().updateTopicConfig(new org.apache.rocketmq.common.TopicConfig(t, 4, 4)); broker.registerBrokerAll(true, false, true);

    DefaultMQProducer orders = new DefaultMQProducer("order-service"); orders.setEnableTrace(true); start(orders);
    DefaultMQProducer logs = new DefaultMQProducer("web-frontend"); start(logs);
    TransactionMQProducer pay = new TransactionMQProducer("payment-gateway"); 
    ConcurrentMap<String,Integer> asked = new ConcurrentHashMap<>();
    pay.setTransactionListener(new TransactionListener() {
      public LocalTransactionState executeLocalTransaction(Message m, Object arg) { int n = (Integer) arg; return n < 80 ? LocalTransactionState.COMMIT_MESSAGE : n < 93 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW; }
      public LocalTransactionState checkLocalTransaction(MessageExt m) { int n = asked.merge(m.getTransactionId() + "", 1, Integer::sum); return m.getTransactionId().hashCode() % 3 == 0 ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE; } });
    start(pay);
    for (int i = 0; i < 100; i++) try { orders.fetchPublishMessageQueues("orders"); logs.fetchPublishMessageQueues("app-logs"); break; } catch (Exception notYet) { Thread.sleep(1000); broker.registerBrokerAll(true, false, true); }
    consumer("invoice-service", "orders", 4, m -> !outage).start();
    consumer("warehouse", "orders", 4, m -> m.getKeys() == null || !m.getKeys().contains("sku-13") || m.getReconsumeTimes() >= 2).start();
    consumer("ledger", "payments", 3, m -> (m.getKeys().hashCode() & 31) != 0).start();
    Thread.sleep(4000);
    String[] tags = {"created", "created", "created", "paid", "shipped", "cancelled"};
    long begin = System.currentTimeMillis(), n = 0; Message last = null;
    while (System.currentTimeMillis() - begin < seconds * 1000L) {
      double t = (System.currentTimeMillis() - begin) / (seconds * 1000.0);
      outage = t > 0.45 && t < 0.60;
      boolean burst = t > 0.30 && t < 0.38;
      n++;
      Message m = new Message("orders", tags[random.nextInt(tags.length)], "order-" + (100000 + n) + " sku-" + random.nextInt(60), body(random, 60 + random.nextInt(150)));
      orders.send(m);
      if (n % 40 == 0 && last != null) orders.send(last);       // a retry after a timeout: the same message, the same UNIQ_KEY
      last = m;
      if (n % 3 == 0) logs.send(new Message("app-logs", burst ? "error" : "info", body(random, (burst ? 500 : 150) + random.nextInt(400))));
      if (burst) for (int i = 0; i < 3; i++) logs.send(new Message("app-logs", "error", body(random, 400 + random.nextInt(400))));
      if (n % 5 == 0) pay.sendMessageInTransaction(new Message("payments", "card", "order-" + (100000 + n), body(random, 180)), random.nextInt(100));
      if (n % 12 == 0) { Message r = new Message("reminders", "cart", "cart-" + n, body(random, 90)); r.setDelayTimeLevel(5 + random.nextInt(5)); orders.send(r); }
      Thread.sleep(burst ? 70 : 180 + random.nextInt(160));
    }
    Thread.sleep(25000);
    orders.shutdown(); logs.shutdown(); pay.shutdown(); Thread.sleep(2000);
    System.out.println("orders " + n);
    broker.shutdown(); namesrv.shutdown(); System.exit(0);
  }
  static void start(DefaultMQProducer p) throws Exception { p.setNamesrvAddr(NAMESRV); p.start(); }
  interface Check { boolean ok(MessageExt m); }
  static DefaultMQPushConsumer consumer(String group, String topic, int tries, Check check) throws Exception {
    DefaultMQPushConsumer c = new DefaultMQPushConsumer(group); c.setEnableTrace(!group.equals("invoice-service")); c.setNamesrvAddr(NAMESRV); c.setMaxReconsumeTimes(tries); c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(topic, "*"); c.setConsumeMessageBatchMaxSize(1);
    c.registerMessageListener((MessageListenerConcurrently) (ms, x) -> { for (MessageExt m : ms) if (!check.ok(m)) return ConsumeConcurrentlyStatus.RECONSUME_LATER; return ConsumeConcurrentlyStatus.CONSUME_SUCCESS; });
    return c; }
  static final String[] WORDS = "the order of customer was moved to page cart with coupon and paid by card in shop region price total item shipped address".split(" ");
  static byte[] body(Random r, int size) { StringBuilder s = new StringBuilder(size + 12); while (s.length() < size) s.append(WORDS[r.nextInt(WORDS.length)]).append(' '); return s.toString().getBytes(StandardCharsets.UTF_8); }
}
