#!/bin/sh
# lint.sh - mistakes that compilers and checkers find without running the code
#
# The engine, the recipes and the command are read by gcc -fanalyzer, clang-tidy
# (.clang-tidy has the checks, and a reason for each that is left out) and
# cppcheck (cppcheck.xml in this folder suppresses some messages).  Nothing may
# be found.  The tests themselves are not read: their assertions end a test in
# ways that these tools do not follow.  They run under sanitizers instead.
#
#   LINT_TOOLS="gcc cppcheck"  without clang_tidy, which takes longest
#   LINT_NODES=n  clang-tidy's analyzer stops in a function after n steps; its
#                 default of 225,000 takes eight times as long for zkembed.c as
#                 25,000. gcc's, which never finishes zkembed.c, stops after a
#                 fifth of its default
. test/report.sh

# The command is compiled with -D_GNU_SOURCE, the library without.
gnu() { case $1 in shell/*) echo "-D_GNU_SOURCE= -DZKE_EDIT" ;; esac; }

# gcc 12 reports leaks of objects that are put into a list whose mutex is then
# unlocked (held_add()), and of those in a growing array of pointers (offer()).
# clang-tidy and the sanitizers look for leaks there.
deaf() {
  case $1 in
    shell/complete.c | shell/session.c) echo -Wno-analyzer-malloc-leak ;;
  esac
}

by_gcc() {
  nothing gcc -std=c11 -O2 -fanalyzer $(deaf "$1") -I. $(gnu "$1") \
    ${LINT_NODES:+--param analyzer-bb-explosion-factor=1} \
    $SQLITE_CFLAGS -c -o /dev/null "$1"
}
by_clang_tidy() {
  clang-tidy --quiet "$1" -- -std=c11 -I. $(gnu "$1") $SQLITE_CFLAGS \
    ${LINT_NODES:+-Xclang -analyzer-config -Xclang "max-nodes=$LINT_NODES"}
}

# cppcheck does not read the system's headers: these definitions replace what
# the code needs of them.
by_cppcheck() {
  nothing cppcheck --quiet --std=c11 --platform=unix64 -I. -D__linux__ \
    -D__GNUC__=12 -DF_OFD_SETLK=37 -DSQLITE_VERSION_NUMBER=3037002 \
    --enable=warning,performance,portability \
    --suppress-xml=test/checks/cppcheck.xml "$1"
}

if [ "$1" = --one ]; then
  for tool in ${LINT_TOOLS:-gcc clang_tidy cppcheck}; do
    expect "$2: $tool" "by_$tool" "$2"
  done
  report
fi

# Each file by itself, JOBS at a time (2); the engine takes longest, so it is
# first.
: "${LINT:=zkembed.c recipes/*.c recipes/*/*.c shell/*.c
  shell/*/*.c}" # several words, with patterns
for file in $LINT; do
  [ -f "$file" ] && echo "$file"
done | xargs -P "${JOBS:-2}" -n 1 sh "$0" --one
