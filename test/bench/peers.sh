#!/bin/sh
# peers.sh - run the benchmark with the installed servers
#
#   peers.sh PROGRAM [ARGUMENT...]
#
# Each server gets free ports of 127.0.0.1 and its own directory next to
# PROGRAM, where zkembed's databases are, too.  The servers are always stopped,
# and the directory is removed; if this shell is killed, the kernel stops them.
# They have their default configuration, except for addresses, ZooKeeper's limit
# of 60 connections a host, and its administration page.  A server that is not
# installed is left out, which PROGRAM reports.
program=$1
directory=$(mktemp -d "$(dirname "$program")/peers-XXXXXX") || exit 2
. test/servers.sh

# serve NAME COMMAND...: in the background, its output in NAME.log
serve() {
  log=$directory/$1.log
  shift
  $tied "$@" >"$log" 2>&1 </dev/null &
  server=$!
  servers="$servers $server"
}

# is_ours PORT: the last server listens there, and not another one that took the
# port
is_ours() {
  for inode in $(awk -v port="$(printf ':%04X$' "$1")" \
    '$4 == "0A" && $2 ~ port { print $10 }' /proc/net/tcp* 2>/dev/null); do
    ls -l "/proc/$server/fd" 2>/dev/null | grep -q "socket:\[$inode\]" &&
      return
  done
  return 1
}

# answers PORT: the last server listens there, within two minutes; it exits if
# the port is taken
answers() {
  for try in $(seq 1200); do
    kill -0 "$server" 2>/dev/null || break
    "$program" --answers "$1" && is_ours "$1" && return
    sleep 0.1
  done
  echo "peers.sh: it does not start; $log:" >&2
  tail -n 5 "$log" >&2
  return 1
}

start_zookeeper() {
  port=$("$program" --free-port)
  mkdir "$directory/zookeeper"
  cat >"$directory/zoo.cfg" <<END
tickTime=2000
initLimit=10
syncLimit=5
dataDir=$directory/zookeeper
clientPortAddress=127.0.0.1
clientPort=$port
maxClientCnxns=0
admin.enableServer=false
END
  serve zookeeper java -cp "$jars" -Xmx1000m \
    org.apache.zookeeper.server.ZooKeeperServerMain "$directory/zoo.cfg"
  answers "$port" || return
  export BENCH_ZOOKEEPER="127.0.0.1:$port"
  BENCH_ZOOKEEPER_VERSION=$(java -cp "$jars" \
    org.apache.zookeeper.version.VersionInfoMain 2>/dev/null |
    sed -n 's/.*version \([^ ]*\).*/\1/p')
  export BENCH_ZOOKEEPER_VERSION
}

# The file is in the directory of the other databases.
start_served() {
  port=$("$program" --free-port)
  serve served "$BENCH_ZKE" "$BENCH_DIR/served.db" serve --port "$port" \
    --connections 0
  answers "$port" || return
  export BENCH_SERVED="127.0.0.1:$port"
}

start_etcd() {
  port=$("$program" --free-port)
  peer=$("$program" --free-port)
  serve etcd etcd --data-dir "$directory/etcd" \
    --listen-client-urls "http://127.0.0.1:$port" \
    --advertise-client-urls "http://127.0.0.1:$port" \
    --listen-peer-urls "http://127.0.0.1:$peer" \
    --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
    --initial-cluster "default=http://127.0.0.1:$peer"
  answers "$port" || return
  export BENCH_ETCD="$port"
  BENCH_ETCD_VERSION=$(etcd --version | sed -n 's/^etcd Version: //p')
  export BENCH_ETCD_VERSION
}

start_redis() {
  port=$("$program" --free-port)
  mkdir "$directory/redis"
  serve redis redis-server --port "$port" --bind 127.0.0.1 \
    --dir "$directory/redis"
  answers "$port" || return
  export BENCH_REDIS="$port"
  BENCH_REDIS_VERSION=$(redis-server --version | sed 's/.* v=\([^ ]*\).*/\1/')
  export BENCH_REDIS_VERSION
}

if [ "$ZOOKEEPER_HOME" ]; then
  jars=$ZOOKEEPER_HOME/lib/*
else
  jars=/usr/share/java/zookeeper.jar
fi
if command -v java >/dev/null && [ -e "${ZOOKEEPER_HOME:-$jars}" ]; then
  start_zookeeper
fi
if command -v etcd >/dev/null; then start_etcd; fi
if command -v redis-server >/dev/null; then start_redis; fi

here=$(dirname "$program")
export BENCH_DIR="${BENCH_DIR:-$directory}"
export BENCH_ZKE="${BENCH_ZKE:-$here/zke}"
export BENCH_LIBRARY="${BENCH_LIBRARY:-$here/libzkembed.so}"
start_served

# In the background, so that this shell handles signals meanwhile.
$tied "$@" </dev/null &
driver=$!
wait "$driver"
status=$?
driver=
exit $status
