#!/bin/sh
# amalgamate.sh - join recipes into one pair of files to drop into a program
#
#   amalgamate.sh OUT [RECIPE...]    writes OUT.h and OUT.c
#
# Without names it takes every recipe.  A recipe brings the pairs that it
# includes.  The engines of recipes/engine are no recipes and are not joined.  OUT.h has the public headers and what they include.  OUT.c has the
# other headers, those of recipes/part, and then the code.
out=$1
shift

# A pair is called by its name alone: none in recipes/part has that of a recipe.

# files h|c|[hc] PAIR...: these files of the pairs
files() {
  kind=$1
  shift
  for pair; do ls recipes/$pair.$kind recipes/part/$pair.$kind 2>/dev/null; done
}

# included FILE...: the pairs whose headers these files include
included() {
  sed -nE 's|^#include "(.*/)?([a-z_]*)\.h".*|\2|p' "$@" | grep -vx zkembed
}

# public: of the pairs read, those whose headers are for programs
public() {
  while read -r pair; do [ ! -f "recipes/$pair.h" ] || echo "$pair"; done
}

# with_needs h|[hc] PAIR...: these, and what their headers, or all of their
# files, include
with_needs() {
  kind=$1
  shift
  all=$(for pair; do
    echo "$pair"
    included $(files "$kind" "$pair")
  done | sort -u)
  if [ "$*" = "$(echo $all)" ]; then
    echo "$all"
  else
    with_needs "$kind" $all
  fi
}

# in_order: of the pairs read, each after those that its header includes
in_order() {
  while read -r pair; do
    echo "$pair $pair"
    included $(files h "$pair") | sed "s/\$/ $pair/"
  done | tsort
}

# texts h|c: the files of the pairs read, without the includes that are needless
texts() {
  while read -r pair; do
    file=$(files "$1" "$pair")
    printf '\n/* ---- %s ---- */\n\n' "$file"
    sed '/^#include ".*"/d' "$file" | cat -s
  done
}

every() {
  basename -s .h recipes/*.h
}

for name; do
  every | grep -qx "$name" && continue
  echo "amalgamate: no recipe '$name'; there are: $(every | paste -sd ' ')" >&2
  exit 2
done

pairs=$(with_needs '[hc]' ${*:-$(every)})
shown=$(with_needs h $(echo "$pairs" | public))
hidden=$(echo "$pairs" | in_order | grep -vx "$shown")
told="made by \`make amalgamation\`; edit recipes/ instead"
{
  echo "/* $(basename "$out").h - recipes over zkembed.h"
  echo " *"
  echo " * $told */"
  echo '#include "zkembed.h"'
  echo "$shown" | in_order | texts h
} >"$out.h"
{
  echo "/* $(basename "$out").c - $told */"
  printf '%s\n' '#ifndef _GNU_SOURCE' '#define _GNU_SOURCE' '#endif'
  echo "#include \"$(basename "$out").h\""
  echo "$hidden" | texts h
  echo "$pairs" | texts c
} >"$out.c"
