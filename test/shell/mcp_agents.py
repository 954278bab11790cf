"""mcp_agents.py MCP.PY TEST - agents that use the MCP server of the examples

Each test is a function test_NAME, whose name says what is promised.  It runs in
an empty directory.  RECORD has whole lines of the protocol; the other tests
make theirs by Agent.call().
"""
import json
import os
import subprocess
import sys
import time

SERVER, TEST = sys.argv[1:]
FILE = "app.db"

# ">" is sent, "<" comes next.  Nothing comes where none is shown.
RECORD = """
> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":\
"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
< {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18",\
"capabilities":{"tools":{}},"serverInfo":{"name":"zkembed","version":"1.0.0"}}}
> {"jsonrpc":"2.0","method":"notifications/initialized"}
> {"jsonrpc":"2.0","id":"a","method":"ping"}
< {"jsonrpc":"2.0","id":"a","result":{}}
> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"queue_put",\
"arguments":{"queue":"work","data":"--first \\u00e9"}}}
< {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":\
"{\\"rows\\": []}"}],"structuredContent":{"rows":[]},"isError":false}}
> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"watch",\
"arguments":{"path":"/none","seconds":0}}}
< {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":\
"{\\"rows\\": [], \\"error\\": \\"OPERATIONTIMEOUT\\", \\"message\\": \
\\"nothing has happened at /none\\"}"}],"structuredContent":{"rows":[],"error":\
"OPERATIONTIMEOUT","message":"nothing has happened at /none"},"isError":true}}
"""

# A line that is sent, and the error that comes: its id, code and sentence.
CALL = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%s}'
WRONG = [
    ("hello", None, -32700, "not JSON"),
    ("", None, -32700, "not JSON"),
    ('{"jsonrpc":"2.0","id":7', None, -32700, "not JSON"),
    (b'{"jsonrpc":"2.0","id":7,"method":"\xff"}', None, -32700, "not JSON"),
    ('{"jsonrpc":"2.0","id":7,"method":"\\ud800"}', None, -32700, "not JSON"),
    ("[" * 100000, None, -32700, "not JSON"),
    ("[]", None, -32600, "not an object"),
    ('{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600, "a bad id"),
    ('{"jsonrpc":"2.0","id":[7],"method":"ping"}', None, -32600, "a bad id"),
    ('{"jsonrpc":"2.0","id":7}', 7, -32600, "there is no method"),
    ('{"jsonrpc":"2.0","id":7,"method":"nope"}', 7, -32601,
     "there is no method nope"),
    ('{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}', 7, -32602,
     "params is not an object"),
    ('{"jsonrpc":"2.0","id":7,"method":"initialize"}', 7, -32602,
     "initialize needs a protocolVersion"),
    (CALL % '{}', 7, -32602, "Unknown tool: None"),
    (CALL % '{"name":["watch"]}', 7, -32602, "Unknown tool: ['watch']"),
    (CALL % '{"name":"lock"}', 7, -32602, "Unknown tool: lock"),
    (CALL % '{"name":"lock_acquire"}', 7, -32602,
     "lock_acquire needs the argument lock"),
    (CALL % '{"name":"lock_acquire","arguments":[]}', 7, -32602,
     "arguments is not an object"),
    (CALL % '{"name":"lock_acquire","arguments":{"lock":"a","wait":1}}', 7,
     -32602, "lock_acquire has no argument wait"),
    (CALL % '{"name":"lock_release","arguments":{"lock":"a","token":"1"}}', 7,
     -32602, "token must be of type integer"),
    (CALL % '{"name":"watch","arguments":{"path":7}}', 7, -32602,
     "path must be of type string"),
    (CALL % '{"name":"watch","arguments":{"path":"/a","seconds":true}}', 7,
     -32602, "seconds must be of type integer"),
]


onlooker = None


def until(condition):
    """Wait for it; the script that runs this has a time limit."""
    while not condition():
        time.sleep(0.01)


class Agent:
    """An agent with its server, which has shaken hands."""

    def __init__(self, name):
        self.server = subprocess.Popen([sys.executable, SERVER, FILE, name],
                                       stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        self.ids = 0

    def send(self, line):
        line = line if isinstance(line, bytes) else line.encode()
        self.server.stdin.write(line + b"\n")
        self.server.stdin.flush()

    def hear(self):
        return json.loads(self.server.stdout.readline())

    def notify(self, method, **params):
        self.send(json.dumps({"jsonrpc": "2.0", "method": method,
                              "params": params}))

    def begin(self, tool, **arguments):
        """Call a tool; hear() has the answer to the id that is returned."""
        self.ids += 1
        self.send(json.dumps({
            "jsonrpc": "2.0", "id": self.ids, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}}))
        return self.ids

    def result(self, id):
        answer = self.hear()
        assert answer["id"] == id, answer
        result = answer["result"]
        content, = result["content"]
        assert content["type"] == "text", answer
        told = result["structuredContent"]
        assert json.loads(content["text"]) == told, answer
        assert result["isError"] == ("error" in told), answer
        return told

    def call(self, tool, **arguments):
        return self.result(self.begin(tool, **arguments))

    def row(self, tool, **arguments):
        """Call a tool that succeeds with one row."""
        row, = self.call(tool, **arguments)["rows"]
        return row

    def cancel(self, id):
        self.notify("notifications/cancelled", requestId=id, reason="test")

    def end(self):
        """Its output ends; the answers that still come, and no trace."""
        self.server.stdin.close()
        rest = [json.loads(line) for line in self.server.stdout]
        assert self.server.wait() == 0
        return rest


def holders():
    """What the tool who_holds tells an onlooker: names and states, in order."""
    global onlooker
    onlooker = onlooker or Agent("onlooker")
    rows = onlooker.call("who_holds")["rows"]
    return [(row["path"], row["identity"], row["state"]) for row in rows]


def waits(name):
    return any(who == name and state != "held" for _, who, state in holders())


def test_a_recorded_conversation():
    agent = Agent("ann")
    for line in RECORD.strip().split("\n"):
        if line[0] == ">":
            agent.send(line[2:])
        else:
            heard = agent.hear()
            assert heard == json.loads(line[2:]), heard
    assert agent.end() == []


def test_the_version_that_is_asked_for_or_the_preferred_one():
    agent = Agent("ann")
    for asked, offered in [("2025-06-18", "2025-06-18"),
                           ("2024-11-05", "2024-11-05"),
                           ("2999-01-01", "2025-06-18"), ("", "2025-06-18")]:
        agent.send(json.dumps({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": asked}}))
        assert agent.hear()["result"]["protocolVersion"] == offered


def test_tools_have_what_a_client_wants_to_know():
    agent = Agent("ann")
    agent.send('{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
    tools = {tool["name"]: tool for tool in agent.hear()["result"]["tools"]}
    assert {"lock_acquire", "lock_release", "queue_put", "queue_take",
            "queue_done", "who_holds", "watch"} <= set(tools)
    for tool in tools.values():
        assert tool["description"] and tool["inputSchema"]["type"] == "object"
    assert tools["lock_release"]["inputSchema"]["required"] == ["lock", "token"]


def test_bad_input_is_refused_and_the_next_line_is_taken():
    agent = Agent("ann")
    for line, id, code, sentence in WRONG:
        agent.send(line)
        heard = agent.hear()
        assert heard == {"jsonrpc": "2.0", "id": id,
                         "error": {"code": code, "message": sentence}}, heard
    agent.notify("notifications/cancelled")
    agent.notify("notifications/nope")
    agent.notify("tools/call", name="lock_acquire", arguments={"lock": "quiet"})
    agent.cancel(99)
    assert agent.call("who_holds") == {"rows": []}


def test_what_zke_refuses_is_an_error_of_the_tool():
    agent = Agent("ann")
    for code, tool, arguments in [
            ("BADARGUMENTS", "lock_acquire", {"lock": ""}),
            ("USAGE", "lock_acquire", {"lock": "a", "seconds": -1}),
            ("USAGE", "lock_acquire", {"lock": "a", "seconds": 10**40}),
            ("NOTHELD", "lock_release", {"lock": "a", "token": 1})]:
        assert agent.call(tool, **arguments)["error"] == code, arguments


def test_a_lock_goes_from_one_agent_to_the_next_with_a_greater_token():
    ann, ben = Agent("ann"), Agent("ben")
    first = ann.row("lock_acquire", lock="build")
    assert ben.call("lock_acquire", lock="build", seconds=0)["error"] == "HELD"
    waiting = ben.begin("lock_acquire", lock="build")
    until(lambda: waits("ben"))
    assert holders() == [("/locks/build", "ann", "held"),
                         ("/locks/build", "ben", "waiting")], holders()
    ann.call("lock_release", lock="build", token=first["token"])
    second, = ben.result(waiting)["rows"]
    assert second["token"] > first["token"]


def test_a_waiting_call_keeps_no_other_waiting_and_can_be_cancelled():
    ann, ben = Agent("ann"), Agent("ben")
    token = ann.row("lock_acquire", lock="build")["token"]
    waiting = ben.begin("lock_acquire", lock="build", seconds=600)
    until(lambda: waits("ben"))
    ben.row("lock_acquire", lock="other")
    ben.cancel(waiting)
    until(lambda: not waits("ben"))
    ben.call("who_holds")  # nothing came before its answer
    ann.call("lock_release", lock="build", token=token)
    assert holders() == [("/locks/other", "ben", "held")], holders()


def test_two_agents_that_wait_for_each_other_are_told():
    ann, ben = Agent("ann"), Agent("ben")
    ann.row("lock_acquire", lock="a")
    ben.row("lock_acquire", lock="b")
    waiting = ann.begin("lock_acquire", lock="b", seconds=600)
    until(lambda: waits("ann"))
    assert ben.call("lock_acquire", lock="a")["error"] == "DEADLOCK"
    ben.end()
    assert ann.result(waiting)["rows"]


def one_holds_and_one_waits():
    ann, ben = Agent("ann"), Agent("ben")
    ann.row("lock_acquire", lock="build")
    waiting = ben.begin("lock_acquire", lock="build")
    until(lambda: waits("ben"))
    return ann, ben, waiting


def test_a_lock_ends_with_the_input_of_its_server():
    ann, ben, waiting = one_holds_and_one_waits()
    unanswered = ann.begin("watch", path="/x", seconds=600)
    rest, = ann.end()
    assert rest["id"] == unanswered and rest["result"]["isError"], rest
    assert ben.result(waiting)["rows"]


def test_a_lock_ends_with_a_server_that_is_killed():
    ann, ben, waiting = one_holds_and_one_waits()
    ann.server.kill()
    assert ben.result(waiting)["rows"]


def test_an_item_is_done_once_and_goes_on_after_a_death():
    ann, ben = Agent("ann"), Agent("ben")
    ann.call("queue_put", queue="work", data="--first")
    item = ann.row("queue_take", queue="work")
    assert item["data"] == "--first"
    waiting = ben.begin("queue_take", queue="work")
    ann.server.kill()
    again, = ben.result(waiting)["rows"]
    assert again["item"] == item["item"] and again["token"] > item["token"]
    ben.call("queue_return", queue="work", item=again["item"],
             token=again["token"])
    third = ben.row("queue_take", queue="work")
    done = {"queue": "work", "item": third["item"], "token": third["token"]}
    assert ben.call("queue_done", **done) == {"rows": []}
    assert ben.call("queue_done", **done)["error"] == "NOTHELD"


def test_a_watch_hears_of_a_change():
    ann, ben = Agent("ann"), Agent("ben")
    waiting = ann.begin("watch_exists", path="/locks/build")
    ben.row("lock_acquire", lock="build")
    assert ann.result(waiting)["rows"][0]["path"] == "/locks/build"
    assert ann.row("watch_exists", path="/locks/build")["event"] == "exists"


def test_a_lock_that_is_taken_away_is_told_with_the_next_result():
    ann = Agent("ann")
    token = ann.row("lock_acquire", lock="build")["token"]
    subprocess.run(["zke", FILE, "break", "build"], check=True)
    lost = []
    until(lambda: lost.extend(ann.call("who_holds").get("lost", [])) or lost)
    assert [loss["path"] for loss in lost] == ["/locks/build"], lost
    told = ann.call("lock_release", lock="build", token=token)
    assert told["error"] == "LOST", told


def test_a_server_whose_session_was_ended_says_so_and_ends():
    ann = Agent("ann")
    session = ann.row("lock_acquire", lock="build")["session"]
    subprocess.run(["zke", FILE, "expire", session], check=True)
    assert ann.call("who_holds")["error"] in ("SESSIONEXPIRED",
                                               "INVALIDSTATE")
    assert ann.server.wait() == 1


# A zke that has the lock just as the call is cancelled: it must be released.
LATE = """#!/bin/sh
read -r init; echo '{"id": 1, "status": 0, "rows": []}'
read -r version; echo '{"id": 2, "status": 0, "rows": [{"version": "1.0.0"}]}'
read -r lock; read -r cancel
echo '{"id": 3, "status": 0, "rows": [{"path": "/locks/l", "token": 4711}]}'
read -r release; echo "$lock" "$cancel" "$release" >seen
echo '{"id": 4, "status": 0, "rows": []}'
read -r nothing
exit 0
"""


def test_a_lock_that_comes_after_its_cancellation_is_given_back():
    with open("zke", "w") as file:
        file.write(LATE)
    os.chmod("zke", 0o755)
    os.environ["PATH"] = os.getcwd() + ":" + os.environ["PATH"]
    ann = Agent("ann")
    ann.cancel(ann.begin("lock_acquire", lock="l"))
    until(lambda: os.path.exists("seen") and os.path.getsize("seen"))
    assert ann.end() == []
    with open("seen") as file:
        seen = file.read()
    assert '{"cancel": 3}' in seen, seen
    release = '["release", {"text": "l"}, "--token", {"text": "4711"}]'
    assert release in seen, seen


globals()["test_" + TEST]()
