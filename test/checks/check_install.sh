#!/bin/sh
# check_install.sh - the files that `make install` puts under DESTDIR are enough
# to build and run programs with pkg-config, shared and static: one of its own,
# and README's with a lock; `make uninstall` leaves no file, and no directory
# of zkembed's own.
. test/report.sh

scratch root install
prefix=/opt/zkembed

cat >"$root/app.c" <<'END'
#include <string.h>
#include <zkembed.h>

int main(void) {
  zke *z = NULL;
  int rc = zke_open(":memory:", NULL, &z);
  if (rc == ZKE_OK) {
    rc = zke_create(z, "/a", "1", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  }
  zke_close(z);
  return rc != ZKE_OK || strcmp(zke_version(), ZKE_VERSION) != 0;
}
END

make_to_root() {
  $MAKE --no-print-directory "$1" DESTDIR="$root/tree" PREFIX=$prefix
}
config() {
  PKG_CONFIG_PATH=$root/tree$prefix/lib/pkgconfig \
    PKG_CONFIG_SYSROOT_DIR=$root/tree pkg-config "$@"
}
san() { echo ${SAN:+-fsanitize=$SAN}; }

# shared APP PACKAGE: builds and runs $root/APP.c
shared() {
  $CC -std=c11 $(san) $(config --cflags "$2") -o "$root/$1" "$root/$1.c" \
    $(config --libs "$2") &&
    (cd "$root" && LD_LIBRARY_PATH=$root/tree$prefix/lib "./$1")
}

# static APP PACKAGE LIBRARY...: the same with these, without our shared ones
static() {
  app=$1 package=$2
  shift 2
  $CC -std=c11 $(san) $(config --cflags "$package") -o "$root/$app-static" \
    "$root/$app.c" "$@" $(config --libs --static "$package" |
      tr ' ' '\n' | grep -v -e -lzkembed -e ^-L) &&
    (cd "$root" && "./$app-static")
}

needs() { readelf -d "$root/$1" | grep -q "$2\.so\.[0-9]*\]"; }
manuals() {
  for page in 1/zke.1 3/zkembed.3 3/zke_create.3 3/zke_lock_new.3; do
    [ -s "$root/tree$prefix/share/man/man$page" ] || return 1
  done
}
command_files() {
  (cd "$root/tree$prefix/share" && bash -n bash-completion/completions/zke &&
    cd doc/zkembed && test -s coprocess.md &&
    test -s examples/coprocess/client.py)
}
version() { [ "$(config --modversion "$1")" = "$version" ]; }
left() { (cd "$root/tree" && find . ! -type d -o -path '*/zkembed/*zkembed*'); }
spaced() {
  to="$root/tree/a b"
  $MAKE --no-print-directory install DESTDIR="$to" PREFIX=$prefix &&
    [ -s "$to$prefix/include/zkembed.h" ] &&
    $MAKE --no-print-directory uninstall DESTDIR="$to" PREFIX=$prefix
}

libs=$root/tree$prefix/lib
readme_program 2 zkembed/lock.h >"$root/recipe.c"

expect "make install" make_to_root install
expect "the pkg-config file has the header's version" version zkembed
expect "so has that of the recipes" version zkembed-recipes
expect "a program with the shared library" shared app zkembed
expect "it asks for the library by its soname" needs app libzkembed
expect "a program with the static library" static app zkembed \
  "$libs/libzkembed.a"
expect "README has a program with a lock" grep -q zke_lock_new "$root/recipe.c"
expect "it is built with the shared libraries" shared recipe zkembed-recipes
expect "it asks for the recipes by their soname" needs recipe \
  libzkembed-recipes
expect "and with the static ones" static recipe zkembed-recipes \
  "$libs/libzkembed-recipes.a" "$libs/libzkembed.a"
if [ -n "$LAB" ]; then
  awk '/^ \*     / { inside = 1 } inside && /^ \* [^ ]/ { exit }
    inside { print substr($0, 8) }' test/lab/zkembed-lab.h |
    sed 's|"lock|"zkembed/lock|' >"$root/lab.c"
  expect "a program with the laboratory" static lab zkembed-lab \
    "$libs/libzkembed-lab.a"
fi
expect "the manual pages are there" manuals
expect "so are the command's document and completion" command_files
expect "make uninstall" make_to_root uninstall
expect "both in a directory with a space in its name" spaced
expect "make uninstall leaves nothing of zkembed" nothing left
report
