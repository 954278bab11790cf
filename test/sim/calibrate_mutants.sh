#!/bin/sh
# calibrate_mutants.sh - would the comparison with the real kernel notice a
# mistake in the simulated one?
#
#   calibrate_mutants.sh OBJECT...   the objects of build/calibrate, except the
#                                    kernel; by `make sim-calibrate-mutants`
#
# Plants each mistake of test/sim/calibrate_mutants in a copy of its file, and
# plays scripts until one differs, for SECONDS (60) at most.  ONLY='NAME...':
# these only.
. test/report.sh

: "${SECONDS:=60}" "${ONLY:=}" "${SIM_CFLAGS:?}"
export SECONDS
table=test/sim/calibrate_mutants
scratch work calibrate-mutants

# plant NAME FILE OBJECT...: makes $work/program with the mistake.  The linker
# takes all other files from the archive.
plant() {
  name=$1 file=$2
  shift 2
  awk -v name="$name" -f test/lab/mutants.awk $table "test/sim/$file" \
    >"$work/$file" &&
    $CC $SIM_CFLAGS -w -c -o "$work/mistake.o" "$work/$file" &&
    $CC -o "$work/program" "$work/mistake.o" "$@" "$BUILD/sim/kernel.a" $LIBS
}

# differs: a script soon differs
differs() {
  ! "$work/program" -1 "$work" 1 1000000 >"$work/log" 2>&1 &&
    sed -n 's/^seed \([0-9]*\), \([0-9]*\) calls.*/by seed \1, \2 calls/p' \
      "$work/log" | grep .
}

# is_found NAME FILE OBJECT...
is_found() { plant "$@" && differs; }

awk '/^== / { print $2, $3 }' $table >"$work/names"
while read -r name file; do
  case " ${ONLY:-$name} " in *" $name "*) ;; *) continue ;; esac
  expect "$name is found" is_found "$name" "$file" "$@"
  echo "$name: $output"
done <"$work/names"
report
