#!/bin/sh
# check_sqlite_version.sh - compiling zkembed.c refuses an SQLite older than
# 3.37.2, with a message that says so; 3.37.2 is accepted.
. test/report.sh

scratch fake sqlite-version

# pretend NUMBER: makes a sqlite3.h that differs only in its version
pretend() {
  printf '#include_next <sqlite3.h>\n#undef SQLITE_VERSION_NUMBER\n%s\n' \
    "#define SQLITE_VERSION_NUMBER $1" >"$fake/sqlite3.h"
}

compiles() { $CC -std=c11 -fsyntax-only -I"$fake" $SQLITE_CFLAGS zkembed.c; }
refused() {
  said=$(compiles 2>&1) && return 1
  printf '%s\n' "$said"
  printf '%s\n' "$said" | grep -q '#error.*3\.37\.2' && # the first complaint
    printf '%s\n' "$said" | grep -m1 'error:' | grep -q '#error'
}

for version in 3007000 3036000 3037001; do
  pretend $version
  expect "SQLite $version is refused" refused
done
pretend 3037002
expect "SQLite 3037002 is accepted" compiles
report
