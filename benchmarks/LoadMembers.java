// Many Scala members in one virtual machine, which register, own, and read nothing. Compiled when it is
// started, by Janino: Java 7 without inference of generics.
//
// Arguments: PROPERTIES TOPIC. Each line of the input is "join NAME" or "leave NAME"; its end ends all.

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.javaapi.consumer.ConsumerConnector;

public class LoadMembers {
    static final Map members = Collections.synchronizedMap(new HashMap());

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            new Change(words[0], words[1], args[0], args[1]).start();
        }
        Runtime.getRuntime().halt(0);
    }

    static class Change extends Thread {
        final String what;
        final String name;
        final String properties;
        final String topic;

        Change(String what, String name, String properties, String topic) {
            this.what = what;
            this.name = name;
            this.properties = properties;
            this.topic = topic;
        }

        public void run() {
            try {
                if (this.what.equals("leave")) {
                    ((ConsumerConnector) members.remove(this.name)).shutdown();
                } else {
                    this.joinGroup();
                }
            } catch (Throwable error) {
                System.err.println(this.name + ": " + error);
            }
        }

        void joinGroup() throws Exception {
            Properties known = new Properties();
            FileInputStream file = new FileInputStream(this.properties);
            known.load(file);
            file.close();
            known.setProperty("consumer.id", this.name);
            ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(known));
            members.put(this.name, connector);
            Map wanted = new HashMap();
            wanted.put(this.topic, Integer.valueOf(1));
            connector.createMessageStreams(wanted);
        }
    }
}
