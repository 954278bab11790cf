import contextlib, itertools, json, queue, subprocess, threading

class ZkeError(Exception): pass  # args: "NONODE", "sentence"

class Zke:
    def __init__(self, *words):  # the file, and options of zke's
        self.zke = subprocess.Popen(["zke", *words, "--coprocess"], encoding="utf-8",
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ids, self.boxes, self.lost = itertools.count(1), {}, queue.Queue()
        self.mutex = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for message in map(json.loads, self.zke.stdout):
            take = self.boxes.pop if "status" in message else self.boxes.get
            take(message["id"], self.lost).put(message)
        for box in [*self.boxes.values(), self.lost]: box.put({"error": "CLOSED"})

    def send(self, line):
        with self.mutex: print(json.dumps(line), file=self.zke.stdin, flush=True)

    def stream(self, *words):  # events and rows as they come
        box = self.boxes[(id := next(self.ids))] = queue.Queue()
        self.send({"id": id, "run": words, "actor": threading.get_ident()})
        try:
            while "event" in (message := box.get()): yield message["event"]
        except BaseException: self.send({"cancel": id}); raise
        if "error" in message: raise ZkeError(message["error"], message.get("message"))
        yield from message["rows"]

    def run(self, *words): return list(self.stream(*words))

    @contextlib.contextmanager
    def lock(self, name, *options):  # gives the token
        row, = self.run("lock", name, *options)
        try: yield row["token"]
        finally: self.run("release", name, "--token", row["token"])
