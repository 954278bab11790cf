#!/bin/sh
# run.sh - run test programs and check scripts, and sum up their results
#
#   run.sh PROGRAM...
#   run.sh --each PROGRAM...   only runs them
#   run.sh --sum PROGRAM...    only sums up what they have reported
#
# Each program prints "NAME: N passed, N failed" (any number of times), and its
# exit status says whether all is well.  All are run, even if some fail, JOBS at
# a time (twice the number of processors, since most of them also wait), in the
# order given.  Then the output of those that failed is shown, and the last line
# is the sum, "N passed, N failed".  A program that crashes, hangs, or reports
# nothing counts as failed.  Outputs stay in $BUILD/log.  RUNNER is a command
# that runs the programs, such as valgrind with its options; RUN_LIMIT is the
# time limit of each, in seconds.
#
# Scripts that are no checks work in the same place as the programs' tests: in
# TMPDIR; if that is not set, in /dev/shm, where a sync costs nothing, or in
# /tmp if /dev/shm has less than 1 GiB free.  If one fails, its directory moves
# to $BUILD/log.

logs=${BUILD:-build}/log
jobs=${JOBS:-$(($(nproc) * 2))}
limit=${RUN_LIMIT:-2400} # its tests have limits of their own

# The limits are for hangs, and allow for slow machines.
export CK_TIMEOUT_MULTIPLIER="${CK_TIMEOUT_MULTIPLIER:-5}"
export CK_DEFAULT_TIMEOUT="${CK_DEFAULT_TIMEOUT:-30}" # Check's own are 4 s

# A sanitizer's finding must end the process, or a forked test would pass.
export ASAN_OPTIONS="detect_leaks=1:${ASAN_OPTIONS-}"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS-}"
# At each exit ThreadSanitizer waits a second for actions of other threads.
export TSAN_OPTIONS="halt_on_error=1:atexit_sleep_ms=50:${TSAN_OPTIONS-}"

# where_tests_work: prints the directory
where_tests_work() {
  room=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
  if [ "${room:-0}" -lt 1048576 ]; then room=/tmp; else room=/dev/shm; fi
  echo "${TMPDIR:-$room}"
}

# run_one PROGRAM: leaves NAME.log and NAME.sum, prints one line
run_one() {
  name=$(basename "$1" .sh)
  rm -rf "$logs/$name".*
  began=$(date +%s)
  ZKE_TEST_ROOM=
  case $1 in
    test/checks/*) set -- sh "$1" ;;
    *.sh)
      ZKE_TEST_ROOM=$(mktemp -d "$(where_tests_work)/zke-$name-XXXXXX") || exit
      export ZKE_TEST_ROOM
      set -- sh "$1"
      ;;
    # Sanitizers need addresses that ASLR may have used.
    *)
      [ -n "${SAN-}" ] && setarch -R true && set -- setarch -R "$1"
      set -- ${RUNNER-} "$@" # may be several words
      ;;
  esac
  timeout -k 10 $limit "$@" >"$logs/$name.log" 2>&1 </dev/null
  status=$?
  awk -v status=$status '
    /^[^ ]+: [0-9]+ passed, [0-9]+ failed$/ { passed += $2; failed += $4 }
    END {
      if (status ? !failed : !(passed + failed)) failed++
      print passed + 0, failed + 0
    }' "$logs/$name.log" >"$logs/$name.sum"
  read -r passed failed <"$logs/$name.sum"
  if [ -n "$ZKE_TEST_ROOM" ]; then
    [ "$failed" = 0 ] || cp -R "$ZKE_TEST_ROOM" "$logs/$name.room"
    rm -rf "$ZKE_TEST_ROOM"
  fi
  note=
  [ $status -gt 1 ] && note=", exit status $status"
  echo "$name: $passed passed, $failed failed ($(($(date +%s) - began)) s$note)"
}

if [ "$1" = --one ]; then
  run_one "$2"
  exit 0
fi

mkdir -p "$logs"
if [ "$1" = --sum ]; then
  shift
else
  each=
  [ "$1" = --each ] && each=1 && shift
  [ $# -gt 0 ] && printf '%s\n' "$@" | xargs -P "$jobs" -n 1 sh "$0" --one
  [ -n "$each" ] && exit 0
fi

total_passed=0 total_failed=0
for program in "$@"; do
  name=$(basename "$program" .sh)
  read -r passed failed <"$logs/$name.sum" || { passed=0 failed=1; }
  total_passed=$((total_passed + passed))
  total_failed=$((total_failed + failed))
  if [ "$failed" -gt 0 ]; then
    echo
    echo "---- $name ($logs/$name.log)"
    grep -v ': [0-9]* passed, 0 failed$' "$logs/$name.log" | tail -n 100
  fi
done
echo
echo "$total_passed passed, $total_failed failed"
[ $total_failed = 0 ] && [ $total_passed -gt 0 ]
