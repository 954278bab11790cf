#!/bin/sh
# check_install.sh - what `make install` puts under DESTDIR is enough to build
# and run a program with pkg-config, shared and static; `make uninstall` leaves
# no file.
. test/report.sh

root=$(cd "$(scratch install)" && pwd)
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
    PKG_CONFIG_SYSROOT_DIR=$root/tree pkg-config "$@" zkembed
}
san() { echo ${SAN:+-fsanitize=$SAN}; }
shared() {
  $CC -std=c11 $(san) $(config --cflags) -o "$root/shared" "$root/app.c" \
    $(config --libs) &&
    LD_LIBRARY_PATH=$root/tree$prefix/lib "$root/shared"
}
needs_soname() { readelf -d "$root/shared" | grep -q 'libzkembed\.so\.[0-9]*\]'; }
static() {
  $CC -std=c11 $(san) $(config --cflags) -o "$root/static" "$root/app.c" \
    "$root/tree$prefix/lib/libzkembed.a" $(config --libs --static |
      tr ' ' '\n' | grep -v -e -lzkembed -e ^-L) &&
    "$root/static"
}
manuals() {
  for page in doc/*.[13]; do
    [ -f "$page" ] || continue
    [ -f "$root/tree$prefix/share/man/man${page##*.}/${page##*/}" ] || return 1
  done
}
version() { [ "$(config --modversion)" = "$(sed -n \
  's/^.define ZKE_VERSION "\(.*\)"/\1/p' zkembed.h)" ]; }
left() { find "$root/tree" ! -type d; }

expect "make install" make_to_root install
expect "the pkg-config file has the header's version" version
expect "a program with the shared library" shared
expect "it asks for the library by its soname" needs_soname
expect "a program with the static library" static
expect "the manual pages are there" manuals
expect "make uninstall" make_to_root uninstall
expect "make uninstall leaves no file" nothing left
report
