#!/bin/sh
# compilers.sh - a seed means the same run with every compiler
#
#   compilers.sh PROGRAM...   simulations by several compilers; by `make
#                             sim-compilers`
#
# The traces of RUNS (200) seeds from SEED (1) on must have the same hash.
. test/report.sh

# traces PROGRAM: prints the hash of all runs
traces() { "$1" "${SEED:-1}" "${RUNS:-200}" | grep '^hash '; }

first=$(traces "$1")
for program in "$@"; do
  expect "$program: $first" test "$(traces "$program")" = "${first:-none}"
done
report
