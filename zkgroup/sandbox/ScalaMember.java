// A member of a group through Kafka's own high-level consumer, from 0.8.2 to 1.1. ConsoleConsumer has one
// stream and prints values alone; this has any number of streams and can print where each message came from.
// Compiled when it is started, by Janino: Java 7 without inference of generics.
//
// Arguments: PROPERTIES topics|whitelist|blacklist EXPRESSION STREAMS values|records

import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.consumer.Blacklist;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerTimeoutException;
import kafka.consumer.KafkaStream;
import kafka.consumer.TopicFilter;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

public class ScalaMember {
    static final FileOutputStream out = new FileOutputStream(FileDescriptor.out);

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        FileInputStream file = new FileInputStream(args[0]);
        properties.load(file);
        file.close();
        final ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(properties));
        Runtime.getRuntime().addShutdownHook(new Thread() {
            public void run() {
                connector.shutdown(); // commits, gives up what it owns, and signs off
            }
        });
        List threads = new ArrayList();
        for (Object stream : streams(connector, args[1], args[2], Integer.parseInt(args[3]))) {
            threads.add(new Reader((KafkaStream) stream, args[4].equals("records")));
        }
        System.err.println("Scala member started with " + threads.size() + " streams");
        for (Object thread : threads) ((Thread) thread).start();
        for (Object thread : threads) ((Thread) thread).join();
        System.exit(0);
    }

    static List streams(ConsumerConnector connector, String kind, String expression, int count) {
        if (kind.equals("topics")) {
            Map wanted = new HashMap();
            String[] topics = expression.split(",");
            for (int i = 0; i < topics.length; i++) wanted.put(topics[i], Integer.valueOf(count));
            List all = new ArrayList();
            for (Object ofTopic : connector.createMessageStreams(wanted).values()) all.addAll((List) ofTopic);
            return all;
        }
        TopicFilter filter = kind.equals("whitelist") ? (TopicFilter) new Whitelist(expression) : new Blacklist(expression);
        return connector.createMessageStreamsByFilter(filter, count);
    }

    static class Reader extends Thread {
        final KafkaStream stream;
        final boolean records;

        Reader(KafkaStream stream, boolean records) {
            this.stream = stream;
            this.records = records;
        }

        public void run() {
            try {
                read();
            } catch (ConsumerTimeoutException end) {
                System.err.println("no message within consumer.timeout.ms");
            } catch (IOException closed) {
                System.exit(0); // nobody reads any more: leave cleanly
            } catch (Throwable error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1); // as a crash: whoever waits for this member shall see it
            }
        }

        void read() throws IOException {
            Iterator messages = ((Iterable) this.stream).iterator();
            while (messages.hasNext()) print((MessageAndMetadata) messages.next());
        }

        // A line goes out by one write, before the next message is asked for: nothing is counted as consumed (and
        // committed) that was not printed.
        void print(MessageAndMetadata message) throws IOException {
            ByteArrayOutputStream line = new ByteArrayOutputStream(256);
            if (this.records) {
                line.write((message.topic() + "\t" + message.partition() + "\t" + message.offset() + "\t").getBytes("UTF-8"));
                if (message.key() != null) line.write((byte[]) message.key());
                line.write('\t');
            }
            if (message.message() != null) line.write((byte[]) message.message());
            line.write('\n');
            out.write(line.toByteArray());
        }
    }
}
