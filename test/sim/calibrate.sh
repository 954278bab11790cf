#!/bin/sh
# calibrate.sh - does the simulated kernel do as the real one?
#
#   calibrate.sh PROGRAM    by `make sim-calibrate`: build/calibrate
#
# Plays the scripts of seeds from SEED (1) on, at most RUNS (100000), for SECONDS
# (10) in each of DIRS.  Without DIRS these are the directory for temporary
# files, /dev/shm, and an overlay that is mounted in a mount namespace.  What
# cannot be had is left out, with a line that says so.
. test/report.sh

: "${SEED:=1}" "${RUNS:=100000}" "${SECONDS:=10}" "${DIRS:=}"
export SECONDS
program=$PWD/$1
scratch work calibrate

# kind_of DIRECTORY: its file system
kind_of() { df -PT "$1" | awk 'NR == 2 { print $2 }'; }

# same DIRECTORY: nothing differs in scripts that are played there
same() { "$program" "$1" "$SEED" "$RUNS" >"$work/out"; }

# same_on DIRECTORY: tell of it
same_on() {
  room=$(mktemp -d "$1/zke-calibrate-XXXXXX") || return
  expect "$(kind_of "$room")" same "$room"
  echo "$(kind_of "$room"): $(tail -n 1 "$work/out")"
  sed '$d' "$work/out"
  rm -rf "$room"
}

# overlay COMMAND...: runs it where $work/merged is an overlay
overlay() {
  mkdir -p "$work/lower" "$work/upper" "$work/work" "$work/merged"
  unshare -m ${user+-r} sh -c 'cd "$0" && mount -t overlay -o \
    lowerdir=lower,upperdir=upper,workdir=work overlay merged && exec "$@"' \
    "$work" "$@"
}

if [ "$DIRS" ]; then
  for dir in $DIRS; do same_on "$dir"; done
else
  same_on "${TMPDIR:-/tmp}"
  same_on /dev/shm
  [ "$(id -u)" = 0 ] || user=
  if overlay true 2>"$work/out"; then
    expect overlay overlay "$program" "$work/merged" "$SEED" "$RUNS"
    echo "overlay: $(echo "$output" | tail -n 1)"
  else
    echo "overlay: left out, $(head -n 1 "$work/out")"
  fi
fi
report
