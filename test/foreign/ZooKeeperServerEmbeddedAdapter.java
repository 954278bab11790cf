package org.apache.curator.test;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.file.Files;
import java.util.Properties;
import org.apache.zookeeper.server.quorum.QuorumPeerConfig;

/**
 * Replaces the class by which Curator's TestingServer and TestingCluster run a
 * ZooKeeper in the test's own process: it starts another process, by the script
 * in SERVER.  The servers of a cluster share a file, in the first one's data
 * directory.
 */
public class ZooKeeperServerEmbeddedAdapter implements ZooKeeperMainFace {
    private QuorumConfigBuilder builder;
    private int index;
    private File configuration;
    private Process process;

    @Override
    public void configure(QuorumConfigBuilder config, int instanceIndex) throws Exception {
        builder = config;
        index = instanceIndex;
        Properties properties = config.buildConfigProperties(instanceIndex);
        File first = config.getInstanceSpec(0).getDataDirectory();
        StringBuilder text = new StringBuilder("zke.file=" + first + "/app.db\n");
        for (String name : properties.stringPropertyNames()) {
            text.append(name).append('=').append(properties.getProperty(name)).append('\n');
        }
        File own = config.getInstanceSpec(instanceIndex).getDataDirectory();
        Files.createDirectories(first.toPath());
        Files.createDirectories(own.toPath());
        configuration = new File(own, "zoo.cfg");
        try (OutputStream out = Files.newOutputStream(configuration.toPath())) {
            out.write(text.toString().getBytes());
        }
    }

    @Override
    public QuorumPeerConfig getConfig() throws Exception {
        return builder == null ? null : builder.buildConfig(index);
    }

    /** Returns when the server has printed its port. */
    @Override
    public void start() {
        try {
            String container = "znode.container.checkIntervalMs";
            process = new ProcessBuilder("sh", System.getenv("SERVER"), configuration.getPath(),
                    "-D" + container + "=" + System.getProperty(container, "60000"))
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            String port = new BufferedReader(new InputStreamReader(process.getInputStream())).readLine();
            if (port == null) throw new IOException("the server has ended");
        } catch (IOException e) {
            throw new FailedServerStartException(e);
        }
    }

    @Override
    public void kill() {
        stop(true);
    }

    @Override
    public void close() {
        stop(false);
    }

    private void stop(boolean atOnce) {
        if (process == null) return;
        if (atOnce) process.destroyForcibly();
        else process.destroy();
        try {
            process.waitFor();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        process = null;
    }
}
