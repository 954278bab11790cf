#!/bin/sh
# mcp.sh - doc/examples/coprocess/mcp.py, the MCP server, serves agents
#
# mcp_agents.py plays the agents: each test is a function there.
. test/report.sh

agents=$(pwd)/test/shell/mcp_agents.py
examples=$(pwd)/doc/examples/coprocess
PATH=$(cd "$BUILD" && pwd):$PATH
export PYTHONDONTWRITEBYTECODE=1 # make install takes what lies in $examples

# played TEST: in its own directory
played() (
  mkdir "$room/$1" && cd "$room/$1" &&
    $limited python3 "$agents" "$examples/mcp.py" "$1"
)

scratch room mcp
expect 'the server has at most 120 lines' \
  [ "$(grep -c . "$examples/mcp.py")" -le 120 ]
for test in $(sed -n 's/^def test_\([a-z_]*\).*/\1/p' "$agents"); do
  expect "$(echo "$test" | tr _ ' ')" played "$test"
done
report
