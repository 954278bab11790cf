#!/bin/sh
# host_mistakes.sh - mistakes planted in the examples are found by the torture
#
# Each changes one line of a program of doc/examples, as a user might; the
# torture must end with the sentence that is given here.
# `make torture-host-mistakes` builds what is needed and calls this.
. test/report.sh

scratch room host-mistakes
engine="$BUILD/libzkembed-recipes.a $BUILD/test/zkembed-torture.o"

# build NAME: build an example from its source in $room
build() {
  $CC -std=c11 -O1 -I. $SQLITE_CFLAGS -o "$room/$1" "$room/$1.c" $engine $LIBS
}

# plant FILE OLD NEW: replace OLD, which only one line contains, by NEW
plant() {
  cp doc/examples/outbox.c doc/examples/jobs.c doc/examples/ledger.py "$room"
  OLD=$2 NEW=$3 awk '
    at = index($0, ENVIRON["OLD"]) {
      $0 = substr($0, 1, at - 1) ENVIRON["NEW"] \
        substr($0, at + length(ENVIRON["OLD"]))
      n++
    }
    { print }
    END { exit n != 1 }' "doc/examples/$1" >"$room/$1" &&
    build outbox && build jobs
}

# finds SENTENCE: the torture ends with it within a minute
finds() {
  KILLS=100000 SECONDS=60 "$BUILD/torture-host" "$room/" "$BUILD/zke" \
    "$room/ledger.py" "$room" >"$room/said" 2>&1 && { cat "$room/said"; return 1; }
  sed -n 's/^kept: //p' "$room/said" | while read -r kept; do
    rm -rf "$kept"
  done
  grep -q "$1" "$room/said" || { cat "$room/said"; return 1; }
}

# mistake WHAT SENTENCE FILE OLD NEW
mistake() {
  expect "$1: planted" plant "$3" "$4" "$5"
  expect "$1: found" finds "$2"
}

mistake 'the row and the item in two commits' 'neither its item nor its mail' \
  outbox.c 'must(zke_queue_put_with(queue, &value, 1, NULL, &row, 1, NULL, until),' \
  'must(zke_multi(z, &row, 1, NULL), "row");
  must(zke_queue_put_all(queue, &value, 1, NULL, until),'
mistake 'the mail and the ack in two commits' 'a mail was sent' \
  outbox.c '    confirm(queue, item);' '
    zke_op sent;
    zke_op_sql(&sent, insert_mail, item);
    must(zke_multi(z, &sent, 1, NULL), "mail");
    zke_queue_ack(queue, item, NULL, 0, NULL);'
mistake 'a leader that does not ask whether it leads' 'a former leader' \
  jobs.c "zke_claim('/boss',?1)" '?1'
mistake 'a worker that does not ask whose job it is' 'not of the worker' \
  jobs.c 'id=?1 AND worker=?2 AND NOT done' 'id=?1 AND ?2<>0 AND NOT done'
mistake 'no trigger' 'into the ledger' \
  ledger.py 'BEFORE INSERT ON ledger' 'BEFORE UPDATE ON ledger'
# Only the deposer's notes show this: no row comes after a successor's.
mistake 'a trigger that asks the rows before' 'after it was deposed' \
  ledger.py 'WHEN NOT EXISTS(SELECT 1' \
  'WHEN NEW.token < (SELECT max(token) FROM ledger) AND NOT EXISTS(SELECT 1'
report
