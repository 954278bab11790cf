#!/bin/sh
# fresh.sh - README's commands on a Debian that has never seen zkembed
#
#   SUITES="trixie bookworm"  the releases of Debian
#   SHORT=1                   the first of them that the machine's package
#                             sources have, and only what takes a minute
#
# For each release mmdebstrap makes a bare root: gcc, make and git, and none of
# the packages that zkembed needs.  It is kept as build/fresh/SUITE.tar.  In
# copies of it the last commit is built and tested:
#
#   - a user without root and sudo is told what to type, and nothing is begun;
#   - root runs `make demo` while another program holds the package manager's
#     locks, then installs the libraries and runs README's first program;
#   - root runs `make test` as the very first command;
#   - a user runs both commands in the tarball of `make dist`.
#
# It needs root, or sudo without a password.  The package sources and how they
# are reached are the machine's own.
. test/report.sh

if [ "$(id -u)" != 0 ]; then
  exec sudo -n "SUITES=$SUITES" "SHORT=$SHORT" "JOBS=$JOBS" sh "$0"
fi

place=$(pwd)/build/fresh
jobs=${JOBS:-$(nproc)}
mkdir -p "$place" || exit 1
work=$(mktemp -d "$place/work-XXXXXX") || exit 1
root=$work/root
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' HUP INT TERM
unset MAKEFLAGS MFLAGS MAKELEVEL BUILD SAN CC LIBS SQLITE_CFLAGS

# mirror_of SUITE: the machine's package source that has this release
mirror_of() {
  for uri in $(apt-get indextargets --format '$(REPO_URI)' \
    'Created-By: Packages' | sort -u); do
    /usr/lib/apt/apt-helper download-file "${uri%/}/dists/$1/InRelease" \
      "$work/InRelease" >/dev/null 2>&1 && echo "$uri" && return
  done
  return 1
}

# bare SUITE MIRROR: makes the root's tarball, if it is not there
bare() {
  [ -s "$place/$1.tar" ] && return
  apt-config dump | grep '^Acquire::\(Check\|http\|https\|Retries\)' \
    >"$work/apt.conf"
  mmdebstrap --variant=minbase --aptopt="$work/apt.conf" \
    --include=gcc,libc6-dev,make,git,ca-certificates \
    "$1" "$work/root.tar" "$2" && mv "$work/root.tar" "$place/$1.tar"
}

# unpack SUITE: an empty root, with a user; root has a checkout, the user what
# the tarball has
unpack() {
  rm -rf --one-file-system "$root" && mkdir "$root" &&
    tar -xf "$place/$1.tar" -C "$root" &&
    cp /etc/resolv.conf /etc/hosts "$root/etc" &&
    echo 'somebody:x:1000:1000::/home/somebody:/bin/sh' >>"$root/etc/passwd" &&
    mkdir "$root/home/somebody" &&
    sh test/dist.sh zkembed "$work/zkembed.tar.gz" &&
    tar -xzf "$work/zkembed.tar.gz" -C "$root/home/somebody" &&
    chown -R 1000:1000 "$root/home/somebody" || return
  if [ -e .git ]; then
    git clone -q . "$root/root/zkembed"
  else
    cp -r "$root/home/somebody/zkembed" "$root/root"
  fi
}

# inside USER COMMAND: runs it in zkembed's directory of this user, with devices
# and processes as a machine has them
inside() {
  home=/root
  [ "$1" = 0 ] || home=/home/somebody
  unshare --mount --pid --ipc --fork --kill-child sh -c '
    mount -t proc none "$1/proc" && mount -t tmpfs -o mode=755 none "$1/dev" &&
      cd "$1/dev" || exit
    for device in null zero full random urandom tty; do
      : >$device && mount --bind /dev/$device $device || exit
    done
    mkdir pts shm && ln -s /proc/self/fd fd && ln -s pts/ptmx ptmx &&
      mount -t devpts -o newinstance,ptmxmode=666 none pts &&
      mount -t tmpfs -o mode=1777 none shm &&
      exec chroot --userspec="$2:$2" "$1" /usr/bin/env -i -C "$3" HOME="$3" \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        ${http_proxy:+http_proxy="$http_proxy"} \
        ${https_proxy:+https_proxy="$https_proxy"} \
        sh -c "cd zkembed || exit; $4"
  ' - "$root" "$1" "$home" "$2" </dev/null
}

# refused TARGET WORDS: for the user, make says these words, and makes nothing
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

# whole USER TARGET: make ends well; its last lines are shown
whole() {
  inside "$1" "make $2" >"$log" 2>&1
  status=$?
  grep -a '^---- \|^[0-9]* passed' "$log"
  [ $status = 0 ] || { tail -n 300 "$log"; return 1; }
}

# says WHAT COMMAND...: expect, and a line before it
says() {
  echo "$suite: $1"
  expect "$suite: $@"
}

for suite in ${SUITES:-trixie bookworm}; do
  mirror=$(mirror_of $suite) || {
    echo "$suite: left out, since no package source of this machine has it"
    continue
  }
  says 'a bare root' bare $suite "$mirror"
  [ -s "$place/$suite.tar" ] || continue
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
