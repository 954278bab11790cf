#!/bin/sh
# kazoo.sh - zke serve under a real client: kazoo's recipes in several processes,
# beside commands that use the same file without the server
#
# The roles of the clients are in kazoo_clients.py beside this.
. test/report.sh

scratch room kazoo
zke=$(cd "$BUILD" && pwd)/zke
clients=$PWD/test/server/kazoo_clients.py
awk '/^```/ { out = 0 } out { print } /^```python test_locks.py$/ { out = 1 }' \
  doc/server.md >"$room/test_locks.py"
cd "$room" || exit 1
server=
trap 'kill $server 2>/dev/null' EXIT
trap 'exit 130' HUP INT TERM

need_kazoo

# begin: the server, on app.db; its address in $hosts
begin() {
  mkfifo port
  (umask 077; echo ann:secret >users)
  "$zke" app.db serve --port 0 --print-port --timeout-min 1s --users users \
    >port &
  server=$!
  read -r port <port
  hosts=127.0.0.1:$port
}

client() { timeout 60 $python "$clients" "$hosts" "$@"; }

# until_says FILE TEXT: it has that line
until_says() {
  for i in $(seq 3000); do
    grep -qx "$2" "$1" && return
    sleep 0.01
  done
  echo "$1 lacks: $2"
  cat "$1"
  return 1
}

# until_two DIRECTORY: two contenders stand in it
until_two() {
  for i in $(seq 3000); do
    [ "$("$zke" app.db ls "$1" | wc -l)" = 2 ] && return
    sleep 0.01
  done
  echo "$1 lacks a second contender:"
  "$zke" app.db ls "$1"
  return 1
}

# One number, raised by kazoo's lock in two processes and by zke's in others,
# which do not go through the server: none is lost.
a_lock_excludes_kazoo_and_c() {
  client count /locks/one 25 & a=$!
  client count /locks/one 25 & b=$!
  for i in 1 2 3 4 5 6 7 8 9 10; do
    "$zke" app.db lock one -- sh -c "
      n=\$('$zke' app.db get /count) && '$zke' app.db set /count \$((n + 1))"
  done
  wait $a && wait $b || return 1
  n=$("$zke" app.db get /count)
  echo "count: $n"
  [ "$n" = 60 ]
}

# A client that is killed loses the lock when its session's time is over.
a_dead_client_gives_the_lock_to_c() {
  $python "$clients" "$hosts" hold /locks/two >held & a=$!
  until_says held held || return 1
  "$zke" app.db lock -n two -- true && return 1
  kill -9 $a
  timeout 60 "$zke" app.db lock two -- true
}

# A process that uses the file itself loses it at once.
a_dead_process_gives_the_lock_to_kazoo() {
  "$zke" app.db lock three -- sh -c 'echo held; exec sleep 600' >held & a=$!
  until_says held held || return 1
  client take /locks/three >taken & b=$!
  until_two /locks/three || return 1
  [ ! -s taken ] || return 1
  kill -9 $a
  wait $b && until_says taken taken
}

# Each item comes once.
a_queue_gives_each_item_once() {
  client put /queue 40 || return 1
  client consume /queue >one & a=$!
  client consume /queue >two & b=$!
  wait $a && wait $b || return 1
  cat one two
  [ "$(sort -u one two | wc -l)" = 40 ] && [ "$(cat one two | wc -l)" = 40 ]
}

# One leads at a time; where it dies the other leads.
an_election_has_a_leader() {
  $python "$clients" "$hosts" lead /election 600 >first & a=$!
  until_says first leads || return 1
  client lead /election 0 >second & b=$!
  until_two /election || return 1
  [ ! -s second ] || return 1
  kill -9 $a
  wait $b && until_says second leads
}

# Clients hear what others do to the file without the server.
watches_hear_of_direct_changes() {
  "$zke" app.db create /seen first || return 1
  client watch /seen >heard & a=$!
  until_says heard watches || return 1
  "$zke" app.db create /seen/b && until_says heard 'children b' || return 1
  "$zke" app.db create /seen/a && until_says heard 'children a b' || return 1
  "$zke" app.db set /seen end
  wait $a && until_says heard 'data end'
}

# The document's file, under pytest.
the_document_is_true() {
  PATH=${zke%/*}:$PATH timeout 120 $python -m pytest -q -p no:cacheprovider .
}

a_double_barrier_lets_both_in() {
  client party /barrier a >one & a=$!
  client party /barrier b >two & b=$!
  wait $a && wait $b || return 1
  until_says one out && until_says two out
}

# What a user of SASL protects others do not see.
sasl_protects() {
  [ "$(client login ann secret)" = secret ] || return 1
  [ "$(client see /of-ann)" = no ] && [ "$(client login ann Secret)" = refused ]
}

"$zke" app.db create /count 0 || exit 1
begin
expect "kazoo's lock and zke's exclude each other" a_lock_excludes_kazoo_and_c
expect "a dead client's lock goes on" a_dead_client_gives_the_lock_to_c
expect "a dead process's lock goes on" a_dead_process_gives_the_lock_to_kazoo
expect "each item of a queue comes once" a_queue_gives_each_item_once
expect "an election has one leader" an_election_has_a_leader
expect "direct changes are heard" watches_hear_of_direct_changes
expect "a double barrier lets both in" a_double_barrier_lets_both_in
expect "a user of SASL sees what others do not" sasl_protects
expect "the tests of doc/server.md pass" the_document_is_true
kill "$server"
wait "$server"
expect "the server ends cleanly" [ $? = 0 ]
server=
expect "the file is sound" "$zke" app.db check
report
