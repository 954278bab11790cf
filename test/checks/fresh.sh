#!/bin/sh
# fresh.sh - README's commands on a Debian that has never seen zkembed
#
#   SUITES="trixie bookworm"  the releases of Debian
#   SHORT=1                   only the first of them that the machine's package
#                             sources have, and only what takes a minute
#
# In copies of a bare root of each release (roots.sh) the last commit is built
# and tested:
#
#   - for a user without root and sudo, make says what to type, and begins
#     nothing;
#   - root runs `make demo` while another program holds the package manager's
#     locks, then installs the libraries and runs README's first program;
#   - root runs `make test` as the very first command;
#   - a user runs both commands in the tarball of `make dist`.
. test/report.sh
. test/checks/roots.sh

jobs=${JOBS:-$(nproc)}

# unpack SUITE: a copy of the bare root, in which root has a checkout, and the
# user the contents of the tarball
unpack() {
  copy "$1" && sh test/dist.sh zkembed "$work/zkembed.tar.gz" &&
    tar -xzf "$work/zkembed.tar.gz" -C "$root/home/somebody" &&
    chown -R 1000:1000 "$root/home/somebody" || return
  if [ -e .git ]; then
    git clone -q . "$root/root/zkembed"
  else
    cp -r "$root/home/somebody/zkembed" "$root/root"
  fi
}

# refused TARGET WORDS: run by the user, make prints these words, and makes
# nothing
refused() {
  ! inside 1000 "make -j8 $1" >"$work/refused" 2>&1 &&
    grep -q "$2" "$work/refused" &&
    grep -q "sudo sh -c 'apt-get update && apt-get install.*libsqlite3-dev" \
      "$work/refused" &&
    [ ! -e "$root/home/somebody/zkembed/build" ] ||
    { cat "$work/refused"; return 1; }
}

# waits: root's `make demo` waits for a program that holds first one lock of the
# package manager, then another, and says so each time
waits() {
  inside 0 'perl -MFcntl -e "
    my \$whole = pack(q(s s l! l! i), F_WRLCK, 0, 0, 0, 0);
    my @held = map {
      open(my \$file, q(>), qq(/var/lib/\$_)) or die;
      fcntl(\$file, F_SETLK, \$whole) or die;
      \$file;
    } qw(dpkg/lock-frontend apt/lists/lock);
    my \$make = fork();
    exec(q(make -j8 demo >/tmp/demo.log 2>&1)) unless \$make;
    while (@held) {
      sleep(1);
      my \$said = () = qx(cat /tmp/demo.log) =~ /^Waiting for another/gm;
      shift(@held) if \$said > 2 - @held;
      die(qq(it did not wait\n)) if waitpid(\$make, 1) > 0;
    }
    waitpid(\$make, 0);
    exit(\$? >> 8);
  "' && grep 'all is well' "$root/tmp/demo.log" && return
  tail -n 60 "$root/tmp/demo.log"
  return 1
}

# installed: the first program of README runs with the installed library
installed() {
  readme_program 1 >"$root/root/zkembed/app.c"
  inside 0 "make -j$jobs -s COMMAND= install && cd /tmp &&
    cc -o app \$HOME/zkembed/app.c -lzkembed && ./app" | grep leading
}

# whole USER TARGET: make succeeds; its last lines are shown
whole() {
  inside "$1" "make $2" >"$log" 2>&1
  status=$?
  grep -a '^---- \|^[0-9]* passed' "$log"
  [ $status = 0 ] || { tail -n 300 "$log"; return 1; }
}

for suite in ${SUITES:-trixie bookworm}; do
  made_bare $suite || continue
  unpack $suite || exit 1
  says 'a user is told what make demo needs' refused demo libsqlite3-dev
  says 'a user is told what make test needs' refused test libjansson-dev
  says 'a user is told how make goes without jansson' refused '' COMMAND=
  says 'make demo waits for the package manager, and works' waits
  says 'make install, and a program with it' installed
  [ "$SHORT" ] && break
  unpack $suite || exit 1
  log=$place/$suite-first.log
  says "make test is the first command ($log)" whole 0 test
  log=$place/$suite-tarball.log
  says "make demo from the tarball, as a user ($log)" whole 1000 demo
  says "make test from the tarball, as a user ($log)" whole 1000 test
done
[ $((passed + failed)) -gt 0 ] || expect 'one of these releases is there' false
report
