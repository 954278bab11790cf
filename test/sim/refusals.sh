#!/bin/sh
# refusals.sh - the simulated host refuses wrong arguments, with a sentence that
# says what is wrong.  A part of `make test`.
. test/report.sh

# refuses SENTENCE ARGUMENT...
refuses() {
  sentence=$1
  shift
  output=$("$BUILD/simulation" "$@" 2>&1)
  [ $? = 2 ] && printf '%s\n' "$output" | grep -qF "$sentence" && return
  printf '%s\n' "$output"
  return 1
}

# with_environment NAME VALUE
with_environment() (
  export "$1=$2"
  refuses "$1=$2: this must be a number from 1 to" 1 1
)

# Replay strings, the wrong character, and why it is.
while read -r string at sentence; do
  expect "$string" refuses "wrong at character $at: $sentence" "$string"
done <<'END'
/p3                  1  a number is missing
99999999999999999999/p3 1  this number is too large
5p3/                 2  a / is missing after the seed
5/q3                 3  no knob has this letter
5/p                  4  a number is missing
5/p9/                4  this knob is from 1 to 6
5/p3/z1@3            6  no fault has this letter
5/p3/k@3             7  a number is missing
5/p3/k3@3            7  there is no such process
5/p3/k1#3            8  @ or + is missing
5/p3/k1@dwrote7:500  9  no call has this name
5/p3/k1@dwrite       15 a number is missing
5/p3/k1@dwrite7:half 17 a number is missing
5/p3/e1@dwrite7      16 its error is missing
5/p3/k1@3/4          10 this is a third /
END

expect 'a seed' refuses 'SEED=one: this must be a number from 0' one
expect 'a number of runs' refuses 'RUNS=0: this must be a number from 1' 1 0
expect 'an option' refuses 'usage: sim' -q
for value in 0 -1 x 10s; do
  expect "SECONDS=$value" with_environment SECONDS "$value"
done
expect 'PROCESSES=7' with_environment PROCESSES 7
expect 'help' sh -c "'$BUILD/simulation' -h | grep -q '^usage: sim'"
report
