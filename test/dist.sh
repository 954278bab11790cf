#!/bin/sh
# dist.sh - make a release's tarball
#
#   dist.sh NAME OUT    OUT is NAME.tar.gz, which unpacks into NAME/
#
# In a checkout it holds the last commit, elsewhere the files that are there
# without build/; so a tarball makes itself again.  All recipes are added in one
# pair of files, zkembed_recipes.c and .h, beside the engine.  The same commit
# gives the same bytes: names are sorted, owners and modes are set, and every
# file has the time of the commit.
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

(cd "$room/$name" && sh recipes/amalgamate.sh zkembed_recipes) || exit 1

LC_ALL=C tar -cf "$room/$name.tar" -C "$room" --format=ustar --sort=name \
  --mtime="@$time" --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' \
  "$name" && gzip -9 -n "$room/$name.tar" && mv "$room/$name.tar.gz" "$out"
