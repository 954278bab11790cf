"""Locks, queues and elections between processes, in one SQLite file.

    import zkembed

    z = zkembed.connect("app.db")
    with z.lock("nightly", timeout=5) as token:
        z.db.execute("UPDATE report SET made_by = ?", (token,))

z.db is a sqlite3.Connection, and one session of zkembed.  When it is closed, or
its process dies, the next in line gets what it held.  A wait keeps its place in
the line and sleeps in poll(), so ^C ends it immediately, and the place is given
up.  Timeouts are in seconds; None: for ever.  Coroutines use `async with` and
the methods named _async.
"""
import asyncio
import contextlib
import os
import select
import sqlite3
import time


class Error(sqlite3.OperationalError):
    """code is the name of the error, such as ZKE_NONODE."""

    def __init__(self, code, sentence):
        super().__init__(f"{code}: {sentence}")
        self.code = code


class Timeout(Error, TimeoutError):
    """A lock, a permit or a leadership was not free in time."""


def connect(path, **options):
    """Open a database.  The connection begins no transaction by itself."""
    return Session(sqlite3.connect(path, isolation_level=None, **options))


async def _poll(session, left):
    """Sleep without a loop.  The caller's next check dispatches events."""
    poll = select.poll()
    poll.register(session.call("fd"), select.POLLIN)
    poll.poll(None if left is None else left * 1000)


async def _loop(session, left):
    """Sleep in asyncio: one reader for all sleeping coroutines."""
    loop, fd = asyncio.get_running_loop(), session.call("fd")
    sleeper = loop.create_future()
    session._sleepers.append(sleeper)
    loop.add_reader(fd, session._wake)
    try:
        await asyncio.wait([sleeper], timeout=left)
    finally:
        session._sleepers.remove(sleeper)
        session._sleepers or loop.remove_reader(fd)


def _pair(method):
    """Two forms of a method that sleeps: without a loop, and in asyncio."""
    def blocking(self, *arguments, **named):
        try:
            method(self, _poll, *arguments, **named).send(None)
        except StopIteration as e:
            return e.value

    def coroutine(self, *arguments, **named):
        return method(self, _loop, *arguments, **named)
    blocking.__doc__ = coroutine.__doc__ = method.__doc__
    return blocking, coroutine


class Session:
    """What a sqlite3.Connection holds and waits for."""

    def __init__(self, db):
        self.db = db
        self._in_use = set()  # what it holds or waits for
        self._sleepers = []  # the futures of coroutines
        db.enable_load_extension(True)
        try:
            db.load_extension(os.path.dirname(__file__) + "/zkembed")
        finally:
            db.enable_load_extension(False)

    def call(self, function, *arguments):
        """Call a function of the extension: call("get", "/app")."""
        sql = f"SELECT zke_{function}({','.join('?' * len(arguments))})"
        try:
            return self.db.execute(sql, arguments).fetchone()[0]
        except sqlite3.OperationalError as e:
            code, colon, sentence = str(e).partition(": ")
            if not colon or not code.startswith("ZKE_"):
                raise
            raise Error(code, sentence) from None

    def lock(self, name, timeout=None):
        return Holding(self, timeout, "lock", "unlock", name)

    def semaphore(self, name, limit, timeout=None):
        return Holding(self, timeout, "semaphore", "semaphore_release", name,
                       limit)

    def election(self, name, candidate, timeout=None):
        return Holding(self, timeout, "elect", "resign", name, candidate)

    def queue(self, name):
        return Queue(self, name)

    async def _change(self, sleep, path, version, timeout=None):
        """Wait until the znode's version differs, and return it; -1: there is
        no znode.  None: it is unchanged at the deadline."""
        def look():
            now = self.call("watch", path)
            return None if now == version else now
        return await self._wait(sleep, look, lambda: None, timeout)

    async def _wait(self, sleep, join, leave, timeout):
        """Sleep until join() returns a result, or else leave the line."""
        until = None if timeout is None else time.monotonic() + timeout
        left, got = timeout, None
        try:
            while (got := join()) is None and (left is None or left > 0):
                await sleep(self, left)
                left = None if until is None else until - time.monotonic()
            return got
        finally:
            if got is None:
                with contextlib.suppress(Error):  # such as ZKE_LOST
                    leave()

    def _wake(self):
        self.call("dispatch")
        for sleeper in self._sleepers:
            sleeper.done() or sleeper.set_result(None)

    def _roll_back(self, failure):
        """After a failure, undo its changes before others see them."""
        if failure and self.db.in_transaction:
            self.db.rollback()

    wait, wait_async = _pair(_change)


class Holding:
    """A lock, a permit or a leadership.  The token grows with each holder."""

    def __init__(self, session, timeout, take, give, name, *more):
        self.session, self.timeout, self.token = session, timeout, None
        self.name, self._key = name, (take, name)
        self._join = lambda: session.call(take + "_join", name, *more)
        self._leave = lambda: session.call(give, name)

    async def _acquire(self, sleep, timeout=None):
        """The token; None at the deadline."""
        session, in_use = self.session, self.session._in_use
        if self._key in in_use:
            raise Error("ZKE_MISUSE", f"this session holds {self.name} or "
                        "waits for it: use another connection")
        in_use.add(self._key)
        try:
            self.token = await session._wait(sleep, self._join, self._leave,
                                             timeout)
            return self.token
        finally:
            self.token is None and in_use.discard(self._key)

    async def _enter(self, sleep):
        if await self._acquire(sleep, self.timeout) is None:
            raise Timeout("ZKE_OPERATIONTIMEOUT", f"{self.name} is not free")
        return self.token

    acquire, acquire_async = _pair(_acquire)
    __enter__, __aenter__ = _pair(_enter)

    def release(self):
        code = None
        try:
            self._leave()
        except Error as e:
            code = e.code
            raise
        finally:
            if code != "ZKE_MISUSE":  # a transaction is open: it is still held
                self.token = None
                self.session._in_use.discard(self._key)

    def __exit__(self, failure, *_):
        self.session._roll_back(failure)
        self.release()

    async def __aexit__(self, *failure):
        self.__exit__(*failure)


class Queue:
    def __init__(self, session, name):
        self.session, self.name = session, name

    def put(self, data, delay=0, priority=100):
        delay_ms = int(delay * 1000)
        self.session.call("queue_push", self.name, data, delay_ms, priority)

    async def _get(self, sleep, timeout=None):
        """An Item; None at the deadline."""
        call = self.session.call
        number = await self.session._wait(
            sleep, lambda: call("queue_join", self.name),
            lambda: call("queue_leave", self.name), timeout)
        return None if number is None else Item(self.session, number)

    get, get_async = _pair(_get)


class Item:
    """Claimed until ack() or release(), or the end of the session.  After
    `with` it is done; after an exception another session may claim it."""

    def __init__(self, session, number):
        self.session, self.number = session, number
        self.data = session.call("queue_data", number)
        self.ack = lambda: session.call("queue_ack", number)
        self.release = lambda: session.call("queue_release", number)

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        self.session._roll_back(failure)
        self.release() if failure else self.ack()
