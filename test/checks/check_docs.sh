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
# - A program that includes headers of recipes gets recipes/, and is linked with
#   the engine, what is compiled of those recipes, of support.c and of what they
#   include in turn, and nothing else.  The first of them is built from the
#   sources, by the line that doc/recipes.md gives.
# - A block with a line from the first column to " {" defines functions: it is
#   compiled as it stands, after the prelude below.
# - Any other block is the inside of a function that has `zke *z; int rc;`.
. test/report.sh

blocks=$(scratch docs)
build_line='cc -std=c11 app.c zkembed.c -lsqlite3 -lpthread'
recipe_line='cc -std=c11 -I. app.c zkembed.c recipes/support.c recipes/lock.c \
    -lsqlite3 -lpthread'

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
  wrap "$1" | $CC -std=c11 -I. -Wall -Wextra -Werror -Wno-unused \
    -Wno-unused-parameter -x c -fsyntax-only -
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

# recipes_of FILE: the recipes that it includes, directly or not
recipes_of() {
  known= new=$(included "$1")
  while [ -n "$new" ]; do
    known=$(printf '%s\n' $known $new | sort -u)
    new=$(for r in $known; do
      included "recipes/$r.h" "recipes/$r.c"
    done | sort -u | grep -vxF "$known")
  done
  echo $known
}

# included FILE...: what they include of recipes, without ".h"
included() {
  for header in $(sed -n 's/^#include "\(recipes\/\)*\([a-z_]*\)\.h".*/\2/p' \
    "$@"); do
    [ -f "recipes/$header.c" ] && echo "$header"
  done
}

# recipe_room ROOM: where a program with recipes is built
recipe_room() {
  mkdir "$1" && mkdir "$1/recipes" && cp zkembed.c zkembed.h "$1" &&
    cp recipes/*.[ch] "$1/recipes"
}

runs_with_recipes() {
  room=${1%.c}
  objects=$(for r in $(recipes_of "$1"); do echo "$built/recipes/$r.o"; done)
  recipe_room "$room" && cp "$1" "$room/app.c" &&
    (cd "$room" && $CC -std=c11 -I. ${SAN:+-fsanitize=$SAN} app.c $objects \
      "$built/libzkembed.a" $LIBS && timeout 60 ./a.out </dev/null)
}

# The line of doc/recipes.md, with LIBS in the place of its own.
builds_from_sources() {
  room=$blocks/from-sources
  line=$(echo "$recipe_line" | sed 's/^cc //; s/-l.*//; s/\\$//')
  recipe_room "$room" && cp "$1" "$room/app.c" &&
    (cd "$room" && $CC $include $line $LIBS_HERE &&
      timeout 60 ./a.out </dev/null)
}

# The line of README as it stands, but for another compiler or SQLite.
built=$(cd "$BUILD" && pwd)
include=
LIBS_HERE=$LIBS
case $LIBS in
  *sqlite3*) ;;
  *)
    include="-I$(cd "${SQLITE_CFLAGS#-I}" && pwd)"
    LIBS_HERE="$built/sqlite3.o ${SAN:+-fsanitize=$SAN} $LIBS"
    ;;
esac

for file in README.md doc/*.md; do
  [ -f "$file" ] && extract "$file"
done
extract_header

# The first program of doc/recipes.md that is about a lock.
lock_program() { grep -l 'recipes/lock\.h' "$blocks"/recipes-*.c | head -n 1; }

expect "README.md tells how to build" grep -qF "$build_line" README.md
expect "README.md has a program" grep -ql 'int main(' "$blocks"/README-*.c
expect "doc/recipes.md tells how to build" grep -qF \
  "recipes/support.c recipes/lock.c" doc/recipes.md
expect "a recipe is built from its sources" builds_from_sources \
  "$(lock_program)"
for header in recipes/*.h; do
  name=$(basename "$header")
  [ "$name" = support.h ] ||
    expect "doc/recipes.md has a program with $name" \
      grep -qF "#include \"$header\"" doc/recipes.md
done
for block in "$blocks"/*.c; do
  name=$(basename "$block" .c)
  if grep -q 'int main(' "$block"; then
    run=runs
    if grep -q '^#include "recipes/' "$block"; then run=runs_with_recipes; fi
    expect "$name has no warning" warning_free "$block"
    expect "$name builds and runs" $run "$block"
  else
    expect "$name compiles" compiles "$block"
  fi
done
report
