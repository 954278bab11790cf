"""How fast a server answers: zke serve or a ZooKeeper, by the raw protocol.

    load.py PORT...

One client of each server, one request at a time and then 64 ahead.  The
servers alternate, with a short block of requests each, since a machine's speed
varies: only figures of one run can be compared.  It prints requests a second
in the median block and, for the servers after the first, the first one's time
relative to theirs: the median ratio of two blocks of one round.  Values have
100 bytes.
"""
import os
import socket
import struct
import statistics
import sys
import time

AHEAD = 64
ACL = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
GET, CREATE, SET = 4, 1, 5


def text(value):
    return struct.pack(">i", len(value)) + value


def request(kind, path, rest):
    return text(struct.pack(">ii", 1, kind) + text(path) + rest)


def create(path, flags):
    return request(CREATE, path,
                   text(b"x" * 100) + ACL + struct.pack(">i", flags))


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left = b""
        self.socket.sendall(text(struct.pack(">iqiq", 0, 0, 30000, 0) +
                                 text(bytes(16)) + b"\0"))
        self.take()

    def take(self):
        """The next frame; an error in it ends the program."""
        while len(self.left) < 4 or len(self.left) < self.size():
            more = self.socket.recv(1 << 16)
            if not more:
                sys.exit("the server has hung up")
            self.left += more
        frame, self.left = self.left[4:self.size()], self.left[self.size():]
        return frame

    def size(self):
        return 4 + struct.unpack(">i", self.left[:4])[0]

    def time(self, requests, ahead):
        """Seconds for these requests, at most `ahead` of them unanswered."""
        sent = answered = 0
        began = time.perf_counter()
        while answered < len(requests):
            if sent < len(requests) and sent - answered <= ahead // 2:
                self.socket.sendall(b"".join(requests[sent:sent + ahead]))
                sent = min(sent + ahead, len(requests))
            answer = self.take()
            answered += 1
            if struct.unpack(">i", answer[12:16])[0]:
                sys.exit("a request was refused")
        return time.perf_counter() - began


def compare(clients, make, ahead):
    """The line that main() prints for one kind of requests."""
    block = 10 if ahead == 1 else 8 * ahead
    rounds = 60 if ahead == 1 else 20
    times = [[] for _ in clients]
    for turn in range(rounds):
        requests = [make(turn * block + i) for i in range(block)]
        for i in range(len(clients)):
            i = (i + turn) % len(clients)
            times[i].append(clients[i].time(requests, ahead))
    rates = ["%d" % (block / statistics.median(t)) for t in times]
    ratios = ["%.2f" % statistics.median(a / b for a, b in zip(times[0], t))
              for t in times[1:]]
    return " ".join(rates + ["(%s)" % " ".join(ratios)] * bool(ratios))


def main():
    clients = [Client(int(port)) for port in sys.argv[1:]]
    top = b"/load-%d" % os.getpid()
    for client in clients:
        client.time([create(top, 0)], 1)
    for ahead in 1, AHEAD:
        kinds = {
            "get": lambda i: request(GET, top, b"\0"),
            "create": lambda i: create(b"%s/p%d-%d" % (top, ahead, i), 0),
            "set": lambda i: request(SET, top, text(b"x" * 100) +
                                     struct.pack(">i", -1)),
            "ephemeral": lambda i: create(b"%s/e%d-%d" % (top, ahead, i), 1),
        }
        for name, make in kinds.items():
            print("%2d ahead, %s:" % (ahead, name),
                  compare(clients, make, ahead), flush=True)


main()
