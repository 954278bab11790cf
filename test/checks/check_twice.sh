#!/bin/sh
# check_twice.sh - two copies of the library in one program can use one file
# through one SQLite.  Builds the copies, and loads both into check_twice.c.
. test/report.sh

scratch place twice
san=${SAN:+-fsanitize=$SAN}

copy() { $CC -shared $san -o "$place/$1.so" "$BUILD/zkembed.lo" $LIBS; }
program() {
  $CC -std=c11 -g -I. -Wall -Wextra -Wpedantic -Werror $san \
    -o "$place/twice" test/checks/check_twice.c $LIBS -ldl
}

expect "the first copy" copy first
expect "the second copy" copy second
expect "the program" program
[ $failed = 0 ] || report

"$place/twice" "$place/first.so" "$place/second.so" "$place/twice.db"
status=$?
expect "the program's exit status" [ $status = 0 ]
report
