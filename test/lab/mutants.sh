#!/bin/sh
# mutants.sh - would test_lab_recipes notice a mistake in a recipe?
#
#   mutants.sh OBJECT...   the objects of test_lab_recipes; by
#                          `make lab-mutants`
#
# Plants each mistake of test/lab/mutants in a copy of the recipe, links the
# test with the copy instead of the recipe, and runs the use of the recipe that
# must find it: with SEEDS (1) seeds, for SECONDS (20) of processor time at
# most.  Every seed must find it, and of eleven or more seeds half within 2 s; a
# single seed's time depends more on the machine.  ONLY=NAME: that mistake only.
. test/report.sh

: "${SEEDS:=1}" "${SECONDS:=20}" "${ONLY:=}" "${LAB_CFLAGS:?}"
table=test/lab/mutants
scratch work lab-mutants

# plant NAME FILE OBJECT...: makes $work/program with the mistake
plant() {
  name=$1 file=$2
  shift 2
  copy=$work/$(basename "$file")
  awk -v name="$name" -f test/lab/mutants.awk $table "$file" >"$copy" || return 1
  # flags are several words
  $CC $LAB_CFLAGS -w -iquote "$(dirname "$file")" -c \
    -o "$work/recipe.o" "$copy" || return 1
  for object in "$@"; do
    shift
    case $object in *"/${file%.c}.o") ;; *) set -- "$@" "$object" ;; esac
  done
  $CC -o "$work/program" "$@" "$work/recipe.o" $LIBS
}

# seek USE SEED: adds to $work/found the seconds that it took, and the number of
# letters in the schedule
seek() {
  ! RECIPE=$1 SEED=$2 SECONDS=$SECONDS timeout 300 "$work/program" \
    >"$work/log" 2>&1 || {
    echo "seed $2 finds nothing"
    return 1
  }
  replay=$(sed -n 's/^make lab .*REPLAY=\(.*\)$/\1/p' "$work/log")
  took=$(sed -n "s/^$1 .* calls *\([0-9.]*\) s.*/\1/p" "$work/log")
  [ "$replay" ] && [ "$took" ] || { tail -n 20 "$work/log"; return 1; }
  echo "$took $((${#replay} - 5))" >>"$work/found" # less the check number
}

# find USE: all seeds find it; of many, half soon
find_it() {
  : >"$work/found"
  seed=1
  while [ $seed -le "$SEEDS" ]; do
    seek "$1" $seed || return 1
    seed=$((seed + 1))
  done
  sort -n "$work/found" | awk '
    { took[NR] = $1; if (NR == 1 || $2 < least) least = $2 }
    END {
      printf "median %6.3f s, worst %6.3f s, %d letters\n",
        took[int((NR + 1) / 2)], took[NR], least
      exit NR >= 11 && took[int((NR + 1) / 2)] > 2
    }'
}

# try NAME USE FILE OBJECT...
try() {
  name=$1 use=$2 file=$3
  shift 3
  plant "$name" "$file" "$@" && find_it "$use"
}

awk '
  /^== / { name = $2; use = $3 }
  /^@ / { print name, use, $2 }' $table >"$work/list"
while read -r name use file; do
  [ -z "$ONLY" ] || [ "$ONLY" = "$name" ] || continue
  expect "$name is found by the use $use" try "$name" "$use" "$file" "$@"
  printf '%-24s %-20s %s\n' "$name" "$use" "$(echo "$output" | tail -n 1)"
done <"$work/list"
report
