#!/bin/sh
# check_dist.sh - a release's tarball is complete and always has the same bytes
#
# The tarball of `make release` is unpacked into an empty directory, and made
# again there, where git knows nothing of it.  Then its README is followed: both
# set-up commands (`make test` with one program instead of all), `make install`,
# and the program of the first page, compiled against the installed files.
. test/report.sh

scratch place dist
name=zkembed-$version
tree=$place/$name
prefix=/opt/zkembed

release=$(pwd)/$BUILD/release

# The tarball is built as README says, not as a variant for this run.
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD SAN SQLITE_CFLAGS LIBS

makes() {
  (cd "$tree" && make --no-print-directory -j2 CFLAGS=-O0 LAB_OPTIMIZE=-O0 "$@")
}

made() { cp "$release/$name.tar.gz" "$place"; }
unpacked() { tar -xzf "$place/$name.tar.gz" -C "$place" && [ -d "$tree" ]; }
alone() { [ "$(ls "$place")" = "$(printf '%s\n' "$name" "$name.tar.gz")" ]; }
same_again() {
  makes dist &&
    cmp "$place/$name.tar.gz" "$tree/build/$name.tar.gz"
}
has() { for file in "$@"; do [ -s "$tree/$file" ] || return 1; done; }

installed_works() {
  lib=$place/root$prefix/lib
  readme_program 1 >"$place/app.c"
  $CC -std=c11 -o "$place/app" "$place/app.c" $(PKG_CONFIG_PATH=$lib/pkgconfig \
    PKG_CONFIG_SYSROOT_DIR=$place/root pkg-config --cflags --libs zkembed) &&
    (cd "$place" && LD_LIBRARY_PATH=$lib ./app </dev/null) | grep leading
}

expect "the tarball" made
expect "it unpacks into $name" unpacked
expect "and into nothing else" alone
expect "it has what users need" has zkembed.c zkembed.h \
  zkembed_recipes.c zkembed_recipes.h Makefile README.md \
  LICENSE recipes/lock.h shell/main.c doc/zke.1 doc/changes.md test/run.sh
expect "made again from itself it has the same bytes" same_again
expect "make install" makes install DESTDIR="$place/root" PREFIX=$prefix
expect "README's program works with what is installed" installed_works
expect "make demo" makes demo
expect "make test" makes test-path
report
