#!/bin/sh
# kazoo.sh - zke serve with a real client: kazoo's recipes in several processes,
# together with commands that use the same file without the server
#
# The clients' roles are in kazoo_clients.py.
. test/report.sh

scratch room kazoo
zke=$(cd "$BUILD" && pwd)/zke
clients=$PWD/test/server/kazoo_clients.py
awk '/^```/ { out = 0 } out { print } /^```python test_here.py$/ { out = 1 }' \
  doc/server.md >"$room/test_here.py"
cd "$room" || exit 1
server=
trap 'kill $server 2>/dev/null' EXIT
trap 'exit 130' HUP INT TERM

need_kazoo

# begin: start the server on app.db; its address in $hosts
begin() {
  mkfifo port
  (umask 077; echo ann:secret >users)
  "$zke" app.db serve --port 0 --print-port --timeout-min 1s --users users \
    >port &
  server=$!
  read -r port <port
  hosts=127.0.0.1:$port
}

client() { $limited $python "$clients" "$hosts" "$@"; }

# until_says FILE TEXT: wait until it has that line
until_says() {
  for i in $(seq 3000); do
    grep -qx "$2" "$1" && return
    sleep 0.01
  done
  echo "$1 lacks: $2"
  cat "$1"
  return 1
}

# until_has N DIRECTORY: wait until it has so many entries
until_has() {
  for i in $(seq 3000); do
    [ "$("$zke" app.db ls "$2" | wc -l)" = "$1" ] && return
    sleep 0.01
  done
  echo "$2 does not have $1:"
  "$zke" app.db ls "$2"
  return 1
}

# must_wait COMMAND...: zke's, which must be refused what another process has;
# any other failure is a mistake of this script
must_wait() {
  "$zke" app.db "$@"
  status=$?
  [ $status = 75 ] && return
  echo "status $status: $*"
  return 1
}

# each_once N FILES: together they have N lines, all different
each_once() {
  wanted=$1
  shift
  [ "$(sort -u "$@" | wc -l)" = "$wanted" ] &&
    [ "$(cat "$@" | wc -l)" = "$wanted" ] && return
  grep -n . "$@"
  return 1
}

raise='n=$("$1" app.db get "$2") && "$1" app.db set "$2" $((n + 1))'

# kazoo's lock in two processes and zke's in others, which do not use the
# server, protect increments of one number: none is lost.
a_lock_excludes_kazoo_and_c() {
  client count /locks/one 25 & a=$!
  client count /locks/one 25 & b=$!
  for i in 1 2 3 4 5 6 7 8 9 10; do
    "$zke" app.db lock one -- sh -c "$raise" raise "$zke" /count
  done
  wait $a && wait $b || return 1
  n=$("$zke" app.db get /count)
  echo "count: $n"
  [ "$n" = 60 ]
}

# A killed client loses the lock when its session has timed out.
a_dead_client_gives_the_lock_to_c() {
  TIMEOUT=2 $python "$clients" "$hosts" hold /locks/two >held & a=$!
  until_says held held || return 1
  must_wait lock --nonblock two -- true || return 1
  kill -9 $a
  $limited "$zke" app.db lock two -- true
}

# kazoo's ordinary lock and zke's could both be held: zke refuses, and says so.
a_lock_of_kazoos_own_is_refused() {
  TIMEOUT=2 $python "$clients" "$hosts" hold_as_kazoo /locks/four >held & a=$!
  until_says held held || return 1
  "$zke" app.db lock four -- echo both 2>refused
  [ $? = 65 ] && grep -q 'kazoo stands in the lock /locks/four' refused &&
    "$zke" app.db locks four | grep -q '^  foreign ' &&
    "$zke" app.db doctor --plain | grep -q '^foreign.warning./locks/four: '
  result=$?
  kill -9 $a
  return $result
}

# A process that uses the file directly loses it immediately.
a_dead_process_gives_the_lock_to_kazoo() {
  "$zke" app.db lock three -- sh -c 'echo held; exec sleep 60' >held & a=$!
  until_says held held || return 1
  client take /locks/three >taken & b=$!
  until_has 2 /locks/three || return 1
  [ ! -s taken ] || return 1
  kill -9 $a
  wait $b && until_says taken taken
}

# Items of kazoo and of zke, taken by two kazoo processes and by zke: each is
# taken once, and each side gets the other's items.  zke takes the first five
# before kazoo begins, and puts the last ones.  zke takes some more together
# with kazoo, and then what kazoo has left, until nothing has come for a second.
a_queue_gives_each_item_once() {
  client put /queues/one 40 || return 1
  for i in $(seq 20); do
    "$zke" app.db queue push one "c $i" --priority 2 >pushed || return 1
  done
  for i in 1 2 3 4 5; do
    "$zke" app.db queue pop --nonblock one || return 1
  done >taken
  client consume /queues/one >one & a=$!
  client consume /queues/one >two & b=$!
  for i in $(seq 15); do
    "$zke" app.db queue pop --nonblock one
  done >>taken
  wait $a && wait $b || return 1
  while "$zke" app.db queue pop --nonblock one; do :; done >>taken
  each_once 60 one two taken || return 1
  grep -q item taken && cat one two | grep -q c
}

# zke gets a dead client's item when its session has timed out.
a_dead_client_gives_its_item_to_c() {
  client put /queues/two 1 || return 1
  TIMEOUT=2 $python "$clients" "$hosts" claim /queues/two >had & a=$!
  until_says had 'item 0' || return 1
  must_wait queue pop --nonblock two || return 1
  kill -9 $a
  [ "$($limited "$zke" app.db queue pop two)" = 'item 0' ]
}

# kazoo gets a dead process's item immediately.  In a queue that zke made and
# still uses, its other nodes are no items.
a_dead_process_gives_its_item_to_kazoo() {
  "$zke" app.db queue push three mine || return 1
  "$zke" app.db queue pop three -- sh -c 'cat; exec sleep 60' >had & a=$!
  until_says had mine || return 1
  client consume_one /queues/three >taken & b=$!
  client consume /queues/three >others || return 1
  [ ! -s others ] && [ ! -s taken ] || return 1
  kill -9 $a
  wait $b && until_says taken mine
}

# take_plain DIRECTORY: take the first item of kazoo's plain queue, a layout of
# no recipe.  It belongs to the process that deletes it; 1: there is none.
take_plain() {
  while :; do
    first=$("$zke" app.db ls "$1" | head -n 1)
    [ -n "$first" ] || return 1
    data=$("$zke" app.db get "$1/$first" 2>&-) &&
      "$zke" app.db delete "$1/$first" 2>&- && break
  done
  echo "$data"
}

a_plain_queue_gives_each_item_once() {
  client append /plain 30 || return 1
  for i in $(seq 10); do
    "$zke" app.db create -s /plain/entry-100- "c $i" >made || return 1
  done
  take_plain /plain >taken
  client fetch /plain >one & a=$!
  client fetch /plain >two & b=$!
  for i in 1 2 3 4 5; do take_plain /plain; done >>taken
  wait $a && wait $b && each_once 40 one two taken || return 1
  grep -q item taken && cat one two | grep -q c
}

# Leaders of kazoo and of zke increment one number: two at once would lose a
# step.
an_election_has_one_leader() {
  client reign /elections/one 15 & a=$!
  client reign /elections/one 15 & b=$!
  for i in 1 2 3 4 5 6 7 8 9 10; do
    "$zke" app.db elect one "c $i" -- sh -c "$raise" raise "$zke" /led
  done
  wait $a && wait $b || return 1
  n=$("$zke" app.db get /led)
  echo "led: $n"
  [ "$n" = 40 ]
}

# When a leading client dies, one of zke's becomes the leader.
a_dead_leader_is_followed_by_c() {
  TIMEOUT=2 $python "$clients" "$hosts" lead /elections/two 60 >first & a=$!
  until_says first leads || return 1
  must_wait elect --nonblock two me -- true || return 1
  kill -9 $a
  $limited "$zke" app.db elect two me -- true
}

# When a leading process dies, the next of two kazoo clients leads, and then the
# other.  zke's leader has one more node, which identifies it.
a_dead_leader_is_followed_by_kazoo() {
  "$zke" app.db elect three me -- sh -c 'echo leads; exec sleep 60' >first &
  a=$!
  until_says first leads || return 1
  client lead /elections/three 0 >second & b=$!
  client lead /elections/three 0 >third & c=$!
  until_has 4 /elections/three || return 1
  [ ! -s second ] && [ ! -s third ] || return 1
  kill -9 $a
  wait $b && wait $c && until_says second leads && until_says third leads
}

# Clients hear of changes that others make without the server.
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
  PATH=${zke%/*}:$PATH $limited $python -m pytest -q -p no:cacheprovider .
}

a_double_barrier_lets_both_in() {
  client party /barrier a >one & a=$!
  client party /barrier b >two & b=$!
  wait $a && wait $b || return 1
  until_says one out && until_says two out
}

# What a user of SASL protects is hidden from others.
sasl_protects() {
  [ "$(client login ann secret)" = secret ] || return 1
  [ "$(client see /of-ann)" = no ] && [ "$(client login ann Secret)" = refused ]
}

"$zke" app.db create /count 0 && "$zke" app.db create /led 0 || exit 1
begin
expect "kazoo's lock and zke's exclude each other" a_lock_excludes_kazoo_and_c
expect "a dead client's lock goes on" a_dead_client_gives_the_lock_to_c
expect "kazoo's own lock is refused" a_lock_of_kazoos_own_is_refused
expect "a dead process's lock goes on" a_dead_process_gives_the_lock_to_kazoo
expect "each item of a queue comes once" a_queue_gives_each_item_once
expect "a dead client's item comes" a_dead_client_gives_its_item_to_c
expect "a dead process's item comes" a_dead_process_gives_its_item_to_kazoo
expect "a plain queue does the same" a_plain_queue_gives_each_item_once
expect "one of kazoo's and zke's leads" an_election_has_one_leader
expect "zke leads after a dead client" a_dead_leader_is_followed_by_c
expect "kazoo leads after a dead process" a_dead_leader_is_followed_by_kazoo
expect "direct changes are heard" watches_hear_of_direct_changes
expect "a double barrier lets both in" a_double_barrier_lets_both_in
expect "a user of SASL sees what others do not" sasl_protects
expect "the test of doc/server.md passes" the_document_is_true
kill "$server"
wait "$server"
expect "the server ends cleanly" [ $? = 0 ]
server=
expect "the file is sound" "$zke" app.db check
report
