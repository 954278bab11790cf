#!/bin/sh
# mutants.sh - would the simulation notice a mistake?
#
#   mutants.sh PROGRAM OBJECT...   PROGRAM is the simulation, the objects are
#                                  its own except the engine; by
#                                  `make sim-mutants`
#
# Plants each mistake of TABLE (test/sim/mutants) in a copy of zkembed.c, or of
# the file named by its line "@ FILE": a part of the extension, or a recipe;
# then the word after the mistake's name is the use of the recipe for all runs
# (RECIPES).  OBJECT... includes recipes.o.  Runs the simulation with the
# mistake from the first SEEDS (1) seeds, each time until it finds something,
# for SECONDS (60) of processor time at most.  A mistake is found if more than
# half of the tries find it, and the plans of these findings find nothing in the
# original engine.  Each result is printed as soon as it is known: the median,
# the longest, how many tries found it, and the first finding.
#
# JOBS (2) mistakes at a time.  ONLY='NAME...': these only; `again` means those
# of the track record.  mutants.sh calls itself with MUTANT=NAME for each.
. test/report.sh

: "${SEEDS:=1}" "${SECONDS:=60}" "${JOBS:=2}" "${ONLY:=}"
: "${TABLE:=test/sim/mutants}"

# edit FILE: makes a copy of it in $room, with the mistake
edit() {
  awk -v name="$MUTANT" -f test/lab/mutants.awk "$TABLE" "$1" \
    >"$room/$(basename "$1")"
}

# plant OBJECT...: makes $room/program, the simulation with the mistake
plant() {
  recipe=$(awk -v name="$MUTANT" '
    /^== / { here = $2 == name; use = $3 }
    here && /^@ / { print $2, use }' "$TABLE")
  case $recipe in recipes/*) export RECIPES="${recipe#* }" ;; esac
  if [ "$recipe" ]; then
    edit "${recipe% *}" &&
      sh test/sim/with_recipe.sh "$room" "${recipe% *}" "$@"
  else
    edit zkembed.c && sh test/sim/with_engine.sh "$room" "$@"
  fi
}

# seek SEED: adds the time that it took and the finding to $room/found.  A seed
# that finds something without the mistake, too, is reported and passed over.
seek() {
  at=$1 left=$SECONDS
  while [ "$left" -gt 0 ]; do
    SECONDS=$left "$room/program" -1 "$at" 1000000 >"$room/log" 2>&1 && break
    finding=$(sed -n 's/^seed \([0-9]*\): .*/\1/p' "$room/log")
    "$program" -1 "${finding:?}" >/dev/null && {
      note_finding $((SECONDS - left))
      return
    }
    echo "seed $finding finds something without the mistake, too"
    took=$(sed -n 's/.* findings, \([0-9]*\).*/\1/p' "$room/log")
    at=$((finding + 1)) left=$((left - ${took:?}))
  done
  echo "$SECONDS.1" >>"$room/found"
}

# note_finding BEFORE: adds that of $room/log, which came after BEFORE other
# seconds
note_finding() {
  awk -v seed="$finding" -v before="$1" '
    /^seed / {
      sub(/^seed [0-9]*: (step [0-9]* t=[^ ]* [^ ]*: )?/, "")
      told = $0
    }
    / findings, / { print before + $5, seed ": " substr(told, 1, 90) }' \
    "$room/log" >>"$room/found"
}

# row: sums up $room/found
row() {
  sort -n "$room/found" | awk -v name="$MUTANT" -v most="$SECONDS" '
    { took[NR] = $1 }
    NF > 1 { found++; if (!told) { $1 = ""; told = $0 } }
    END {
      at = int((NR + 1) / 2)
      printf "%-20s %5.1f %5.1f  %d/%d %s\n", name, took[at], took[NR], found,
        NR, told
      exit took[at] > most
    }'
}

# try_one OBJECT...
try_one() {
  room=$work/$MUTANT
  mkdir -p "$room" && : >"$room/found" || return 1
  plant "$@" >"$room/log" 2>&1 || {
    echo "$MUTANT cannot be planted:"
    cat "$room/log"
    return 1
  }
  seed=1
  while [ $seed -le "$SEEDS" ]; do
    seek $((seed * 1000000)) || return 1
    seed=$((seed + 1))
  done
  row && : >"$room/is_found"
}

program=$1
shift
if [ "${MUTANT-}" ]; then
  try_one "$@"
  exit
fi

scratch work sim-mutants
export work SECONDS SEEDS TABLE
names=$(awk -v only=" $ONLY " '
  /^== / && $3 != "-" && (only == "  " || index(only, " " $2 " ") ||
    index(only, " again ") && NF > 3) { print $2 }' "$TABLE")
printf '%-20s %5s %5s  %s\n' mistake median worst "found: seed, told"
printf '%s\n' $names |
  xargs -P "$JOBS" -I NAME env MUTANT=NAME sh "$0" "$program" "$@"
for name in $names; do
  expect "$name is found" test -e "$work/$name/is_found"
done
report
