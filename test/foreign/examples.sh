#!/bin/sh
# examples.sh ZKE - the complete tests in doc/testing-recipes.md, in Java with
# JUnit and Curator and in Go, are compiled and pass
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

# extract NAME: the block of the document that has this name
extract() {
  awk -v name="$1" '/^```/ { out = 0 } out { print } $2 == name { out = 1 }' \
    doc/testing-recipes.md >"$room/$1" && [ -s "$room/$1" ]
}

class_path "zookeeper zookeeper-jute curator-client curator-framework
  curator-recipes guava slf4j-api slf4j-nop metrics-core snappy-java $junit"

in_java() {
  extract RecipesTest.java && cd "$room" &&
    javac -d classes -cp "$classes" RecipesTest.java &&
    bounded 120 java -Xmx512m -Djava.io.tmpdir="$room" \
      -cp "$room/classes:$classes" org.junit.platform.console.ConsoleLauncher \
      --disable-banner --disable-ansi-colors --fail-if-no-tests -c RecipesTest
}

in_go() {
  mkdir "$room/go" && extract recipes_test.go &&
    mv "$room/recipes_test.go" "$room/go" && cd "$room/go" &&
    GO111MODULE=off GOPATH=/usr/share/gocode GOFLAGS='' \
      GOCACHE=${GOCACHE:-$room/cache} bounded 120 go test -v -count=1 .
}

expect 'the tests in Java pass' in_java
expect 'the tests in Go pass' in_go
report
