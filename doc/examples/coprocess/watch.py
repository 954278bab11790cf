import sys
from client import Zke

zke = Zke(sys.argv[1])
for event in zke.stream("watch", "/config", "--follow"):
    print(event["event"], flush=True)
    if event["event"] == "deleted": break
