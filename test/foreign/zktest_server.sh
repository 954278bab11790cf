#!/bin/sh
# zktest_server.sh COMMAND - the script that starts and stops the server of the
# C client's tests: start, startClean, startCleanReadOnly, startRequireSASLAuth
# or stop
#
# ROOM is the directory of one server, at ZKTEST_PORT.
cd "$ROOM" || exit
export ZKE JAVA

stop() {
  [ -e pid ] || return 0
  kill -KILL "$(cat pid)"
  while [ -e "/proc/$(cat pid)/exe" ]; do sleep 0.02; done
  rm -f pid
}

# The same values as in the tests' own configuration.
configure() {
  mkdir -p data
  cat >zoo.cfg <<END
tickTime=500
initLimit=10
syncLimit=5
dataDir=$ROOM/data
maxClientCnxns=${ZKMAXCNXNS:-100}
localSessionsEnabled=true
clientPort=$ZKTEST_PORT
END
}

# One server of three has no majority: it is read-only.  The others' ports are
# unused.
of_three() {
  printf 'server.%d=127.0.0.1:%d:%d\n' 1 "$ZKTEST_FREE" "$ZKTEST_FREE2" \
    2 3 4 3 5 6 >>zoo.cfg
  echo 1 >data/myid
}

# is_up: the server answers, and is not still starting.  It is asked from
# another address than that of the tests, since one of them allows only one
# connection.
is_up() {
  python3 - "$ZKTEST_PORT" <<'END'
import socket
import sys
server = ("127.0.0.1", int(sys.argv[1]))
with socket.create_connection(server, source_address=("127.0.0.2", 0)) as s:
    s.sendall(b"srvr")
    sys.exit(b"Mode:" not in b"".join(iter(lambda: s.recv(4096), b"")))
END
}

# begin PROPERTY...: starts it, and waits for its first answer
begin() {
  set -- -Dzookeeper.extendedTypesEnabled=true \
    -Dznode.container.checkIntervalMs=100 "$@"
  sh "$FOREIGN/server.sh" zoo.cfg "$@" >>log 2>&1 </dev/null &
  echo $! >pid
  for try in $(seq 600); do
    is_up 2>/dev/null && return
    kill -0 "$(cat pid)" 2>/dev/null || break
    sleep 0.1
  done
  echo "zktest_server.sh: no server" >&2
  exit 1
}

stop
case $1 in
  stop) exit 0 ;;
  *Clean*) rm -rf data app.db* ;;
esac
configure
case $1 in
  start | startClean) begin ;;
  startCleanReadOnly)
    of_three
    begin -Dreadonlymode.enabled=true
    ;;
  startRequireSASLAuth)
    provider=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
    begin -Dzookeeper.sessionRequireClientSASLAuth=true \
      -Dzookeeper.authProvider.1=$provider
    ;;
esac
