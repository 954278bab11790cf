"""How fast a server answers: zke serve or a ZooKeeper, by the raw protocol.

    load.py PORT [REQUESTS]

One client, one request at a time and then 64 ahead; requests a second.  Values
have 100 bytes.  Run it for both servers in turns: a machine has good minutes
and bad ones.
"""
import os
import socket
import struct
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
        """The next frame; an answer that is an error ends the program."""
        while len(self.left) < 4 or len(self.left) < self.size():
            more = self.socket.recv(1 << 16)
            if not more:
                sys.exit("the server has hung up")
            self.left += more
        frame, self.left = self.left[4:self.size()], self.left[self.size():]
        return frame

    def size(self):
        return 4 + struct.unpack(">i", self.left[:4])[0]

    def rate(self, count, make, ahead):
        """Requests a second, at most so many without an answer."""
        sent = answered = 0
        began = time.time()
        while answered < count:
            if sent < count and sent - answered <= ahead // 2:
                n = min(ahead, count - sent)
                self.socket.sendall(b"".join(make(sent + i)
                                             for i in range(n)))
                sent += n
            answer = self.take()
            answered += 1
            if struct.unpack(">i", answer[12:16])[0]:
                sys.exit("a request was refused")
        return count / (time.time() - began)


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    client = Client(int(sys.argv[1]))
    top = b"/load-%d" % os.getpid()
    client.rate(1, lambda i: create(top, 0), 1)
    for ahead in 1, AHEAD:
        kinds = {
            "get": lambda i: request(GET, top, b"\0"),
            "ephemeral": lambda i: create(b"%s-e%d-%d" % (top, ahead, i), 1),
            "create": lambda i: create(b"%s-p%d-%d" % (top, ahead, i), 0),
            "set": lambda i: request(SET, top, text(b"x" * 100) +
                                     struct.pack(">i", -1)),
        }
        print("%2d ahead:" % ahead, ", ".join(
            "%s %d" % (name, client.rate(count, make, ahead))
            for name, make in kinds.items()), flush=True)


main()
