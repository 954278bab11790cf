#!/bin/sh
# server.sh - become a ZooKeeper server of one kind
#
#   server.sh zke|zookeeper DIRECTORY PORT [NUMBER PEER...]
#
# It listens at the port of 127.0.0.1, keeps its data in the directory, and
# continues with existing data.  Sessions may be short.  `zookeeper` is a server
# of Debian's package, or of the release in ZOOKEEPER_HOME: a standalone one, or
# server NUMBER, from 1 on, of the ensemble of these peers.  A PEER is
# HOST:PORT:PORT, as in ZooKeeper's configuration, followed by :observer if it
# does not vote.  With an observer a single voter is enough.
kind=$1 directory=$2 port=$3 number=$4

if [ "$kind" = zke ]; then
  exec "${BUILD:-build}/zke" "$directory/db" serve --port "$port" \
    --timeout-min 200ms --connections 0
fi

jars=/usr/share/java/zookeeper.jar
[ "$ZOOKEEPER_HOME" ] && jars=$ZOOKEEPER_HOME/lib/*
main=ZooKeeperServerMain
cat >"$directory/zoo.cfg" <<END
tickTime=100
minSessionTimeout=200
maxSessionTimeout=3600000
dataDir=$directory/data
clientPortAddress=127.0.0.1
clientPort=$port
maxClientCnxns=0
admin.enableServer=false
END

if [ "$number" ]; then
  main=quorum.QuorumPeerMain
  mkdir -p "$directory/data"
  echo "$number" >"$directory/data/myid"
  shift 4
  count=0 mine=
  for peer; do
    count=$((count + 1))
    echo "server.$count=$peer" >>"$directory/zoo.cfg"
    [ $count != "$number" ] || mine=$peer
  done
  case $mine in
    *:observer) echo peerType=observer ;;
  esac >>"$directory/zoo.cfg"
  # A leader that cannot be replaced gets more time.
  case $* in
    *:observer*)
      printf 'standaloneEnabled=false\ninitLimit=200\nsyncLimit=200\n' ;;
    *) printf 'initLimit=50\nsyncLimit=20\n' ;;
  esac >>"$directory/zoo.cfg"
fi

exec java -cp "$jars" -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
  -Dfile.encoding=UTF-8 -Dzookeeper.extendedTypesEnabled=true \
  -Dzookeeper.forceSync=no -Dzookeeper.preAllocSize=4096 \
  -Dznode.container.checkIntervalMs=1000 \
  "org.apache.zookeeper.server.$main" "$directory/zoo.cfg"
