#!/bin/sh
# coprocess_clients.sh - the clients of doc/coprocess.md do what it says
#
# They are in doc/examples/coprocess, together with the programs used here.
# Each language's files are copied to an empty directory; PATH finds `zke`.
. test/report.sh

examples=doc/examples/coprocess
PATH=$(cd "$BUILD" && pwd):$PATH

short() { [ "$(grep -c . "$1")" -le 30 ]; }

# there PROGRAM: an interpreter; without one a test would test nothing
there() {
  command -v "$1" >/dev/null && return
  echo "Missing.  Type: apt-get install $2"
  return 1
}

# alive PID: this child has not ended; checked after a moment
alive() { sleep 0.01; kill -0 "$1"; }

# Two processes: nobody enters while the other is inside, both have five turns,
# and the tokens grow.
lock_is_handed_over() (
  cd "$room" || exit
  $limited $1 "lock.$2" app.db A >A.out 2>A.err & a=$!
  $limited $1 "lock.$2" app.db B >B.out 2>B.err & b=$!
  wait $a && wait $b || { cat ./*.err; exit 1; }
  cat ./*.err && [ ! -s A.err ] && [ ! -s B.err ] || exit
  cat A.out B.out
  [ "$(grep -c 'has it, token' A.out)" = 5 ] &&
    [ "$(grep -c 'has it, token' B.out)" = 5 ] &&
    [ "$(cat A.out B.out | grep -o 'token .*' | sort -u | wc -l)" = 10 ]
)

# The same with one output: each turn's lines are together.
turns_are_whole() (
  cd "$room" || exit
  : >turns
  $limited $1 "lock.$2" app.db A >>turns & a=$!
  $limited $1 "lock.$2" app.db B >>turns & b=$!
  wait $a && wait $b || exit
  cat turns
  awk '
    NR % 2 { if (!/has it/) exit 1; who = $1; if ($NF + 0 <= last) exit 1
             last = $NF + 0; next }
    !/gives it back/ || $1 != who { exit 1 }
    END { if (NR != 20) exit 1 }' turns
)

watch_sees_it() (
  cd "$room" || exit
  zke app.db create /config one >/dev/null || exit
  $limited $1 "watch.$2" app.db >watched 2>watch.err & w=$!
  # The file exists when the program watches.
  until [ "$(head -n 1 watched)" = watching ]; do alive $w || exit; done
  zke app.db set /config two && zke app.db delete /config || exit
  wait $w || { cat watch.err; exit 1; }
  cat watch.err watched
  [ "$(paste -s -d ' ' watched)" = 'watching changed deleted' ] &&
    [ ! -s watch.err ]
)

queue_is_worked_off() (
  cd "$room" || exit
  $limited $1 "work.$2" app.db >done 2>work.err & w=$!
  $limited $1 "work.$2" app.db one 'two "quoted"' 'thr\ee' enough || exit
  wait $w || { cat work.err; exit 1; }
  cat work.err done
  printf 'done: %s\n' one 'two "quoted"' 'thr\ee' enough | cmp - done &&
    [ "$(zke app.db queue list jobs --plain)" = '' ]
)

# A program is told of a lost lock without asking.  It prints its session's id,
# which is then ended from outside.
loss_py='import sys; from client import Zke
zke = Zke("app.db")
with zke.lock("loss"):
    print(zke.run("session")[0]["session"], flush=True)
    lost = zke.lost.get()["event"]
    print(lost["event"], lost["path"], flush=True)
    import os; os._exit(0)'
loss_js='const zke = new (require("./client.js"))("app.db")
zke.on("lost", ({ event, path }) => { console.log(event, path); process.exit() })
zke.lock("loss", async () => {
  console.log((await zke.run(["session"]))[0].session)
  await new Promise(resolve => setTimeout(resolve, 1e9))
})'

loss_is_told() (
  cd "$room" || exit
  case $2 in py) program=$loss_py ;; js) program=$loss_js ;; esac
  printf '%s\n' "$program" >loss.$2
  $limited "$1" loss.$2 >lost & p=$!
  until read -r session <lost; do alive $p || exit; done
  zke app.db expire "$session" || exit
  wait $p
  cat lost
  [ "$(tail -n 1 lost)" = 'lost /locks/loss' ]
)

# A loop that is left sends a cancel, with a late answer.  This is no loss: up
# to the end, only the end itself is reported as one.
late_py='from client import Zke
zke = Zke("app.db")
for i in range(20):
    for event in zke.stream("watch", "/late"): break
zke.zke.stdin.close()
print(zke.lost.get(), zke.boxes)'

late_is_no_loss() (
  cd "$room" || exit
  printf '%s\n' "$late_py" >late.py
  $limited python3 late.py >late || exit
  cat late
  [ "$(cat late)" = "{'error': 'CLOSED'} {}" ]
)

# The document's first example: lines sent (>) and received (<).  The answers to
# one sent line may come in any order.
figures() { sed -E 's/[0-9]{10,}/N/g; s/0x[0-9a-f]+/S/g' "$1" | sort; }

transcript_is_true() (
  cd "$room" && mkfifo in out && : >got && : >want || exit
  $limited zke app.db --coprocess <in >out &
  exec 8>in 9<out
  while read -r mark line; do
    case $mark in
      '>') printf '%s\n' "$line" >&8 ;;
      '<')
        printf '%s\n' "$line" >>want
        IFS= read -r line <&9 || exit
        printf '%s\n' "$line" >>got ;;
    esac
  done <shown
  exec 8>&-
  wait $! || exit
  figures want >want.sorted
  figures got | diff want.sorted -
)

# A language's name, its program, the program's package, the files' extension.
check() {
  expect "$1: its interpreter is there" there "$2" "$3" || return
  expect "$1: the client has at most 30 lines" short "$examples/client.$4"
  command -v "$2" >/dev/null || return
  scratch room "clients-$4"
  cp "$examples"/*."$4" "$room"
  expect "$1: two processes hand a lock to each other" \
    lock_is_handed_over "$2" "$4"
  expect "$1: never are both inside" turns_are_whole "$2" "$4"
  expect "$1: a watch sees a change and the end" watch_sees_it "$2" "$4"
  expect "$1: a queue is worked off in order" queue_is_worked_off "$2" "$4"
  [ "$4" = sh ] ||
    expect "$1: a lock that is lost is told" loss_is_told "$2" "$4"
  [ "$4" != py ] ||
    expect "$1: a late answer to a cancel is no loss" late_is_no_loss
}

scratch room clients-shown
sed -n 's/^    \([<>] {\)/\1/p' doc/coprocess.md >"$room/shown"
expect 'the document shows ten lines' [ "$(grep -c . "$room/shown")" -ge 10 ]
expect 'they are what is sent and what comes' transcript_is_true
check Python python3 python3 py
check Node node nodejs js
check shell sh dash sh
report
