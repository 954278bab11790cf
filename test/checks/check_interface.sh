#!/bin/sh
# check_interface.sh - the interface for compiled programs has not changed by
# accident
#
#   check_interface.sh            compare with interface.txt in this folder
#   check_interface.sh --accept   rewrite interface.txt, and show the change
#
# interface.txt describes everything that PUBLIC_HEADERS declare: functions and
# variables with their types, the size of each struct and the offset, size and
# type of each of its fields, types of callbacks, values of constants, texts of
# macros.  ctags reads names and types from the preprocessed headers; sizes,
# offsets and values are printed by a program, so they are the compiler's.
# Names of parameters are left out, since no program depends on them; so are
# names that end with "_", and the version.
#
# libabigail's abidiff does not fit: it compares the types that functions use.
# Our constants are passed as int, so it misses a changed ZKE_PERM_READ.  It
# also misses macros, and takes a change from "char *" to "void *" for harmless.
#
# The description is the same with gcc and clang, on systems with 64-bit
# pointers.
. test/report.sh

stored=test/checks/interface.txt
tab=$(printf '\t')

# preprocessed HEADER FLAG...: the header without others that it includes
preprocessed() {
  header=$1
  shift
  sed '/^ *# *include/d' "$header" | $CC "$@" -E -x c -
}

# plain: types, from standard input, without names of parameters, with uniform
# spaces
plain() {
  sed -E ':again
    s/([ *])[a-z_0-9]+([],)[])/\1\2/; t again
    s/(typename|struct|enum|union)://g
    s/ *\* */*/g; s/ +([],)[])/\1/g; s/, */, /g; s/([a-z0-9_])(\*|\()/\1 \2/g'
}

# declared HEADER: "KIND NAME TYPE PARAMETERS STRUCT" with tabs, a line each
declared() {
  preprocessed "$1" -P -DZKE_API= >"$work/plain.h"
  ctags -x --sort=no --language-force=C --kinds-C=+px \
    --_xformat="%K$tab%N$tab%t$tab%S$tab%s" "$work/plain.h" | plain
}

# The lines of main() that describe the output of declared().
statements='
  function say(format, values) {
    printf "  printf(\"%s\\n\"%s);\n", format, values
  }
  NR == FNR { if ($1 == "member") has[$5] = 1; next }
  $2 ~ /_$/ || $5 ~ /_$/ { next }
  $1 == "prototype" { say("function " $2 " " $3 " " $4) }
  $1 == "externvar" { say("variable " $2 " " $3) }
  $1 == "enumerator" { say("constant " $2 " %lld", ", (long long)" $2) }
  $1 == "typedef" && $2 != $3 { say("type " $2 " " $3) }
  $1 == "typedef" && $2 == $3 { say("type " $2) }
  $1 == "struct" && has[$2] { say("struct " $2 " %zu", ", sizeof(struct " $2 ")") }
  $1 == "member" {
    of = "struct " $5
    say("field " $5 "." $2 " %zu %zu " $3, ", offsetof(" of ", " $2 \
      "), sizeof(((" of " *)0)->" $2 ")")
  }'

# program HEADER: prints its description
program() {
  printf '#include <stddef.h>\n#include <stdio.h>\n#include "%s"\n' "$1"
  printf 'int main(void) {\n'
  declared "$1" >"$work/declared"
  awk -F '\t' "$statements" "$work/declared" "$work/declared"
  printf '  return 0;\n}\n'
}

macros() {
  preprocessed "$1" -dM | sed -n '/^#define zke/I{
    s/^#define /macro /
    /^macro ZKE_\(VERSION\|API\|RESULT_LIST\)/d
    /^macro [A-Za-z_]*_[ (]/d
    /_H *$/d
    p
  }' | LC_ALL=C sort
}

describe() {
  for header in "$@"; do
    program "$header" >"$work/program.c" &&
      $CC -std=c11 -I. $SQLITE_CFLAGS -o "$work/program" "$work/program.c" ||
      return 1
    printf '\n%s\n' "$header"
    "$work/program" && macros "$header"
  done
}

# differs SED-SCRIPT: how the description changes with this edit of zkembed.h
differs() {
  sed "$1" zkembed.h >"$work/planted.h"
  describe "$work/planted.h" | sed 1,2d >"$work/planted"
  [ -s "$work/planted" ] || echo 'the edited header does not compile'
  sed -n '/^zkembed.h/,/^$/p' "$work/interface" | sed '1d; $d' |
    diff - "$work/planted" | grep '^[<>]'
}

# The structs that begin with their size and end with padding: an older
# program's padding would be read as a member added there later.
padded() {
  awk '$1 == "struct" { size[$2] = $3 }
    $1 == "field" {
      split($2, name, ".")
      if (name[2] == "size") grows[name[1]]
      end[name[1]] = $3 + $4
    }
    END { for (s in grows) if (end[s] != size[s]) print s }' "$work/interface"
}

# The structs of options that test_growth has no row for.
untried() {
  sed -n 's/^field \(zke_[a-z_]*options\)\.size .*/\1/p' "$work/interface" |
    while read -r struct; do
      grep -q "ROW($struct,\|\"$struct\"" test/engine/test_growth.c ||
        echo "$struct"
    done
}

# notices LINE SED-SCRIPT: a line that begins with LINE reports such an edit
notices() { differs "$2" | grep -F "$1"; }

unchanged() {
  diff -u "$stored" "$work/interface" && return
  cat <<'TELL'
A program that was compiled before may not work with this interface.  zkembed.h
tells which changes are allowed, under HOW THIS INTERFACE MAY GROW.  If this one
is on purpose, type `make interface`, commit interface.txt with the change, and
tell users in doc/changes.md.
TELL
  return 1
}

scratch work interface
describe $PUBLIC_HEADERS >"$work/interface" || exit 1
if [ "$1" = --accept ]; then
  diff -u "$stored" "$work/interface"
  cp "$work/interface" "$stored"
  exit
fi
expect "the interface is that of $stored" unchanged
expect "structs that may grow end without padding" nothing padded
expect "test_growth tries each struct of options" nothing untried
expect "a function that is gone is noticed" notices '< function zke_sync int' \
  '/^ZKE_API int zke_sync/d'
expect "so is a parameter of another type" \
  notices '> function zke_free void (char *)' \
  's/zke_free(void \*block)/zke_free(char *block)/'
expect "a parameter of another name is none" nothing differs \
  's/zke_free(void \*block)/zke_free(void *memory)/'
expect "a field that moves others is noticed" \
  notices '> field zke_op.acls 40 8' \
  's/^  const zke_acls \*acls;/  int64_t new;\n&/'
expect "so is a constant of another value" \
  notices '> constant ZKE_PERM_READ 64' 's/ZKE_PERM_READ = 1/ZKE_PERM_READ = 64/'
expect "and a macro of another text" notices '> macro ZKE_MAX_TTL 7' \
  's/INT64_C(0xffffffffff)/7/'
report
