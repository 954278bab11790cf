import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.*;

import java.io.*;
import java.net.URI;
import java.net.http.*;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;
import org.junit.jupiter.api.*;
import org.junit.jupiter.api.extension.*;

/** A server for each test, and its clients; both end with the test. */
class Zke implements BeforeEachCallback, AfterEachCallback {
    private Process server;
    private int port;
    private final List<CuratorFramework> clients = new ArrayList<>();

    @Override
    public void beforeEach(ExtensionContext context) throws Exception {
        server = new ProcessBuilder("zke", ":memory:", "serve", "--port", "0", "--print-port",
                "--control").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        port = Integer.parseInt(new BufferedReader(
                new InputStreamReader(server.getInputStream())).readLine());
    }

    @Override
    public void afterEach(ExtensionContext context) throws Exception {
        for (CuratorFramework client : clients) client.close();
        server.destroy();
        server.waitFor();
    }

    CuratorFramework connect() throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                "127.0.0.1:" + port, 10_000, 5_000, new RetryForever(50));
        clients.add(client);
        client.start();
        assertTrue(client.blockUntilConnected(10, SECONDS));
        return client;
    }

    /** Does what doc/testing-recipes.md has under "Asking for a fault". */
    String order(String order) throws Exception {
        HttpResponse<String> answer = HttpClient.newHttpClient().send(
                HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/control"))
                        .version(HttpClient.Version.HTTP_1_1)
                        .POST(HttpRequest.BodyPublishers.ofString(order)).build(),
                HttpResponse.BodyHandlers.ofString());
        assertEquals(200, answer.statusCode(), answer.body());
        return answer.body();
    }

    static String session(CuratorFramework client) throws Exception {
        return " session=" + client.getZookeeperClient().getZooKeeper().getSessionId();
    }
}

class RecipesTest {
    @RegisterExtension
    final Zke zke = new Zke();

    @Test
    void aMutexIsLostWithItsSession() throws Exception {
        CuratorFramework one = zke.connect(), other = zke.connect();
        CountDownLatch lost = new CountDownLatch(1);
        one.getConnectionStateListenable().addListener((client, state) -> {
            if (state == ConnectionState.LOST) lost.countDown();
        });
        InterProcessMutex mutex = new InterProcessMutex(one, "/lock");
        InterProcessMutex rival = new InterProcessMutex(other, "/lock");
        mutex.acquire();
        assertFalse(rival.acquire(1, SECONDS));

        zke.order("expire" + Zke.session(one));

        assertTrue(rival.acquire(10, SECONDS));
        assertTrue(lost.await(10, SECONDS));
        // So a program has to listen: the mutex does not know.
        assertTrue(mutex.isAcquiredInThisProcess());
    }

    @Test
    void aLeaderWithoutASessionIsReplaced() throws Exception {
        CuratorFramework one = zke.connect(), other = zke.connect();
        CountDownLatch deposed = new CountDownLatch(1);
        try (LeaderLatch leader = new LeaderLatch(one, "/leader", "one");
                LeaderLatch next = new LeaderLatch(other, "/leader", "other")) {
            leader.addListener(new LeaderLatchListener() {
                @Override
                public void isLeader() {}

                @Override
                public void notLeader() {
                    deposed.countDown();
                }
            });
            leader.start();
            assertTrue(leader.await(10, SECONDS));
            next.start();

            zke.order("expire" + Zke.session(one));

            assertTrue(next.await(10, SECONDS));
            assertTrue(deposed.await(10, SECONDS));
        }
    }

    @Test
    void aLostReplyLeavesOneNode() throws Exception {
        CuratorFramework client = zke.connect();
        InterProcessMutex mutex = new InterProcessMutex(client, "/lock");
        zke.order("drop-after type=create path=/lock/*");

        assertTrue(mutex.acquire(10, SECONDS));

        assertTrue(zke.order("wait fault=1").contains("\"fired\":1"));
        assertEquals(1, client.getChildren().forPath("/lock").size());
        mutex.release();
        assertEquals(0, client.getChildren().forPath("/lock").size());
    }
}
