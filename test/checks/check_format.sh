#!/bin/sh
# check_format.sh - every C file has the layout of .clang-format, and no line of
# any text is over 80 columns, has a tab or ends in blanks.  Right above each
# test a comment says what is promised (doc/testing.md).
. test/report.sh
: "${CLANG_FORMAT:=clang-format}"

laid_out() { $CLANG_FORMAT "$1" | diff "$1" -; }
too_long() { LC_ALL=C.UTF-8 grep -nE '^.{81,}' "$1"; }
blanks() { LC_ALL=C.UTF-8 grep -nE '[[:blank:]]$|	' "$1"; }
untold() {
  awk '/^TEST(_[A-Z]+)?\(/ && above !~ /\*\/$/ { print FNR ": " $0 }
    { above = $0 }' "$1"
}

version=$($CLANG_FORMAT --version) # others may differ in taste
for file in zkembed.[ch] test/*.[ch] test/*/*.[ch] doc/examples/*.[ch] \
  recipes/*.[ch] recipes/*/*.[ch] shell/*.[ch] shell/*/*.[ch]
do
  [ -f "$file" ] || continue
  expect "$file as $version has it" laid_out "$file"
  expect "$file: lines over 80 columns" nothing too_long "$file"
  expect "$file: tabs, blanks at the end" nothing blanks "$file"
  expect "$file: tests without a comment above" nothing untold "$file"
done
report
