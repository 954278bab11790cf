#!/bin/sh
# coverage.sh - how much of zkembed.c do the tests reach?
#
#   coverage.sh PROGRAM...
#
# Runs test programs that were built for this (make coverage), then prints each
# line and each branch of zkembed.c that no test has reached, and the two sums.
# Branches marked ALWAYS or NEVER are left out of this build: see base_ in
# zkembed.c.  The status is 1 below AT_LEAST_LINES or AT_LEAST_BRANCHES percent,
# and when a test has failed.  $BUILD/report/index.html shows everything.

build=${BUILD:-build/coverage}
status=0

# Some branches are reached only by faults that the quicker run leaves out.
export FAULT_ALIKE="${FAULT_ALIKE:-4}"

find "$build" -name '*.gcda' -delete
sh test/run.sh "$@" >"$build/tests.log" 2>&1 || status=1
tail -n 1 "$build/tests.log"
[ $status = 0 ] || grep -v ', 0 failed' "$build/tests.log"

# gcovr does not read negative counts, which gcov writes for a function in which
# a process was killed.
mkdir -p "$build/report"
gcovr -r . --filter 'zkembed\.c$' --gcov-ignore-parse-errors --xml-pretty \
  -o "$build/coverage.xml" --html-details "$build/report/index.html" "$build" \
  2>"$build/gcovr.log" || exit 1

awk -v least_lines="${AT_LEAST_LINES:-100}" \
  -v least_branches="${AT_LEAST_BRANCHES:-95}" '
  FNR == NR { source[FNR] = $0; next }
  !/<line / { next }
  {
    match($0, /number="[0-9]+/)
    number = substr($0, RSTART + 8, RLENGTH - 8)
    text = source[number]
    sub(/^ +/, "", text)
    lines++
    if (/hits="0"/) {
      print "zkembed.c:" number ": not reached: " text
    } else {
      reached++
    }
  }
  match($0, /\([0-9]+\/[0-9]+\)/) {
    split(substr($0, RSTART + 1, RLENGTH - 2), n, "/")
    taken += n[1]
    branches += n[2]
    if (n[1] < n[2] && !/hits="0"/)
      print "zkembed.c:" number ": " n[1] " of " n[2] " branches: " text
  }
  END {
    printf "lines: %d of %d, %.2f %%\n", reached, lines, 100 * reached / lines
    printf "branches: %d of %d, %.2f %%\n", taken, branches,
      100 * taken / branches
    exit 100 * reached < least_lines * lines ||
      100 * taken < least_branches * branches
  }' zkembed.c "$build/coverage.xml" || status=1
exit $status
