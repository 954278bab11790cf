#!/bin/sh
# mutate.sh - would the quick tests notice a wrong line in the engine?
#
#   mutate.sh TEST...      the quick tests' names; by `make mutate`
#
# Changes one line of zkembed.c at a time, LINES of them (50), among those that
# the tests run; mutate.awk describes the changes and how SEED (1) chooses them.
# Each changed engine is built as a shared library for the tests, which are run
# until one fails, crashes or hangs.  A change that does not compile, or does
# not change the optimised code, is not counted.  A change that no test notices
# may be explained in mutate.answers, or found by the simulated host, which is
# linked from $SIM_OBJECTS, in 60 s of processor time; otherwise it is a
# survivor and counts as a failure.  ONLY=FUNCTION changes only that function;
# LIST=1 only prints the changes.
. test/report.sh

: "${LINES:=50}" "${SEED:=1}" "${ONLY:=}" "${LIST:=}" "${SIM_OBJECTS:=}"
flags="-std=c11 -w -pedantic-errors -fPIC -shared -fvisibility=hidden"
scratch work mutate
original=$work/original/zkembed.c # which nobody edits meanwhile
mkdir "$work/original"
cp zkembed.c "$original"
engine=$work/$ENGINE
programs=
for name in "$@"; do programs="$programs $BUILD/mutate/test_$name"; done

# The tests' own files: in memory if possible.
base=/dev/shm
[ -d $base ] && [ -w $base ] || base=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d "$base/zke-mutate-XXXXXX") || exit 1
chmod 711 "$TMPDIR" # some tests act as another user
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 1' HUP INT TERM

# build SOURCE OUTPUT FLAG...
build() {
  source=$1 output=$2
  shift 2
  # flags are several words
  $CC $flags $SQLITE_CFLAGS -I. "$@" -o "$output" -x c "$source" $LIBS \
    >"$work/compiler" 2>&1
}

# run PROGRAM SECONDS: with limits of time and memory
run() {
  (
    ulimit -v 8000000
    ulimit -f 4000000
    timeout -k 5 "$2" "$1"
  ) >"$work/log" 2>&1 </dev/null
}

# How long each test takes on the unchanged engine, and which lines it runs.
measure() {
  build "$original" "$engine" -O0 --coverage || return 1
  for program in $programs; do
    began=$(date +%s)
    LD_LIBRARY_PATH=$work run "$program" 120 || { cat "$work/log" >&2; break; }
    echo "$program $((3 * ($(date +%s) - began) + 5))"
  done | sort -n -k 2 >"$work/limits"
  [ "$(wc -l <"$work/limits")" = "$(echo "$programs" | wc -w)" ] || return 1
  # the compiler's version and the output decide where the notes are
  notes=$(find "$work" . -maxdepth 1 -name '*.gcda' | head -n 1)
  gcov -t "$notes" >"$work/zkembed.gcov" 2>"$work/compiler"
}

# fails PROGRAM SECONDS: it fails with the changed engine, and not with the
# original.  On a busy machine tests can fail, too: if both fail, it tries
# again, and in the end counts as no failure.
fails() {
  limit=$2
  for try in 1 2 3; do
    LD_LIBRARY_PATH=$work run "$1" "$limit" && return 1
    why=$(awk -F : '/:[FE]:/ { print ", " $4; exit }' "$work/log")
    LD_LIBRARY_PATH=$work/original run "$1" "$limit" && return 0
    limit=$((2 * limit))
  done
  return 1
}

# noticed: a test fails; $by has its name
noticed() {
  while read -r program seconds; do
    fails "$program" "$seconds" && by=$(basename "$program")$why && return 0
    rm -rf "${TMPDIR:?}"/*
  done <"$work/limits"
  return 1
}

# Is the optimised code the same?  Then the program is.
same_code() {
  build "$work/zkembed.c" "$work/changed.o" -O2 -g0 -c &&
    cmp -s "$work/original.o" "$work/changed.o"
}

# found: the simulated host finds something; $by says what
found() {
  [ "$SIM_OBJECTS" ] || return 1
  mkdir -p "$work/sim" && cp "$work/zkembed.c" "$work/sim"
  sh test/sim/with_engine.sh "$work/sim" $SIM_OBJECTS >"$work/compiler" 2>&1 ||
    return 1
  SECONDS=60 "$work/sim/program" -1 1 1000000 >"$work/log" 2>&1 && return 1
  by=$(sed -n 's/^seed \([0-9]*\): step .*: \(P[0-9]*\): .*/\2, seed \1/p' \
    "$work/log")
}

# answered FUNCTION WAS BECOMES: the change is in mutate.answers
answered() {
  awk -v name="$1" -v was="$2" -v becomes="$3" '
    function trim(s) { sub(/^ */, "", s); sub(/ *$/, "", s); return s }
    BEGIN { was = trim(was); becomes = trim(becomes) }
    /^@ / { here = substr($0, 3) == name }
    /^- / { here = here && trim(substr($0, 3)) == was; second = here }
    /^\+ / { if (here && trim(substr($0, 3)) == becomes) found = 1 }
    END { exit !found }' FS='\n' test/checks/mutate.answers
}

measure || {
  cat "$work/compiler"
  expect "the tests pass with the engine as it is" false
  report
}
build "$original" "$work/original.o" -O2 -g0 -c || exit 1
build "$original" "$work/original/$ENGINE" -O0 || exit 1
awk -v seed="$SEED" -f test/checks/mutate.awk "$work/zkembed.gcov" >"$work/changes"
[ -z "$ONLY" ] || {
  awk -F '\t' -v only="$ONLY" '$1 == only' "$work/changes" >"$work/some"
  mv "$work/some" "$work/changes"
}
show='{ was = $3; becomes = $4; gsub(/^ */, "", was); gsub(/^ */, "", becomes)
  print "@ " $1; print "- " was; print "+ " becomes }'
[ -z "$LIST" ] || {
  head -n "$LINES" "$work/changes" | awk -F '\t' "$show"
  exit
}
echo "seed $SEED: $(wc -l <"$work/changes") lines could be changed"

# Each of the changes in turn.
: >"$work/survivors"
counted=0 answers=0
while [ $counted -lt "$LINES" ] && read -r change; do
  name=$(printf '%s\n' "$change" | cut -f 1)
  number=$(printf '%s\n' "$change" | cut -f 2)
  was=$(printf '%s\n' "$change" | cut -f 3)
  becomes=$(printf '%s\n' "$change" | cut -f 4)
  CHANGE=$becomes awk -v number="$number" \
    'NR == number { $0 = ENVIRON["CHANGE"] } { print }' "$original" \
    >"$work/zkembed.c"
  build "$work/zkembed.c" "$engine" -O0 || continue
  if noticed; then
    passed=$((passed + 1))
    result="noticed by $by"
  elif same_code; then
    continue
  elif answered "$name" "$was" "$becomes"; then
    answers=$((answers + 1))
    passed=$((passed + 1))
    result="survives, answered"
  elif found; then
    passed=$((passed + 1))
    result="found by the simulated host: $by"
  else
    failed=$((failed + 1))
    result="SURVIVES"
    printf '%s\n' "$change" >>"$work/survivors"
  fi
  counted=$((counted + 1))
  printf '%s, line %s: %s\n' "$name" "$number" "$result"
done <"$work/changes"

echo "$counted changes: $((passed - answers)) noticed, $answers answered," \
  "$failed not noticed"
awk -F '\t' "$show" "$work/survivors"
report
