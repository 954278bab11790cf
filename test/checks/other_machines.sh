#!/bin/sh
# other_machines.sh - the engine on other processors; by `make other-machines`
#
#   MACHINES='armhf s390x'  of Debian's names below; empty: all
#   SHORT=1                 of the quick tests only a few
#
# mmdebstrap unpacks a machine's libraries into build/machines.  Debian's cross
# compiler makes static programs, which qemu-user runs, or for i386 this
# processor.  On each machine: all compiles without a warning; README's lock
# works; a killed process's lock goes to one that waits; the quick tests and the
# model find nothing; a database that a killed process has left here is read and
# changed there, and the other way.
#
# qemu-user shows nothing of the order in which processors see each other's
# writes: doc/proofs.md has that under "Memory order".
. test/report.sh

tests='multi process'
[ "$SHORT" ] || tests="$tests path tree acl session watch memory growth
  virtual fork thread lockfree gather"
static='-lsqlite3 -lm -ldl -lpthread'
export TMPDIR="${TMPDIR:-/tmp}"
mkdir -p build/machines && scratch place machines
here=$(pwd)/$BUILD/zke

# choose MACHINE: sets what the functions below take for it
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

# The machine's libraries, of the Debian that this is.
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

# sees ZKE FILE COMMAND TEXT: the command's output has the text, within a minute
sees() {
  for try in $(seq 600); do
    $1 "$2" $3 >"$place/seen" 2>/dev/null
    grep -q "$4" "$place/seen" && return
    sleep 0.1
  done
  return 1
}

# begin ZKE FILE: a shell of zke, $holder, that does what is written to 9
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

# rows ZKE FILE: all that is in it, looked at without a session
rows() {
  for view in nodes sessions watches events history; do
    $1 "$2" sql "SELECT * FROM zke_$view ORDER BY 1, 2" || return
  done
}

# move A B: only the database and its log may be taken to another machine
move() { cp "$1" "$2" && cp "$1-wal" "$2-wal"; }

# carry FROM TO FILE WORD: FILE, as a process of FROM has left it, says the same
# to TO, which ends the dead session and changes the file, and back
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
