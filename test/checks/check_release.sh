#!/bin/sh
# check_release.sh - the files of `make release` are complete, and always have
# the same bytes.  README's programs are built by its lines from these files
# alone, and the extension and the manual work.  check_dist.sh and
# check_packages.sh test the tarball.
. test/report.sh

scratch place release
release=$(pwd)/$BUILD/release

again() {
  sh test/package/files.sh "$place/again" && diff -r "$release" "$place/again"
}
sums() {
  cd "$release" && sha256sum --strict -c SHA256SUMS &&
    [ "$(ls | wc -l)" = $(($(wc -l <SHA256SUMS) + 1)) ]
}

# program N FILE...: README's Nth program runs, built from these by README's
# line
program() {
  folder=$place/program$1
  line=$(sed -n 's/^    \(cc .*app\.c .*\)/\1/p' README.md | sed -n "$1p")
  mkdir "$folder" && readme_program "$1" >"$folder/app.c" || return
  shift
  (cd "$release" && cp "$@" "$folder") && cd "$folder" && eval "$line" &&
    ./a.out </dev/null
}
first() { program 1 zkembed.c zkembed.h | grep leading; }
lock() {
  program 2 zkembed.c zkembed.h zkembed_recipes.c zkembed_recipes.h |
    grep '^held, token'
}

extension() {
  mkdir "$place/extension" && cd "$place/extension" &&
    cp "$release/zkembed.so" . &&
    sqlite3 app.db '.load ./zkembed' "SELECT 'held', zke_lock('nightly')" |
    grep 'held|[1-9]'
}

manual() {
  tar -xzf "$release"/*-manual.tar.gz -C "$place" && cd "$place"/*-manual &&
    [ -s man1/zke.1 ] && [ -s man3/zke_open.3 ] && [ -s man3/zke_lock_new.3 ] &&
    mandoc -T utf8 man3/zke_open.3 | grep -q zke_open
}

expect "a second time the files have the same bytes" again
expect "each file's checksum" sums
expect "README's first program" first
expect "README's program with a lock" lock
expect "the extension" extension
expect "the manual" manual
report
