#!/bin/sh
# ensemble.sh - the command zke on names of ensembles, zk://HOST:PORT
#
# The server is `zke :memory: serve`, or the one in SERVER, host:port, which
# must be empty.
. test/report.sh

scratch room ensemble
zke=$(cd "$BUILD" && pwd)/zke
semantics=$(dirname "$zke")/test/test_semantics sources=$(pwd)
cd "$room" || exit 1
started= ours=

clean_up() {
  for pid in $started; do kill -KILL "$pid" 2>/dev/null; done
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

# until_true COMMAND...: within twenty seconds
until_true() {
  tries=400
  until "$@"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || return 1
    sleep 0.05
  done
}

if [ -z "${SERVER-}" ]; then
  "$zke" :memory: serve --port 0 --print-port >port &
  started=$! ours=$!
  until_true [ -s port ]
  SERVER=127.0.0.1:$(cat port)
fi
ensemble=zk://$SERVER

z() { $limited "$zke" "$ensemble" "$@"; }

# prints TEXT COMMAND...: it prints exactly this, and succeeds
prints() {
  text=$1
  shift
  got=$("$@" 2>&1) || { echo "exit code $?: $got"; return 1; }
  [ "$got" = "$text" ] || { echo "got: $got"; return 1; }
}

# refused STATUS TEXT COMMAND...: it exits with STATUS and prints TEXT
refused() {
  wanted=$1 text=$2
  shift 2
  got=$("$@" 2>&1)
  status=$?
  [ $status = "$wanted" ] || { echo "exit code $status: $got"; return 1; }
  case $got in *"$text"*) ;; *) echo "got: $got"; return 1 ;; esac
}

has() { grep -q -e "$1" "$2"; }

# ---- nodes -----------------------------------------------------------------

expect "create" prints /app z create /app one
expect "get" prints one z get /app
expect "set" z set /app two
expect "get what was set" prints two z get /app
expect "ls" prints "app" sh -c "'$zke' '$ensemble' ls / | grep app"
expect "tree" prints /app z tree /app
expect "stat" sh -c "'$zke' '$ensemble' stat /app | grep -q '^version = 1$'"
expect "a chroot in the name" prints "" $limited "$zke" "$ensemble/app" ls
expect "lines from standard input" prints "/app/s
1" sh -c "printf 'create /app/s 1\nget /app/s\n' | '$zke' '$ensemble'"
expect "a coprocess" sh -c "echo '{\"id\":1,\"run\":[\"get\",\"/app\"]}' |
  $limited '$zke' '$ensemble' --coprocess | grep -q two"
expect "--readonly changes nothing" \
  refused 77 READONLY z --readonly create /never
expect "ephemeral nodes of others are found" sh -c \
  "'$zke' '$ensemble' create -e /app/e -- '$zke' '$ensemble' ephemerals |
    grep -q '^/app/e '"
expect "the session of the name has ended" refused 1 NONODE z get /app/e
expect "a refused multi names the operation once" refused 1 \
  "BADVERSION: operation 2 of 2, check /app: /app: bad version; nothing" \
  z multi create /never , check /app 9
expect "expire names the session" \
  refused 1 "NONODE: there is no session 0x63" z expire 99
expect "deleteall" z deleteall /app
expect "what is gone" refused 1 NONODE z get /app

# ---- waiting, holding ------------------------------------------------------

z create /watched a >/dev/null
"$zke" "$ensemble" watch --follow /watched >events 2>&1 &
started="$started $!"
seen() {
  z set /watched b >/dev/null
  has '/watched' events
}
expect "watch" until_true seen

expect "queue push" z queue push jobs one
expect "queue pop" prints one z queue pop jobs
expect "elect" prints elected z elect boss -- echo elected

"$zke" "$ensemble?timeout=2000" lock job -- \
  sh -c 'echo in >held; exec sleep 600' &
holder=$!
started="$started $holder"
expect "a lock is had" until_true [ -s held ]
expect "locks" sh -c "'$zke' '$ensemble' locks | grep -q '^/locks/job '"
expect "a second one waits in vain" \
  refused 75 "" z lock --nonblock job -- echo in
expect "the holder has its lock beyond its session's timeout" \
  refused 75 "" z lock --wait 5 job -- echo in
kill -KILL $holder
expect "a killed holder's lock is had by another" \
  prints next z lock --wait 30 job -- echo next

"$zke" "$ensemble" lock work -- sh -c '(trap "" TERM; : >in
  until [ -e out ]; do sleep 0.05; done) & wait' 2>said &
worker=$!
started="$started $worker"
until_true [ -e in ]
kill $worker
expect "work that a signal did not end is named" \
  until_true has 'the lock /locks/work stays held by sh -c (trap' said
expect "and keeps the lock" refused 75 "" z lock --nonblock work -- echo in
touch out
expect "until it ends" prints next z lock --wait 30 work -- echo next

# A script that is silent for longer than its session's timeout.
idle() {
  { echo 'create -e /idle x'; sleep 5; echo 'get /idle'; } |
    $limited "$zke" "$ensemble?timeout=2000"
}
expect "an idle script keeps its session" prints "/idle
x" idle

# ---- to the ensemble and back ----------------------------------------------

export ZKE_AUTH=bob:secret
file() { $limited "$zke" app.db "$@"; }
file create /t top >/dev/null
file create /t/null --null >/dev/null
file create /t/bytes --base64 AAH/ >/dev/null
file create --acl auth::cdrwa /t/acl x >/dev/null
file create /t/seq >/dev/null
i=0
while [ $i -lt 300 ]; do
  printf 'create -s /t/seq/n-\ndelete /t/seq/n-%010d\n' $i
  i=$((i + 1))
done >steps
file -f steps >/dev/null

nodes() { grep -v -e exported_at; } # all but the moment
over() { "$zke" app.db export /t | $limited "$zke" "$ensemble" import /t; }
back() { z export /t | $limited "$zke" back.db import /t; }
same() {
  "$zke" app.db export /t | nodes >before
  "$@" export /t | nodes >after
  diff before after
}
expect "a file's tree moves to the ensemble" prints "/t: 5 created" over
expect "and is the same there" same z
expect "sequence numbers go on" prints /t/seq/n-0000000300 \
  z create -s /t/seq/n-
expect "the same import again" refused 1 NODEEXISTS over
z delete /t/seq/n-0000000300
z deleteall /t
expect "the tree again" over
expect "and back" prints "/t: 5 created" back
expect "and is the same there, too" same $limited "$zke" back.db
export ZKE_AUTH=eve:guess
expect "an export is whole or fails" refused 77 NOAUTH z export /t
export ZKE_AUTH=bob:secret
expect "--merge" prints "/t: 5 as they were" sh -c \
  "'$zke' app.db export /t | '$zke' '$ensemble' import --merge /t"
expect "--replace" prints "/t: 5 created, 5 deleted" sh -c \
  "'$zke' app.db export /t | '$zke' '$ensemble' import --replace /t"
expect "a whole file and back" sh -c \
  "'$zke' '$ensemble' export | '$zke' whole.db import"
expect "without what the engine has for itself" \
  refused 1 NONODE "$zke" whole.db stat /zke-sessions
expect "which is not exported by its name either" \
  refused 65 reserved z export /zke-sessions
expect "cp" z cp -R /t /copy

# ---- what an ensemble lacks ------------------------------------------------

for words in backup\ f check compact deadlocks doctor dump fence held\ x \
  history init log metrics serve sql\ x waits
do
  # shellcheck disable=SC2086 # words
  expect "${words% *} is refused" refused 77 \
    "ENSEMBLE: ${words% *} is for a database in a file, and $ensemble is" \
    z $words
done
expect "nothing is made of the name" nothing sh -c 'ls | grep zk:'
expect "a malformed name" refused 65 BADARGUMENTS "$zke" zk:// ls
expect "no server" refused 75 OPERATIONTIMEOUT \
  $limited "$zke" --timeout 1s zk://127.0.0.1:1 ls

# ---- the calls of the library ----------------------------------------------

[ -z "$ours" ] || expect "the texts of test/semantics" env -C "$sources" \
  ZKE_TEST_SERVER="$SERVER" ZKE_TEST_KIND=zke $limited "$semantics"
report
