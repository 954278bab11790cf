#!/bin/sh
# calibrate.sh - does the simulated kernel behave like the real one?
#
# Plays the scripts (calibrate.h) of at most RUNS (100000) seeds from SEED (1)
# on, for SECONDS in each of DIRS.
#
# As a part of `make test` it takes 3 seconds in the directory for tests.  `make
# sim-calibrate` takes 10 in each of: the directory for temporary files,
# /dev/shm, and an overlay mounted in a mount namespace.  A line names what is
# not available here, which is left out.
. test/report.sh

: "${SEED:=1}" "${RUNS:=100000}" "${DIRS:=${ZKE_TEST_ROOM-}}"
: "${SECONDS:=$([ "${ZKE_TEST_ROOM-}" ] && echo 3 || echo 10)}"
export SECONDS
program=$(cd "$BUILD" && pwd)/calibrate
user=$([ "$(id -u)" = 0 ] || echo -r) # to mount needs a user namespace, too
scratch work calibrate

# same COMMAND...: plays scripts, and nothing differs
same() { "$@" "$SEED" "$RUNS" >"$work/out" || { cat "$work/out" && false; }; }

# same_on NAME COMMAND...: a test of a file system, with figures
same_on() {
  name=$1
  shift
  expect "$name" same "$@"
  echo "$name: $(tail -n 1 "$work/out")"
}

# same_in DIRECTORY: a test of its file system
same_in() {
  room=$(mktemp -d "$1/zke-calibrate-XXXXXX") || return
  same_on "$(df -PT "$room" | awk 'NR == 2 { print $2 }')" "$program" "$room"
  rm -rf "$room"
}

# in_overlay COMMAND...: runs it with $work/merged as an overlay
in_overlay() {
  unshare -m $user sh -c 'mount -t overlay -o \
    "lowerdir=$0/lower,upperdir=$0/upper,workdir=$0/work" overlay "$0/merged" &&
    "$@"' "$work" "$@"
}

for dir in ${DIRS:-"${TMPDIR:-/tmp}" /dev/shm}; do same_in "$dir"; done
if [ -z "$DIRS" ]; then
  (cd "$work" && mkdir lower upper work merged)
  if in_overlay true 2>"$work/out"; then
    same_on overlay in_overlay "$program" "$work/merged"
  else
    echo "overlay: left out, $(head -n 1 "$work/out")"
  fi
fi
report
