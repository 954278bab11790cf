#!/bin/sh
# pack.sh - make a tarball that has the same bytes each time
#
#   pack.sh DIRECTORY OUT TIME    OUT is a .tar.gz, which unpacks into the
#                                 directory's last name
#
# Names are sorted, owners and modes are set, and all files have this time, in
# seconds since 1970.
room=$(mktemp -d) || exit 1
trap 'rm -rf "$room"' EXIT

LC_ALL=C tar -cf "$room/tar" -C "$(dirname "$1")" --format=ustar --sort=name \
  --mtime="@$3" --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' \
  "$(basename "$1")" && gzip -9 -n <"$room/tar" >"$2"
