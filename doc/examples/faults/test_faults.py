import json
import queue
import subprocess
import threading
import time
import urllib.request

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KazooState

SOON = 10  # seconds: what takes longer does not happen


@pytest.fixture
def server():
    process = subprocess.Popen(
        ["zke", ":memory:", "serve", "--port", "0", "--print-port",
         "--control"], stdout=subprocess.PIPE, text=True)
    yield Server(int(process.stdout.readline()))
    process.terminate()
    assert process.wait() == 0


class Server:
    def __init__(self, port):
        self.hosts = "127.0.0.1:%d" % port

    def order(self, line):
        url = "http://%s/control" % self.hosts
        with urllib.request.urlopen(url, line.encode(), SOON) as answer:
            return json.load(answer)

    def wait(self, fault):
        """Until it has fired: the request has come."""
        self.order("wait fault=%d" % fault["fault"])


@pytest.fixture
def connect(server):
    clients = []

    def connect():
        client = KazooClient(hosts=server.hosts, timeout=10)
        client.states = queue.Queue()
        client.add_listener(client.states.put)
        client.start()
        assert client.states.get(timeout=SOON) == KazooState.CONNECTED
        clients.append(client)
        return client
    yield connect
    server.order("clear")
    for client in clients:
        client.stop()
        client.close()


def session(client):
    return "session=%d" % client.client_id[0]


def until(condition):
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


# The lock object does not know that the lock is lost: is_acquired stays true.
# Only a listener is told.
def test_a_lock_is_lost_with_its_session(server, connect):
    one, other = connect(), connect()
    lock = one.Lock("/lock")
    assert lock.acquire()
    server.order("expire " + session(one))
    assert other.Lock("/lock").acquire(timeout=SOON)
    assert one.states.get(timeout=SOON) == KazooState.SUSPENDED
    assert one.states.get(timeout=SOON) == KazooState.LOST
    assert lock.is_acquired


# The client cannot know whether it stands in line already.  kazoo's lock looks
# for the name that it has chosen, and does not get in line twice.
def test_a_lock_whose_create_is_answered_by_nobody(server, connect):
    one, other = connect(), connect()
    one.ensure_path("/lock")
    fault = server.order("drop-after type=create path=/lock/*")
    lock = one.Lock("/lock")
    assert lock.acquire(timeout=SOON)
    server.wait(fault)
    assert len(other.get_children("/lock")) == 1
    lock.release()
    assert other.Lock("/lock").acquire(blocking=False)


# Whoever writes a recipe has to do the same: a create that is repeated makes
# two nodes.
def test_a_create_that_is_repeated_makes_two_nodes(server, connect):
    client = connect()
    fault = server.order("drop-after type=create path=/item-")
    client.retry(client.create, "/item-", sequence=True)
    server.wait(fault)
    items = [name for name in client.get_children("/") if name != "zookeeper"]
    assert len(items) == 2


# The reply to its delete is lost: kazoo's queue takes the item for another's.
def test_a_queue_loses_an_item(server, connect):
    client = connect()
    items = client.Queue("/queue")
    items.put(b"a")
    items.put(b"b")
    fault = server.order("drop-after type=delete")
    assert items.get() == b"b"
    server.wait(fault)
    assert items.get() is None


# The consumer dies between take and done: the item goes to another.
def test_a_locking_queue_loses_none(server, connect):
    dies, lives = connect(), connect()
    dies.LockingQueue("/queue").put(b"a")
    assert dies.LockingQueue("/queue").get(timeout=SOON) == b"a"
    items = lives.LockingQueue("/queue")
    assert items.get(timeout=0.01) is None
    server.order("expire " + session(dies))
    assert items.get(timeout=SOON) == b"a"
    assert items.consume()


# A leader that comes back in time leads on.  One that does not is followed by
# the next.
def test_an_election_goes_on(server, connect):
    one, other = connect(), connect()
    leads, done, threads = queue.Queue(), threading.Event(), []

    def lead(name):
        leads.put(name)
        done.wait()

    def run(client, name):
        election = client.Election("/election", name)
        threads.append(threading.Thread(
            target=election.run, args=(lead, name), daemon=True))
        threads[-1].start()
        return election
    run(one, "one")
    assert leads.get(timeout=SOON) == "one"
    election = run(other, "other")
    until(lambda: election.contenders() == ["one", "other"])
    server.order("drop " + session(one))
    assert one.states.get(timeout=SOON) == KazooState.SUSPENDED
    assert one.states.get(timeout=SOON) == KazooState.CONNECTED
    assert election.contenders() == ["one", "other"]
    assert leads.empty()
    server.order("expire " + session(one))
    assert leads.get(timeout=SOON) == "other"
    done.set()
    for thread in threads:
        thread.join(SOON)


# A network that is gone for longer than the session's timeout.
def test_an_outage_is_seen_by_a_listener(server, connect):
    client = connect()
    outage = server.order("outage")
    assert client.states.get(timeout=SOON) == KazooState.SUSPENDED
    server.wait(outage)
    server.order("advance by=20s")
    server.order("release")
    assert client.states.get(timeout=SOON) == KazooState.LOST
    assert client.states.get(timeout=SOON) == KazooState.CONNECTED


# A change of the holder is on its way for longer than its session lives, and
# another holds the lock meanwhile.  The change is not done.
def test_a_late_change_is_not_done(server, connect):
    one, other = connect(), connect()
    one.create("/value", b"nobody")
    assert one.Lock("/lock").acquire()
    fault = server.order("hold-request type=setData " + session(one))
    change = one.set_async("/value", b"one")
    server.wait(fault)
    server.order("advance by=20s")
    with other.Lock("/lock", "other"):
        other.set("/value", b"other")
    server.order("release")
    with pytest.raises(ConnectionLoss):
        change.get(timeout=SOON)
    assert other.get("/value")[0] == b"other"
