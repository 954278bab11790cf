#!/bin/sh
# zktest.sh ZKE - the tests of ZooKeeper's C client against `zke serve`, and
# then against the installed ZooKeeper
#
# They come from the source package of the installed client, and are linked with
# that client.  Each of their suites is a process with its own server.
. test/foreign/foreign.sh

wants libzookeeper-mt-dev "$(ls /usr/lib/*/libzookeeper_mt.a 2>/dev/null)"
wants libcppunit-dev /usr/include/cppunit/Test.h
wants zookeeper $java/zookeeper.jar
wants default-jre-headless "$JAVA"
wants g++ "$(command -v c++)"
wants dpkg-dev "$(command -v dpkg-source)"
enough
scratch room foreign-zktest
FOREIGN=$here
export FOREIGN

source_of zookeeper "$(version_of libzookeeper-mt-dev)"
client=$source/zookeeper-client/zookeeper-client-c
# Not TestReconfigServer: it changes the members of an ensemble of five.
suites='init close reconfig clientretry operations multi watchers simpleSystem
  readOnly logClientEnv SASLAuth'

# What their configure would have found; the client was built without SASL and
# TLS.
compile() {
  mkdir "$room/object" && : >"$room/object/config.h" && cd "$room/object" &&
    includes="-I. -I$client -I$client/src -I$client/include
      -I/usr/include/zookeeper -I$client/tests" &&
    cc -w -c $includes "$client"/src/hashtable/*.c &&
    for file in "$client"/tests/*.cc; do echo "$file"; done |
    xargs -P 2 -n 1 c++ -w -std=c++11 -c -include time.h $includes \
      -DUSE_STATIC_LIB -DTHREADED -DPOLL_NFDS_TYPE=nfds_t \
      "-DZKSERVER_CMD=\"sh $here/zktest_server.sh\"" &&
    c++ -no-pie -o ../zktest ./*.o $(cat "$client"/tests/wrappers*.opt) \
      -Wl,-Bstatic -lzookeeper_mt -Wl,-Bdynamic -lcppunit -ldl -lpthread &&
    cc -shared -fPIC -o ../port.so "$here/zktest_port.c" -ldl
}

free_port() {
  python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

# suite SIDE NAME: one suite, in its own directory
suite() (
  ROOM=$room/$1.$2
  ZKTEST_PORT=$(free_port)
  ZKTEST_FREE=$(free_port)
  ZKTEST_FREE2=$(free_port)
  [ "$1" = zke ] || ZKE=
  export ROOM ZKE ZKTEST_PORT ZKTEST_FREE ZKTEST_FREE2
  mkdir "$ROOM" && cd "$ROOM" || exit
  LD_PRELOAD=$room/port.so bounded 400 "$room/zktest" "Zookeeper_$2" >out 2>&1
)

# results SIDE: the results of all, as lines "ok NAME" and "bad NAME".  Some of
# the tests print between their name and the result.
results() {
  cat "$room/$1".*/out | tr -d '\0' | awk '
    match($0, /^Zookeeper_[A-Za-z]+::test[A-Za-z0-9]+/) {
      if (name) print "bad", name
      name = substr($0, 1, RLENGTH)
      sub(/Log$/, "", name)
    }
    name && / : elapsed [0-9]+/ {
      print / : OK$/ ? "ok" : "bad", name
      name = ""
    }
    END { if (name) print "bad", name }' >"$room/results"
  sort "$room/results" >"$room/$1"
}

expect 'the tests of the C client can be compiled' compile
[ $failed = 0 ] || report
for side in zke ZooKeeper; do
  for name in $suites; do suite $side "$name" & done
  wait
  results $side
done
judge
