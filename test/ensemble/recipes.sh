#!/bin/sh
# recipes.sh - the recipes' tests and test/semantics, unchanged, on ZooKeeper
# servers
#
#   recipes.sh PROGRAM...
#
# Each PROGRAM is a test program of test/recipes, or test_semantics, whose texts
# mark by themselves what is not for a server.  Each of its tests runs as a
# separate process, with a time limit, on a server: first all on `zke serve`,
# then all on a standalone ZooKeeper (engine.c says how).  Tests of the file,
# and not of a recipe's promise on an ensemble, are listed with a reason in the
# table left_out.  They run, too, and must fail: one that passes must be removed
# from the table.
#
# The tests are written for files, where a step takes no round trip.  So a test
# that fails while others run is repeated alone: if it then passes, this is
# reported, and it counts as passed.
#
#   SERVER=zke, zookeeper  only on that one
#   ONLY=NAME              only tests with this in their name
#   SHORT=1                without those of the table
#   JOBS=n                 so many at once; most of them wait
#   LIMIT=n                seconds for a test
#
# The last line is "N passed, N failed", for both servers together.
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

# A port that a server was given a moment ago, and nobody since.
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

# answers PROGRAM: the server answers, and still runs
answers() {
  for try in $(seq 60); do
    kill -0 $servers 2>/dev/null || break
    "$1" "$("$1" --list | head -n 1)" >/dev/null 2>&1 &&
      kill -0 $servers 2>/dev/null && return
  done
  return 1
}

# Start a server of this kind that answers a test.  If one exits immediately,
# start it again: another process may have taken its port.
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

# The tests to run, a line each: PROGRAM TEST
wanted() {
  for program in "$@"; do
    "$program" --list | sed "s|^|$program |"
  done | grep "${ONLY:-.}" | awk -v short="$SHORT" '
    FILENAME != "-" { if ($0 !~ /^#/) listed[$1 " " $2] = 1; next }
    { name = $1; sub(/.*\//, "", name) }
    !(short && listed[name " " $2])' $here/left_out -
}

# again SERVER DIRECTORY: repeats failed tests of the programs there
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

# The results: the sum, and differences from the table.
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
