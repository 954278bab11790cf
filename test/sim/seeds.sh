#!/bin/sh
# seeds.sh - the simulated host finds nothing in RUNS (500) runs, from SEED (1)
# on, or in SECONDS (10) of processor time.  A part of `make test`, with the
# same runs for everyone.
. test/report.sh

export SECONDS="${SECONDS:-10}"
expect "seeds from ${SEED:=1} on" "$BUILD/simulation" -s "$SEED" "${RUNS:=500}"
report
