#!/bin/bash
# machine.sh - a virtual machine loses its power while processes work in it
#
#   CUTS=20     how often
#   SEED=1      of the numbers of changes after which the cuts come
#
# qemu boots a kernel of Debian's, without KVM, with ext4 on a disk.  A cut is
# SIGKILL for qemu: what that kernel had not yet written is lost.  In the
# machine two processes change a file without pause, and others take a lock and
# release it.  They write all acknowledgements to serial ports, and qemu keeps a
# log of each port.  After the next boot the file must have everything that was
# acknowledged, the lock must be free, and its next token above all others.
# Every third boot begins with a new file, and half of these boots are cut while
# the file is made.  In the last boot syncs do nothing: that must be found.
. test/report.sh
: "${CUTS:=20}" "${SEED:=1}"
RANDOM=$SEED
kept=$BUILD/machine # the packages
modules='virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev'
modules="$modules virtio_pci virtio_blk"
stages=(WORK /count /all MADE) # of making a file, as log 0 has them
PATH=$PATH:/usr/sbin:/sbin     # mkfs.ext4
scratch room machine
directory=$room
. test/servers.sh # $servers: qemu

# unpack PACKAGE: a package of Debian's, without installing it
unpack() {
  (cd "$kept" && apt-get download "$1" && dpkg-deb -x "$1"_*.deb .) ||
    give_up "apt-get did not bring $1"
}

fetch() {
  [ -e "$kept/all" ] && return
  rm -rf "$kept" && mkdir -p "$kept" || exit 1
  unpack busybox-static
  unpack "$(LC_ALL=C apt-cache depends linux-image-cloud-amd64 |
    sed -n 's/.*Depends: \(linux-image-.*\)/\1/p')"
  touch "$kept/all"
}

# The first program of the machine.  It judges the file OLD, which the last cut
# met, and works on NEW; both are boot arguments, and may be empty.
init() {
  cat <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $MODULES; do insmod /$module.ko; done
mount -t ext4 /dev/vda /disk && cd /disk || echo FAULT: no disk
for port in 0 1 2 3; do stty -F /dev/ttyS$port -opost; done
if [ "$OLD" ]; then
  zke "$OLD" create -s /boot- || echo FAULT: the file is not opened
  zke "$OLD" check || echo FAULT: check
  echo "COUNT $(zke "$OLD" get /count)"
  echo "TOKEN $(zke "$OLD" lock take job --for 1m --nonblock)"
  zke "$OLD" lock release job || echo FAULT: the lock is not released
  zke "$OLD" ls /all | sed 's/^/CHILD /'
  echo JUDGED
fi
if [ "$NEW" ]; then
  echo WORK
  export LD_PRELOAD=$PRELOAD
  zke "$NEW" create /count 0 # or it is there
  zke "$NEW" create /all
  zke "$NEW" exists /all && echo MADE
  count=$(zke "$NEW" get /count)
  { seq $((count + 1)) $((count + 100000)) |
      sed 's/.*/set \/count &\nget \/count/' | zke "$NEW" >/dev/ttyS1
    echo FAULT: the changes have ended; } &
  { yes 'create -s /all/n-' | zke "$NEW" >/dev/ttyS2
    echo FAULT: the creations have ended; } &
  while zke "$NEW" lock take job --for 1m && zke "$NEW" lock release job; do
    echo free
  done >/dev/ttyS3
  echo FAULT: the locks have ended
fi
read -r nothing # until the power fails
END
}

# make_machine: its disk, and what it boots
make_machine() {
  local file root=$room/root
  mkdir -p "$root"/{bin,proc,sys,dev,disk}
  init >"$root/init" && chmod +x "$root/init"
  echo 'int fsync(int fd) { return fd < 0; }
    int fdatasync(int fd) { return fd < 0; }' >"$room/nosync.c"
  $CC -shared -fPIC -o "$root/nosync.so" "$room/nosync.c" &&
    cp "$(find "$kept" -path '*bin/busybox')" "$BUILD/zke" "$root/bin" ||
    exit 1
  for file in $(ldd "$BUILD/zke" | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file" || exit 1
  done
  for file in $modules; do
    find "$kept" -name "$file.ko*" -exec cp -t "$root" {} +
    [ ! -e "$root/$file.ko.xz" ] || xz -d "$root/$file.ko.xz" || exit 1
  done
  (cd "$root" && find . | bin/busybox cpio -o -H newc 2>/dev/null) |
    gzip -1 >"$room/initrd"
  truncate -s 256M "$room/disk" && mkfs.ext4 -q -F "$room/disk" || exit 1
}

# boot OLD NEW: starts the machine; its logs begin again
boot() {
  local n ports=()
  rm -f "$room"/log.*
  for n in 0 1 2 3; do ports+=(-serial "file:$room/log.$n"); done
  $tied qemu-system-x86_64 -accel tcg -m 256 -display none -nodefaults \
    -no-reboot -kernel "$kept"/boot/vmlinuz-* -initrd "$room/initrd" -append "$(
      echo console=ttyS0 loglevel=0 panic=-1 OLD="$1" NEW="$2" \
        PRELOAD="$preload" \"MODULES=$modules\")" \
    -drive file="$room/disk",format=raw,if=virtio "${ports[@]}" &
  servers=$!
}

# lines N: a log without its last line, if a cut came within that
lines() { { cat "$room/log.$1" 2>/dev/null; echo; } | sed '$d'; }

# wait_for COUNT N PATTERN: until this many lines of log N match
wait_for() {
  local end=$((SECONDS + 30 * ${CK_TIMEOUT_MULTIPLIER:-5}))
  while ((SECONDS < end)) && kill -0 "$servers" 2>/dev/null; do
    (($(lines "$2" | grep -c -- "$3") >= $1)) && return
    sleep 0.02
  done
  cat "$room"/log.0
  give_up "the machine did not come so far: $*"
}

# cut: kills the machine, and adds log N to all that was acknowledged, acked.N
cut() {
  kill -9 "$servers" || give_up 'the machine ended by itself'
  wait "$servers" 2>/dev/null
  servers=
  for n in 0 1 2 3; do lines $n >>"$room/acked.$n"; done
  [[ $(lines 3 | tail -n 1) = [0-9]* ]] && held=$((held + 1))
  changes=$((changes + $(lines 1 | wc -l) + $(lines 2 | wc -l)))
}

# told WORD: what the machine has said of the old file
told() { lines 0 | sed -n "s/^$1 //p"; }

# The old file has all that was acknowledged:

count_is_kept() {
  local count
  count=$(tail -n 1 "$room/acked.1")
  echo "count $(told COUNT), acknowledged $count"
  [ "$(told COUNT)" -ge "${count:-0}" ]
}

children_are_kept() {
  echo 'lost children:'
  nothing comm -23 <(sed 's,.*/,,' "$room/acked.2" | sort) \
    <(told CHILD | sort)
}

token_is_above() {
  local token
  token=$(sort -n "$room/acked.3" | tail -n 1)
  echo "token $(told TOKEN) after $token"
  [ "$(told TOKEN)" -gt "$((token))" ]
}

survived() {
  ! grep FAULT "$room/log.0" "$room/acked.0" || return
  grep -q MADE "$room/acked.0" || return 0
  count_is_kept && children_are_kept && token_is_above
}

# lost: the last two are; a token may be above all the same
lost() {
  ! lines 0 | grep 'no disk' && ! count_is_kept && ! children_are_kept
}

# judge WHAT COMMAND: of the old file
judge() {
  wait_for 1 0 JUDGED
  expect "$@"
  told TOKEN >>"$room/acked.3"
}

# work_on FILE: the machine judges the old file, and then works on this one
work_on() {
  boot "$old" "$1"
  [ -z "$old" ] || judge "cut $cuts of seed $SEED" survived
  [ "$old" = "$1" ] || rm -f "$room"/acked.*
  old=$1
}

fetch
make_machine
old= preload= held=0 changes=0
for ((cuts = 0; cuts < CUTS; cuts++)); do
  work_on $((cuts / 3)).db
  if ((cuts % 6 == 0)); then
    wait_for 1 0 "^${stages[RANDOM % 4]}"
  else
    wait_for $((RANDOM % 300 + 1)) 2 .
  fi
  cut
done
preload=/nosync.so
work_on unsynced.db
wait_for 50 2 .
wait_for 50 1 .
cut
boot "$old" ''
judge 'the loss is found if syncs do nothing' lost
cut
echo "$changes changes acknowledged; the lock was held at $held cuts"
report
