#!/bin/sh
# mutants.sh - would the simulation notice a mistake in the engine?
#
#   mutants.sh OBJECT...   what the simulation is linked of, but the engine; by
#                          `make sim-mutants`
#
# Plants each mistake of test/sim/mutants in a copy of zkembed.c and runs the
# simulation from SEEDS (1) first seeds, for SECONDS (60) of processor time at
# most, until it finds something.  ONLY=NAME: that mistake only.
. test/report.sh

: "${SEEDS:=1}" "${SECONDS:=60}" "${ONLY:=}" "${SIM_CFLAGS:?}"
table=test/sim/mutants
scratch work sim-mutants
export SECONDS

# plant NAME OBJECT...: the program with the mistake is $work/program
plant() {
  name=$1
  shift
  awk -v name="$name" -f test/lab/mutants.awk $table zkembed.c \
    >"$work/zkembed.c" &&
    $CC -I"$work" $SIM_CFLAGS -w -c -o "$work/plain.o" test/sim/engine.c &&
    $LD -r -T test/sim/gather.ld -o "$work/engine.o" "$work/plain.o" &&
    $CC -o "$work/program" "$@" "$work/engine.o" $LIBS
}

# seek NUMBER: adds to $work/found the seconds that it took
seek() {
  "$work/program" -1 $(($1 * 1000000)) 1000000 >"$work/log" 2>&1 && {
    echo "from seed $(($1 * 1000000)): nothing is found"
    return 1
  }
  sed -n 's/.* findings, \([0-9.]*\) s,.*/\1/p' "$work/log" >>"$work/found"
  sed -n 's/^seed [0-9]*: \(step [^P]*\)*//p' "$work/log" | head -n 1 |
    cut -c 1-100 >>"$work/what"
}

find_it() {
  : >"$work/found" >"$work/what"
  seed=1
  while [ $seed -le "$SEEDS" ]; do
    seek $seed || return 1
    seed=$((seed + 1))
  done
  sort -n "$work/found" | awk '{ took[NR] = $1 } END {
      printf "median %5.1f s, worst %5.1f s: ", took[int((NR + 1) / 2)],
        took[NR]
    }'
  head -n 1 "$work/what"
}

# try NAME OBJECT...
try() {
  plant "$@" && find_it
}

for name in $(awk '/^== / { print $2 }' $table); do
  [ -z "$ONLY" ] || [ "$ONLY" = "$name" ] || continue
  expect "$name is found" try "$name" "$@"
  printf '%-18s %s\n' "$name" "$(echo "$output" | tail -n 1)"
done
report
