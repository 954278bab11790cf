#!/bin/sh
# check_docs.sh - every C block of the documents is compiled, every program run
#
# A block is the text between ```c and ``` in README.md and doc/*.md, the
# program in the comment at the head of zkembed.h, and each example in the other
# comments of the public headers: the indented lines after a paragraph that
# begins with "Example:".
#
# - A block with "int main(" is a program.  README's are put as app.c into an
#   empty directory with only zkembed.c and zkembed.h; the one with a lock also
#   with the two files that recipes/amalgamate.sh makes.  They are built there
#   by README's lines, without a warning, and run; their exit status must be 0.
# - The same holds for any other program.  It is linked with only the engine and
#   the recipes whose headers it includes, with what these include in turn.
# - A program that begins with its file's name, "/* NAME.c - ", is built and run
#   by test/shell/transcripts.sh; here it must have no warning, and at most 120
#   lines.
# - Programs with a queue, a configuration and an election are built from four
#   files, with the compiled engine.  All recipes together and each alone have
#   no warning.
# - The example at the head of each recipe's header is compiled as the body of a
#   function that has `zke *z; int64_t deadline;`; a static function at its
#   beginning is put before that one.
# - Another example of a recipe's header includes that header.  The function
#   around it also has `int64_t deadline;` and the objects that the header's
#   functions take first, under their names there: `zke_lock *lock` in lock.h.
# - A block with a line from the first column to " {" that is no statement, or
#   with "static " there, defines functions: it is compiled as it is, after the
#   prelude below.
# - A program that includes zkembed-lab.h is linked with the laboratory, where
#   that can be built, and finds what doc/laboratory.md says.  The one at the
#   head of zkembed-lab.h finds nothing.
# - Any other block is the body of a function that has `zke *z; int rc;`.
#
# With sanitizers only the programs run that are linked with files compiled for
# them: the others would be the same again.
. test/report.sh

scratch blocks docs
build_line='cc -std=c11 app.c zkembed.c -lsqlite3 -lpthread'
four_line='cc -std=c11 app.c zkembed.c zkembed_recipes.c -lsqlite3 -lpthread'
recipe_line='cc -std=c11 -I. app.c zkembed.c recipes/*.c recipes/part/*.c -lsqlite3 -lpthread'

prelude='#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
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

# example HEADER: prints the example at its head
example() {
  awk '/^ \*     / { inside = 1 }
    inside && /^ \* [^ ]/ { exit }
    inside { print substr($0, 8) }' "$1"
}

example_compiles() {
  { printf '%s\n#include "%s"\n' "$prelude" "$1"
    example "$1" | awk '
      NR == 1 { function_first = /^static .*\(/ }
      !function_first && !begun {
        begun = 1
        print "void example(zke *z, int64_t deadline);"
        print "void example(zke *z, int64_t deadline) { (void)z, (void)deadline;"
      }
      { print }
      /^}/ { function_first = 0 }
      END { print "}" }'; } |
    $CC -std=c11 -I. -Wall -Wextra -Werror -Wno-unused -Wno-unused-parameter \
      -x c -fsyntax-only -
}

# extract_examples HEADER: the same as extract(), from the comments of its groups
extract_examples() {
  awk -v stem="$blocks/$(basename "$1" .h)_h" '
    function end() { if (out) close(out); out = ""; blank = 0 }
    / \*\/$/ || (out && !/^ \*(     |$)/) { end(); begun = 0 }
    /^ \* Example: / { end(); begun = 1 }
    begun && /^ \*     / {
      if (!out) { out = sprintf("%s-%d.c", stem, NR); printf "" >out }
      for (; blank; blank--) print "" >out
      sub(/^ \*     /, "")
      print >out
    }
    out && /^ \*$/ { blank++ }' "$1"
}

# as_many_as_told HEADER: each "Example:" in it has become a block
as_many_as_told() {
  set -- "$(grep -c '^ \* Example: ' "$1")" \
    "$(ls "$blocks/$(basename "$1" .h)_h"-[0-9]*.c 2>/dev/null | wc -l)"
  [ "$1" -eq "$2" ]
}

# objects HEADER: the objects that its functions take first, as parameters
objects() {
  sed -n 's/^ZKE_API[^(]*(\(zke_[a-z_]* \*[a-z_]*\)[,)].*/\1/p' "$1" |
    sort -u | sed 's/^/, /' | tr -d '\n'
}

# whole_blocks BLOCK...: those that define functions, which are compiled as they
# are
whole_blocks() {
  awk '
    FNR == 1 { told = 0 }
    /^(do|for|if|switch|while) / { next }
    !told && /^static |^[A-Za-z].*\{$/ { print FILENAME; told = 1 }' "$@"
}

# is_whole BLOCK: is it one of these?
is_whole() { grep -qxF "$1" "$blocks/whole"; }

# header_of BLOCK: the recipe's header that contains it, or nothing
header_of() {
  block=${1##*/}
  ls recipes/"${block%_h-*}".h recipes/engine/"${block%_h-*}".h 2>/dev/null
}

# surround HEADER: prints the lines before the blocks of that recipe's header,
# or before those of the documents and of zkembed.h
surround() {
  printf '%s\n' "$prelude"
  parameters='zke *z, int rc'
  [ -n "$1" ] || return 0
  printf '#include "%s"\n' "$1"
  parameters="$parameters, int64_t deadline$(objects "$1")"
}

# wrap BLOCK: prints what can be compiled after the output of surround()
wrap() {
  place=${1##*/} place=${place%.c}
  line="#line ${place##*-} \"${place%-*}\""
  if is_whole "$1"; then
    printf '%s\n' "$line"
    cat "$1"
    return
  fi
  name=block_$(printf %s "$place" | tr -c A-Za-z0-9 _)
  printf 'void %s(%s);\nvoid %s(%s) {\n' "$name" "$parameters" "$name" \
    "$parameters"
  printf '(void)z, (void)rc;\n{\n%s\n' "$line"
  cat "$1"
  printf '}\n}\n'
}

# compiled: standard input is compiled without errors and warnings
compiled() {
  $CC -std=c11 -I. -Wall -Wextra -Werror -Wno-unused -Wno-unused-parameter \
    -x c -fsyntax-only -
}

# together HEADER BLOCK...: all of them compile in one file
together() {
  { surround "$1"
    shift
    for block; do wrap "$block"; done; } | compiled
}

compiles() {
  { surround "$(header_of "$1")"
    wrap "$1"; } | compiled
}

# known_to_compile: blocks of one header, which are compiled in one file if all
# of them are right; if not, expect() finds the wrong one.  Blocks that define
# functions or macros, or declare something, are left out, so that no block
# depends on another.
#   known_to_compile HEADER BLOCK...
known_to_compile() {
  surrounding=$1
  shift
  inner=
  for block; do
    is_whole "$block" || grep -q '^ *#' "$block" || inner="$inner $block"
  done
  [ -z "$inner" ] || ! together "$surrounding" $inner >/dev/null 2>&1 ||
    known="$known$inner "
}

# is_known BLOCK: known_to_compile() has compiled it
is_known() {
  case "$known " in *" $1 "*) ;; *) return 1 ;; esac
}

# readme_room BLOCK: prints the directory in which a program of README is built,
# with two files or four
readme_room() {
  room=${1%.c}
  mkdir "$room" && cp zkembed.c zkembed.h "$room" &&
    cp "$1" "$room/app.c" || return
  ! grep -q 'zkembed_recipes\.h' "$1" ||
    sh recipes/amalgamate.sh "$room/zkembed_recipes" lock
}

# runs BLOCK: it has no warning, and README's line builds it
runs() {
  readme_room "$1" &&
    (cd "$room" &&
      $CC -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only app.c &&
      $CC -std=c11 $include app.c $(echo zkembed*.c) $LIBS_HERE &&
      $limited ./a.out </dev/null)
}

# recipe_room ROOM: makes the directory for building a program with recipes
recipe_room() {
  mkdir "$1" && cp -R zkembed.c zkembed.h recipes "$1"
}

# linked_runs BLOCK: it runs, linked with the libraries; a warning is an error
linked_runs() {
  room=${1%.c}
  recipe_room "$room" && cp "$1" "$room/app.c" &&
    (cd "$room" && $CC -std=c11 -I. -Wall -Wextra -Wpedantic -Werror \
      ${SAN:+-fsanitize=$SAN} app.c "$built/libzkembed-recipes.a" \
      "$built/libzkembed.a" $LIBS &&
      $limited ./a.out </dev/null)
}

# is_named BLOCK: a transcript builds and runs it
is_named() { head -n 1 "$1" | grep -q '^/\* [a-z_]*\.c - '; }

# named_is_clean BLOCK: it has no warning, and is short
named_is_clean() {
  room=${1%.c}
  mkdir "$room" && sh recipes/amalgamate.sh "$room/zkembed_recipes" &&
    [ "$(wc -l <"$1")" -le 120 ] &&
    $CC -std=c11 -I. -I"$room" -Wall -Wextra -Wpedantic -Werror -fsyntax-only "$1"
}

# is_linked BLOCK: it is a program for linked_runs()
is_linked() {
  case ${1##*/} in README-*) return 1 ;; esac
  ! is_named "$1" || return
  grep -q 'int main(' "$1" && ! grep -q 'zkembed-lab\.h' "$1"
}

# expect_linked BLOCK
expect_linked() {
  expect "$(basename "$1" .c) builds without a warning and runs" linked_runs "$1"
}

# in_laboratory BLOCK: its finding is in the document; the program of the
# laboratory's header ends well
in_laboratory() {
  room=${1%.c} status=0
  mkdir "$room" && cp "$1" "$room/app.c" &&
    $CC -std=c11 -I. -Irecipes -Itest/lab -o "$room/app" "$room/app.c" \
      "$built/libzkembed-lab.a" $LAB_LIBS || return 1
  "$room/app" >"$room/out" || status=$?
  cat "$room/out"
  sed -n 's/^# \(.* waits .*\)/\1/p' "$room/out" >"$room/why"
  case $status in
    0) [ "$1" = "$blocks/zkembed-lab.h-program.c" ] ;;
    1) [ -s "$room/why" ] && grep -qFf "$room/why" doc/laboratory.md ;;
    *) return 1 ;;
  esac
}

# builds_from_four RECIPE: the first program with it, from the compiled engine
# and the file made from this recipe alone
builds_from_four() {
  room=$blocks/four-$1
  mkdir "$room" && cp zkembed.h "$room" &&
    sh recipes/amalgamate.sh "$room/zkembed_recipes" "$1" &&
    sed 's|"recipes/.*\.h"|"zkembed_recipes.h"|' \
      "$(grep -l "recipes/$1\.h" "$blocks"/recipes-*.c | head -n 1)" \
      >"$room/app.c" &&
    (cd "$room" && $CC -std=c11 app.c zkembed_recipes.c "$built/libzkembed.a" \
      $LIBS && $limited ./a.out </dev/null)
}

# joins RECIPE...: the files made from them have no warning, and contain each of
# our files once
joins() {
  mkdir -p "$blocks/joined" &&
    sh recipes/amalgamate.sh "$blocks/joined/recipes" "$@" &&
    nothing $CC -std=c11 -I. $SQLITE_CFLAGS $WARNINGS -fsyntax-only \
      "$blocks/joined/recipes.c" &&
    nothing sh -c "grep -h '^/[*] ---- recipes' $blocks/joined/recipes.? |
      sort | uniq -d"
}

four_refuses_unknown() {
  ! sh recipes/amalgamate.sh "$blocks/none" lock zookeeper 2>"$blocks/refused" &&
    grep -q "no recipe 'zookeeper'" "$blocks/refused" && [ ! -e "$blocks/none.c" ]
}

# README's lines unchanged, except for another compiler or SQLite.
built=$(cd "$BUILD" && pwd)
include=
LIBS_HERE=$LIBS
case $LIBS in
  *sqlite3*) ;;
  *)
    include="-I$(cd "${SQLITE_CFLAGS#-I}" && pwd)"
    LIBS_HERE="$built/sqlite3.o $LIBS"
    ;;
esac

for file in README.md doc/*.md; do
  [ -f "$file" ] && extract "$file"
done
extract_header
example test/lab/zkembed-lab.h >"$blocks/zkembed-lab.h-program.c"
for header in $PUBLIC_HEADERS; do
  extract_examples "$header"
  expect "each example of $header is found" as_many_as_told "$header"
done

if [ -n "$SAN" ]; then
  for block in "$blocks"/*.c; do
    ! is_linked "$block" || expect_linked "$block"
  done
  report
fi
expect "zkembed.h has an example for each group of functions" \
  [ "$(ls "$blocks"/zkembed_h-*.c | wc -l)" -ge 10 ]
expect "README.md tells how to build" grep -qF "$build_line" README.md
expect "and how to build from four files" grep -qF "$four_line" README.md
expect "README.md has programs for both" \
  [ "$(grep -l 'int main(' "$blocks"/README-*.c | wc -l)" = 2 ]
expect "doc/recipes.md tells how to build from recipes/" \
  grep -qF "$recipe_line" doc/recipes.md
for recipe in queue config election; do
  expect "a program with $recipe is built from four files" \
    builds_from_four $recipe
done
expect "all recipes are joined without a warning" joins
expect "a recipe that there is none of is refused" four_refuses_unknown
for header in recipes/*.h; do
  name=${header#recipes/} name=${name%.h}
  [ $name != support ] || continue
  expect "doc/recipes.md has a program with $name.h" \
    grep -qF "#include \"$header\"" doc/recipes.md
  expect "$name can be joined alone" joins "$name"
  expect "$name.h begins with an example" [ "$(example "$header" | wc -l)" -ge 5 ]
  expect "which compiles" example_compiles "$header"
done
whole_blocks "$blocks"/*.c >"$blocks/whole"
known=
known_to_compile "" $(grep -L 'int main(' "$blocks"/*.c |
  while read -r block; do [ -n "$(header_of "$block")" ] || echo "$block"; done)
for header in ${PUBLIC_HEADERS#* }; do
  name=${header##*/}
  set -- "$blocks/${name%.h}"_h-*.c
  [ ! -f "$1" ] || known_to_compile "$header" "$@"
done
for block in "$blocks"/*.c; do
  name=${block##*/} name=${name%.c}
  is_known "$block" && passed=$((passed + 1)) && continue
  if is_named "$block"; then
    expect "$name has no warning and at most 120 lines" named_is_clean "$block"
  elif is_linked "$block"; then
    expect_linked "$block"
  elif ! grep -q 'int main(' "$block"; then
    expect "$name compiles" compiles "$block"
  elif grep -q 'zkembed-lab\.h' "$block"; then
    [ -z "$LAB" ] || expect "$name does in the laboratory what is said" \
      in_laboratory "$block"
  else
    expect "$name builds without a warning and runs" runs "$block"
  fi
done
report
