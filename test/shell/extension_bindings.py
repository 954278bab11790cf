"""What the package for Python promises; `extension_bindings.sh` runs it."""
import asyncio
import os
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import zkembed

HOLDER = """
import sys, time, zkembed
z = zkembed.connect(sys.argv[1])
print(z.lock("l").acquire(), flush=True)
time.sleep(60)
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.room = tempfile.TemporaryDirectory()
        self.file = self.room.name + "/a.db"
        self.a, self.b = (zkembed.connect(self.file) for _ in "ab")

    def tearDown(self):
        self.a.db.close()
        self.b.db.close()
        self.room.cleanup()

    def line(self, lock):
        return self.a.db.execute("SELECT count(*) FROM zke_nodes WHERE path "
                                 "GLOB ?", (f"/locks/{lock}/*",)).fetchone()[0]


class Blocking(Case):
    def test_lock(self):
        with self.a.lock("l") as token:
            self.assertIsNone(self.b.lock("l").acquire(0.05))
            with self.assertRaises(zkembed.Timeout) as caught:
                with self.b.lock("l", timeout=0):
                    pass
            self.assertEqual(caught.exception.code, "ZKE_OPERATIONTIMEOUT")
            with self.assertRaises(zkembed.Error) as caught:
                self.a.lock("l").acquire()
            self.assertEqual(caught.exception.code, "ZKE_MISUSE")
        with self.b.lock("l") as later:
            self.assertGreater(later, token)

    def test_kinds(self):
        with self.a.semaphore("s", 2), self.b.semaphore("s", 2):
            c = zkembed.connect(self.file)
            self.assertIsNone(c.semaphore("s", 2).acquire(0.05))
            c.db.close()
        with self.a.election("e", "ann"):
            self.assertEqual(self.b.call("leader", "e"), "ann")
            self.assertIsNone(self.b.election("e", "bob").acquire(0.05))
        self.assertIsNone(self.b.call("leader", "e"))

    def test_queue(self):
        queue, other = self.a.queue("q"), self.b.queue("q")
        began = time.monotonic()
        queue.put(b"late", delay=1)
        queue.put(b"first")
        with self.assertRaises(ZeroDivisionError), other.get(1) as item:
            1 / 0
        with other.get(1) as item:  # it came back
            self.assertEqual(item.data, b"first")
        item = other.get(30)
        self.assertEqual(item.data, b"late")
        self.assertGreater(time.monotonic() - began, 0.9)
        item.ack()
        self.assertIsNone(other.get(0))

    def test_change(self):
        self.a.call("create", "/c", b"")
        self.assertIsNone(self.b.wait("/c", 0, 0.05))
        timer = threading.Timer(0.1, lambda: subprocess.check_call(
            [os.environ["ZKE"], self.file, "set", "/c", "1"]))
        timer.start()
        self.assertEqual(self.b.wait("/c", 0, 30), 1)
        timer.join()

    def test_failure_rolls_back_before_release(self):
        self.a.db.execute("CREATE TABLE t(x)")
        with self.assertRaises(ZeroDivisionError), self.a.lock("l"):
            self.a.db.execute("BEGIN")
            self.a.db.execute("INSERT INTO t VALUES(1)")
            1 / 0
        self.assertEqual(self.line("l"), 0)
        self.assertEqual(self.b.db.execute("SELECT count(*) FROM t").fetchone(),
                         (0,))

    def test_transactions_of_pythons_own(self):
        db = sqlite3.connect(self.file)
        z = zkembed.Session(db)
        db.execute("CREATE TABLE t(x)")
        db.execute("INSERT INTO t VALUES(1)")  # begins one
        with self.assertRaisesRegex(zkembed.Error, "isolation_level=None"):
            z.lock("l").acquire(1)
        db.commit()
        z.lock("l").acquire(1)
        db.close()

    def test_a_lost_lock_can_be_taken_again(self):
        lock = self.a.lock("l")
        lock.acquire()
        [(path,)] = self.b.db.execute("SELECT path FROM zke_children_of(?)",
                                      ("/locks/l",)).fetchall()
        self.b.call("delete", path)
        with self.assertRaisesRegex(zkembed.Error, "ZKE_LOST"):
            lock.release()
        self.assertIsNotNone(lock.acquire(0))
        self.a.db.execute("BEGIN IMMEDIATE")
        with self.assertRaisesRegex(zkembed.Error, "ZKE_MISUSE"):
            lock.release()
        self.a.db.execute("COMMIT")
        lock.release()

    def test_no_other_extension(self):
        with self.assertRaisesRegex(sqlite3.OperationalError, "not authorized"):
            self.a.db.execute("SELECT load_extension('other')")

    def test_holder_is_killed(self):
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, self.file],
                                  stdout=subprocess.PIPE, text=True)
        token = int(holder.stdout.readline())
        self.assertIsNone(self.a.lock("l").acquire(0))
        threading.Timer(0.1, holder.kill).start()
        self.assertGreater(self.a.lock("l").acquire(30), token)
        holder.communicate()


class Interrupt(Case):
    def interrupted(self, wait):
        """How long after ^C it ends."""
        begins = threading.Event()

        def interrupt():
            begins.wait()
            time.sleep(0.1)
            self.at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            begins.set()
            wait()
        thread.join()
        return time.monotonic() - self.at

    def test_waits(self):
        """Within 100 ms, once on a machine that may be busy."""
        with self.a.lock("l"):
            times = [self.interrupted(self.b.lock("l").acquire)
                     for _ in range(3)]
            self.assertLess(min(times), 0.1)
            self.assertEqual(self.line("l"), 1)
        self.assertLess(min(self.interrupted(self.b.queue("q").get)
                            for _ in range(3)), 0.1)
        self.a.queue("q").put("x")
        with self.a.queue("q").get(0) as item:  # nobody else is in its line
            self.assertEqual(item.data, b"x")
        self.assertIsNotNone(self.b.lock("l").acquire(0))


class Loop(Case):
    def test_coroutines(self):
        asyncio.run(self.together())

    async def together(self):
        """Several wait by one connection at the same time."""
        self.a.call("create", "/c", b"")
        held = self.a.lock("l")
        await held.acquire_async()
        lock = self.b.lock("l")
        waits = [asyncio.create_task(w) for w in (
            lock.acquire_async(99), self.b.queue("q").get_async(99),
            self.b.wait_async("/c", 0, 99), self.b.wait_async("/d", -1, 0.1))]
        self.assertIsNone(await waits[3])
        self.assertEqual([w.done() for w in waits],
                         [False, False, False, True])
        self.a.queue("q").put("x")
        self.a.call("set", "/c", b"1")
        held.release()
        token, item, version, none = await asyncio.wait_for(
            asyncio.gather(*waits), 60)
        self.assertEqual((item.data, version, none), (b"x", 1, None))
        with self.assertRaises(zkembed.Timeout):
            async with self.a.lock("l", timeout=0.05):
                pass
        waiter = asyncio.create_task(self.a.lock("l").acquire_async())
        while self.line("l") < 2:
            await asyncio.sleep(0.001)
        waiter.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiter
        self.assertEqual(self.line("l"), 1)
        self.assertIsNotNone(token)
        lock.release()
        await self.aside()

    async def aside(self):
        """Another call of the connection is in time for the event."""
        held, lock = self.a.lock("l"), self.b.lock("l")
        held.acquire()
        waiter = asyncio.create_task(lock.acquire_async())
        while self.line("l") < 2:
            await asyncio.sleep(0.001)
        held.release()
        select.select([self.b.call("fd")], [], [])
        self.b.lock("m").acquire()
        await asyncio.wait_for(waiter, 60)


unittest.main()
