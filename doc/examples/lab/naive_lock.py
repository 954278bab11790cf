import threading
import zkelab
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, SessionExpiredError


def acquire(zk):
    gone = threading.Event()
    while zk.exists("/lock", watch=lambda event: gone.set()):
        gone.wait()
        gone.clear()
    zk.ensure_path("/lock")


def worker(me):
    zk = KazooClient(hosts=me.hosts)
    zk.start()
    acquire(zk)
    with me.section("held"):
        zk.set("/lock", me.name.encode())
    zk.delete("/lock")
    zk.stop()


zkelab.main(worker, excuse=(ConnectionLoss, SessionExpiredError))
