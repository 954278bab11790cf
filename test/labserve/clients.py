"""clients.py - what clients of lab_serve.sh do: python3 clients.py ROLE"""
import os
import sys
import threading
import time

if sys.argv[1] not in ("plain", "status"):
    import zkelab
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

ready, never = threading.Event(), threading.Event()


def connected(hosts):
    zk = KazooClient(hosts=hosts)
    zk.start()
    return zk


def raise_one(me):
    zk = connected(me.hosts)
    zk.ensure_path("/here")
    raise ValueError("no")


def sleep(me):
    """A day passes at once, and for everybody."""
    zk = connected(me.hosts)
    begun = time.time()
    time.sleep(86400)
    if time.time() - begun < 86400:
        me.fail("only %f s have passed" % (time.time() - begun))
    zk.stop()


def give_up(me):
    """A wait with a timeout ends by the laboratory's time, another by what it
    waits for."""
    zk = connected(me.hosts)
    lock = zk.Lock("/lock")
    if me.name == "anna":
        lock.acquire()
        ready.set()
        never.wait()
        zk.stop()
        return
    ready.wait(1e6)
    try:
        lock.acquire(timeout=10)
        me.fail("the lock is anna's")
    except LockTimeout:
        never.set()
    zk.stop()


def hand_over(me):
    """What one client does makes the other go on, inside their process."""
    zk = connected(me.hosts)
    if me.name == "ben":
        ready.wait()
    zk.ensure_path("/" + me.name)
    ready.set()
    zk.stop()


def twice(me):
    connected(me.hosts)
    connected(me.hosts)


def plain(status):
    """Without zkelab."""
    zk = connected(os.environ["ZKE_LAB_HOSTS"])
    zk.ensure_path("/" + os.environ["ZKE_LAB_NAME"])
    zk.stop()
    sys.exit(status)


role = sys.argv[1]
if role == "plain":
    plain(0)
elif role == "status":
    plain(3)
elif role == "excuse":
    zkelab.main(raise_one, excuse=(ValueError,))
else:
    zkelab.main({"raise": raise_one, "sleep": sleep, "twice": twice,
                 "give_up": give_up, "hand_over": hand_over}[role])
