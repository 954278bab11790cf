#!/bin/sh
# examples.sh ZKE - the tests of doc/examples/faults in Java, with JUnit and
# Curator, and in Go compile and pass
. test/foreign/foreign.sh

wants default-jdk-headless "$(command -v javac)"
wants libzookeeper-java $java/zookeeper.jar
wants libcurator-recipes-java $java/curator-recipes.jar
wants libcurator-framework-java $java/curator-framework.jar
wants libcurator-client-java $java/curator-client.jar
wants junit5 $java/junit-platform-console.jar
wants golang-go "$(command -v go)"
wants golang-github-samuel-go-zookeeper-dev \
  /usr/share/gocode/src/github.com/samuel/go-zookeeper/zk/conn.go
enough
scratch room foreign-examples

mkdir "$room/bin" && ln -s "$ZKE" "$room/bin/zke"
PATH=$room/bin:$PATH
export PATH

examples=$PWD/doc/examples/faults

class_path "zookeeper zookeeper-jute curator-client curator-framework
  curator-recipes guava slf4j-api slf4j-nop metrics-core snappy-java $junit"

in_java() {
  cd "$room" && javac -d classes -cp "$classes" "$examples/RecipesTest.java" &&
    bounded 120 java -Xmx512m -Djava.io.tmpdir="$room" \
      -cp "$room/classes:$classes" org.junit.platform.console.ConsoleLauncher \
      --disable-banner --disable-ansi-colors --fail-if-no-tests -c RecipesTest
}

in_go() {
  mkdir "$room/go" && cp "$examples/recipes_test.go" "$room/go" &&
    cd "$room/go" &&
    GO111MODULE=off GOPATH=/usr/share/gocode GOFLAGS='' \
      GOCACHE=${GOCACHE:-$room/cache} bounded 120 go test -v -count=1 .
}

expect 'the tests in Java pass' in_java
expect 'the tests in Go pass' in_go
report
