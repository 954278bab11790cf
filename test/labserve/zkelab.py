"""zkelab - Python programs in the laboratory of zkembed (zke-lab-serve)

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

main() stays, and forks a process for each schedule; with --together each client
has a thread of it.  An exception that leaves worker() is a finding, unless it
is one of those that main() was told to excuse.

Time stands in the laboratory: time.sleep() returns when everybody else waits,
so does a wait for an event with a timeout, and the clocks of this process go on
by that.  What is drawn at random is the
same in each schedule.  For both, import zkelab before other modules.
"""
import contextlib
import ctypes
import os
import queue
import random
import signal
import socket
import sys
import threading
import time
import traceback

if "kazoo" in sys.modules:
    raise ImportError("import zkelab before kazoo: it has other clocks for it")


class Client:
    """A client of this process: its name, and where its ZooKeeper is."""

    def __init__(self, name, hosts, control):
        self.name = name
        self.hosts = hosts
        self._control = control
        self._lines = threading.local()

    def _say(self, line):
        """Says a line, and waits for the answer."""
        if not hasattr(self._lines, "socket"):
            self._lines.socket = _connect(self._control)
        _say(self._lines.socket, line)

    def enter(self, section, most=1):
        """This client is in the section, with at most so many others."""
        self._say("enter %s %d" % (section, most))

    def leave(self, section):
        self._say("leave %s" % section)

    @contextlib.contextmanager
    def section(self, section, most=1):
        self.enter(section, most)
        try:
            yield
        finally:
            self.leave(section)

    def exclude(self, section, other):
        """Nobody is to be in the other section now."""
        self._say("exclude %s %s" % (section, other))

    def spare(self):
        """From here on nobody may miss this client, should it die."""
        self._say("spare")

    def note(self, text):
        """A line for the picture."""
        self._say("note %s" % _one_line(text))

    def fail(self, text):
        """The schedule has failed."""
        self._say("fail %s: %s" % (self.name, _one_line(text)))

    def _end(self):
        self._say("ended")


def main(work, excuse=()):
    """Calls work(client) in each schedule.  Exceptions of the classes in
    excuse end a client without being a finding."""
    names = os.environ.get("ZKE_LAB_NAME", "").split()
    hosts = os.environ.get("ZKE_LAB_HOSTS", "").split()
    controls = os.environ.get("ZKE_LAB_CONTROL", "").split()
    if not names:
        sys.exit("zkelab: run this by zke-lab-serve")
    clients = [Client(*of) for of in zip(names, hosts, controls)]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    keeper = _connect(controls[0])
    keeper.sendall(b"warm\n")
    pid = 0
    while _line(keeper):
        pid = os.fork()
        if pid == 0:
            keeper.close()
            _begin(clients, work, excuse)
        os.setpgid(pid, pid)
        keeper.sendall(b"%d\n" % pid)
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


# ---- a schedule's process ----

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # a process does not outlive the one that has forked it


def _begin(clients, work, excuse):
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _stand_still(clients[0])
    for client in clients[1:]:
        thread = threading.Thread(target=_play, args=(client, work, excuse),
                                  daemon=True)
        thread.zkelab = _Thread(client, client.name)
        thread.start()
    _play(clients[0], work, excuse)
    signal.pause()  # until it is killed


def _play(client, work, excuse):
    try:
        work(client)
    except excuse:
        pass
    except BaseException as error:
        traceback.print_exc()
        client.fail("%s: %s" % (type(error).__name__, error))
    client._end()


# ---- lines ----

def _connect(address):
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _line(connection):
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            return b""
        line += byte
    return line


def _say(connection, line):
    connection.sendall(line.encode() + b"\n")
    answer = _line(connection)
    if not answer:
        os._exit(1)  # the schedule is over
    _tell_time(answer)


def _tell_time(answer):
    _clock.now = int(answer.split()[1]) / 1000


def _one_line(text):
    return " ".join(str(text).split())[:300]


# ---- clocks and random numbers ----

class _clock:
    client = None  # set in a schedule's process: the first of its clients
    begun = 0.0
    now = 0.0  # the laboratory's time, as of the latest answer


_sleep, _time, _monotonic = time.sleep, time.time, time.monotonic
_start = threading.Thread.start
_wait = threading.Condition.wait


def _thread():
    """What is known of this thread: the client that it works for, and its
    place among the threads, from which its random numbers follow."""
    thread = threading.current_thread()
    if not hasattr(thread, "zkelab"):
        thread.zkelab = _Thread(_clock.client, "?")
    return thread.zkelab


class _Thread:
    def __init__(self, client, place):
        self.client = client
        self.place = place
        self.started = 0  # threads, by this one
        self._drawn = {}

    def draws(self, *what):
        """The generator for what is drawn in this way."""
        if what not in self._drawn:
            self._drawn[what] = random.Random("%s %r" % (self.place, what))
        return self._drawn[what]


def _lab_start(thread):
    """A thread works for the client that the thread works for by which it is
    started."""
    if _clock.client and not hasattr(thread, "zkelab"):
        starter = _thread()
        starter.started += 1
        thread.zkelab = _Thread(starter.client, "%s.%d" % (starter.place,
                                                           starter.started))
    return _start(thread)


def _lab_sleep(seconds):
    if not _clock.client:
        return _sleep(seconds)
    return _thread().client._say("sleep %d" % round(seconds * 1000))


class _Alarm:
    """Ends a wait on a condition when its time has come."""

    def __init__(self, condition, waiter, seconds):
        self.rang = False
        self._condition = condition
        self._waiter = waiter
        self._connection = _connect(_thread().client._control)
        self._connection.sendall(b"alarm %d\n" % round(seconds * 1000))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with self._connection as connection:
            answer = _line(connection)
        if not answer:
            return  # it was taken back
        _tell_time(answer)
        with self._condition:
            if self._waiter in self._condition._waiters:
                self._condition._waiters.remove(self._waiter)
                self.rang = True
                self._waiter.release()

    def take_back(self):
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


def _lab_wait(condition, timeout=None):
    """threading.Condition.wait(), on which events and queues stand."""
    if not _clock.client or timeout is None or timeout <= 0:
        return _wait(condition, timeout)
    if not condition._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = threading.Lock()
    waiter.acquire()
    condition._waiters.append(waiter)
    alarm = _Alarm(condition, waiter, timeout)
    saved = condition._release_save()
    try:
        waiter.acquire()
    finally:
        condition._acquire_restore(saved)
        alarm.take_back()
    return not alarm.rang


def _lab_time():
    return _clock.begun + _clock.now if _clock.client else _time()


def _lab_monotonic():
    return _clock.now if _clock.client else _monotonic()


time.sleep, time.time, time.monotonic = _lab_sleep, _lab_time, _lab_monotonic
threading.Thread.start = _lab_start
threading.Condition.wait = _lab_wait
threading._time = queue.time = _lab_monotonic  # they have imported the other


def _drawn_by_thread(name, as_ever):
    """A function of random.  Which numbers a thread gets does not depend on
    what other threads draw, nor on what it draws by other functions or with
    other arguments: how often kazoo looks at its connection is a matter of
    real time, and it draws a number each time."""
    def draw(*args, **more):
        if not _clock.client:
            return as_ever(*args, **more)
        numbers = [a for a in args if isinstance(a, (int, float))]
        return getattr(_thread().draws(name, *numbers), name)(*args, **more)
    return draw


for _name in random.__all__:
    _drawn = getattr(random, _name)
    if hasattr(_drawn, "__self__"):
        setattr(random, _name, _drawn_by_thread(_name, _drawn))


def _stand_still(client):
    """From here on time is the laboratory's, and chance is the name's."""
    _clock.begun = _time()
    _clock.client = client
    threading.current_thread().zkelab = _Thread(client, client.name)
    os.urandom = lambda size: _thread().draws("bytes").randbytes(size)
