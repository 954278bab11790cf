"""extension_torture.py ZKE EXTENSION PACKAGES ROOM - processes of several
languages, killed

Processes in Python, in Node, of the SQLite shell and of zke (C) use one file
at the same time: one lock, one table of rows that it protects, and one queue.
This program kills one after the other with SIGKILL and starts others.  At the
end it empties the queue and checks the history that they have written (see
extension_worker.py): never do two hold the lock or a claim on one item; tokens
grow; no row is lost or written twice; an item that was pushed is done once, and
comes again if its process died before; and no process waits for an item while
there is one.

    KILLS=n    how many; 40
    SEED=n     printed; it decides the kills, and what the processes do, as far
               as the scheduler lets it
    SECONDS=n  end after this time, whatever KILLS says; 60
    MISTAKE=n  a mistake to find: 1: no lock is taken; 2: pushes that do
               nothing; 3: a release instead of an ack; 4: none looks for items

A language that is not installed is left out, with a message.
"""
import collections
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SETTLE_S, PROGRESS_S = 30, 15
ASLEEP_MS = 1500  # of a wait of 2000: then it was not woken
environment = dict(os.environ)


class Found(Exception):
    """A finding of the torture."""


def number(name, default):
    return int(os.environ.get(name) or default)


# ---- what is installed ----

def node_has(driver):
    return subprocess.run(["node", "-e", f"require('{driver}')"],
                          env=environment, stderr=subprocess.DEVNULL
                          ).returncode == 0


def commands():
    """The commands that start a process, for each installed kind."""
    python = [sys.executable, HERE + "/extension_worker.py"]
    node = ["node", HERE + "/extension_worker.js"]
    found = {"zke": python + ["zke"]}
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        found["python"] = python + ["python"]
    else:
        print(f"left out: {sys.executable} cannot load extensions")
    if shutil.which("sqlite3") and shutil.which("stdbuf"):
        found["sqlite3"] = python + ["sqlite3"]
    else:
        print("left out: there is no sqlite3 (and stdbuf)")
    for driver in "sqlite3", "better-sqlite3":
        if shutil.which("node") and node_has(driver):
            found["node " + driver] = node + [driver]
        else:
            print(f"left out: node has no {driver}")
    return found


# ---- processes that come and go ----

class Torture:
    def __init__(self, room, seed):
        self.room, self.chance = room, random.Random(seed)
        self.commands, self.running, self.born = commands(), {}, 0
        self.kills = collections.Counter()
        self.history = os.open(room + "/history", os.O_RDWR | os.O_CREAT |
                               os.O_APPEND, 0o600)

    def start(self, kind):
        self.born += 1
        name = f"{kind.replace(' ', '-')}-{self.born}"
        seed = str(self.chance.randrange(2**31))
        command = self.commands[kind] + [name, seed, self.room]
        # A group of its own, so that its children are killed with it.
        process = subprocess.Popen(command, env=environment,
                                   start_new_session=True)
        self.running[name] = kind, process

    def kill(self, name):
        kind, process = self.running.pop(name)
        now = time.monotonic_ns() // 1000000
        os.write(self.history, f"K - {name} {now}\n".encode())
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.kills[kind] += 1
        return kind

    def ended(self, name, code):
        """It has failed: print why, if it could say so."""
        with open(self.room + "/history") as f:
            said = [x.strip() for x in f if x[0] == "E" and f" {name} " in x]
        raise Found(f"{name} has ended with {code}: {' '.join(said)}")

    def look(self):
        """None may have ended by itself, and they must make progress."""
        for name, (_, process) in self.running.items():
            if process.poll() is not None:
                self.ended(name, process.returncode)
        size = os.fstat(self.history).st_size
        if size != getattr(self, "size", None):
            self.size, self.moved = size, time.monotonic()
        if time.monotonic() - self.moved > PROGRESS_S:
            raise Found(f"nothing has happened for {PROGRESS_S} s")

    def run(self, kills, seconds):
        end = time.monotonic() + seconds
        for kind in self.commands:
            self.start(kind)
        time.sleep(1)
        while sum(self.kills.values()) < kills and time.monotonic() < end:
            time.sleep(self.chance.uniform(0.05, 0.7))
            self.look()
            self.start(self.kill(self.chance.choice(sorted(self.running))))

    def settle(self):
        """They must end by themselves when they are told to."""
        open(self.room + "/stop", "w").close()
        end = time.monotonic() + SETTLE_S
        for name, (_, process) in self.running.items():
            try:
                code = process.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Found(f"{name} does not come to its end") from None
            if code != 0:
                self.ended(name, code)

    def end(self):
        for _, process in self.running.values():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


# ---- the history ----

class Checker:
    """The history, line by line: a method for each event."""

    def __init__(self):
        self.holder, self.token = None, 0
        self.killed = set()  # or about to be: others may have what they had
        self.claimed = {}  # an item: by whom
        self.free = {}  # an item that can surely be claimed: since when
        self.waits = {}  # who waits: since when
        self.known, self.pushed = set(), set()
        self.acking, self.done = set(), set()

    def event(self, event, what, name, now):
        getattr(self, "on_" + event)(what, name, now)

    def on_E(self, what, name, now):
        raise Found(f"{name}: {what}")

    def on_K(self, what, name, now):
        self.killed.add(name)
        for item, by in self.claimed.items():
            if by == name and item not in self.acking:
                self.free[item] = now

    def on_H(self, token, name, now):
        if self.holder and self.holder not in self.killed:
            raise Found(f"{name} holds the lock while {self.holder} does")
        if int(token) <= self.token:
            raise Found(f"{name} has the token {token} after {self.token}")
        self.holder, self.token = name, int(token)

    def on_L(self, token, name, now):
        if self.holder == name:
            self.holder = None

    def on_P(self, item, name, now):
        self.known.add(item)

    def on_p(self, item, name, now):
        """Others may have claimed it meanwhile, and more."""
        self.pushed.add(item)
        if item not in self.acking and item not in self.claimed:
            self.free.setdefault(item, now)

    def on_C(self, item, name, now):
        if self.claimed.get(item) not in self.killed | {None}:
            raise Found(f"{name} has {item} while {self.claimed[item]} does")
        if item in self.done:
            raise Found(f"{name} has {item}, which was done")
        if item not in self.known:
            raise Found(f"{name} has {item}, which nobody has pushed")
        self.claimed[item] = name
        self.free.pop(item, None)

    def on_r(self, item, name, now):
        self.claimed.pop(item)
        self.free[item] = now

    def on_a(self, item, name, now):
        self.acking.add(item)

    def on_A(self, item, name, now):
        self.claimed.pop(item)
        self.done.add(item)

    def on_W(self, what, name, now):
        self.waits[name] = now

    def on_T(self, what, name, now):
        """A wait in vain: was there an item for most of the time?"""
        for item, since in self.free.items():
            if now - max(since, self.waits[name]) > ASLEEP_MS:
                raise Found(f"{name} waits for {ASLEEP_MS} ms while {item} is "
                            "there")

    def lost(self):
        """Each pushed item is done now, or its ack was killed."""
        return self.pushed - self.done - self.acking


def drain(database, checker):
    """Empty the queue by the extension, like any other process."""
    db = sqlite3.connect(database, isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(environment["ZKE_EXTENSION"])
    count = 0

    def one(sql, *values):
        return db.execute(sql, values).fetchone()[0]
    while (item := one("SELECT zke_queue_pop('torture', 0)")) is not None:
        data = one("SELECT zke_queue_data(?)", item).decode()
        for event in "CaA":
            checker.event(event, data, "the end", 0)
        one("SELECT zke_queue_ack(?)", item)
        count += 1
    rows = db.execute("SELECT n, token FROM work ORDER BY n").fetchall()
    one("SELECT zke_close()")
    db.close()
    return count, rows


def check_rows(rows, tokens):
    """Rows come one after the other, from one holder after the other."""
    for at, (n, token) in enumerate(rows, 1):
        if n != at:
            raise Found(f"row {at} is missing")
        if token not in tokens:
            raise Found(f"row {n} is of {token}, which was no holder's")
    if any(a[1] >= b[1] for a, b in zip(rows, rows[1:])):
        raise Found("rows are not in the order of their tokens")


def check(torture, zke):
    """Check all of it; returns a summary in a sentence."""
    checker, tokens, counts = Checker(), set(), collections.Counter()
    with open(torture.room + "/history") as f:
        for line in f:
            event, what, name, now = re.match(
                r"(\w) (.*) (\S+) (\d+)\n", line).groups()
            counts[event] += 1
            tokens.update([int(what)] if event == "H" else [])
            checker.event(event, what, name, int(now))
    left, rows = drain(torture.room + "/torture.db", checker)
    if checker.lost():
        raise Found(f"lost items: {sorted(checker.lost())[:5]}")
    check_rows(rows, tokens)
    for done in "H", "p", "A":
        if counts[done] == 0:
            raise Found(f"no event {done}: the torture has tried nothing")
    if subprocess.run([zke, torture.room + "/torture.db", "check"]).returncode:
        raise Found("the file is damaged")
    return (f"{counts['H']} holders, {len(rows)} rows, {counts['p']} items "
            f"pushed, {counts['C']} claimed, {counts['A']} done, {left} left")


def prepare(room):
    db = sqlite3.connect(room + "/torture.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE work(n INTEGER PRIMARY KEY, token INTEGER)")
    db.enable_load_extension(True)
    db.load_extension(environment["ZKE_EXTENSION"])
    # Make the queue first: zke would make one that buries items.
    db.execute("SELECT zke_queue_push('torture', 'first')")
    db.execute("SELECT zke_queue_ack(zke_queue_pop('torture'))")
    db.close()


def main():
    zke, extension, packages, rooms = map(os.path.abspath, sys.argv[1:])
    path = os.environ.get("NODE_PATH")
    environment.update(ZKE=zke, ZKE_EXTENSION=extension,
                       PYTHONPATH=packages + "/python",
                       NODE_PATH=packages + (":" + path if path else ""))
    seed = number("SEED", time.time_ns() % 10**6)
    print(f"SEED={seed}", flush=True)
    room = tempfile.mkdtemp(prefix="extension-torture-", dir=rooms)
    prepare(room)
    torture = Torture(room, seed)
    try:
        torture.run(number("KILLS", 40), number("SECONDS", 60))
        torture.settle()
        said = check(torture, zke)
    except Found as e:
        print(f"FOUND: {e}\nkept: {room}\nagain: SEED={seed}")
        return 1
    finally:
        torture.end()
    kills = ", ".join(f"{kind} {n}"
                      for kind, n in sorted(torture.kills.items()))
    print(f"killed: {kills}\n{said}")
    shutil.rmtree(room)
    return 0


if __name__ == "__main__":
    sys.exit(main())
