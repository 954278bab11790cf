import sys
from client import Zke

zke = Zke(sys.argv[1])
if len(sys.argv) > 2:
    for job in sys.argv[2:]: zke.run("queue", "push", "jobs", {"text": job})
else:
    done = ""
    while done != "enough":
        job, = zke.run("queue", "claim", "jobs", "--wait", 10)
        done = job["data"]
        print("done:", done, flush=True)
        zke.run("queue", "ack", "jobs", job["item"])
