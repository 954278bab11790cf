#!/bin/sh
# check_headers.sh - each public header compiles alone, and included twice, in
# C99, C11, C++11 and C++17, with every compiler here; and so does ZKE_INIT() of
# each struct that begins with its size.
. test/report.sh

# accepts HEADER COMPILER FLAG...: it compiles without any diagnostic
accepts() {
  header=$1
  shift
  { printf '#include "%s"\n#include "%s"\n' "$header" "$header"
    initialised "$header"; } |
    nothing "$@" -I. -Wall -Wextra -Wpedantic -Wundef -Wshadow \
      -Wmissing-field-initializers -fsyntax-only -
}

# initialised HEADER: functions that use the initialisers in the documents
initialised() {
  awk '/size_t size;/ { sized = 1 }
    /^}/ { if (sized) print $2; sized = 0 }' "$1" | tr -d ';' |
    while read -r type; do
      echo "int init_$type(int);"
      echo "int init_$type(int n) {"
      echo "  static const $type fixed = ZKE_INIT($type);"
      echo "  $type o = ZKE_INIT($type);"
      echo "  return o.size == fixed.size && n;"
      echo "}"
    done
}

structs() { for header; do initialised "$header"; done | grep -c '^}'; }

# The headers of ours that public headers include and that are not public.
strangers() {
  basename -a $PUBLIC_HEADERS >"$work/public"
  sed -n 's/^ *# *include "\(.*\)"/\1/p' $PUBLIC_HEADERS | grep -vxFf "$work/public"
}

scratch work headers
expect "public headers include public ones only" nothing strangers
expect "structs that begin with their size are found" \
  [ "$(structs $PUBLIC_HEADERS)" -gt 20 ]
for header in $PUBLIC_HEADERS recipes/part/*.h; do
  for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    for standard in c99 c11; do
      expect "$header as $standard by $compiler" accepts "$header" \
        $compiler -x c -std=$standard -Wstrict-prototypes -Wc++-compat
    done
  done
  for compiler in g++ clang++; do
    command -v $compiler >/dev/null || continue
    for standard in c++11 c++17; do
      expect "$header as $standard by $compiler" accepts "$header" \
        $compiler -x c++ -std=$standard
    done
  done
done
report
