#!/bin/sh
# amalgamate.sh - join recipes into one pair of files to drop into a program
#
#   amalgamate.sh OUT [RECIPE...]    writes OUT.h and OUT.c
#
# Without names it takes every recipe.  A recipe brings the pairs that it
# includes.  The engines of recipes/engine are no recipes and are not joined.
# OUT.h has the headers in recipes/, which are for programs.  OUT.c has those in
# recipes/part, and then the code.
out=$1
shift

# A pair is called by its name alone: none in recipes/part has that of a recipe.

# files h|[hc] PAIR: these files of the pair
files() { ls recipes/$2.$1 recipes/part/$2.$1 2>/dev/null; }

# included FILE...: the pairs whose headers these files include
included() {
  sed -nE 's|^#include "(.*/)?([a-z_]*)\.h".*|\2|p' "$@" | grep -vx zkembed
}

# with_needs PAIR...: these, and what their files include
with_needs() {
  all=$(for pair; do
    echo "$pair"
    included $(files '[hc]' "$pair")
  done | sort -u)
  if [ "$*" = "$(echo $all)" ]; then echo "$all"; else with_needs $all; fi
}

# in_order: of the pairs read, each after those that its header includes
in_order() {
  while read -r pair; do
    echo "$pair $pair"
    included $(files h "$pair") | sed "s/\$/ $pair/"
  done | tsort
}

# texts FOLDER h|c: the files there of the pairs read, without the includes that
# are needless
texts() {
  while read -r pair; do
    file=$1/$pair.$2
    [ -f "$file" ] || continue
    printf '\n/* ---- %s ---- */\n\n' "$file"
    sed '/^#include ".*"/d' "$file" | cat -s
  done
}

every() { basename -s .h recipes/*.h; }

for name; do
  every | grep -qx "$name" && continue
  echo "amalgamate: no recipe '$name'; there are: $(every | paste -sd ' ')" >&2
  exit 2
done

pairs=$(with_needs ${*:-$(every)})
told="made by \`make amalgamation\`; edit recipes/ instead"
{
  echo "/* $(basename "$out").h - recipes over zkembed.h"
  echo " *"
  echo " * $told */"
  echo '#include "zkembed.h"'
  echo "$pairs" | in_order | texts recipes h
} >"$out.h"
{
  echo "/* $(basename "$out").c - $told */"
  printf '%s\n' '#ifndef _GNU_SOURCE' '#define _GNU_SOURCE' '#endif'
  echo "#include \"$(basename "$out").h\""
  echo "$pairs" | in_order | texts recipes/part h
  echo "$pairs" | texts recipes/part c
  echo "$pairs" | texts recipes c
} >"$out.c"
