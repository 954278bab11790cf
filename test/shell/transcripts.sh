#!/bin/sh
# transcripts.sh - run transcripts of sessions again and compare the output
#
#   transcripts.sh [--update] [FILE...]
#
# Without FILE: those in TRANSCRIPTS, or test/shell/*.txt, and README.md and
# doc/*.md if they have any.  JOBS files are run at a time (twice as many as
# there are processors).  --update writes the present output into FILE, but
# keeps the old text if the two differ only in what varies from run to run
# (below).  FULL=1 is passed on.
#
# A transcript:
#
#     # a comment
#     $ zke app.db create /a hello
#     /a
#     $ zke app.db get /nope
#     zke: NONODE: /nope
#     [1]
#
# "$ " begins a command for sh, which "> " lines continue.  After it comes its
# output, standard output and error together, and "[N]", its exit status, unless
# that is 0.  Blank lines before the next command or comment do not count.  In a
# document (.md) only the text between "```console" and "```" counts, all of it
# as one transcript.  A block of C that begins with "/* NAME.c - " is put into
# the directory as NAME.c, together with the four files of `make amalgamation`.
#
# The commands of a file run in one shell, in an empty directory that is also
# HOME, with zke on the PATH and little else in the environment.  Whatever a
# command sets, changes or leaves running is there for the next, even $?.
# Standard input is empty.  A background command's output belongs to the line
# that started it: wait for it in a later one.  If a command takes more than
# $LIMIT seconds (300) all that runs is killed, and the rest has failed.
#
# Besides sh's own words there are
#
#     await COMMAND       waits until that succeeds: await '[ -s out ]'
#     begin COMMAND... &  starts a job that INT and QUIT can end.  A script's
#                         background jobs ignore these two.  Never without `&`:
#                         it replaces the shell.
#     talk <<'END'        plays its input to `zke app.db --coprocess`, whose
#                         process is $coprocess, and prints the answers:
#         LINE            is sent, and the next line that comes is printed
#         > LINE          is only sent
#         < N             prints the next N lines, sorted
#         $ COMMAND       is run here.  It may call say LINE and hear, which
#                         leaves the line in $heard, and hear_all N.  A
#                         background job must close its input, by 8>&-.
#                         At the end the input is closed, and the rest printed,
#                         sorted; the exit code is the coprocess's.  In a pipe
#                         it would be lost: there "exit N" is printed, unless
#                         it is 0.
#
# These vary from run to run, and count as equal:
#
#     times               2026-11-20T12:00:00Z, 2026-11-20 12:00:00,
#                         1795176000000 (13 digits)
#     sessions            0x19ac… (six digits or more)
#     zxids, tokens       4294967310: between 2^32 and 4295000000
#     processes           pid 123, "pid":123, PID=123, pid = 123, and numbers
#                         below a heading PID
#     users, groups       owner 0:0, user 0, group 0, "group":0
#     durations           0.12 s, 12.5 ms, "…_ms":123 except of ttl, every,
#                         timeout, wait and grace, which are settings
#     blanks              runs of them in an output with any of these, since
#                         column widths depend on the values
#     the directory       printed as /tmp/zke
#
# "usage: queue push …" stands for that command's whole usage, which was shown
# before.
#
# With --plain a process's number looks like any other: cut it away, or `| sed
# "s/$!/PID/"`.
. test/report.sh

: "${LIMIT:=300}"

# split FILE: writes N.cmd, N.exp (the expected output), N.line, and `count`;
# or, with update=1, prints FILE with the content of each N.exp in its place
split='
  function blanks() {
    if (update) for (; held > 0; held--) print ""
    held = 0
  }
  function text() {
    blanks()
    if (update) print
  }
  function command_ends(   line) {
    if (state != "cmd") return
    close(stem ".cmd")
    if (!update) printf "" >(stem ".exp")
    else while ((getline line <(stem ".exp")) > 0) print line
    if (update) close(stem ".exp")
    state = "out"
  }
  function begin() {
    command_ends()
    if (!update && stem) close(stem ".exp")
    blanks()
    stem = room "/" ++n
    state = "cmd"
    if (!update) print NR >(stem ".line")
    if (!update) close(stem ".line")
    line_of_command()
  }
  function line_of_command() {
    if (update) print
    else print substr($0, 3) >(stem ".cmd")
  }
  function outside() {
    command_ends()
    state = ""
    text()
  }
  document && /^```console$/ { inside = 1; outside(); next }
  document && /^```/ { inside = 0; outside(); next }
  document && !inside { text(); next }
  /^\$ / { begin(); next }
  state == "cmd" && /^>( |$)/ { line_of_command(); next }
  /^# / || $0 == "#" { outside(); next }
  { command_ends() }
  /^$/ { held++; next }
  state == "out" {
    if (!update) for (; held > 0; held--) print "" >(stem ".exp")
    if (!update) print >(stem ".exp")
    held = 0
    next
  }
  { text() }
  END {
    command_ends()
    blanks()
    if (!update) print n + 0 >(room "/count")
  }'

# split_file FILE ROOM [1]: with the third, updates to standard output
split_file() {
  case $1 in
    *.md) document=1 ;;
    *) document=0 ;;
  esac
  awk -v room="$2" -v update="${3:-0}" -v document=$document "$split" "$1"
}

# normalise FILE...: writes FILE.same for each
normalise() {
  for text in "$@"; do : >"$text.same"; done
  [ $# = 0 ] || sed -E -s '
    1F
    s/[0-9]{4}(-[0-9]{2}){2}[T ][0-9]{2}(:[0-9]{2}){2}(\.[0-9]+)?Z?/@TIME/g
    :again
    s/(^|[^0-9])1[0-9]{12}([^0-9]|$)/\1@TIME\2/
    t again
    s/0x[0-9a-f]{6,}/@SESSION/g
    s/42949[6-9][0-9]{4}/@ZXID/g
    s/([Pp][Ii][Dd]"?( |:|=|: | = ))[0-9]+/\1@PID/g
    s/(owner |user |group"?( |:| = ))[0-9]+(:[0-9]+)?/\1@ID/g
    s/( and )[0-9]+(, as the database)/\1@ID\2/
    s/(^|[^0-9.])[0-9]+\.[0-9]+( ?m?s)($|[^A-Za-z])/\1@DURATION\3/g
    s/("(ttl|every|timeout|wait|grace)_ms":)/\1 /
    s/(_ms":)[0-9]+/\1@DURATION/g' "$@" | awk -v room="$room/" '
    function end(   i) {
      for (i = 1; i <= n; i++) {
        if (varies) gsub(/   *|\t/, "  ", line[i])
        if (varies) sub(/ +$/, "", line[i])
        print line[i] >same
      }
      if (same) close(same)
      n = varies = ends = 0
    }
    # The name of the next file, on a line of its own (1F): N.exp, then N.got.
    index($0, room) == 1 {
      end()
      same = $0 ".same"
      if (/exp$/) cut = 0
      skips = 0
      next
    }
    # The words before the first argument: "queue push", but "queue" of a usage
    # that lists the verbs, "queue push | pop …".
    function named(   i, text) {
      text = $1
      for (i = 2; $i ~ /^[a-z]+$/ && $(i + 1) != "|"; i++) text = text " " $i
      return text " …"
    }
    /^usage:( [a-z]+)+ …$/ { cut = 1 }
    cut && /^usage: / { skips = 1; line[++n] = named(); next }
    skips && /^ / { next }
    { skips = 0 }
    # Where a heading PID ends, the numbers below it end.
    { line[++n] = $0 }
    /@/ { varies = 1 }
    match($0, /(^| )PID( |$)/) && !/[a-z]/ {
      ends = RSTART + RLENGTH - (substr($0, RSTART + RLENGTH - 1, 1) == " ")
      varies = 1
      next
    }
    ends && match(substr($0, 1, ends - 1), /[0-9]+$/) {
      line[n] = substr($0, 1, RSTART - 1) "@PID" substr($0, ends)
      sub(/^ +@PID/, "@PID", line[n])
    }
    END { end() }'
}

# printed COUNT: leaves N.got, each command's result as a transcript shows it
printed() {
  awk -v room="$room" -v count="$1" '
    # replaces the directory, which no pattern matches
    function shown(line,   at, text) {
      while ((at = index(line, room "/work")) > 0) {
        text = text substr(line, 1, at - 1) "/tmp/zke"
        line = substr(line, at + length(room) + 5)
      }
      return text line
    }
    # A last line without a newline gets one; blank lines at the end are
    # dropped.
    function copy(from, to,   line, held) {
      printf "" >to
      while ((getline line <from) > 0) {
        if (line == "") { held++; continue }
        for (; held > 0; held--) print "" >to
        print shown(line) >to
      }
      close(from)
    }
    BEGIN {
      for (i = 1; i <= count; i++) {
        stem = room "/" i
        copy(stem ".out", stem ".got")
        status = "was not run to its end"
        getline status <(stem ".status")
        if (status != "0") print "[" status "]" >(stem ".got")
        close(stem ".status")
        close(stem ".got")
      }
    }'
}

# unlike END N...: prints those with different N.expEND and N.gotEND
unlike() {
  ending=$1
  shift
  [ $# = 0 ] || printf '%s\n' "$@" | awk -v room="$room" -v ending="$ending" '
    function differ(one, other,   a, b, line, text) {
      do {
        a = (getline line <one) > 0
        b = (getline text <other) > 0
      } while (a && b && line "" == text "")
      close(one)
      close(other)
      return a || b
    }
    differ(room "/" $0 ".exp" ending, room "/" $0 ".got" ending)'
}

# Functions for all commands, described at the head.  Its wait does not print
# "Terminated", as some shells do if they had not yet noticed that a job was
# killed.
vocabulary='
  wait() { command wait "$@"; } 2>/dev/null
  await() { until eval "$1" >/dev/null 2>&1; do sleep 0.01; done; }
  begin() { exec env --default-signal "$@"; }
  say() { printf "%s\n" "$1" >&8; }
  hear() { IFS= read -r heard <&9 && printf "%s\n" "$heard"; }
  hear_all() { sed -u "$1q" <&9 | sort; }
  talk() {
    rm -f in out; mkfifo in out
    begin zke app.db --coprocess <in >out & coprocess=$!
    exec 8>in 9<out
    while IFS= read -r line; do
      case $line in
        "$ "*) eval "${line#$ }" </dev/null ;;
        "> "*) say "${line#> }" ;;
        "< "*) hear_all "${line#< }" ;;
        *) say "$line"; hear ;;
      esac
    done
    exec 8>&-
    sort <&9
    exec 9<&-
    wait $coprocess || {
      set -- $?
      [ ! -p /dev/stdout ] || echo "exit $1"
      return $1
    }
  }'

# driver COUNT: the shell script that runs the commands
driver() {
  echo "transcript=0"
  echo "$vocabulary"
  i=0
  while [ $((i += 1)) -le "$1" ]; do
    stem=$room/$i
    echo "echo $i >'$room/at'; (exit \$transcript)"
    echo ". '$stem.cmd' >'$stem.out' 2>&1 </dev/null"
    echo "transcript=\$?; echo \$transcript >'$stem.status'"
  done
}

# watch_over PID: kills its session if a command takes too long
watch_over() {
  last= left=$LIMIT
  while sleep 1 && kill -0 "$1"; do
    at=$(cat "$room/at")
    [ "$at" ] && [ "$at" = "$last" ] || left=$LIMIT # none has begun, or another
    last=$at
    left=$((left - 1))
    [ $left -gt 0 ] || kill -s KILL -- "-$1"
  done
}

# programs FILE: puts the document's programs there, if it has any, with the
# four files for building them
programs() {
  awk -v work="$room/work/" '
    /^```/ { out = ""; begins = /^```c$/; next }
    begins && /^\/\* [a-z_]+\.c - / { out = work $2 }
    { begins = 0 }
    out { print >out }' "$1"
  [ -z "$(ls "$room/work")" ] || {
    cp zkembed.[ch] "$room/work" &&
      sh recipes/amalgamate.sh "$room/work/zkembed_recipes"
  }
}

# The commands run in their own session, which is then killed.
run_commands() {
  mkdir "$room/bin"
  ln -s "$(cd "$BUILD" && pwd)/zke" "$room/bin/zke"
  driver "$1" >"$room/driver"
  # The environment configures sanitizers and coverage.  Further open files of
  # the script are closed: some commands use up all descriptors.
  (cd "$room/work" && exec setsid env --default-signal -i \
    HOME="$room/work" LC_ALL=C.UTF-8 TERM=dumb TZ=UTC PATH="$room/bin:$PATH" \
    ${FULL+FULL="$FULL"} \
    LD_LIBRARY_PATH="$(dirname "$(readlink "$room/bin/zke")")" \
    ${ASAN_OPTIONS+ASAN_OPTIONS="$ASAN_OPTIONS"} \
    ${UBSAN_OPTIONS+UBSAN_OPTIONS="$UBSAN_OPTIONS"} \
    ${TSAN_OPTIONS+TSAN_OPTIONS="$TSAN_OPTIONS"} \
    sh "$room/driver" </dev/null >"$room/log" 2>&1 \
    3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-) &
  session=$!
  watch_over $session >/dev/null 2>&1 &
  dog=$!
  wait $session 2>/dev/null
  kill $dog
  kill -s KILL -- -$session 2>/dev/null
  wait $dog 2>/dev/null
  session=
}
session=
trap '[ -z "$session" ] || kill -s KILL -- -$session $dog' EXIT
trap 'exit 129' HUP INT TERM

# show FILE STEM: a command that failed, with the differences
show() {
  echo "FAILED: $1:$(cat "$2.line")"
  sed '1s/^/$ /; 1!s/^/> /' "$2.cmd"
  diff -U 1000 "$2.exp.same" "$2.got.same" | sed 1,3d
  [ -s "$room/log" ] && sed 's/^/sh: /' "$room/log"
}

# transcript FILE: sets good and bad, the numbers of right and wrong commands
transcript() {
  room=$(mktemp -d "$rooms/XXXXXX") || exit
  mkdir "$room/work"
  case $1 in *.md) programs "$1" || exit ;; esac
  split_file "$1" "$room"
  count=$(cat "$room/count")
  run_commands "$count"
  printed "$count"
  bad=0
  first=$(unlike '' $(seq "$count"))
  normalise $(for i in $first; do echo "$room/$i.exp" "$room/$i.got"; done)
  for i in $(unlike .same $first); do
    bad=$((bad + 1))
    show "$1" "$room/$i"
    mv "$room/$i.got" "$room/$i.exp" # for --update
  done
  good=$((count - bad))
  [ "$count" -gt 0 ] || { bad=1; echo "FAILED: $1 has no command"; }
}

# ---- this script's own tests ------------------------------------------------

# notices GOOD BAD: the numbers for the transcript on standard input
notices() {
  cat >"$rooms/self.txt"
  transcript "$rooms/self.txt" >"$rooms/self.log"
  cat "$rooms/self.log"
  [ "$good $bad" = "$1 $2" ]
}

try_right() {
  notices 13 0 <<'END'
# right ones
$ printf 'one\n\ntwo'
one

two

$ echo $?; x=1; mkdir d; cd d
0
$ false
[1]
$ echo $?$x; pwd
11
/tmp/zke/d
$ echo two >&2; echo one
two
one
$ cat <<'EOF'
> a $x
> EOF
a $x
$ (echo from behind; exit 3) &
from behind
$ wait $!
[3]

$ cat; date +%s000; date -u +%FT%TZ; echo 0x123456789abcdef
1795176000000
2026-11-20T12:00:00Z
0xabcdef
$ echo '{"pid":12,"since":1234567890123,"ttl_ms":5,"took_ms":7}' pid 5 0.25 s.
{"pid":77,"since":1795176000000,"ttl_ms":5,"took_ms":30} pid 6 3.5 s.
$ printf 'NAME    PID  SESSION\na         7  0x1234567\nb     12345  0x1\n'
NAME  PID  SESSION
a       1  0x1234567890ab
b       2  0x1
$ printf 'usage: a b C\n  c\nd\n'
usage: a b …
d
$ touch "$HOME/here"; ls -A ~
d
here
END
}

try_wrong() {
  notices 1 10 <<'END'
$ echo one
one
$ echo one
two
$ echo one; exec 3>&1; echo two
one
$ printf 'usage: a c D\n'
usage: a b …
$ true
one
$ false
$ (exit 4)
[5]
$ echo '"ttl_ms":5 "a":12 0x12'
"ttl_ms":6 "a":12 0x12
$ echo '"ttl_ms":5 "a":12 0x12'
"ttl_ms":5 "a":12 0x13
$ echo one; exit
one
$ true
END
}

# A document, updated: equal output stays, different output is replaced.
try_update() {
  printf '$ echo out\n```console\n$ date +%%s000\n1795176000000\n\n# c\n$ cat x
```\n\n```console\n$ false\n```\n' >"$rooms/self.md"
  transcript "$rooms/self.md" >"$rooms/self.log"
  split_file "$rooms/self.md" "$room" 1 >"$rooms/self.new"
  printf '$ echo out\n```console\n$ date +%%s000\n1795176000000\n\n# c\n$ cat x
cat: x: No such file or directory\n[1]\n```\n\n```console\n$ false\n[1]\n```
' | diff - "$rooms/self.new"
}

# The slow part, only for a run of everything.
try_limit() {
  LIMIT=3 # in this subshell of expect
  notices 1 2 <<'END'
$ true
$ sleep 1000 | cat
$ true
END
}

# ----------------------------------------------------------------------------

# one FILE: its line, which run.sh sums; all output is printed together
one() {
  transcript "$1" >"$rooms/$$.log"
  echo "$1: $good passed, $bad failed" >>"$rooms/$$.log"
  cat "$rooms/$$.log"
  [ -z "$update" ] ||
    { split_file "$1" "$room" 1 >"$room/new" && cat "$room/new" >"$1"; }
  [ $bad = 0 ]
}

if [ "${1-}" = --one ]; then
  rooms=$2 update=$3
  one "$4"
  exit
fi
scratch rooms transcripts
update=
if [ "${1-}" = --update ]; then
  update=1
  shift
fi
expect "this script: right transcripts are right" try_right
expect "this script: wrong ones are wrong" try_wrong
expect "this script: --update" try_update
if [ $# = 0 ]; then
  expect "a command that takes too long is wrong" try_limit
  # The sqlite3 command has no sanitizer's runtime, which the library needs.
  documents=$(grep -l '^```console$' README.md doc/*.md |
    grep -vx "${SAN:+doc/extension.md}")
  set -- ${TRANSCRIPTS:-$(ls -S test/shell/*.txt) $documents}
fi
# Several at a time, since they mostly wait; the longest first.
printf '%s\n' "$@" | xargs -P "${JOBS:-$(($(nproc) * 2))}" -n 1 \
  sh "$0" --one "$rooms" "$update" || failed=$((failed + 1))
report
