#!/bin/sh
# with_engine.sh - the simulation with another engine
#
#   with_engine.sh DIRECTORY OBJECT...   makes DIRECTORY/program from
#                                        DIRECTORY/zkembed.c and the objects of
#                                        the simulation
set -e
: "${CC:=cc}" "${LD:=ld}" "${SIM_CFLAGS:?}" "${SIM_LIBS:?}"
room=$1
shift
# flags and libraries are several words
$CC -I"$room" $SIM_CFLAGS -g0 -w -c -o "$room/plain.o" test/sim/engine.c
$LD -r -T test/sim/gather.ld -o "$room/engine.o" "$room/plain.o"
$CC -o "$room/program" "$@" "$room/engine.o" $SIM_LIBS
