#!/bin/sh
# curator.sh ZKE - the tests of Curator's recipes against `zke serve`, and then
# against the installed ZooKeeper
#
# They come from the source package of the installed Curator, or from the
# unpacked one in the directory CURATOR, and are compiled with the installed
# jars.  Curator's harness starts its servers by one class, which is replaced
# for zke.  ONLY=NAME: the test classes with this in their name.
. test/foreign/foreign.sh

wants zookeeper $java/zookeeper.jar
wants default-jdk-headless "$(command -v javac)"
wants libcurator-recipes-java $java/curator-recipes.jar
wants libcurator-framework-java $java/curator-framework.jar
wants libcurator-client-java $java/curator-client.jar
wants libcurator-test-java $java/curator-test.jar
wants junit5 $java/junit-platform-console.jar
wants libmockito-java $java/mockito-core.jar
wants libassertj-core-java $java/assertj-core.jar
wants libcommons-math-java $java/commons-math.jar
enough
scratch room foreign-curator

if [ -z "$CURATOR" ]; then
  source_of apache-curator "$(version_of libcurator-recipes-java)"
  CURATOR=$source
fi

class_path "zookeeper zookeeper-jute curator-client curator-framework
  curator-recipes curator-test mockito-core byte-buddy byte-buddy-agent objenesis
  assertj-core guava commons-math slf4j-api slf4j-nop netty-all metrics-core
  snappy-java $junit"

# All tests of the recipes, with the files they share with the framework's
# tests, and replacements for a package that Debian does not have.
compile() {
  find "$CURATOR/curator-recipes/src/test/java" -name '*.java' >"$room/files" &&
    javac -nowarn -d "$room/tests" -cp "$classes" -sourcepath \
      "$CURATOR/curator-framework/src/test/java" "@$room/files" \
      "$here/Awaitility.java" &&
    javac -nowarn -d "$room/zke.server" -cp "$classes" \
      "$here/ZooKeeperServerEmbeddedAdapter.java"
}

# one SIDE NAME CLASS: a class's tests, with a JUnit report
one() (
  SERVER=$here/server.sh
  directory=$room/$1.$2
  export SERVER
  mkdir "$directory" && cd "$directory" || exit
  [ "$1" = ZooKeeper ] || classes=$room/zke.server:$classes
  bounded 1500 java -Xmx768m -Djava.io.tmpdir="$directory" \
    -cp "$room/tests:$classes" org.junit.platform.console.ConsoleLauncher \
    --disable-banner --disable-ansi-colors --details=tree --reports-dir . \
    -c "org.apache.curator.framework.recipes.$3" >out 2>&1
)

# results SIDE: the reports as lines "ok NAME" and "bad NAME"
results() {
  python3 - "$room/$1".*/TEST-junit-jupiter.xml <<'END' | sort >"$room/$1"
import re
import sys
import xml.etree.ElementTree as tree
for report in sys.argv[1:]:
    for case in tree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        bad = case.find("failure") is not None or case.find("error") is not None
        print("bad" if bad else "ok", case.get("classname").split(".")[-1] +
              "." + re.sub(r"\W.*", "", case.get("name")))
END
}

# suite SIDE AT_ONCE: all test classes, some at the same time: they mostly wait
suite() {
  running=0
  for class in $names; do
    one "$1" "${class##*.}" "$class" &
    running=$((running + 1))
    [ $((running % $2)) = 0 ] && wait
  done
  wait
  results "$1"
}

expect 'the tests of Curator can be compiled' compile
[ $failed = 0 ] || report
names=$(sed -n 's|.*/recipes/\(.*Test[^/]*\)\.java$|\1|p' "$room/files" |
  tr / . | sort | grep "${ONLY:-.}")
suite zke 4
suite ZooKeeper 4
judge
