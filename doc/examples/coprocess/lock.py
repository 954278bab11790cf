import sys
from client import Zke

file, name = sys.argv[1:]
zke = Zke(file)
for turn in range(5):
    with zke.lock("printer", "--wait", 10) as token:
        print(f"{name} has it, token {token}", flush=True)
        print(f"{name} gives it back", flush=True)
