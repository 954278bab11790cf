#!/bin/sh
# replays.sh - faults that the simulated host has found once stay fixed
#
# Runs each replay string of test/sim/replays: it must find nothing.  By `make
# sim-replays`, and a part of `make test`.
. test/report.sh

while IFS= read -r line; do
  case $line in
    '  '*) expect "$line" "$BUILD/simulation" -s "${line#  }" ;;
  esac
done <test/sim/replays
report
