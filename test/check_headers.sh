#!/bin/sh
# check_headers.sh - each public header stands alone, twice, in every language
# that includes it: C99, C11 and C++17, by every compiler that is here.
. test/report.sh

# accepts HEADER COMPILER FLAG...: it compiles without any diagnostic
accepts() {
  header=$1
  shift
  printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
    nothing "$@" -I. -Wall -Wextra -Wpedantic -Wundef -Wshadow \
      -fsyntax-only -
}

for header in zkembed.h recipes/*.h; do
  [ -f "$header" ] || continue
  for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    for standard in c99 c11; do
      expect "$header as $standard by $compiler" accepts "$header" \
        $compiler -x c -std=$standard -Wstrict-prototypes -Wc++-compat
    done
  done
  for compiler in g++ clang++; do
    command -v $compiler >/dev/null || continue
    expect "$header as C++17 by $compiler" accepts "$header" \
      $compiler -x c++ -std=c++17
  done
done
report
