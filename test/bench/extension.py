"""extension.py EXTENSION PACKAGES ROOM - the extension's cost from Python

The extension is compared with the functions of C below it, and with what else
Python programs of one machine use: a row with an owner that is polled every
millisecond, flock(2), and the packages filelock and honker if they are
installed.  Their samples alternate, so conditions are equal.  All times are in
microseconds: median, 95 of 100, and the median as a multiple of the
extension's.

    QUICK=1    a tenth of the samples
    ONLY=word  only parts with names that begin so

The time of a part with two processes begins when the first begins to act, and
ends when the other has what it waited for.
"""
import ctypes
import fcntl
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

QUICK = bool(os.environ.get("QUICK"))
ONLY = os.environ.get("ONLY") or ""
PAUSE_S = 0.005  # a waiter is asleep by then
CROWD, CROWD_S = 100, 5 if QUICK else 10
CROWD_ASLEEP_S = 2 if QUICK else 12  # a wait checks less and less often


def now():
    return time.monotonic_ns()


def times(full):
    return max(3, full // 10) if QUICK else full


# ---- the subjects: each has its own files and connection ----

class Extension:
    """SQL, as in a program without the package."""
    name = "extension"

    def __init__(self, room):
        self.db = sqlite3.connect(room + "/zke.db", isolation_level=None)
        self.db.enable_load_extension(True)
        self.db.load_extension(os.environ["ZKE_EXTENSION"])
        self.db.enable_load_extension(False)

    def one(self, sql, *values):
        return self.db.execute(sql, values).fetchone()[0]

    def prepare(self):
        if not self.one("SELECT zke_exists('/data')"):
            self.one("SELECT zke_create('/data', 'x')")
        self.db.execute("CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY)")
        self.one("SELECT zke_tell('t')")

    def insert(self):
        self.db.execute("INSERT INTO t DEFAULT VALUES")

    def told(self):
        return self.one("SELECT zke_version('/tables/t')")

    def read(self, version):
        self.wait(version, "/tables/t")
        self.one("SELECT max(n) FROM t")

    def lock(self):
        self.one("SELECT zke_lock('l')")

    def unlock(self):
        self.one("SELECT zke_unlock('l')")

    def waiters(self):
        return self.one("SELECT count(*) FROM zke_waiters")

    def get(self):
        self.one("SELECT zke_get('/data')")

    def push(self):
        self.one("SELECT zke_queue_push('q', 'item')")

    def pop(self):
        item = self.one("SELECT zke_queue_pop('q')")
        self.one("SELECT zke_queue_data(?)", item)
        self.one("SELECT zke_queue_ack(?)", item)

    def version(self):
        return self.one("SELECT zke_version('/data')")

    def change(self):
        self.one("SELECT zke_set('/data', 'y')")

    def wait(self, version, path="/data"):
        return self.one("SELECT zke_wait(?, ?)", path, version)


class Package(Extension):
    """The package for Python, which waits in poll()."""
    name = "package"

    def __init__(self, room):
        import zkembed
        self.z = zkembed.connect(room + "/zke.db")
        self.db, self.held = self.z.db, self.z.lock("l")
        self.items = self.z.queue("q")

    def lock(self):
        self.held.acquire()

    def unlock(self):
        self.held.release()

    def get(self):
        self.z.call("get", "/data")

    def push(self):
        self.items.put("item")

    def pop(self):
        with self.items.get():
            pass

    def wait(self, version, path="/data"):
        return self.z.wait(path, version)


class Functions:
    """The functions of C that the extension calls, without its SQL."""
    name = "C functions"

    def __init__(self, room):
        c, build = ctypes, os.path.dirname(os.environ["ZKE_EXTENSION"])
        c.CDLL(build + "/libzkembed.so", c.RTLD_GLOBAL)
        self.c = c.CDLL(build + "/libzkembed-recipes.so")
        self.c.zke_lock_acquire.argtypes = c.c_void_p, c.c_int64
        z, self.held = c.c_void_p(), c.c_void_p()
        self.must(self.c.zke_open((room + "/c.db").encode(), None, c.byref(z)))
        self.must(self.c.zke_lock_new(z, b"/locks/l", None,
                                      c.byref(self.held)))

    def must(self, rc):
        if rc:
            raise SystemExit(f"{self.name}: error {rc}")

    def prepare(self):
        pass

    def lock(self):
        self.must(self.c.zke_lock_acquire(self.held, 2**63 - 1))

    def unlock(self):
        self.must(self.c.zke_lock_release(self.held))


class Polled:
    """The program's own rows, polled every millisecond.  A lock's row need not
    be on the disk; the others are when the call returns, as the extension's."""
    name = "polled table"

    def __init__(self, room):
        self.db, self.locks = (
            sqlite3.connect(room + name, 10, isolation_level=None)
            for name in ("/polled.db", "/locks.db"))
        for db in self.db, self.locks:
            db.execute("PRAGMA journal_mode=WAL")
        self.locks.execute("PRAGMA synchronous=NORMAL")
        self.locks.execute(
            "CREATE TABLE IF NOT EXISTS lock(name PRIMARY KEY, owner)")
        self.db.executescript(
            "CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY);"
            "CREATE TABLE IF NOT EXISTS data(name PRIMARY KEY, x, version);"
            "CREATE TABLE IF NOT EXISTS queue(n INTEGER PRIMARY KEY, x, who)")
        self.me = os.getpid()

    def prepare(self):
        self.locks.execute("INSERT OR IGNORE INTO lock VALUES('l', NULL)")
        self.db.execute("INSERT OR IGNORE INTO data VALUES('data', 'x', 0)")

    def waiters(self):
        return CROWD  # as soon as they are told

    def poll(self, db, sql, *values):
        while (row := db.execute(sql, values).fetchone()) is None:
            time.sleep(0.001)
        return row[0]

    def lock(self):
        self.poll(self.locks, "UPDATE lock SET owner=? WHERE name='l' AND "
                  "owner IS NULL RETURNING 1", self.me)

    def unlock(self):
        self.locks.execute("UPDATE lock SET owner=NULL WHERE name='l' AND "
                           "owner=?", (self.me,))

    def get(self):
        self.db.execute("SELECT x FROM data WHERE name='data'").fetchone()

    def push(self):
        self.db.execute("INSERT INTO queue(x) VALUES('item')")

    def pop(self):
        item = self.poll(self.db, "UPDATE queue SET who=? WHERE n=(SELECT "
                         "min(n) FROM queue WHERE who IS NULL) RETURNING n",
                         self.me)
        self.db.execute("DELETE FROM queue WHERE n=?", (item,))

    def version(self):
        return self.db.execute("SELECT version FROM data").fetchone()[0]

    def change(self):
        self.db.execute("UPDATE data SET x='y', version=version+1")

    def wait(self, version):
        return self.poll(self.db, "SELECT version FROM data WHERE version<>?",
                         version)

    def insert(self):
        self.db.execute("INSERT INTO t DEFAULT VALUES")

    def told(self):
        newest = "SELECT coalesce(max(n), 0) FROM t"
        return self.db.execute(newest).fetchone()[0]

    def read(self, last):
        self.poll(self.db, "SELECT n FROM t WHERE n>? LIMIT 1", last)


class Flock:
    name = "flock"

    def __init__(self, room):
        self.fd = os.open(room + "/flock", os.O_RDWR | os.O_CREAT, 0o600)

    def prepare(self):
        pass

    def lock(self):
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def unlock(self):
        fcntl.flock(self.fd, fcntl.LOCK_UN)


class FileLock:
    """By default it polls every 50 ms."""
    name = "filelock"

    def __init__(self, room):
        import filelock
        self.held = filelock.FileLock(room + "/filelock")

    def prepare(self):
        pass

    def lock(self):
        self.held.acquire()

    def unlock(self):
        self.held.release()


SUBJECTS = {s.name: s for s in (Extension, Package, Functions, Polled, Flock,
                                FileLock)}


# ---- another process, which obeys orders ----

def serve(name, room):
    """A line is a method; the answer is the time when it was done."""
    subject = SUBJECTS[name](room)
    print("ready", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        getattr(subject, word)(*map(int, rest))
        print(now(), flush=True)


class Other:
    def __init__(self, name, room):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name, room], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1)
        self.answer()

    def tell(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def answer(self):
        return self.process.stdout.readline().strip()

    def do(self, *words):
        self.tell(*words)
        return int(self.answer())

    def end(self):
        self.process.kill()
        self.process.communicate()


# ---- the parts: a sample of each, in microseconds ----

def alone(*methods):
    """One process, one method after another."""
    def sample(here, _):
        began = now()
        for method in methods:
            getattr(here, method)()
        return (now() - began) / 1000
    return sample


def hand_over(here, other):
    here.lock()
    other.tell("lock")
    time.sleep(PAUSE_S)
    began = now()
    here.unlock()
    got = int(other.answer())
    other.do("unlock")
    return (got - began) / 1000


def woken(method, wait, *known):
    """Another process waits, from a known state, until a method wakes it."""
    def sample(here, other):
        other.tell(wait, *(getattr(here, name)() for name in known))
        time.sleep(PAUSE_S)
        began = now()
        getattr(here, method)()
        return (int(other.answer()) - began) / 1000
    return sample


PARTS = [  # name, samples, required method, another process, sample
    ("lock and unlock", 2000, "lock", False, alone("lock", "unlock")),
    ("get", 2000, "get", False, alone("get")),
    ("push, pop and ack", 1000, "push", False, alone("push", "pop")),
    ("set", 1000, "change", False, alone("change")),
    ("INSERT", 1000, "insert", False, alone("insert")),
    ("hand-over", 300, "lock", True, hand_over),
    ("push to the other's ack", 300, "push", True,
     woken("push", "pop")),
    ("set to the other's read", 300, "change", True,
     woken("change", "wait", "version")),
    ("INSERT to other's read", 300, "insert", True,
     woken("insert", "read", "told")),
]


def installed(room):
    """Make the subjects, with their files."""
    found = {}
    for name, subject in SUBJECTS.items():
        try:
            found[name] = subject(room)
            found[name].prepare()
        except ImportError as e:
            print(f"left out: {e}")
    return found


def measure(subjects, part, room):
    """The samples of each that can do it: in turn, for equal conditions."""
    _, count, method, is_two, sample = part
    able = {n: s for n, s in subjects.items() if hasattr(s, method)}
    others = {n: Other(n, room) if is_two else None for n in able}
    samples = {n: [] for n in able}
    for at in range(-3, times(count)):
        for name in list(able)[::-1 if at % 2 else 1]:
            took = sample(able[name], others[name])
            if at >= 0:
                samples[name].append(took)
    for other in filter(None, others.values()):
        other.end()
    return samples


def kills(room, names):
    """From kill -9 of the holder until the next has it.  A row with an owner is
    left out: it stays, and its users wait for a lease to end."""
    samples = {n: [] for n in names}
    for _ in range(times(50)):
        for name in names:
            victim, heir = Other(name, room), Other(name, room)
            victim.do("lock")
            heir.tell("lock")
            time.sleep(0.05)
            began = now()
            victim.process.send_signal(signal.SIGKILL)
            samples[name].append((int(heir.answer()) - began) / 1000)
            victim.end()
            heir.end()
    return samples


def cpu_ns(pid):
    with open(f"/proc/{pid}/schedstat") as f:
        return int(f.read().split()[0])


def crowd(room, here):
    """The processor time of CROWD waiting processes, in percent of one."""
    result = {}
    for name in "extension", "package", "polled table":
        here[name].lock()
        others = [Other(name, room) for _ in range(CROWD)]
        for other in others:
            other.tell("lock")
        late = time.monotonic() + CROWD
        while here[name].waiters() < CROWD:
            if time.monotonic() > late:
                raise SystemExit(f"{name}: not all of them wait")
            time.sleep(0.1)
        time.sleep(CROWD_ASLEEP_S)
        before = sum(cpu_ns(o.process.pid) for o in others)
        time.sleep(CROWD_S)
        spent = sum(cpu_ns(o.process.pid) for o in others) - before
        result[name] = spent / CROWD_S / 1e7
        for other in others:
            other.end()
        here[name].unlock()
    return result


def print_part(name, samples, first):
    base = statistics.median(samples[first])
    for subject, values in samples.items():
        values.sort()
        median = statistics.median(values)
        print(f"{name:24} {subject:13} {median:9.1f} "
              f"{values[len(values) * 95 // 100]:9.1f} {median / base:8.2f}")
    return {s: statistics.median(v) for s, v in samples.items()}


def main():
    extension, packages, rooms = map(os.path.abspath, sys.argv[1:])
    os.environ["ZKE_EXTENSION"] = extension
    os.environ["PYTHONPATH"] = packages + "/python"
    sys.path.insert(0, packages + "/python")
    report = {}
    with tempfile.TemporaryDirectory(dir=rooms) as room:
        subjects = installed(room)
        print(f"{'':38} {'median':>9} {'95 %':>9} {'ratio':>8}")
        for part in PARTS:
            if part[0].startswith(ONLY):
                samples = measure(subjects, part, room)
                report[part[0]] = print_part(part[0], samples, "extension")
        if "kill to next".startswith(ONLY):
            names = [n for n in subjects if n != "polled table"]
            report["kill to next"] = print_part(
                "kill to next", kills(room, names), "extension")
        if "waiting".startswith(ONLY):
            report["waiting"] = crowd(room, subjects)
            for name, percent in report["waiting"].items():
                print(f"waiting, {CROWD} processes  {name:13} {percent:9.2f} %"
                      " of a processor")
    with open(packages + "/../bench-extension.json", "w") as f:
        json.dump(report, f, indent=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        main()
