#!/bin/sh
# amalgamate.sh - join recipes into one pair of files to drop into a program
#
#   amalgamate.sh OUT [RECIPE...]    writes OUT.h and OUT.c
#
# Without names it takes every recipe.  A recipe brings the pairs that it
# includes.  The engines zookeeper and compose are no recipes and are not
# joined.  OUT.h has the public headers and what they include.  OUT.c has the
# other headers, which are for authors of recipes and whose first lines say
# "for", and then the code.
out=$1
shift

# included FILE...: the pairs whose headers these files include
included() {
  sed -n 's|^#include "\([a-z_]*\)\.h".*|\1|p' "$@" | grep -vx zkembed
}

# public: of the pairs read, those whose headers are for programs
public() {
  while read -r pair; do
    head -n 1 "recipes/$pair.h" | grep -q '\.h - for ' || echo "$pair"
  done
}

# with_needs h|[hc] PAIR...: these, and what their headers, or all of their
# files, include
with_needs() {
  kind=$1
  shift
  all=$(for pair; do
    echo "$pair"
    included recipes/"$pair".$kind
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
    included "recipes/$pair.h" | sed "s/\$/ $pair/"
  done | tsort
}

# texts h|c: the files of the pairs read, without the includes that are needless
texts() {
  while read -r pair; do
    printf '\n/* ---- %s ---- */\n\n' "recipes/$pair.$1"
    sed '/^#include ".*"/d' "recipes/$pair.$1" | cat -s
  done
}

every() {
  basename -s .h recipes/*.h | public | grep -vx -e compose -e zookeeper
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
