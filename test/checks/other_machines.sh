#!/bin/sh
# other_machines.sh - the engine on other processors; by `make other-machines`
#
#   MACHINES='armhf s390x'  Debian's names of those below; empty: all
#   SHORT=1                 only a few of the quick tests
#
# mmdebstrap unpacks a machine's libraries into build/machines.  Debian's cross
# compiler makes static programs, which run under qemu-user, or for i386 on this
# processor.  On each machine: everything compiles without a warning; README's
# lock works; the lock of a killed process goes to a waiting one; the quick
# tests and the model find nothing; a database left here by a killed process is
# read and changed there, and the reverse.
#
# qemu-user shows nothing about the order in which processors see each other's
# writes: see "Memory order" in doc/proofs.md.
. test/report.sh

tests='multi process'
[ "$SHORT" ] || tests="$tests path tree acl session watch memory growth
  virtual fork thread lockfree gather"
static='-lsqlite3 -lm -ldl -lpthread'
export TMPDIR="${TMPDIR:-/tmp}"
mkdir -p build/machines && scratch place machines
here=$(pwd)/$BUILD/zke

# choose MACHINE: sets variables for the functions below
choose() {
  machine=$1 emulator=
  case $machine in
    i386) triplet=i686-linux-gnu ;;
    armhf) triplet=arm-linux-gnueabihf emulator=qemu-arm-static ;;
    arm64) triplet=aarch64-linux-gnu emulator=qemu-aarch64-static ;;
    s390x) triplet=s390x-linux-gnu emulator=qemu-s390x-static ;;
  esac
  built=build/$machine
  root=$(pwd)/build/machines/$machine
  compiler="$triplet-gcc --sysroot=$root"
  there="$emulator $(pwd)/$built/zke"
  # test_semantics forks too often for an emulator
  names=$tests
  [ "$emulator" ] || names="$tests semantics"
  beside=$here # what can use a file at the same time
  [ "$machine" != s390x ] || beside=$there
}

# The machine's libraries, from the same Debian as this one.
libraries() {
  [ ! -d "$root" ] || return 0
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" |
    head -n 1)
  rm -rf "$root.new"
  mmdebstrap --quiet --variant=extract --architectures="$machine" --include=\
libc6-dev,libsqlite3-dev,libjansson-dev,check,libsubunit-dev \
    "$suite" "$root.new" "$mirror" && mv "$root.new" "$root"
}

compiles() {
  goals="$built/zke $built/model $built/test/worker"
  for name in $names; do goals="$goals $built/test/test_$name"; done
  $MAKE CC="$compiler" BUILD="$built" WERROR=1 CFLAGS='-O1 -g1' EDIT= \
    LDFLAGS=-static COMMAND_LIBS=-ljansson LIBS="$static" $goals
}

# The second program of README, made of the four files.
readme_lock() (
  mkdir "$place/$machine" && cp zkembed.[ch] "$place/$machine" &&
    sh recipes/amalgamate.sh "$place/$machine/zkembed_recipes" || exit
  awk '/^```c$/ { n++; next } /^```$/ && n == 2 { exit } n == 2' README.md \
    >"$place/$machine/app.c"
  cd "$place/$machine" && $compiler -std=c11 -Wall -Wextra -Werror -static \
    -o app app.c zkembed.c zkembed_recipes.c $static &&
    $emulator ./app | grep '^held, token' && $emulator ./app | grep '^held'
)

quick_tests() {
  programs=
  for name in $names; do programs="$programs $built/test/test_$name"; done
  BUILD=$built RUNNER=$emulator ZKE_TEST_EMULATOR=$emulator JOBS=1 \
    CK_TIMEOUT_MULTIPLIER=20 sh test/run.sh $programs
}

model() { OPS=${OPS:-20000} SEED=${SEED:-1} $emulator "$built/model"; }

# sees ZKE FILE COMMAND TEXT: the command's output soon has the text (a minute)
sees() {
  for try in $(seq 600); do
    $1 "$2" $3 >"$place/seen" 2>/dev/null
    grep -q "$4" "$place/seen" && return
    sleep 0.1
  done
  return 1
}

# begin ZKE FILE: starts a shell of zke, $holder, that runs what is written to 9
begin() {
  rm -f "$place/in" && mkfifo "$place/in" || return
  $1 "$2" <"$place/in" 9>&- &
  holder=$!
  exec 9>"$place/in"
}
kill_holder() {
  kill -9 $holder
  exec 9>&-
  ! wait $holder
}

hand_over() {
  db=$place/$machine-lock.db
  begin "$beside" "$db" && echo 'lock one' >&9
  sees "$there" "$db" locks '^ *holds ' && {
    $there "$db" lock one --wait 60s -- echo handed over 9>&- &
    waiter=$!
    sees "$there" "$db" locks '^ *waits '
  }
  kill_holder && wait $waiter
}

# fill ZKE FILE WORD: nodes of all kinds, by a process that is killed
fill() {
  begin "$1" "$2" && cat >&9 <<END
history on
create -p /$3/large $(printf %0300d 7)
create -s /$3/n- x
create /acl-$3
setacl /acl-$3 world:anyone:r,digest:$3:secret=:cdrwa
create -t 1h /ttl-$3 x
create -p /zookeeper/quota/$3/zookeeper_limits count=5,bytes=-1
queue push jobs of-$3
create -e /ephemeral-$3
lock $3
watch /$3
END
  sees "$1" "$2" dump "^watch .* /$3"
  kill_holder
}

# rows ZKE FILE: everything in it, read without a session
rows() {
  for view in nodes sessions watches events history; do
    $1 "$2" sql "SELECT * FROM zke_$view ORDER BY 1, 2" || return
  done
}

# move A B: only the database and its log can be taken to another machine
move() { cp "$1" "$2" && cp "$1-wal" "$2-wal"; }

# carry FROM TO FILE WORD: FILE, as a process of FROM has left it, looks the
# same to TO, which ends the dead session and changes the file; and back
carry() {
  fill "$1" "$3" "$4" && move "$3" "$3-$4" && move "$3" "$3-from" &&
    rows "$1" "$3-from" >"$3.rows" && grep -q "^/ephemeral-$4 " "$3.rows" &&
    rows "$2" "$3-$4" | cmp - "$3.rows" && $2 "$3-$4" create "/seen-$4" &&
    ! $2 "$3-$4" exists "/ephemeral-$4" && $2 "$3-$4" check &&
    move "$3-$4" "$3-back" && rows "$2" "$3-$4" >"$3.rows" &&
    rows "$1" "$3-back" | cmp - "$3.rows"
}

there_and_back() {
  carry "$here" "$there" "$place/$machine.db" here &&
    carry "$there" "$here" "$place/$machine.db-here" there
}

for one in ${MACHINES:-i386 armhf arm64 s390x}; do
  choose $one
  expect "$one: its libraries" libraries
  expect "$one: compiles" compiles
  expect "$one: README's lock" readme_lock
  expect "$one: a lock after kill -9" hand_over
  expect "$one: the quick tests" quick_tests
  expect "$one: the model" model
  expect "$one: a file goes there and back" there_and_back
done
report
