#!/bin/sh
# terminal_top.sh - the command `top` on a terminal, which tmux plays
#
# What is on the screen is asked for until it is there, or twenty seconds have
# gone.  The shell inside has the prompt "$ ", and notes what stty(1) says
# before and after.
. test/report.sh

# Leaks are looked for where no terminal goes away: LeakSanitizer's own tracer
# can be hung up with it, and then spins for ever.
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"

need_terminal
PATH=$(cd "$BUILD" && pwd):$PATH
scratch room top
socket=zke-top-$$
holders=

tm() { tmux -L "$socket" -f /dev/null "$@"; }

clean_up() {
  tm kill-server 2>/dev/null
  for pid in $holders; do kill "$pid" 2>/dev/null; done
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

screen() { tm capture-pane -p; }

# until_true COMMAND...: within twenty seconds
until_true() {
  tries=400
  until "$@"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { screen; return 1; }
    sleep 0.05
  done
}

has_line() { screen | grep -q -e "$1"; }
lacks_line() { ! has_line "$1"; }
shows() { until_true has_line "$1"; }
hides() { until_true lacks_line "$1"; }

# keys KEY...: one after the other
keys() { tm send-keys "$@"; }

# hold WHO COMMAND NAME: in the background, until it is killed
hold() {
  zke --identity "$1" "$room/app.db" "$2" "$3" -- sleep 600 >/dev/null 2>&1 &
  holder=$!
  holders="$holders $holder"
}

# fits COLUMNS ROWS
fits() {
  screen | awk -v columns="$1" -v rows="$2" \
    'length > columns { wide = 1 } END { exit wide || NR > rows }'
}

# run_top ARGS...: in the terminal, behind a line that is to be there still
run_top() {
  rm -f "$room"/before "$room"/after "$room"/status
  keys "clear; echo on the screen before; stty -g >before" Enter
  until_true [ -s "$room/before" ] && shows '^on the screen' || return 1
  keys "zke app.db top $*" Enter
  shows "q quit"
}

# left_with STATUS: the prompt is there again, and what is typed is obeyed
left_with() {
  shows '^\$ *$' || return 1
  keys 'echo $? >status; stty -g >after' Enter
  until_true [ -s "$room/after" ] && [ "$(cat "$room/status")" = "$1" ]
}
terminal_is_as_before() {
  has_line '^on the screen before' && lacks_line 'q quit' &&
    cmp "$room/before" "$room/after" &&
    [ "$(tm display-message -p '#{alternate_on} #{cursor_flag}')" = "0 1" ]
}
top_pid() {
  pane=$(tm display-message -p '#{pane_pid}')
  tr -d ' ' <"/proc/$pane/task/$pane/children"
}

zke "$room/app.db" create /x >/dev/null
(cd "$room" && TERM=screen tm new-session -d -x 80 -y 24 \
  "exec env PS1='\$ ' PATH='$PATH' sh") || exit 1
expect "a shell is there" shows '^\$ *$'

# ---- what is shown ----

run_top --interval 0.2
expect "sessions are counted" shows '^1 session, 0 hold, 0 wait'
expect "the full screen is in use" \
  [ "$(tm display-message -p '#{alternate_on} #{cursor_flag}')" = "1 0" ]
hold nightly lock backup
nightly=$holder
expect "a holder appears" shows '^/locks/backup  *holds .* nightly: sleep 600'
hold other lock backup
expect "so does who waits" shows '^  *waits .* other: sleep 600'
expect "both are counted" shows '^3 sessions, 1 hold, 1 wait'
keys w
expect "w shows who waits for whom" \
  shows '^ *[0-9]*s  other ([0-9]*) .* nightly ([0-9]*) .*/locks/backup'
keys s
expect "s shows the sessions" shows '^SESSION .*NODES'
expect "and which is top's own" shows '(this one)'
keys l
expect "l shows the locks again" shows '^LINE  *STATE'
kill "$nightly"
expect "the next in line holds it" shows '^/locks/backup  *holds .* other'
expect "and nobody waits" shows ' 1 hold, 0 wait'

# ---- size, order, scrolling ----

expect "it fits 80 columns" fits 80 24
tm resize-window -x 60 -y 8
expect "a smaller window is drawn anew" shows '^l locks .*arrows sc'
expect "and fits" until_true fits 60 8
for i in 1 2 3 4 5 6; do hold many lock "n$i"; done
expect "all are counted" shows ' 7 hold,' # before one turns the pages
expect "more than has room is cut" shows '^/locks/n[12]'
keys Down Down
expect "the arrow scrolls" hides '^/locks/backup'
keys Up Up
expect "and back" shows '^/locks/backup'
keys NPage NPage NPage NPage
expect "so do pages" shows '^/locks/n6'
keys PPage PPage PPage PPage
tm resize-window -x 80 -y 24
expect "a larger window has room for all" shows '^/locks/n6'
hold last lock n6
expect "one more waits" shows ' waits .* last: sleep'
keys o
expect "o puts first what is waited for" shows 'o by path'
expect "at the top" until_true sh -c \
  "tmux -L $socket capture-pane -p | sed -n 5p | grep -q '^/locks/n6'"

# ---- leaving ----

keys q
expect "q leaves with 0" left_with 0
expect "the terminal is as it was" terminal_is_as_before

run_top
keys C-c
expect "^C leaves by the signal" left_with 130
expect "the terminal is as it was after ^C" terminal_is_as_before

for signal in TERM:143 HUP:129; do
  status=${signal#*:} signal=${signal%:*}
  run_top
  kill -$signal "$(top_pid)"
  expect "SIG$signal ends it" left_with "$status"
  expect "the terminal is as it was after SIG$signal" terminal_is_as_before
done

run_top
keys C-z
keys s
expect "^Z does not stop it" shows '^SESSION .*NODES'
zke "$room/app.db" expire "$(zke --json "$room/app.db" sessions |
  sed -n 's/.*"session":"\([^"]*\)".*"pid":'"$(top_pid)"',.*/\1/p')" \
  >/dev/null
expect "it ends with its session" left_with 76
expect "the terminal is as it was after that" terminal_is_as_before
expect "and why was said" shows '^zke: [A-Z]*: .*session'

run_top
keys q q l s
expect "what was typed behind q is not for the shell" left_with 0

# ---- where there is no terminal ----

refused() {
  output=$("$@" 2>&1 </dev/null)
  [ $? = 64 ] && [ -z "${output##*locks*sessions*usage:*}" ]
}
expect "no terminal" refused zke "$room/app.db" top
expect "no rows for programs" refused zke --json "$room/app.db" top --once
keys "clear; TERM=dumb zke app.db top; echo left \$?" Enter
expect "a dumb terminal" shows '^left 64'
once() { zke "$room/app.db" top --once </dev/null; }
prints_once() { once | grep -q '^/locks/n1  *holds'; }
escapes() { once | grep "$(printf '\033')"; }
expect "--once prints one picture" prints_once
expect "as plain text" nothing escapes
report
