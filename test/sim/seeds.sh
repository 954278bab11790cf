#!/bin/sh
# seeds.sh - the simulated host finds nothing in SECONDS (10) of processor time,
# from SEED (1) on.  A part of `make test`.
. test/report.sh

export SECONDS="${SECONDS:-10}"
expect "seeds from ${SEED:=1} on" "$BUILD/simulation" -s "$SEED" 1000000
report
