#!/bin/sh
# with_recipe.sh - the simulation with another recipe
#
#   with_recipe.sh DIRECTORY FILE OBJECT...
#       makes DIRECTORY/program: instead of FILE, such as recipes/part/line.c,
#       it has the file of that name in the directory; the objects are those of
#       the simulation, except the engine, which is in SIM_BUILD
set -e
: "${CC:=cc}" "${LD:=ld}" "${SIM_CFLAGS:?}" "${SIM_LIBS:?}" "${SIM_BUILD:?}"
room=$1
file=$2
shift 2

# without OBJECT OBJECT...: the others without the first one
without() {
  printf '%s\n' "$@" | grep -vxF "$1"
}

# flags and libraries are several words
$CC $SIM_CFLAGS -iquote "$(dirname "$file")" -include test/sim/instead.h -g0 \
  -w -c -o "$room/recipe.o" "$room/$(basename "$file")"
$LD -r -T test/sim/gather.ld -o "$room/recipes.o" "$room/recipe.o" \
  $(without "$SIM_BUILD/${file%.c}.o" "$SIM_BUILD"/recipes/*.o \
    "$SIM_BUILD"/recipes/part/*.o "$SIM_BUILD"/shell/extension/*.o)
$CC -o "$room/program" $(without "$SIM_BUILD/recipes.o" "$@") \
  "$room/recipes.o" "$SIM_BUILD/engine.o" $SIM_LIBS
