#!/bin/sh
# server.sh CONFIGURATION [PROPERTY...] - become the server of one of
# ZooKeeper's configuration files
#
# If ZKE names the command it is `zke serve`, which prints the port when it is
# ready, with those system properties that it has an option for; otherwise the
# installed ZooKeeper, run by JAVA with all of them.  The servers of one
# ensemble are servers of one file: zke.file in the configuration, or else one
# next to their data directories.
configuration=$1
shift

# value NAME DEFAULT: the configuration's value
value() {
  said=$(sed -n "s/^$1=//p" "$configuration" | tail -n 1)
  echo "${said:-$2}"
}

data=$(value dataDir)
if [ -z "$ZKE" ]; then
  exec "$JAVA" -cp /etc/zookeeper/conf:/usr/share/java/zookeeper.jar \
    -Xmx512m -XX:+UseSerialGC -Dzookeeper.admin.enableServer=false "$@" \
    org.apache.zookeeper.server.quorum.QuorumPeerMain "$configuration"
fi

file=$data/app.db
container=60000
sasl=
for property; do
  case $property in
    -Dznode.container.checkIntervalMs=*) container=${property#*=} ;;
    -Dzookeeper.sessionRequireClientSASLAuth=true) sasl=yes ;;
  esac
done
set --
if [ "$sasl" ]; then
  (umask 077 && echo ann:secret >"$data/users")
  set -- --require-sasl --users "$data/users"
fi
if grep -q '^server\.' "$configuration"; then file=$(dirname "$data")/app.db; fi
tick=$(value tickTime 3000)
exec "$ZKE" "$(value zke.file "$file")" serve --print-port \
  --port "$(value clientPort 2181)" \
  --connections "$(value maxClientCnxns 60)" --container-ms "$container" \
  --timeout-min "$(value minSessionTimeout $((2 * tick)))ms" \
  --timeout-max "$(value maxSessionTimeout $((20 * tick)))ms" "$@"
