#!/bin/sh
# lab_serve.sh - programs in other languages in the laboratory: zke-lab-serve
#
# The programs, and what is found in them, are in doc/examples/lab.
. test/report.sh

scratch room lab_serve
serve=$(cd "$BUILD" && pwd)/zke-lab-serve
# The options that its code knows.
options=$(grep -o '"--[a-z]*"' test/labserve/main.c | tr -d '"')
cp doc/examples/lab/* test/labserve/clients.py "$room"
# The options that doc/laboratory.md shows.
awk '/^```$/ { inside = 0 }
  inside && (python || serve || /zke-lab-serve/) { serve = 1; print }
  /^```(python|text)$/ { inside = 1; python = /python/; serve = 0 }' \
  doc/laboratory.md >"$room/shown"
cd "$room" || exit 1

need_kazoo

# fails WANTED ARGUMENT...: the laboratory finds a fault; if not, prints what
# was expected
fails() {
  wanted=$1
  shift
  "$serve" "$@" >out 2>&1 || return 0
  printf '%s\n' 'This is expected:' "$wanted" 'But nothing is found:'
  cat out
  return 1
}

shown_is_true() {
  sed -s 's/ *$//' naive_lock.py naive_lock.out >whole
  [ -s shown ] && nothing grep -vxFf whole shown
}

# found FILE ARGUMENT...: the file has a program's output, after its command in
# the first line
found() {
  sed '1d; s/ *$//; s/, [0-9]* calls, 0 states//' "$1" >expected
  shift
  fails "$(cat expected)" "$@" || return 1
  sed 's/ *$//; s/, [0-9]* calls, 0 states//' out | diff -U 99 expected -
}

calm="--deaths 0 --expiries 0 --losses 0"

naive_lock_is_found() {
  found naive_lock.out $calm anna ben -- "$python" naive_lock.py
}

read_write_is_found() {
  found read_write.out $calm reader writer -- "$python" read_write.py
}

# A schedule gives the same each time.
read_write_is_replayed() {
  replay=$(sed -n 's/^# --replay //p' read_write.out)
  for i in 1 2 3 4; do
    fails "replay $replay" $calm --replay "$replay" reader writer -- \
      "$python" read_write.py || return 1
    cat out
    grep -q "^# --replay $replay\$" out || return 1
    ! grep -q stale out || return 1
  done
}

# nothing_found ARGUMENT...
nothing_found() { "$serve" "$@" >out || { cat out; return 1; }; }

# says TEXT ARGUMENT...: the output contains it
says() {
  text=$1
  shift
  fails "$text" "$@" || return 1
  cat out
  grep -qF -e "$text" out
}

help_tells_all() {
  "$serve" --help >out || return 1
  for text in $options ZKE_LAB_NAME ZKE_LAB_HOSTS ZKE_LAB_CONTROL enter leave \
    exclude note fail sleep spare 'Exit status'; do
    grep -qF -e "$text" out || { echo "--help lacks $text"; return 1; }
  done
}

expect "--help tells every option, and the environment" help_tells_all
expect "the document shows parts of a naive lock" shown_is_true
expect "which fails" naive_lock_is_found
expect "a read/write lock with a mistake fails" read_write_is_found
expect "and again when it is replayed" read_write_is_replayed
expect "kazoo's lock does not fail" \
  nothing_found --schedules 40 anna ben -- "$python" lock.py
expect "nor on two threads of a process" \
  nothing_found --schedules 20 --together anna ben -- "$python" lock.py
expect "an exception is a finding" \
  says "# anna: ValueError: no" $calm anna -- "$python" clients.py raise
expect "but for those that are excused" nothing_found --schedules 4 \
  $calm anna -- "$python" clients.py excuse
expect "sleeps take the laboratory's time" nothing_found --schedules 4 \
  $calm anna ben -- "$python" clients.py sleep
expect "so do waits with a timeout" nothing_found --schedules 8 $calm \
  --together anna ben -- "$python" clients.py give_up
expect "clients of a process make each other go on" nothing_found \
  --schedules 8 $calm --together anna ben -- "$python" clients.py hand_over
expect "a program without zkelab is started for each schedule" \
  nothing_found --schedules 2 $calm anna -- "$python" clients.py plain
expect "its exit status is a finding" says "# anna has ended with status 3" \
  $calm anna -- "$python" clients.py status
expect "two connections of a client are refused" \
  says "# anna has two connections at a time" $calm anna -- \
  "$python" clients.py twice
expect "a command that is not there is said to be" \
  says "cannot be started" anna -- ./nobody
expect "so is one that does not connect" \
  says "has ended before it connected" anna -- true
expect "a name that is too long is refused" \
  says "a name has at most 15 bytes" anna_anna_anna_anna -- true
expect "unknown options are refused" says "--nothing: unknown" --nothing 1 a -- b
report
