#!/bin/sh
# dist.sh - make a release's tarball
#
#   dist.sh NAME OUT    OUT is NAME.tar.gz, which unpacks into NAME/
#
# In a checkout it contains the last commit, elsewhere the files that are there,
# without build/; so a tarball can make itself again.  It also has all recipes
# in one pair of files next to the engine, zkembed_recipes.c and .h, and the
# files with which CMake and Meson build.  The same commit gives the same bytes
# (pack.sh).  Every file has the commit's time, or that of SOURCE_DATE_EPOCH.
name=$1 out=$2

room=$(mktemp -d) || exit 1
trap 'rm -rf "$room"' EXIT
mkdir "$room/$name"

if [ -e .git ]; then
  if [ -n "$(git status --porcelain)" ]; then
    echo "dist: what is not committed is left out" >&2
  fi
  git archive HEAD | tar -xf - -C "$room/$name" || exit 1
  time=$(git log -1 --format=%ct)
else
  tar -cf - --exclude=./build . | tar -xf - -C "$room/$name" || exit 1
  time=$(find "$room/$name" -type f -printf '%T@\n' | sort -n |
    sed -n '$s/\..*//p')
fi

(cd "$room/$name" && sh recipes/amalgamate.sh zkembed_recipes &&
  cp test/package/top/* .) || exit 1
sh test/pack.sh "$room/$name" "$out" "${SOURCE_DATE_EPOCH:-$time}"
