"""A client of kazoo.sh: kazoo connected to the server, in one of its roles.

    kazoo_clients.py HOSTS ROLE ARGUMENTS...

Each prints a line for each thing it does, and exits with 0 on success.
TIMEOUT is its session's, in seconds.
"""
import os
import sys
import time
import uuid

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.recipe.queue import LockingQueue
from kazoo.security import make_acl

# kazoo drops a silent connection after a third of this; a disk sync may take so
# long.
TIMEOUT = float(os.environ.get("TIMEOUT", 30))


def curator_lock(zk, path, kind="-lock-"):
    """A lock with znodes named as by Curator and zkembed."""
    lock = zk.Lock(path, "kazoo %d" % os.getpid(), extra_lock_patterns=[kind])
    lock.prefix = "_c_%s%s" % (uuid.uuid4(), kind)
    lock.create_path = lock.path + "/" + lock.prefix
    return lock


def curator_election(zk, path):
    """An election with znodes named as by Curator and zkembed."""
    election = zk.Election(path)
    election.lock = curator_lock(zk, path, "-latch-")
    return election


class SharedQueue(LockingQueue):
    """A queue shared with zkembed's, which has other nodes besides items."""

    def _filter_locked(self, values, taken):
        items = [name for name in values if name.startswith("entry-")]
        return super()._filter_locked(items, taken)


def raise_number(zk, node):
    """Read and write: two at the same time lose a step."""
    number = int(zk.get(node)[0])
    time.sleep(0.001)
    zk.set(node, b"%d" % (number + 1))


def count(zk, path, turns):
    """Raise the number in /count, under the lock, by read and write."""
    lock = curator_lock(zk, path)
    for _ in range(int(turns)):
        with lock:
            raise_number(zk, "/count")


def hold(zk, path):
    """Hold the lock until the process is killed."""
    curator_lock(zk, path).acquire()
    say("held")
    time.sleep(60)


def hold_as_kazoo(zk, path):
    """The same by a lock with kazoo's own names."""
    zk.Lock(path).acquire()
    say("held")
    time.sleep(60)


def take(zk, path):
    """Wait for the lock, and report it."""
    with curator_lock(zk, path):
        say("taken")


def put(zk, path, items):
    queue = SharedQueue(zk, path)
    for i in range(int(items)):
        queue.put(b"item %d" % i, priority=i % 3)


def consume(zk, path):
    """Take items until no more come."""
    queue = SharedQueue(zk, path)
    while True:
        item = queue.get(timeout=1)
        if item is None:
            return
        queue.consume()
        say(item.decode())


def consume_one(zk, path):
    """Wait for one item."""
    queue = SharedQueue(zk, path)
    item = queue.get(timeout=60)
    queue.consume()
    say(item.decode())


def claim(zk, path):
    """Claim an item, and work on it until the process is killed."""
    say(SharedQueue(zk, path).get(timeout=60).decode())
    time.sleep(60)


def append(zk, path, items):
    """Put into kazoo's plain queue."""
    queue = zk.Queue(path)
    for i in range(int(items)):
        queue.put(b"item %d" % i)


def fetch(zk, path):
    """Take from kazoo's plain queue until it is empty."""
    queue = zk.Queue(path)
    for item in iter(queue.get, None):
        say(item.decode())


def lead(zk, path, seconds):
    """Lead once, for so many seconds."""
    def leader():
        say("leads")
        time.sleep(float(seconds))
    curator_election(zk, path).run(leader)


def reign(zk, path, turns):
    """Raise the number in /led, each time as the leader."""
    election = curator_election(zk, path)
    for _ in range(int(turns)):
        election.run(raise_number, zk, "/led")


def watch(zk, path):
    """Follow a node's data and children until it was set to "end"."""
    heard = []

    @zk.DataWatch(path)
    def data(value, stat):
        if value is not None:
            heard.append(value)

    @zk.ChildrenWatch(path)
    def children(names):
        say("children %s" % " ".join(sorted(names)))
    say("watches")
    until = time.time() + 60
    while b"end" not in heard and time.time() < until:
        time.sleep(0.01)
    say("data %s" % heard[-1].decode())


def party(zk, path, name):
    """Meet at a double barrier of two, then leave together.

    One kazoo client may leave before the other has checked who is there: then
    both wait forever.  So each leaves only when both have entered."""
    barrier = zk.DoubleBarrier(path, 2, name)
    barrier.enter()
    say("in")
    zk.create("/entered/" + name, makepath=True)
    while len(zk.get_children("/entered")) < 2:
        time.sleep(0.01)
    barrier.leave()
    say("out")


def login(hosts, user, password):
    """Make a node that only this user of SASL can read, and read it."""
    zk = KazooClient(hosts=hosts, timeout=TIMEOUT, sasl_options={
        "mechanism": "DIGEST-MD5", "username": user, "password": password})
    # The server may check the password before or after start() returns.
    try:
        zk.start()
        zk.create("/of-" + user, b"secret",
                  acl=[make_acl("sasl", credential=user, all=True)])
        say(zk.get("/of-" + user)[0].decode())
    except (AuthFailedError, KazooTimeoutError):
        say("refused")
    zk.stop()
    zk.close()


def see(zk, path):
    """Print the node's data, or "no" if it is protected."""
    try:
        say(zk.get(path)[0].decode())
    except NoAuthError:
        say("no")


def say(text):
    print(text, flush=True)


def main():
    hosts, role = sys.argv[1:3]
    if role == "login":
        return login(hosts, *sys.argv[3:])
    zk = KazooClient(hosts=hosts, timeout=TIMEOUT)
    zk.start()
    {f.__name__: f for f in (
        count, hold, hold_as_kazoo, take, put, consume, consume_one, claim, append, fetch,
        lead, reign, watch, party, see)}[role](zk, *sys.argv[3:])
    zk.stop()
    zk.close()


main()
