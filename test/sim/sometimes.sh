#!/bin/sh
# sometimes.sh - does the simulation reach rare states?
#
#   sometimes.sh PROGRAM OBJECT    by `make sim-sometimes`: a simulation with an
#                                  engine that counts its lines, and that engine
#
# Runs it for SECONDS (60) of processor time from SEED (1) on.  It must reach
# every line of zkembed.c listed in test/sim/sometimes, so that the load cannot
# go blind; a line after a ?  must branch in each possible way.  Prints how much
# of the engine was reached.
. test/report.sh

: "${SEED:=1}" "${SECONDS:=60}"
export SECONDS
program=$1 object=$2
place=$(dirname "$object")

rm -f "$place"/*.gcda
"$program" "$SEED" 1000000 | tail -n 4
gcov -t -b -c -o "$place" "$object" 2>/dev/null |
  sed -n '/0:Source:zkembed\.c$/,/0:Source:[^z]/p' >"$place/lines"
awk -F: 'NF < 3 { next } $1 ~ /[0-9]/ { ran++ } $1 ~ /[#=]/ { not++ }
  END { printf "lines of zkembed.c: %.1f %%\n", 100 * ran / (ran + not) }' \
  "$place/lines"

# reached LINE: it is in the file once, and was run; "?  LINE": in each way.
# gcov lists a line's branches after it.
reached() {
  line=${1#\? } ways=${1%%[!?]*} awk -F: '
    here && /^branch/ { if (!/taken [1-9]/) missed++; next }
    NF < 3 { next }
    { text = $0; sub(/^[^:]*:[^:]*:[ ]*/, "", text) }
    { here = ENVIRON["ways"] && text == ENVIRON["line"] }
    text == ENVIRON["line"] { times++; if ($1 !~ /[#=-]/) ran = 1 }
    END {
      if (times != 1) print "stands " times + 0 " times in zkembed.c"
      else if (!ran) print "is never reached"
      else if (missed) print "does not branch in " missed " ways"
      exit times != 1 || !ran || missed
    }' "$place/lines"
}

while IFS= read -r line; do
  case $line in
  '  '*) expect "$subject: ${line#  }" reached "${line#  }" ;;
  *) subject=$line ;;
  esac
done <test/sim/sometimes
report
