# roots.sh - bare Debians, for scripts that test in them: sourced, after
# report.sh
#
# For each release mmdebstrap makes a bare root: gcc, make and git, and none of
# the packages that zkembed needs.  It is kept as build/roots/SUITE.tar.  A
# script works in $root, a copy of it.
#
# It needs root, or sudo without a password.  It uses the machine's own package
# sources and access to them.

if [ "$(id -u)" != 0 ]; then
  exec sudo -n "SUITES=$SUITES" "SHORT=$SHORT" "JOBS=$JOBS" \
    "DEBFULLNAME=$DEBFULLNAME" "DEBEMAIL=$DEBEMAIL" sh "$0" "$@"
fi

place=$(pwd)/build/roots
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

# bare SUITE MIRROR: makes the root's tarball, unless it exists
bare() {
  [ -s "$place/$1.tar" ] && return
  apt-config dump | grep '^Acquire::\(Check\|http\|https\|Retries\)' \
    >"$work/apt.conf"
  mmdebstrap --variant=minbase --aptopt="$work/apt.conf" \
    --include=gcc,libc6-dev,make,git,ca-certificates \
    "$1" "$work/root.tar" "$2" && mv "$work/root.tar" "$place/$1.tar"
}

# says WHAT COMMAND...: prints a line, then expect
says() {
  echo "$suite: $1"
  expect "$suite: $@"
}

# made_bare SUITE: its bare root exists, or is made
made_bare() {
  mirror=$(mirror_of $1) || {
    echo "$1: left out, since no package source of this machine has it"
    return 1
  }
  says 'a bare root' bare $1 "$mirror"
  [ -s "$place/$1.tar" ]
}

# copy SUITE: makes $root, a copy of its bare root, with a user
copy() {
  rm -rf --one-file-system "$root" && mkdir "$root" &&
    tar -xf "$place/$1.tar" -C "$root" &&
    cp /etc/resolv.conf /etc/hosts "$root/etc" &&
    echo 'somebody:x:1000:1000::/home/somebody:/bin/sh' >>"$root/etc/passwd" &&
    mkdir "$root/home/somebody"
}

# inside USER COMMAND: runs it in this user's directory of zkembed, with devices
# and processes as on a real machine
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
