#!/bin/sh
# host_examples.sh - the examples with the program's own tables and the tree in
# one database do what their heads say
. test/report.sh

examples=$(pwd)/doc/examples
PATH=$(cd "$BUILD" && pwd):$PATH

# Nobody is left in a line, and the file is sound.
whole() { zke "$1" check; }

outbox_is_emptied() (
  cd "$room" || exit
  $limited outbox shop.db && whole shop.db
)

leaders_are_fenced() (
  cd "$room" || exit
  $limited jobs jobs.db 2>jobs.err || { cat jobs.err; exit 1; }
  whole jobs.db
)

# ledger COUNT: under the lock
ledger() { $limited zke ledger.db lock ledger -- python3 "$examples/ledger.py" "$1"; }

rows() {
  python3 -c 'import sqlite3
db = sqlite3.connect("file:ledger.db?mode=ro", uri=True)
print(*db.execute("SELECT count(*), count(DISTINCT token) FROM ledger").fetchone())'
}

ledger_is_written() (
  cd "$room" || exit
  ledger 5 && ledger 5 && [ "$(rows)" = '10 2' ] && whole ledger.db
)

# The program continues after the lock was taken from it: --on-lost warn.  It
# reports its first row, and writes the second on request.
slow_py='import sys
sys.argv[1] = "1"
exec(open(sys.argv[2]).read())
print("written", flush=True)
sys.stdin.readline()
main()'

former_holder_writes_nothing() (
  cd "$room" && mkfifo go said || exit
  $limited zke ledger.db lock ledger --on-lost warn -- \
    python3 -c "$slow_py" 1 "$examples/ledger.py" <go >said 2>fenced & p=$!
  exec 8>go 9<said
  read -r line <&9 && [ "$line" = written ] || { cat fenced; exit 1; }
  token=$(zke ledger.db --plain steal ledger -- \
    sh -c 'echo "$ZKE_LOCK_TOKEN"') || exit
  echo "the thief's token is $token"
  echo go >&8
  wait $p && exit 1
  cat fenced
  grep -q 'fenced: this token is not in office' fenced && [ "$(rows)" = '11 3' ]
)

scratch room host-examples
expect 'outbox: each order has one mail, whoever was killed' outbox_is_emptied
expect 'jobs: a deposed leader assigns nothing' leaders_are_fenced
expect 'ledger: rows carry the token' ledger_is_written
expect 'ledger: a former holder is refused' former_holder_writes_nothing
report
