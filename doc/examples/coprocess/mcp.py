"""python3 mcp.py FILE [NAME] - an MCP server: locks, queues, watches for agents

Each agent starts a server of its own, all of them on the same FILE; the others
see NAME as the holder.  What an agent holds is free as soon as its server ends.
"""
import itertools, json, os, sys, threading
from client import Zke, ZkeError

VERSIONS = "2025-06-18", "2024-11-05"  # of the protocol; the first is preferred
PARSE, REQUEST, METHOD, PARAMS = -32700, -32600, -32601, -32602
TYPES = {str: "string", int: "integer"}
TOOLS = {  # zke's command with $arguments, the tool that undoes it, a sentence
    "lock_acquire": ("lock $lock --wait $seconds", "lock_release",
                     "Wait for a lock. A later holder has a greater token"),
    "lock_release": ("release $lock --token $token", None, "Give a lock back"),
    "queue_put": ("queue push $queue $data", None, "Put an item into a queue"),
    "queue_take": ("queue claim $queue --wait $seconds", "queue_return",
                   "Claim an item. If you end, another agent gets it"),
    "queue_done": ("queue ack $queue $item --token $token", None,
                   "Remove a claimed item, whose work is done"),
    "queue_return": ("queue release $queue $item --token $token", None,
                     "Give a claimed item back undone"),
    "who_holds": ("locks", None, "List who holds locks, and who waits"),
    "watch": ("watch $path --wait $seconds", None,
              "Wait until a node is created, changed or deleted"),
    "watch_exists": ("watch $path --exists --wait $seconds", None,
                     "Wait until there is a node")}

class Refused(Exception): pass  # args: JSON-RPC's code, a sentence

def need(condition, code, sentence):
    if not condition: raise Refused(code, sentence)

def kind(argument):
    return "integer" if argument in ("token", "seconds") else "string"

def schema(tool):
    names = [word[1:] for word in TOOLS[tool][0].split() if word[0] == "$"]
    return {"type": "object", "additionalProperties": False,
            "properties": {name: {"type": kind(name)} for name in names},
            "required": [name for name in names if name != "seconds"]}

def words(tool, values):  # a word given as an object is never an option
    return [{"text": str(values[word[1:]])} if word[0] == "$" else word
            for word in TOOLS[tool][0].split()]

def say(id, **what):
    print(json.dumps({"jsonrpc": "2.0", "id": id, **what}), flush=True)

def begin(params):
    asked = params.get("protocolVersion")
    need(type(asked) is str, PARAMS, "initialize needs a protocolVersion")
    return {"protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}}, "serverInfo": server}

def call(id, tool, values):  # tell() answers it
    need(type(tool) is str and tool in TOOLS, PARAMS, f"Unknown tool: {tool}")
    need(type(values) is dict, PARAMS, "arguments is not an object")
    rules, required = schema(tool)["properties"], schema(tool)["required"]
    for name in [*required, *values]:
        need(name in values, PARAMS, f"{tool} needs the argument {name}")
        need(name in rules, PARAMS, f"{tool} has no argument {name}")
        need(TYPES.get(type(values[name])) == kind(name), PARAMS,
             f"{name} must be of type {kind(name)}")
    number, values = next(zke.ids), {"seconds": 30, **values}
    calls[number] = id, tool, values
    zke.send({"id": number, "run": words(tool, values), "actor": "agent"})

def cancel(id):
    for number in [number for number in calls if calls[number][0] == id]:
        calls[number] = None, *calls[number][1:]
        zke.send({"cancel": number})

def run(id, method, params):
    need(type(params) is dict, PARAMS, "params is not an object")
    if method == "notifications/cancelled": cancel(params.get("requestId"))
    elif id is None: pass  # another notification
    elif method == "initialize": say(id, result=begin(params))
    elif method == "ping": say(id, result={})
    elif method == "tools/list": say(id, result={"tools": [
        {"name": tool, "description": about, "inputSchema": schema(tool)}
        for tool, (_, _, about) in TOOLS.items()]})
    elif method == "tools/call":
        call(id, params.get("name"), params.get("arguments", {}))
    else: raise Refused(METHOD, f"there is no method {method}")

def hear(line):  # from the agent
    id = None
    try:
        message = json.loads(line)
        json.dumps(message, ensure_ascii=False).encode()  # no half characters
        need(type(message) is dict, REQUEST, "not an object")
        need(type(message.get("id", 0)) in (str, int), REQUEST, "a bad id")
        id = message.get("id")
        need(type(message.get("method")) is str, REQUEST, "there is no method")
        run(id, message["method"], message.get("params", {}))
    except Refused as refused:
        code, sentence = refused.args
        if id is not None or code == REQUEST:
            say(id, error={"code": code, "message": sentence})
    except (ValueError, RecursionError):
        say(None, error={"code": PARSE, "message": "not JSON"})

def tell(reply):  # from zke
    event = reply.get("event")
    if event: return lost.append(event) if event["event"] == "lost" else None
    id, tool, values = calls.pop(reply["id"], (None, "who_holds", {}))
    undo, failed, rows = TOOLS[tool][1], "error" in reply, reply["rows"]
    if id is not None:
        del reply["id"], reply["status"]
        if lost: reply["lost"], lost[:] = lost[:], []
        texts = [{"type": "text", "text": json.dumps(reply)}]
        say(id, result={"content": texts, "structuredContent": reply,
                        "isError": failed})
    elif undo and not failed and not zke.zke.stdin.closed:  # cancelled too late
        undone = words(undo, {**values, **rows[0]})
        zke.send({"id": next(zke.ids), "run": undone})
    if reply.get("error") in ("SESSIONEXPIRED", "INVALIDSTATE"): os._exit(1)

def read():  # to where the lines of zke come, too
    for line in itertools.chain(sys.stdin.buffer, [b""]): zke.lost.put(line)

if not 2 <= len(sys.argv) <= 3: sys.exit(__doc__)
zke = Zke("--identity", [*sys.argv, "agent"][2], sys.argv[1])
try: zke.run("init")
except ZkeError: pass  # the file is there, or no call will succeed
server = {"name": "zkembed", **zke.run("version")[0]}
calls, lost = {}, []
threading.Thread(target=read, daemon=True).start()
try:
    while (message := zke.lost.get()) != {"error": "CLOSED"}:
        if message == b"": zke.zke.stdin.close()  # zke ends what has begun
        elif type(message) is bytes: hear(message)
        else: tell(message)
    os._exit(zke.zke.wait())
except BrokenPipeError: os._exit(1)  # nobody reads what is said
