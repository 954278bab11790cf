#!/bin/sh
# terminal_edit.sh - zke at a terminal, simulated by tmux: what is typed, and
# what the screen then shows
#
# Each test has its own terminal, with a shell in an empty directory.  It
# continues as soon as the screen is as expected, or fails after $PATIENCE
# seconds (20) and shows the screen.  COLUMNS and similar variables are not
# inherited.
. test/report.sh
need_terminal

# Other tests look for leaks, where no terminal disappears: a hangup can hit
# LeakSanitizer's tracer, which then spins forever.
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"

: "${PATIENCE:=20}"
scratch room terminal_edit
built=$(cd "$BUILD" && pwd)
terminal=zke-edit-$$
unset TMUX

mux() { tmux -L "$terminal" -f /dev/null "$@"; }
trap 'mux kill-server 2>/dev/null' EXIT
trap 'exit 129' HUP INT TERM

# begin [NAME=VALUE...]: an empty directory, and a shell there at a terminal
begin() {
  mux kill-session -t it 2>/dev/null
  rm -rf "$room/home" && mkdir "$room/home"
  mux new-session -d -s it -x 80 -y 24 -c "$room/home" "env -i \
    HOME='$room/home' LC_ALL=C.UTF-8 PATH='$built:$PATH' PS1='sh$ ' \
    ASAN_OPTIONS='$ASAN_OPTIONS' TERM=screen $* sh" &&
    line 'sh$'
}

# type TEXT: literally; keys KEY...: by their names
type() { mux send-keys -t it -l "$1"; }
keys() { mux send-keys -t it "$@"; }

# enter TEXT LINE: type it at the end of a line; LINE is the last one afterwards
enter() {
  type "$1" && until_it is_typed "$1" && keys Enter && line "$2"
}
# First wait until the typed text is shown: otherwise earlier output would be
# taken for its result.  Lines may be broken anywhere.
is_typed() {
  case $(screen | tr -d ' \n') in
    *"$(printf %s "$1" | tr -d ' \n')") ;;
    *) return 1 ;;
  esac
}

screen() { mux capture-pane -t it -p | sed 's/ *$//'; }

# until_it COMMAND...: wait for it to succeed
until_it() {
  tries=$((PATIENCE * 20))
  until "$@"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || return 1
    sleep 0.05
  done
}

# line TEXT: the last line that is not empty
# sees TEXT: some line of the screen
# says CODE: some line is an error of that name
# lacks TEXT: no line contains it
line() {
  until_it is_last "$1" || shows "want as the last line: $1"
}
sees() {
  until_it is_somewhere "$1" || shows "want: $1"
}
says() { until_it begins_with "zke: $1: " || shows "want zke: $1: ..."; }
begins_with() { screen | grep -q "^$1"; }
lacks() { ! screen | grep -F -- "$1"; }
is_last() { [ "$(screen | sed -n '/./h; ${x;p;}')" = "$1" ]; }
is_somewhere() { screen | grep -qxF -- "$1"; }
shows() {
  echo "$1"
  screen
  return 1
}

# here ARGS...: another zke in the terminal's directory
here() { (cd "$room/home" && "$built/zke" "$@"); }

# as_before: the terminal's settings are those from before zke
as_before() {
  enter 'clear; [ "$before" = "$(stty -g)" ] && echo same' 'sh$' && sees same
}
remember() { enter 'before=$(stty -g); clear' 'sh$'; }

open_it() { enter "zke${1+ $1} app.db" 'zke app.db:/>'; }
held_by() { here app.db locks --json 2>/dev/null | grep -q "$1"; }
nobody_holds() { ! held_by '"holds":true\|"kind":"lock"'; }

# The terminals' server outlives each of them.
expect "tmux" mux new-session -d -s server

# ---- the prompt ------------------------------------------------------------

greeting() {
  begin &&
    open_it && sees "zke $version on app.db (new); help lists the commands" &&
    enter 'ls' 'zke app.db:/>' && sees 'zke: CANTOPEN: app.db does not exist' &&
    enter 'create /a' 'zke app.db:/>' && sees /a &&
    enter 'cd a' 'zke app.db:/a>' &&
    enter 'exit' 'sh$' && enter clear 'sh$' && open_it &&
    sees "zke $version on app.db; help lists the commands"
}

kinds_of_files() {
  begin && open_it && enter 'create /a' 'zke app.db:/>' && enter exit 'sh$' &&
    enter 'zke --readonly app.db' 'zke app.db:/ (read-only)>' &&
    enter 'create /b' 'zke app.db:/ (read-only)>' &&
    says READONLY && enter exit 'sh$' &&
    enter 'zke :memory:' 'zke :memory::/>' && enter 'create /b' \
    'zke :memory::/>' && sees /b && enter exit 'sh$' &&
    enter 'echo "not a database" >other.db; zke other.db' 'sh$' &&
    says NOTADB && enter 'echo "=$?="' 'sh$' && sees '=66='
}

# A person's mistake ends nothing, and the shell exits with 0.
statuses() {
  begin && open_it && enter 'gte' 'zke app.db:/>' &&
    sees 'zke: USAGE: unknown command "gte"; did you mean get?' &&
    keys C-d && line 'sh$' && enter 'echo "=$?="' 'sh$' && sees '=0=' &&
    open_it && enter 'exit 3' 'sh$' && enter 'echo "=$?="' 'sh$' && sees '=3='
}

several_lines() {
  begin && open_it && enter "create /a 'one" '...>' &&
    enter "two'" 'zke app.db:/>' && enter 'get /a' 'zke app.db:/>' &&
    sees one && sees two && enter "get '" '...>' && keys C-c &&
    line 'zke app.db:/>' && enter "get '" '...>' && keys C-d &&
    line 'zke app.db:/>' && sees 'zke: USAGE: a quotation mark is not closed'
}

# ---- keys ------------------------------------------------------------------

editing() {
  begin && open_it && type 'creat /key v' && keys C-a M-f && type e &&
    keys C-e && type 12 && keys BSpace Enter && sees /key &&
    line 'zke app.db:/>' && type 'set /wrong' && keys C-w &&
    type '/key 2 -v' && keys C-u && type 'get /kxey' &&
    keys Left Left BSpace Enter && sees v1 && line 'zke app.db:/>' &&
    type 'nothing of this' && keys Home && type '# ' && keys End &&
    type ' counts' && line 'zke app.db:/> # nothing of this counts' &&
    keys Enter && line 'zke app.db:/>'
}

characters() {
  begin && open_it && type 'create /grüße→ "日本 x"' && keys Left Left BSpace &&
    type 'ü' && keys Enter && line 'zke app.db:/>' && sees '/grüße→' &&
    enter 'get /gr*' 'zke app.db:/>' && enter 'get /grüße→' 'zke app.db:/>' &&
    sees '日本üx'
}

long_line() {
  text=$(printf '%0150d' 7)
  begin && open_it && type "create /long $text" && keys C-a C-e && type '8' &&
    keys Enter && sees /long && line 'zke app.db:/>' &&
    [ "$(here app.db get /long)" = "${text}8" ]
}

resizing() {
  begin && open_it && type 'create /a "one two three four five six seven' &&
    line 'zke app.db:/> create /a "one two three four five six seven' &&
    mux resize-window -t it -x 40 -y 20 &&
    line 'our five six seven' &&
    mux resize-window -t it -x 100 -y 20 &&
    line 'zke app.db:/> create /a "one two three four five six seven' &&
    type ' eight"' && keys Enter && line 'zke app.db:/>' &&
    [ "$(here app.db get /a)" = 'one two three four five six seven eight' ]
}

# ---- history ---------------------------------------------------------------

recalling() {
  begin && open_it && enter 'create /a 1' 'zke app.db:/>' &&
    enter 'get /a' 'zke app.db:/>' && keys Up Up &&
    line 'zke app.db:/> create /a 1' && keys Down &&
    line 'zke app.db:/> get /a' && keys C-c && line 'zke app.db:/>' &&
    keys C-r && type 'crea' && sees 'bck:crea' && keys Enter &&
    says NODEEXISTS
}

across_sessions() {
  begin && open_it && enter 'create /a 1' 'zke app.db:/>' &&
    enter 'get /a' 'zke app.db:/>' && enter 'get /a' 'zke app.db:/>' &&
    enter 'addauth digest me:secret' 'zke app.db:/>' &&
    enter ' get /zookeeper' 'zke app.db:/>' && keys C-d && line 'sh$' &&
    enter 'clear; cat .zke_history; stat -c %a .zke_history' 'sh$' &&
    sees 600 && lacks secret && lacks zookeeper &&
    [ "$(cat "$room/home/.zke_history")" = 'create /a 1
get /a' ] && enter clear 'sh$' && open_it && keys Up &&
    line 'zke app.db:/> get /a' && keys Up && line 'zke app.db:/> create /a 1'
}

elsewhere() {
  begin ZKE_HISTORY=mine && open_it && enter 'version' 'zke app.db:/>' &&
    keys C-d && line 'sh$' && [ "$(cat "$room/home/mine")" = version ] &&
    enter 'ZKE_HISTORY=; zke app.db' 'zke app.db:/>' &&
    enter 'pwd' 'zke app.db:/>' && keys C-d && line 'sh$' &&
    [ "$(cat "$room/home/mine")" = version ] &&
    [ ! -e "$room/home/.zke_history" ]
}

# An existing file keeps its mode, especially a device; a FIFO without a reader
# does not block.
others_mode() {
  begin ZKE_HISTORY=ours && echo version >"$room/home/ours" &&
    chmod 644 "$room/home/ours" && mkfifo -m 644 "$room/home/fifo" &&
    open_it && keys Up && line 'zke app.db:/> version' && keys Enter &&
    sees "$version" && enter pwd 'zke app.db:/>' && keys C-d && line 'sh$' &&
    [ "$(stat -c %a "$room/home/ours")" = 644 ] &&
    [ "$(tail -n 1 "$room/home/ours")" = pwd ] &&
    enter 'ZKE_HISTORY=fifo zke app.db' 'zke app.db:/>' &&
    enter pwd 'zke app.db:/>' && keys C-d && line 'sh$' &&
    [ "$(stat -c %a "$room/home/fifo")" = 644 ] &&
    mode=$(stat -c %a /dev/null) &&
    enter 'ZKE_HISTORY=/dev/null zke app.db' 'zke app.db:/>' &&
    keys C-d && line 'sh$' && [ "$(stat -c %a /dev/null)" = "$mode" ]
}

# Old lines are forgotten: reading the file cuts it.
shortened() {
  begin && seq 3000 | sed 's/^/get \/n/' >"$room/home/.zke_history" &&
    open_it && keys Up && line 'zke app.db:/> get /n3000' &&
    [ "$(wc -l <"$room/home/.zke_history")" = 1000 ] &&
    [ "$(tail -n 1 "$room/home/.zke_history")" = 'get /n3000' ]
}

# ---- completion ------------------------------------------------------------

completing_commands() {
  begin && open_it && type vers && keys Tab && line 'zke app.db:/> version' &&
    keys Enter && sees "$version" && line 'zke app.db:/>' && type dele &&
    keys Tab && line 'zke app.db:/> delete' && keys Tab &&
    sees 'delete     deleteall' && line 'zke app.db:/> delete' && keys C-u &&
    type 'lock x --non' && keys Tab && line 'zke app.db:/> lock x --nonblock' &&
    keys C-u && type 'queue pu' && keys Tab && type . &&
    line 'zke app.db:/> queue push .' && keys C-u && type 'mode js' &&
    keys Tab && line 'zke app.db:/> mode json' && keys C-u &&
    type 'help deletea' && keys Tab && line 'zke app.db:/> help deleteall'
}

completing_paths() {
  begin && here app.db create /fruit && here app.db create /fruit/apple 1 &&
    here app.db create '/fruit/red pear' 2 &&
    here app.db create /fruit/apple/core 3 && open_it && type 'get /f' &&
    keys Tab && line 'zke app.db:/> get /fruit' && keys Tab &&
    line 'zke app.db:/> get /fruit/' && keys Tab &&
    sees 'apple     red pear' && type a && keys Tab &&
    line 'zke app.db:/> get /fruit/apple' && keys Tab Tab Enter && sees 3 &&
    line 'zke app.db:/>' && type 'get /fruit/r' && keys Tab && type . &&
    line 'zke app.db:/> get /fruit/red\ pear .' && keys BSpace BSpace Enter &&
    sees 2 && line 'zke app.db:/>' && type 'get "/fruit/r' && keys Tab &&
    line 'zke app.db:/> get "/fruit/red pear"' && keys C-u &&
    enter 'cd fruit' 'zke app.db:/fruit>' && type 'get ap' && keys Tab &&
    line 'zke app.db:/fruit> get apple' && keys C-u && type 'get nope' &&
    keys Tab && type . && line 'zke app.db:/fruit> get nope.'
}

# Names of recipes are below their bases.
completing_names() {
  begin && here app.db lock backup -- true && here app.db queue push mail x &&
    open_it && type 'lock ba' && keys Tab && line 'zke app.db:/> lock backup' &&
    keys C-u && type 'queue size ma' && keys Tab Enter &&
    line 'zke app.db:/>' && sees 'items = 1'
}

# ---- signals ---------------------------------------------------------------

cancelling() {
  begin && open_it && enter 'create /a' 'zke app.db:/>' && type 'get /x' &&
    line 'zke app.db:/> get /x' && keys C-c && line 'zke app.db:/>' &&
    sees 'zke app.db:/> get /x^C' &&
    type 'watch /a' && keys Enter && until_it watches &&
    keys C-c && line 'zke app.db:/>' && sees '^C' && lacks 'zke: ' &&
    type 'lock b -- sh -c "echo runs; exec sleep 1000"' && keys Enter &&
    sees runs && keys C-c && line 'zke app.db:/>' &&
    until_it nobody_holds
}
watches() { here app.db sql 'SELECT * FROM zke_watches' | grep -q /a; }

# The terminal's ^C comes before there is a child, and is handled when there is
# one: fork() waits until the file "typed" exists.  And zke's signal thread is
# late: the child exits, and is reaped, before the thread takes anything.
slow_fork() {
  cat >"$room/slow_fork.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define NEXT(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))
static atomic_int reaped;
static void moment(void) {
  nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}
pid_t fork(void) {
  close(open("forking", O_WRONLY | O_CREAT, 0600));
  while (access("typed", F_OK) != 0) moment();
  return NEXT(fork)();
}
pid_t waitpid(pid_t pid, int *status, int options) {
  siginfo_t info;
  waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
  pid = NEXT(waitpid)(pid, status, options);
  if (pid > 0) reaped = 1;
  return pid;
}
int poll(struct pollfd *fds, nfds_t count, int wait) {
  int ready = NEXT(poll)(fds, count, wait);
  while (syscall(SYS_gettid) != getpid() && !reaped) moment();
  return ready;
}
END
  $CC -shared -fPIC -o "$room/slow_fork.so" "$room/slow_fork.c" -ldl
}
cancelling_early() {
  slow_fork && begin "ASAN_OPTIONS='$ASAN_OPTIONS:verify_asan_link_order=0'" &&
    enter "slow=$room/slow_fork.so; clear" 'sh$' &&
    type 'LD_PRELOAD=$slow zke app.db lock b -- sleep 1000' && keys Enter &&
    until_it [ -e "$room/home/forking" ] && keys C-c && sees '^C' &&
    touch "$room/home/typed" && line 'sh$' &&
    enter 'echo "=$?="' 'sh$' && sees '=130='
}

leaving() {
  begin && remember && open_it && enter 'lock backup' 'zke app.db:/>' &&
    held_by backup && type x && keys BSpace C-d && line 'sh$' &&
    nobody_holds && as_before && open_it && type 'half a line' &&
    line 'zke app.db:/> half a line' && keys C-c && line 'zke app.db:/>' &&
    keys C-d && line 'sh$' && as_before
}

# SIGNAL STATUS: at the prompt the signal ends the session and the process
ended_by() {
  begin && remember && open_it && enter 'lock backup' 'zke app.db:/>' &&
    type 'half a line' && line 'zke app.db:/> half a line' &&
    kill -s "$1" "$(pid_of_it)" && line 'sh$' && nobody_holds &&
    enter 'echo "=$?="' 'sh$' && sees "=$2=" && as_before
}
pid_of_it() { here app.db sessions --json | sed -n 's/.*"pid":\([0-9]*\).*/\1/p
  ' | head -n 1; }

stopping() {
  begin && remember && open_it && type 'pwd' &&
    line 'zke app.db:/> pwd' && keys C-z && line 'sh$' &&
    as_before && enter fg 'zke app.db:/> pwd' && type '  ' && keys Enter &&
    sees / && line 'zke app.db:/>' && keys C-d && line 'sh$' && as_before
}

# ---- output while a line is typed ------------------------------------------

losing_a_lock() {
  begin && open_it && enter 'lock backup' 'zke app.db:/>' && type 'get /half' &&
    line 'zke app.db:/> get /half' && here app.db break backup &&
    sees 'zke: LOST: the lock /locks/backup was lost' &&
    line 'zke app.db:/> get /half' && type ' --json' &&
    line 'zke app.db:/> get /half --json' && keys C-a &&
    type '# ' && line 'zke app.db:/> # get /half --json'
}

losing_the_session() {
  begin && open_it && enter 'create /a 1' 'zke app.db:/>' && type 'get /a' &&
    here app.db expire \
      "$(here app.db sessions --json | sed -n '1s/.*"session":"\([^"]*\).*/\1/p
        ')" &&
    line 'zke app.db:/ (expired)> get /a' && says SESSIONEXPIRED &&
    keys Enter && line 'zke app.db:/>' && sees 1
}

above_a_long_line() {
  text=$(printf 'get /%0150d' 7)
  begin && open_it && enter 'lock backup' 'zke app.db:/>' && type "$text" &&
    here app.db break backup &&
    sees 'zke: LOST: the lock /locks/backup was lost' &&
    line "$(printf %s "zke app.db:/> $text" | cut -c 161-)" &&
    [ "$(screen | grep -c '^zke app.db:/> get')" = 1 ]
}

# ---- without libedit -------------------------------------------------------

plain_lines() {
  remember && open_it && sees \
    "zke $version on app.db (new); help lists the commands" &&
    enter 'create /a 1' 'zke app.db:/>' && sees /a &&
    enter 'lock backup' 'zke app.db:/>' && here app.db break backup &&
    sees 'zke: LOST: the lock /locks/backup was lost' &&
    line 'zke app.db:/>' && type 'half' && keys C-c && line 'zke app.db:/>' &&
    type 'get /b' && keys BSpace && type 'a' && keys Enter && sees 1 &&
    line 'zke app.db:/>' && type 'watch /a' && keys Enter &&
    until_it watches && keys C-c && line 'zke app.db:/>' &&
    enter "create /c 'one" '...>' && enter "two'" 'zke app.db:/>' && sees /c &&
    keys C-d && line 'sh$' && as_before
}
dumb_terminal() { begin TERM=dumb && plain_lines; }
compiled_without() {
  built=$room/plain
  begin && plain_lines
}
# The program is built from the same sources.  Only edit.c uses libedit, so all
# other objects are this build's.
compile_without() {
  mkdir "$room/plain" &&
    cp -pR "$built"/*.o "$built"/*.a "$built/recipes" "$built/shell" \
      "$room/plain" &&
    rm "$room/plain/shell/edit.o" &&
    $MAKE --no-print-directory EDIT= BUILD="$room/plain" "$room/plain/zke" &&
    ! ldd "$room/plain/zke" | grep libedit
}

# Output into a file: the prompt still goes to the person.
output_elsewhere() {
  begin && enter 'zke app.db >out' 'zke app.db:/>' &&
    enter 'create /a 1' 'zke app.db:/>' && enter 'get /a' 'zke app.db:/>' &&
    keys C-d && line 'sh$' && [ "$(cat "$room/home/out")" = '/a
1' ]
}

if ldd "$built/zke" | grep -q libedit; then
  expect "the greeting and the prompt" greeting
  expect "read-only, in memory, no database" kinds_of_files
  expect "statuses" statuses
  expect "a command of several lines" several_lines
  expect "keys edit the line" editing
  expect "characters beyond ASCII" characters
  expect "a line longer than the screen is wide" long_line
  expect "the window's size changes" resizing
  expect "earlier lines are recalled" recalling
  expect "also in the next session, but no password" across_sessions
  expect "ZKE_HISTORY" elsewhere
  expect "it keeps the mode of a file that is not its own" others_mode
  expect "the history does not grow for ever" shortened
  expect "commands, verbs, options and modes are completed" completing_commands
  expect "paths are completed" completing_paths
  expect "names of recipes are completed" completing_names
  expect "^C gives up a line or a command" cancelling
  expect "also one that comes just before the child" cancelling_early
  expect "^D leaves; locks and terminal are given back" leaving
  expect "SIGTERM ends it well" ended_by TERM 143
  expect "SIGHUP ends it well" ended_by HUP 129
  expect "^Z and fg" stopping
  expect "a lost lock is told above the line" losing_a_lock
  expect "so is the end of the session" losing_the_session
  expect "and above a long line" above_a_long_line
else
  echo "zke was made without libedit: only what is so without it"
fi
expect "TERM=dumb: plain lines" dumb_terminal
expect "compiled without libedit" compile_without
expect "which has plain lines" compiled_without
expect "output elsewhere" output_elsewhere
report
