#!/bin/sh
# conformance.sh - start a ZooKeeper server, compare zkembed with it, stop it
#
#   conformance.sh PROGRAM
#
# With ENGINE=zookeeper there are two servers, and zkembed opens the second one
# instead of a file.
#
# PROGRAM is conformance.c's; it reads OPS, SEED, SEEDS, WIRE and ZKE in the
# environment, and with MASKS only prints its table.  The server is that of
# Debian's package zookeeper, or of the unpacked release in ZOOKEEPER_HOME
# (3.8.4 or a later 3.8, which filter events by READ like Debian's 3.8.0).  It
# listens on a free port of 127.0.0.1, keeps its data in its own directory, and
# is always stopped: if this shell is killed, the kernel stops it.
program=$1

if [ "$MASKS" ]; then exec "$program" --masks; fi

if [ "$ZOOKEEPER_HOME" ]; then
  jars=$ZOOKEEPER_HOME/lib/*
else
  jars=/usr/share/java/zookeeper.jar
fi

# The C client leaks.
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS-}"

# Over the wire every change of zkembed is synced.  This does not test syncs, so
# its file is in memory.
if [ "$WIRE" ] && [ -d /dev/shm ]; then export TMPDIR=/dev/shm; fi
directory=$(mktemp -d) || exit 2
. test/servers.sh

# start NAME: sessions expire soon if they ask for it, containers are never
# reaped, nothing waits for the disk.
start() {
  port=$("$program" --free-port) || exit 2
  data=$directory/$1
  rm -rf "$data"
  mkdir "$data"
  cat >"$data/zoo.cfg" <<END
tickTime=100
minSessionTimeout=200
maxSessionTimeout=3600000
dataDir=$data
clientPortAddress=127.0.0.1
clientPort=$port
maxClientCnxns=0
admin.enableServer=false
END
  set -- -Dfile.encoding=UTF-8 \
    -Dzookeeper.extendedTypesEnabled=true \
    -Dzookeeper.forceSync=no \
    -Dzookeeper.snapCount=100000000 \
    -Dzookeeper.preAllocSize=4096 \
    -Dznode.container.checkIntervalMs=2000000000
  # The digest of super:conformance.
  provider=zookeeper.DigestAuthenticationProvider
  set -- "$@" "-D$provider.superDigest=super:iLSUqf7AtRIvt2vNHu6CiDS0L1A="
  $tied java -cp "$jars" -Xmx1g -XX:+UseSerialGC "$@" \
    org.apache.zookeeper.server.ZooKeeperServerMain "$data/zoo.cfg" \
    >"$data/server.log" 2>&1 </dev/null &
  server=$!
  before=$servers
  servers="$servers $server"
}

# A server that does not answer may only be slow, and must not use the next
# one's files.
stop() {
  kill -KILL "$server" 2>/dev/null
  wait "$server" 2>/dev/null
  servers=$before
}

# It has recorded a session: so it was this server that answered, and not
# another that took the port.
is_ours() {
  for log in "$data"/version-2/log.*; do [ -e "$log" ] && return; done
}

# Wait until it answers, as long as it lives: it exits if the port is taken.  On
# a busy machine the start may take minutes.
is_up() {
  for try in $(seq 1200); do
    kill -0 "$server" 2>/dev/null || return 1
    "$program" --is-up "$port" </dev/null && is_ours && return 0
    sleep 0.1
  done
  return 1
}

# start_surely NAME: retry if its port is taken.
start_surely() {
  start "$1"
  is_up && return
  stop
  start "$1"
  is_up && return
  echo "conformance.sh: the server does not start:" >&2
  tail -n 20 "$data/server.log" >&2
  exit 2
}

case "$ENGINE" in
"") ;;
zookeeper)
  start_surely second
  export ENSEMBLE="$port"
  ;;
*)
  echo "conformance.sh: ENGINE=$ENGINE is not known" >&2
  exit 2
  ;;
esac
start_surely first

# In the background, so that this shell handles signals meanwhile.
$tied "$program" "$port" "$directory" </dev/null &
driver=$!
wait "$driver"
status=$?
driver=
if [ $status -gt 1 ]; then
  seed=$(cat "$directory/seed")
  echo "conformance.sh: exit status $status in seed $seed" >&2
fi
exit $status
