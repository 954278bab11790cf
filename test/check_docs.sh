#!/bin/sh
# check_docs.sh - every C block of the documents is compiled, every program run
#
# A block is what stands between ```c and ``` in README.md and doc/*.md, and
# the program in the comment at the head of zkembed.h.
#
# - A block with "int main(" is a program.  It is put as app.c into an empty
#   directory with zkembed.c and zkembed.h and nothing else, built there by
#   README's line, `cc -std=c11 app.c zkembed.c -lsqlite3 -lpthread`, and run;
#   its exit status must be 0.  It must also be free of warnings.
# - A block with a line from the first column to " {" defines functions: it is
#   compiled as it stands, after the prelude below.
# - Any other block is the inside of a function that has `zke *z; int rc;`.
. test/report.sh

blocks=$(scratch docs)
build_line='cc -std=c11 app.c zkembed.c -lsqlite3 -lpthread'

prelude='#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "zkembed.h"'

# extract FILE: writes $blocks/NAME-LINE.c for each block, LINE its first line
extract() {
  awk -v stem="$blocks/$(basename "$1" .md)" '
    /^ *```c$/ { out = sprintf("%s-%d.c", stem, NR + 1); printf "" >out; next }
    /^ *```/ { if (out) close(out); out = "" }
    out { print >out }' "$1"
}

extract_header() {
  awk -v out="$blocks/zkembed.h-program.c" '
    /^ \*     #include/ { inside = 1 }
    /^ \* RULES/ { exit }
    inside { sub(/^ \*( {1,5})?/, ""); print >out }' zkembed.h
}

# wrap BLOCK: to standard output, a file that can be compiled by itself
wrap() {
  place=$(basename "$1" .c)
  printf '%s\n' "$prelude"
  if grep -qE '^[A-Za-z].*\{$' "$1"; then
    printf '#line %s "%s"\n' "${place##*-}" "${place%-*}"
    cat "$1"
  else
    printf 'void block(zke *z, int rc);\nvoid block(zke *z, int rc) {\n'
    printf '(void)z, (void)rc;\n{\n'
    printf '#line %s "%s"\n' "${place##*-}" "${place%-*}"
    cat "$1"
    printf '}\n}\n'
  fi
}

compiles() {
  wrap "$1" | $CC -std=c11 -I. -Wall -Wextra -Werror -Wno-unused -x c \
    -fsyntax-only -
}

warning_free() {
  $CC -std=c11 -I. -Wall -Wextra -Wpedantic -Werror -fsyntax-only "$1"
}

runs() {
  room=${1%.c}
  mkdir "$room" && cp zkembed.c zkembed.h "$room" && cp "$1" "$room/app.c" &&
    (cd "$room" && $CC -std=c11 $include app.c zkembed.c $LIBS_HERE &&
      timeout 60 ./a.out </dev/null)
}

# The line of README as it stands, but for another compiler or SQLite.
include=
LIBS_HERE=$LIBS
case $LIBS in
  *sqlite3*) ;;
  *)
    include="-I$(cd "${SQLITE_CFLAGS#-I}" && pwd)"
    LIBS_HERE="$(cd "$BUILD" && pwd)/sqlite3.o ${SAN:+-fsanitize=$SAN} $LIBS"
    ;;
esac

for file in README.md doc/*.md; do
  [ -f "$file" ] && extract "$file"
done
extract_header

expect "README.md tells how to build" grep -qF "$build_line" README.md
expect "README.md has a program" grep -ql 'int main(' "$blocks"/README-*.c
for block in "$blocks"/*.c; do
  name=$(basename "$block" .c)
  if grep -q 'int main(' "$block"; then
    expect "$name has no warning" warning_free "$block"
    expect "$name builds and runs" runs "$block"
  else
    expect "$name compiles" compiles "$block"
  fi
done
report
