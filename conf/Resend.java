import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Base64;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;

/** Sends the lines of `query list --bodies --export FILE.jsonl` again: java -cp "$ROCKETMQ_HOME/lib/*" Resend.java NAMESRV FILE */
public class Resend {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("resend");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        int sent = 0;
        try (BufferedReader lines = Files.newBufferedReader(Paths.get(args[1]))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                producer.send(message(JSON.parseObject(line)));  // throws unless a broker has it
                sent++;
            }
        } finally {
            System.out.println(sent + " sent");
            producer.shutdown();
        }
    }

    static Message message(JSONObject row) {
        String text = row.getString("body");
        byte[] body = text != null ? text.getBytes(StandardCharsets.UTF_8)
            : Base64.getDecoder().decode(row.getString("body_base64"));
        Message message = new Message(row.getString("topic"), body);
        message.setFlag(row.getIntValue("flag"));
        JSONObject properties = row.getJSONObject("properties");
        for (Map.Entry<String, Object> property : properties.entrySet()) {
            if (!MessageConst.STRING_HASH_SET.contains(property.getKey())) {
                message.putUserProperty(property.getKey(), (String) property.getValue());
            }
        }
        if (properties.containsKey(MessageConst.PROPERTY_TAGS)) {
            message.setTags(properties.getString(MessageConst.PROPERTY_TAGS));
        }
        if (properties.containsKey(MessageConst.PROPERTY_KEYS)) {
            message.setKeys(properties.getString(MessageConst.PROPERTY_KEYS));
        }
        return message;
    }
}
