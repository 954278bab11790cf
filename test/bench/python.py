"""python.py - the locks that Python programs use on one host

    python.py has KIND             prints its version, or fails
    python.py lock KIND FILE CPU   speaks the protocol of lock.c

KIND is filelock, fasteners or portalocker, as each is without options, or
zkembed-py: zkembed through `zke --coprocess`, which BENCH_ZKE names; or kazoo,
with FILE the host:port of a server of ZooKeeper's protocol.  Commands
are bytes on standard input, answers 8-byte words on standard output, times
those of CLOCK_MONOTONIC:

    a   acquire: 0 before, then the time, and wake-ups sent (0)
    r   release: the time before, and 0
    l   and a time: both without pause until then; CPU ns, sleeps, 0, the
        number of times held, and for each: asked, got, gave
    n   and a number: both so many times; ns
"""
import ctypes
import importlib.metadata
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import time

HOLD_NS = 20_000
PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class FileLock:
    def __init__(self, path):
        import filelock

        self.lock = filelock.FileLock(path)
        self.acquire = self.lock.acquire
        self.release = self.lock.release


class Fasteners:
    def __init__(self, path):
        import fasteners

        self.lock = fasteners.InterProcessLock(path)
        self.acquire = self.lock.acquire
        self.release = self.lock.release


class Portalocker:
    def __init__(self, path):
        import portalocker

        # Its own limit of 5 s would end a wait too soon.
        self.lock = portalocker.Lock(path, timeout=3600)
        self.acquire = self.lock.acquire
        self.release = self.lock.release


class Coprocess:
    def __init__(self, path):
        self.number = 0
        self.process = subprocess.Popen(
            [os.environ["BENCH_ZKE"], path, "--coprocess"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )

    def run(self, *words):
        self.number += 1
        request = json.dumps({"id": self.number, "run": words})
        self.process.stdin.write(request.encode() + b"\n")
        self.process.stdin.flush()
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self.number and "status" in answer:
                break
        if answer["status"] != 0:
            sys.exit(f"python.py: {answer}")

    def acquire(self):
        self.run("lock", "bench")

    def release(self):
        self.run("release", "bench")


class Kazoo:
    def __init__(self, hosts):
        from kazoo.client import KazooClient

        client = KazooClient(hosts=hosts)
        client.start()
        self.lock = client.Lock("/bench-kazoo")
        self.acquire = self.lock.acquire
        self.release = self.lock.release


KINDS = {
    "filelock": FileLock,
    "fasteners": Fasteners,
    "portalocker": Portalocker,
    "zkembed-py": Coprocess,
    "kazoo": Kazoo,
}


def has(kind):
    if kind == "zkembed-py":
        if not os.access(os.environ.get("BENCH_ZKE", ""), os.X_OK):
            sys.exit(1)
        version = "zke --coprocess"
    else:
        try:
            version = kind + " " + importlib.metadata.version(kind)
        except importlib.metadata.PackageNotFoundError:
            sys.exit(1)
    print(f"{version}, Python {sys.version.split()[0]}")


def say(*words):
    os.write(1, struct.pack(f"<{len(words)}q", *words))


def read(size):
    got = b""
    while len(got) < size:
        some = os.read(0, size - len(got))
        if not some:
            os._exit(0)
        got += some
    return got


def word():
    return struct.unpack("<q", read(8))[0]


def loop(lock, end):
    now = time.monotonic_ns
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = time.process_time_ns()
    words = []
    while (asked := now()) < end:
        lock.acquire()
        got = now()
        while (gave := now()) < got + HOLD_NS:
            pass
        lock.release()
        words += [asked, got, gave]
    cpu = time.process_time_ns() - cpu
    sleeps = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - usage.ru_nvcsw
    say(cpu, sleeps, 0, len(words) // 3)
    data = struct.pack(f"<{len(words)}q", *words)
    while data:
        data = data[os.write(1, data) :]


def repeat(lock, count):
    start = time.monotonic_ns()
    for _ in range(count):
        lock.acquire()
        lock.release()
    say(time.monotonic_ns() - start)


def contend(kind, path, cpu):
    die_with_parent()
    os.sched_setaffinity(0, {cpu})
    lock = KINDS[kind](path)
    say(0)
    while True:
        command = read(1)
        if command == b"a":
            say(0)
            lock.acquire()
            say(time.monotonic_ns(), 0)
        elif command == b"r":
            start = time.monotonic_ns()
            lock.release()
            say(start, 0)
        elif command == b"l":
            loop(lock, word())
        elif command == b"n":
            repeat(lock, word())


if __name__ == "__main__":
    if sys.argv[1] == "has":
        has(sys.argv[2])
    else:
        contend(sys.argv[2], sys.argv[3], int(sys.argv[4]))
