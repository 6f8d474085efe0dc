// One member of a JGroups group: it sends to all, takes what all send, and is told what to do line
// by line, as `member.py` is. The stack is the `tcp.xml` that comes with JGroups, with the named
// protocol for total order above its flow control, where JGroups' own `sequencer.xml` has it.
//
//   java -cp jgroups.jar:. JGroupsMember PROTOCOL NUMBER SIZE

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.View;
import org.jgroups.protocols.UFC;
import org.jgroups.stack.Protocol;
import org.jgroups.stack.ProtocolStack;
import org.jgroups.util.MessageBatch;

public class JGroupsMember implements Receiver {
    private final int number;
    private final int size;
    private JChannel channel;
    private int members;
    private long total;
    private long own;
    private long digest;
    private List<Long> latencies = new ArrayList<>();

    JGroupsMember(int number, int size) {
        this.number = number;
        this.size = size;
    }

    public static void main(String[] given) throws Exception {
        PrintStream told = System.out;
        System.setOut(System.err);  // JGroups greets
        var member = new JGroupsMember(Integer.parseInt(given[1]), Integer.parseInt(given[2]));
        member.join(given[0]);
        told.println("{}");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            told.println(switch (words[0]) {
                case "begun" -> member.begun(Integer.parseInt(words[1]));
                case "measure" -> member.measure(
                    Integer.parseInt(words[1]), Double.parseDouble(words[2]), Integer.parseInt(words[3]));
                default -> member.count();
            });
        }
        System.exit(0);  // without the farewell: all members end at once
    }

    private void join(String protocol) throws Exception {
        channel = new JChannel("tcp.xml");
        Class<?> kind = Class.forName("org.jgroups.protocols." + protocol);
        Protocol order = (Protocol) kind.getDeclaredConstructor().newInstance();
        channel.getProtocolStack().insertProtocol(order, ProtocolStack.Position.ABOVE, UFC.class);
        channel.setReceiver(this);
        channel.connect("bench");
    }

    private synchronized String begun(int wanted) throws InterruptedException {
        while (members < wanted) wait();
        return "{}";
    }

    @Override
    public synchronized void viewAccepted(View view) {
        members = view.size();
        notifyAll();
    }

    @Override
    public void receive(Message message) {
        take(message);
    }

    @Override
    public void receive(MessageBatch batch) {
        for (Message message : batch) take(message);
    }

    private synchronized void take(Message message) {
        ByteBuffer body = ByteBuffer.wrap(message.getArray(), message.getOffset(), message.getLength());
        int source = body.getInt();
        int index = body.getInt();
        total++;
        digest = 31 * digest + 1_000_003L * source + index;
        if (source == number) {
            own++;
            long sent = body.getLong();
            if (sent != 0) latencies.add(System.nanoTime() - sent);
            notifyAll();
        }
    }

    // Send with at most `window` under way until the time is over, and wait for all of it.
    private String measure(int batch, double seconds, int window) throws Exception {
        long start = System.nanoTime();
        long first;
        int sent = 0;
        synchronized (this) {
            latencies = new ArrayList<>();
            first = own;
        }
        while (System.nanoTime() - start < seconds * 1e9) {
            long now = System.nanoTime();
            for (int i = 1; i <= batch; i++) {
                // The last of a batch says when the batch was handed over.
                byte[] body = new byte[size];
                ByteBuffer.wrap(body).putInt(number).putInt(sent++).putLong(i == batch ? now : 0);
                channel.send(new BytesMessage(null, body));
            }
            synchronized (this) {
                while (sent - (own - first) >= window) wait();
            }
        }
        synchronized (this) {
            while (sent > own - first) wait();
            Collections.sort(latencies);
            double latency = latencies.get(latencies.size() / 2) / 1e3;
            return String.format("{\"sent\": %d, \"took_s\": %.6f, \"latency_us\": %.1f}",
                sent, (System.nanoTime() - start) / 1e9, latency);
        }
    }

    private synchronized String count() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return String.format("{\"total\": %d, \"digest\": \"%016x\", \"cpu_s\": %.6f}",
            total, digest, system.getProcessCpuTime() / 1e9);
    }
}
