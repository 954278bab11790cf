"""extension_worker.py KIND NAME SEED DIRECTORY - one process of the torture

It takes the lock and writes rows under it, pushes items, and pops and finishes
items, until DIRECTORY/stop exists, and writes what it does to a history that
extension_torture.py checks.  KIND is how it reaches the file:

    python   the package zkembed
    sqlite3  the SQLite shell, which has loaded the extension
    zke      the C library, by `zke --coprocess`; its rows by plain SQLite

A line of the history is EVENT WHAT NAME TIME, in ms.  What a process is about
to do, it writes before; what it has done, after.

    H token   it holds the lock          L token   it is about to release it
    P item    it is about to push        p item    it has
    C item    it has claimed             r item    it is about to return it
    a item    it is about to ack         A item    it has
    W -       it waits for an item       T -       none came in time
    E text    it has failed
"""
import json
import os
import random
import sqlite3
import subprocess
import sys
import time

LOCK, QUEUE, WAIT_MS = "torture", "torture", 2000
MISTAKE = int(os.environ.get("MISTAKE") or 0)


class Package:
    """The package for Python."""

    def __init__(self, database):
        import zkembed
        self.z = zkembed.connect(database, timeout=10)
        self.held, self.items = self.z.lock(LOCK), self.z.queue(QUEUE)
        self.rows = lambda sql: self.z.db.execute(sql).fetchall()

    def lock(self):
        return self.held.acquire(WAIT_MS / 1000)

    def unlock(self):
        self.held.release()

    def push(self, item):
        self.items.put(item)

    def pop(self):
        self.item = self.items.get(WAIT_MS / 1000)
        return self.item and self.item.data.decode()

    def ack(self):
        self.item.ack()

    def release(self):
        self.item.release()


class Shell:
    """The SQLite shell, through its standard input and output."""

    def __init__(self, database):
        self.shell = subprocess.Popen(
            ["stdbuf", "-oL", "sqlite3", "-batch", database], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, bufsize=1)
        self.say(".timeout 10000\n.load " + os.environ["ZKE_EXTENSION"])

    def say(self, text):
        """The shell's answer, as lines."""
        self.shell.stdin.write(f"{text}\nSELECT 'done';\n")
        self.shell.stdin.flush()
        lines = []
        for line in self.shell.stdout:
            if line == "done\n":
                return lines
            lines.append(line.rstrip("\n"))
        raise RuntimeError("the SQLite shell has ended")

    def rows(self, sql):
        lines = self.say(sql + ";")
        if any("rror" in line for line in lines):
            raise RuntimeError(lines)
        return [[int(x) if x else None for x in line.split("|")]
                for line in lines]

    def one(self, expression):
        lines = self.say(f"SELECT {expression};")
        if len(lines) != 1 or "rror" in lines[0]:
            raise RuntimeError(f"{expression}: {lines}")
        return lines[0] or None

    def lock(self):
        return self.one(f"zke_lock('{LOCK}', {WAIT_MS})")

    def unlock(self):
        self.one(f"zke_unlock('{LOCK}')")

    def push(self, item):
        self.one(f"zke_queue_push('{QUEUE}', '{item}')")

    def pop(self):
        self.item = self.one(f"zke_queue_pop('{QUEUE}', {WAIT_MS})")
        return self.item and self.one(
            f"CAST(zke_queue_data({self.item}) AS TEXT)")

    def ack(self):
        self.one(f"zke_queue_ack({self.item})")

    def release(self):
        self.one(f"zke_queue_release({self.item})")


class Coprocess:
    """The C library.  The rows are written by an SQLite without extension."""

    def __init__(self, database):
        self.zke = subprocess.Popen(
            [os.environ["ZKE"], database, "--coprocess"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.db = sqlite3.connect(database, 10, isolation_level=None)
        self.rows = lambda sql: self.db.execute(sql).fetchall()

    def run(self, *words):
        """The first row; None at the deadline."""
        print(json.dumps({"id": 1, "run": words}), file=self.zke.stdin,
              flush=True)
        said = json.loads(self.zke.stdout.readline())
        if said.get("error") in ("OPERATIONTIMEOUT", "HELD"):
            return None
        if "error" in said:
            raise RuntimeError(said)
        return said["rows"][0] if said["rows"] else {}

    def lock(self):
        got = self.run("lock", LOCK, "--wait", f"{WAIT_MS}ms")
        return got and got["token"]

    def unlock(self):
        self.run("release", f"/locks/{LOCK}")

    def push(self, item):
        self.run("queue", "push", QUEUE, item)

    def pop(self):
        got = self.run("queue", "claim", QUEUE, "--wait", f"{WAIT_MS}ms")
        return got and got["data"]

    def ack(self):
        self.run("queue", "ack", QUEUE)

    def release(self):
        self.run("queue", "release", QUEUE)


KINDS = {"python": Package, "sqlite3": Shell, "zke": Coprocess}


class Worker:
    def __init__(self, kind, name, seed, directory):
        self.name, self.chance = name, random.Random(seed)
        self.history = os.open(directory + "/history",
                               os.O_WRONLY | os.O_APPEND)
        self.stop, self.pushed = directory + "/stop", 0
        self.by = KINDS[kind](directory + "/torture.db")

    def note(self, event, what):
        os.write(self.history, f"{event} {what} {self.name} "
                 f"{time.monotonic_ns() // 1000000}\n".encode())

    def linger(self):
        time.sleep(self.chance.choice([0, 0, 0.001, 0.004]))

    def do_lock(self):
        """Read the last row and write the next; none may come between."""
        token = "0" if MISTAKE == 1 else self.by.lock()
        if token is None:
            return
        if MISTAKE != 1:
            self.note("H", token)
        (last,), = self.by.rows("SELECT max(n) FROM work")
        self.linger()
        self.by.rows("BEGIN IMMEDIATE")
        self.by.rows(f"INSERT INTO work VALUES({(last or 0) + 1}, {token})")
        self.by.rows("COMMIT")
        if MISTAKE != 1:
            self.note("L", token)
            self.by.unlock()

    def do_push(self):
        self.pushed += 1
        item = f"{self.name}.{self.pushed}"
        self.note("P", item)
        if MISTAKE != 2 or self.pushed % 8:
            self.by.push(item)
        self.note("p", item)

    def do_pop(self):
        """Do an item, or return it one time in four."""
        self.note("W", "-")
        item = time.sleep(WAIT_MS / 1000) if MISTAKE == 4 else self.by.pop()
        if item is None:
            self.note("T", "-")
            return
        self.note("C", item)
        self.linger()
        if self.chance.random() < 0.25:
            self.note("r", item)
            self.by.release()
            return
        self.note("a", item)
        if MISTAKE == 3:
            self.by.release()
        else:
            self.by.ack()
        self.note("A", item)

    def run(self):
        """Run until it is told to stop, or the torture is gone."""
        parent = os.getppid()
        rounds = [self.do_lock, self.do_lock, self.do_push, self.do_pop]
        while not os.path.exists(self.stop) and os.getppid() == parent:
            self.chance.choice(rounds)()


def main():
    kind, name, seed, directory = sys.argv[1:]
    worker = Worker(kind, name, int(seed), directory)
    try:
        worker.run()
    except Exception as e:
        worker.note("E", f"{type(e).__name__}:{e}".replace("\n", " "))
        raise


if __name__ == "__main__":
    main()
