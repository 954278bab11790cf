#!/bin/sh
# files.sh - make the files that a release consists of
#
#   files.sh DIRECTORY    empties it first
#
# They are the tarball of `make dist`, and what is made of nothing but that: the
# four files, the extension for SQLite for this kind of machine, the manual
# pages, and the checksums.  The same commit gives the same bytes, if compiler
# and C library are the same.
version=$(sed -n 's/^.define ZKE_VERSION "\(.*\)"/\1/p' zkembed.h)
name=zkembed-$version
manual=$name-manual

room=$(mktemp -d) || exit 1
trap 'rm -rf "$room"' EXIT
rm -rf "$1" && mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD SAN CC LIBS SQLITE_CFLAGS

sh test/dist.sh "$name" "$out/$name.tar.gz" &&
  tar -xzf "$out/$name.tar.gz" -C "$room" && cd "$room/$name" &&
  cp zkembed.[ch] zkembed_recipes.[ch] "$out" || exit 1

make --no-print-directory LDFLAGS=-s \
  CFLAGS="-O2 -ffile-prefix-map=$room/$name=." \
  build/zkembed.so build/man3/zkembed.3 &&
  cp build/zkembed.so "$out" || exit 1

mkdir "$room/$manual" "$room/$manual/man1" &&
  cp doc/zke.1 "$room/$manual/man1" && mv build/man3 "$room/$manual" &&
  rm -f "$room/$manual/man3"/*.d &&
  sh test/pack.sh "$room/$manual" "$out/$manual.tar.gz" \
    "$(stat -c %Y zkembed.h)" || exit 1

cd "$out" && sha256sum * >"$room/sums" && mv "$room/sums" SHA256SUMS
