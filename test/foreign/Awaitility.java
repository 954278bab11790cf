package org.awaitility;

import java.time.Duration;
import java.util.concurrent.Callable;

/**
 * The part of the library Awaitility that Curator's tests use; Debian does not
 * have it.  They check a condition until it holds, for at most ten seconds.
 */
public final class Awaitility {
    public interface Checked {
        void run() throws Throwable;
    }

    private final String what;
    private long intervalMs = 100;

    private Awaitility(String what) {
        this.what = what;
    }

    public static Awaitility await() {
        return new Awaitility("what is awaited");
    }

    public static Awaitility await(String what) {
        return new Awaitility(what);
    }

    public Awaitility pollInterval(Duration interval) {
        intervalMs = interval.toMillis();
        return this;
    }

    /** Does nothing else. */
    public Awaitility pollInSameThread() {
        return this;
    }

    public void until(Callable<Boolean> holds) {
        untilAsserted(() -> {
            if (!holds.call()) throw new AssertionError(what);
        });
    }

    public void untilAsserted(Checked assertion) {
        long end = System.nanoTime() + 10_000_000_000L;
        while (true) {
            try {
                assertion.run();
                return;
            } catch (AssertionError failure) {
                if (System.nanoTime() > end) throw failure;
            } catch (Throwable other) {
                throw new RuntimeException(other);
            }
            pause();
        }
    }

    private void pause() {
        try {
            Thread.sleep(intervalMs);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new RuntimeException(e);
        }
    }
}
