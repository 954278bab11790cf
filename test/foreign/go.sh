#!/bin/sh
# go.sh ZKE - the tests of go-zookeeper against `zke serve`, and then against
# the installed ZooKeeper
#
# They start one or three servers by "java -jar JAR server CONFIGURATION".  A
# program of that name is put before the real one.  Each test is a separate
# process: some of this package's end by a panic.
. test/foreign/foreign.sh

package=/usr/share/gocode/src/github.com/samuel/go-zookeeper/zk
wants golang-go "$(command -v go)"
wants golang-github-samuel-go-zookeeper-dev $package/zk_test.go
wants zookeeper $java/zookeeper.jar
wants default-jre-headless "$JAVA"
enough
scratch room foreign-go

mkdir "$room/bin"
cat >"$room/bin/java" <<END
#!/bin/sh
exec sh $here/server.sh "\$4"
END
chmod +x "$room/bin/java"

# The package waits for its servers by parsing all of "srvr", in the form of
# ZooKeeper 3.4.  No server of 3.8 prints that: its average has a fraction.
compile() {
  mkdir "$room/zk" && cp $package/*.go "$room/zk" && cd "$room/zk" &&
    sed -i 's/FLWSrvr(serverAddrs/foreignUp(serverAddrs/' server_help.go &&
    cp "$here/go_up.txt" go_up.go &&
    GO111MODULE=off GOCACHE=$room/cache GOFLAGS='' go test -c -o ../zk.test
}

# one SIDE TEST: its output is kept, its result is a line "ok NAME" or "bad NAME"
one() (
  TMPDIR=$room/$1.$2
  PATH=$room/bin:$PATH
  [ "$1" = zke ] || ZKE=
  export ZKE PATH TMPDIR
  mkdir "$TMPDIR" && cd "$room/zk" || exit
  word=bad
  bounded 120 "$room/zk.test" -test.v -test.run "^$2\$" >"$TMPDIR/out" 2>&1 &&
    word=ok
  echo "$word $2" >>"$room/$1"
)

# suite SIDE AT_ONCE: all tests, some at the same time; they mostly wait
suite() {
  for name in $("$room/zk.test" -test.list .); do
    one "$1" "$name" &
    running=$((running + 1))
    [ $((running % $2)) = 0 ] && wait
  done
  wait
  sort -o "$room/$1" "$room/$1"
}

expect 'the tests of go-zookeeper can be compiled' compile
[ $failed = 0 ] || report
running=0
suite zke 8
suite ZooKeeper 1
judge
