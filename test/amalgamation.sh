#!/bin/sh
# amalgamation.sh - fetch an SQLite in one file
#
#   amalgamation.sh VERSION PACKAGE DIRECTORY
#
# Puts sqlite3.c and sqlite3.h of that version into the directory.  They come
# from an npm package, which is only unpacked: nothing of it is run.
set -e
version=$1
package=$2
directory=$3

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

says() { # does a header tell of that version?
  grep -q "^#define SQLITE_VERSION  *\"$version\"" "$1" 2>/dev/null
}

(cd "$scratch" && npm pack --silent --ignore-scripts "$package" >pack.log 2>&1 &&
  tar -xzf ./*.tgz package/deps) || {
  cat "$scratch/pack.log" >&2
  echo "npm has no $package" >&2
  exit 1
}
# In some versions of the package they are packed once more.
found=$scratch/package/deps/sqlite3
if [ ! -e "$found/sqlite3.c" ] && [ -e "$found/sqlite3.tar.gz" ]; then
  tar -xzf "$found/sqlite3.tar.gz" -C "$found"
fi
if ! says "$found/sqlite3.h" || ! says "$found/sqlite3.c"; then
  echo "$package has not SQLite $version" >&2
  exit 1
fi
mkdir -p "$directory"
cp "$found/sqlite3.h" "$found/sqlite3.c" "$directory"
