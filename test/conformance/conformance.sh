#!/bin/sh
# conformance.sh - start a ZooKeeper server, compare zkembed with it, stop it
#
#   conformance.sh PROGRAM
#
# With ENGINE=zookeeper there are two servers, and zkembed opens the second one
# in place of a file.
#
# PROGRAM is conformance.c's; OPS, SEED, SEEDS, WIRE and ZKE in the environment
# are for it, MASKS only has its table printed.  The server is that of Debian's
# package zookeeper, or what ZOOKEEPER_HOME points to (a release as it is
# unpacked; 3.8.4 or a later one of 3.8, which filter events by READ as Debian's
# 3.8.0 does).  It listens on a free port of 127.0.0.1, keeps its data in a
# directory of its own, and is stopped whatever happens; should this shell be
# killed outright, the kernel stops it.
program=$1

if [ "$MASKS" ]; then exec "$program" --masks; fi

if [ "$ZOOKEEPER_HOME" ]; then
  jars=$ZOOKEEPER_HOME/lib/*
else
  jars=/usr/share/java/zookeeper.jar
fi

# The C client leaks.
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS-}"

# Over the wire every change of zkembed's is synced, which is not what is looked
# at here: its file is in memory.
if [ "$WIRE" ] && [ -d /dev/shm ]; then export TMPDIR=/dev/shm; fi
directory=$(mktemp -d) || exit 2
. test/servers.sh

# start NAME: sessions expire soon once they ask for it, containers are never
# reaped, the disk is not waited for.
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

# What does not answer may only be slow, and must not use what the next one
# uses.
stop() {
  kill -KILL "$server" 2>/dev/null
  wait "$server" 2>/dev/null
  servers=$before
}

# It has written down a session: what answered was not another server, which
# took the port in between.
is_ours() {
  for log in "$data"/version-2/log.*; do [ -e "$log" ] && return; done
}

# Until it answers, for as long as it lives: it dies where the port is taken.
# A busy machine may take minutes to start it.
is_up() {
  for try in $(seq 1200); do
    kill -0 "$server" 2>/dev/null || return 1
    "$program" --is-up "$port" </dev/null && is_ours && return 0
    sleep 0.1
  done
  return 1
}

# start_surely NAME: its port may be taken at the first try.
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

# In the background, so that a signal is heard while it runs.
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
