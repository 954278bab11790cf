#!/bin/sh
# check_platforms.sh - README's list of platforms is true: on each a program is
# built as described there, runs, and finds its node again in a second run.
#
# musl has no libraries here, so SQLite is compiled in for it and for the static
# program: the amalgamation in SQLITE, which make fetches.
. test/report.sh

: "${AMALGAMATION:=build/deps/sqlite-newest/sqlite3.c}"
scratch place platforms
here=$(pwd)
case $AMALGAMATION in /*) ;; *) AMALGAMATION=$here/$AMALGAMATION ;; esac
sqlite=$(dirname "$AMALGAMATION")

# The program consists of the four files to drop in, and is both C and C++.  Its
# argument is the database; the first run makes the node, later ones find it.
cat >"$place/app.c" <<'END'
#include <stdio.h>
#include <string.h>
#include "zkembed_recipes.h"
int main(int argc, char **argv) {
  zke *z;
  zke_lock *lock;
  zke_options o = ZKE_INIT(zke_options);
  o.identity = "app";
  if (argc < 2 || zke_open(argv[1], &o, &z) != ZKE_OK ||
      zke_lock_new(z, "/lock", NULL, &lock) != ZKE_OK ||
      zke_lock_acquire(lock, zke_now(z) + 60000) != ZKE_OK) {
    fprintf(stderr, "%s\n", zke_errmsg());
    return 1;
  }
  int rc = zke_create(z, "/a", "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  puts(zke_error_name(rc));
  zke_lock_free(lock);
  return zke_close(z) != ZKE_OK;
}
END
cp "$place/app.c" "$place/app.cc"
sh recipes/amalgamate.sh "$place/zkembed_recipes" || exit 1
sources="zkembed.c $place/zkembed_recipes.c"

# works PROGRAM: the first run makes the node, the second finds it
works() {
  rm -rf "$1.db"*
  [ "$("$1" "$1.db")" = ZKE_OK ] && [ "$("$1" "$1.db")" = ZKE_NODEEXISTS ]
}

# objects NAME COMPILER FLAG...: of the engine and the recipes.  Other builds
# optimise; this one shows that a compiler and its C library accept the sources.
objects() {
  name=$1
  shift
  mkdir -p "$place/$name"
  for source in $sources; do
    "$@" -std=c11 -Wall -Wextra -Werror -I. -c \
      -o "$place/$name/$(basename "$source" .c).o" "$source" || return 1
  done
}

# links NAME COMMAND...: makes $place/NAME/app, which must work
links() {
  name=$1
  shift
  "$@" -o "$place/$name/app" && works "$place/$name/app"
}

in_c() { # NAME COMPILER FLAG... -- LIBRARY...
  name=$1 flags=
  shift
  while [ "$1" != -- ]; do flags="$flags $1" && shift; done
  shift
  objects "$name" $flags &&
    links "$name" $flags -I. "$place/app.c" "$place/$name"/*.o "$@"
}

# glibc COMPILER: builds in a folder with its name
glibc() { in_c "$1" "$1" $SQLITE_CFLAGS -- $system_sqlite -lpthread; }

# A C++ program, with the C files compiled as C by glibc().
cxx() {
  mkdir -p "$place/cxx" &&
    links cxx g++ -std=c++11 -Wall -Wextra -Werror -I. "$place/app.cc" \
      "$place/gcc"/*.o $system_sqlite -lpthread
}

# Optimized across all files at link time.
lto() { in_c lto $CC $SQLITE_CFLAGS -O1 -flto -- $system_sqlite -lpthread; }

# amalgamation NAME COMPILER...: SQLite's object, compiled as README says
amalgamation() {
  mkdir -p "$place/$1"
  name=$1
  shift
  "$@" -w -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -c \
    -o "$place/$name.sqlite3.o" "$AMALGAMATION"
}

# The same objects again, from glibc().
static() {
  mkdir -p "$place/static" && amalgamation static gcc &&
    links static gcc -static -I"$sqlite" -I. "$place/app.c" \
      "$place/gcc"/*.o "$place/static.sqlite3.o" -lpthread
}

musl() {
  amalgamation musl musl-gcc &&
    in_c musl musl-gcc -static -I"$sqlite" -- "$place/musl.sqlite3.o" -lpthread
}

# laboratory COMPILER: the forking laboratory replays the first schedule in
# doc/laboratory.md, which the other one has found
laboratory() {
  built=build/$1-amalgamation/libzkembed-lab-forked.a
  $MAKE CC="$1" SQLITE="$AMALGAMATION" COMMAND= CFLAGS=-O0 LAB_OPTIMIZE=-O0 \
    "$built" &&
    awk '/^ *```c$/ { inside = 1; next } /^ *```$/ && inside { exit } inside' \
      doc/laboratory.md >"$place/lab.c" || return 1
  schedule=$(sed -n '/^# --replay /{ s///p; q; }' doc/laboratory.md)
  "$1" -std=c11 -I. -Itest/lab -o "$place/lab" "$place/lab.c" "$built" \
    "$place/musl.sqlite3.o" -lpthread || return 1
  "$place/lab" --replay "$schedule" >"$place/lab.out"
  cat "$place/lab.out"
  grep -q "^# anna waits for ever" "$place/lab.out" &&
    ! grep -q stale "$place/lab.out"
}

# The laboratory's marks in its functions are for such a link, too.
lto_laboratory() {
  $MAKE BUILD=build/lto CFLAGS='-O0 -flto' build/lto/zke-lab-serve
}

# The engine as one of a program's own sources, by README's lines.
cmake_builds() {
  mkdir "$place/cmake"
  sed -n '/^ *```cmake$/,/^ *```$/p' README.md | sed '/```/d' \
    >"$place/cmake/CMakeLists.txt"
  [ -s "$place/cmake/CMakeLists.txt" ] || return 1
  cp zkembed.c zkembed.h "$place"/zkembed_recipes.? "$place/app.c" \
    "$place/cmake"
  (cd "$place/cmake" && cmake -S . -B build -DCMAKE_C_COMPILER="$CC" &&
    cmake --build build) && works "$place/cmake/build/app"
}

system_sqlite=-lsqlite3
case $LIBS in *sqlite3*) ;; *) system_sqlite=$(cd "$BUILD" && pwd)/sqlite3.o ;; esac

expect "glibc by gcc" glibc gcc
expect "glibc by clang" glibc clang
expect "C++" cxx
expect "link-time optimization" lto
expect "and of the laboratory" lto_laboratory
expect "a static program" static
expect "musl" musl
expect "the laboratory with musl" laboratory musl-gcc
expect "CMake" cmake_builds
report
