import zkelab
from kazoo.client import KazooClient


def worker(me):
    zk = KazooClient(hosts=me.hosts)
    zk.start()
    with zk.Lock("/lock"):
        with me.section("held"):
            pass
    zk.stop()


zkelab.main(worker)
