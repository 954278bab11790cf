import threading
import zkelab
from kazoo.client import KazooClient


def acquire(zk, kind):
    own = zk.create("/lock/" + kind, ephemeral=True, sequence=True)
    while True:
        line = sorted(zk.get_children("/lock"), key=lambda name: name[-10:])
        if kind == "reader":
            before = [name for name in line if name.startswith("writer")]
        else:
            before = line[:line.index(own[len("/lock/"):])]
        if not before:
            return
        gone = threading.Event()
        if zk.exists("/lock/" + before[-1], watch=lambda event: gone.set()):
            gone.wait()


def worker(me):
    zk = KazooClient(hosts=me.hosts)
    zk.start()
    zk.ensure_path("/lock")
    acquire(zk, me.name)
    with me.section(me.name):
        me.exclude("writer", "reader")
        me.exclude("reader", "writer")
    zk.stop()


zkelab.main(worker)
