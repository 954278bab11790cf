#!/bin/sh
# recipes.sh - the recipes' tests and test/semantics, unchanged, on ZooKeeper
# servers
#
#   recipes.sh PROGRAM...
#
# Each PROGRAM is a test program of test/recipes, or test_semantics, whose texts
# say by themselves what is not for a server.  Each of its tests runs as a
# process of its own, with a time limit, on a server: first all on `zke serve`,
# then all on a standalone ZooKeeper (engine.c says how).  Tests that are about
# the file, and not about what a recipe promises on an ensemble, stand in the
# table left_out beside this script, with their reason.  They run, too, and must
# fail: one that passes does not belong there any more.
#
# The tests are written for files, where a step takes no round trip.  So a test
# that fails beside others is run once more, alone: if it passes then, that is
# told, and it counts as passed.
#
#   SERVER=zke, zookeeper  only on that one
#   ONLY=NAME              only the tests whose name contains it
#   SHORT=1                those of the table do not run
#   JOBS=n                 so many at once; most of them wait
#   LIMIT=n                seconds for a test
#
# The last line is "N passed, N failed", of both servers together.
here=test/ensemble
logs=${BUILD:-build}/log/ensemble
export LIMIT="${LIMIT:-120}"
# Check's own limits are meant for files, where a step takes no round trip.
export CK_TIMEOUT_MULTIPLIER="${CK_TIMEOUT_MULTIPLIER:-5}"

# --one SERVER PROGRAM TEST: leaves its exit status, and its output if it fails
if [ "$1" = --one ]; then
  log=$logs/$2/$(basename "$3")-$4
  timeout -k 5 "$LIMIT" "$3" "$4" >"$log.log" 2>&1 </dev/null
  echo "$(basename "$3") $4 $?" >"$log.status"
  exit 0
fi

directory=$(TMPDIR=/dev/shm mktemp -d 2>/dev/null || mktemp -d) || exit 2
. test/servers.sh

stop() {
  kill -KILL $servers
  wait $servers 2>/dev/null
  servers=
}

# One that a server got a moment ago, and nobody else since.
free_port() {
  rm -f "$directory/port"
  $tied "${BUILD:-build}/zke" :memory: serve --port 0 --print-port \
    >"$directory/port" 2>/dev/null &
  servers=$!
  until [ -s "$directory/port" ]; do
    kill -0 $servers 2>/dev/null || exit 2
    sleep 0.1
  done
  stop
  port=$(cat "$directory/port")
}

# answers PROGRAM: does the server, while it runs?
answers() {
  for try in $(seq 60); do
    kill -0 $servers 2>/dev/null || break
    "$1" "$("$1" --list | head -n 1)" >/dev/null 2>&1 &&
      kill -0 $servers 2>/dev/null && return
  done
  return 1
}

# A server of this kind that answers a test.  One that ends at once is begun
# again: another may have got its port.
start() {
  mkdir "$directory/$1"
  for attempt in 1 2 3; do
    free_port
    $tied sh $here/server.sh "$1" "$directory/$1" "$port" \
      >"$directory/$1/log" 2>&1 </dev/null &
    servers=$!
    export ZKE_TEST_SERVER="127.0.0.1:$port" ZKE_TEST_KIND="$1"
    answers "$2" && return
    kill -0 $servers 2>/dev/null && break
  done
  echo "recipes.sh: the server $1 does not answer:" >&2
  tail -n 20 "$directory/$1/log" >&2
  exit 2
}

# The tests that are to run, a line each: PROGRAM TEST
wanted() {
  for program in "$@"; do
    "$program" --list | sed "s|^|$program |"
  done | grep "${ONLY:-.}" | awk -v short="$SHORT" '
    FILENAME != "-" { if ($0 !~ /^#/) listed[$1 " " $2] = 1; next }
    { name = $1; sub(/.*\//, "", name) }
    !(short && listed[name " " $2])' $here/left_out -
}

# again SERVER DIRECTORY: runs what has failed once more; the programs are there
again() {
  for file in "$logs/$1"/*.status; do
    read -r program test status <"$file"
    [ "$status" = 0 ] && continue
    grep -q "^$program $test " $here/left_out && continue
    mv "${file%.status}.log" "${file%.status}.first.log"
    sh "$0" --one "$1" "$2/$program" "$test"
    read -r program test status <"$file"
    [ "$status" != 0 ] ||
      echo "$1: $program $test failed beside others, and passes alone"
  done
}

# What came of them: the sum, and what is not as the table says.
sum_up() {
  cat "$logs/$1"/*.status | sort | awk -v server="$1" '
    FILENAME != "-" { if ($0 !~ /^#/) listed[$1 " " $2] = 1; next }
    { is_listed = ($1 " " $2) in listed; all++ }
    $3 == 0 { good++ }
    $3 == 0 && is_listed { print server ": is in left_out, and passes: " $0 }
    $3 != 0 && is_listed { left++ }
    $3 != 0 && !is_listed { print server ": FAILED: " $0; bad++ }
    END {
      print server ": " good + 0 " of " all + 0 " pass, " left + 0 \
        " fail as left_out says"
      print "recipes_on_" server ": " good + 0 " passed, " bad + 0 " failed"
    }' $here/left_out -
}

for server in ${SERVER:-zke zookeeper}; do
  rm -rf "${logs:?}/$server"
  mkdir -p "$logs/$server"
  start "$server" "$1"
  wanted "$@" | xargs -P "${JOBS:-6}" -n 2 sh "$0" --one "$server" &
  driver=$!
  wait $driver
  driver=
  again "$server" "$(dirname "$1")"
  stop
  sum_up "$server" | tee "$logs/$server.sum"
done

awk '/passed, .* failed$/ { good += $2; bad += $4 }
  END { print good + 0 " passed, " bad + 0 " failed"; exit bad > 0 }' \
  $(for server in ${SERVER:-zke zookeeper}; do echo "$logs/$server.sum"; done)
