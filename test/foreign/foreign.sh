# foreign.sh - shared by the scripts that run other projects' tests: sourced
#
# A script runs one suite twice: on `zke serve`, and on the installed ZooKeeper.
# It turns the suite's output into lines "ok NAME" and "bad NAME", in $room/zke
# and $room/ZooKeeper, and leaves the verdict to judge().
. test/report.sh

ZKE=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
here=$PWD/test/foreign
java=/usr/share/java
JAVA=$(command -v java)
export ZKE JAVA

# wants PACKAGE FILE: ends the script if the file is missing, and names its
# Debian package.  Call it for each file, then enough().
missing=
wants() {
  [ -e "$2" ] || missing="$missing $1"
}

enough() {
  [ -z "$missing" ] && return
  echo "$(basename "$0" .sh): missing.  Type: apt-get install$missing"
  exit 1
}

# The jars for JUnit's console; and class_path NAMES: sets $classes.
junit='junit-jupiter-api junit-jupiter-params junit-jupiter-engine
  junit-platform-commons junit-platform-engine junit-platform-launcher
  junit-platform-console junit-platform-reporting opentest4j
  opentest4j-reporting-events opentest4j-reporting-schema picocli
  univocity-parsers apiguardian-api'
class_path() {
  classes=
  for jar in $1; do classes=$classes${classes:+:}$java/$jar.jar; done
}

# fetch_source PACKAGE VERSION: unpacks the source of a Debian package into
# $room/source/PACKAGE-...  It is found by the machine's own list of package
# sources.  Their indexes are fetched into the room; the machine's are not
# changed.
fetch_source() (
  mkdir -p "$room/source" "$room/apt/parts" "$room/apt/lists/partial" \
    "$room/apt/cache/archives/partial" && cd "$room/source" || exit
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list \
    /etc/apt/sources.list.d/*.sources; do
    [ -e "$file" ] || continue
    sed -E 's/^(Types:.*)\<deb\>/\1deb-src/; s/^deb /deb-src /' "$file" \
      >"$room/apt/parts/$(basename "$file")"
  done
  own="-o Dir::Etc::sourcelist=/dev/null -o APT::Sandbox::User="
  own="$own -o Dir::Etc::sourceparts=$room/apt/parts"
  own="$own -o Dir::State::lists=$room/apt/lists -o Dir::Cache=$room/apt/cache"
  apt-get $own -q update && apt-get $own -q source "$1=$2"
)

# source_of PACKAGE VERSION: fetches it, and sets $source to its directory; ends
# the script if there is none.
source_of() {
  if fetch_source "$1" "$2" >"$room/apt.log" 2>&1; then
    source=$(echo "$room/source/$1"-*/)
    return
  fi
  echo "$(basename "$0" .sh): no source of the package $1, $2:"
  grep '^[EW]:' "$room/apt.log"
  exit 1
}

# version_of PACKAGE: the version of the package's source
version_of() {
  dpkg-query -W -f '${source:Version}' "$1"
}

# bounded SECONDS COMMAND...: runs a suite, and then kills the servers it has
# left: timeout puts all into a process group.  While it runs a file is named by
# the group's number.
bounded() {
  timeout -k 10 "$@" &
  group=$!
  mkdir -p "$room/groups" && : >"$room/groups/$group"
  wait $group
  status=$?
  kill -s KILL -- -$group 2>/dev/null
  rm -f "$room/groups/$group"
  return $status
}

# A signal that stops the script stops these, too.
stop_groups() {
  trap - HUP INT TERM
  for file in "$room/groups"/*; do
    [ -e "$file" ] && kill -s KILL -- "-${file##*/}"
  done
  exit 130
}
trap stop_groups HUP INT TERM

# reason NAME: why this test may fail; empty: it may not
reason() {
  sed -n "s|^$(basename "$0" .sh) $1  *||p" "$here/differences"
}

# judge_test NAME: it failed with zke
judge_test() {
  if [ -n "$(reason "$1")" ]; then
    echo "differs: $1: $(reason "$1")"
  elif [ -e "$room/ZooKeeper" ] && ! grep -qx "ok $1" "$room/ZooKeeper"; then
    echo "failed with ZooKeeper, too: $1"
  else
    failed=$((failed + 1))
    echo "FAILED: $1"
  fi
}

# told SIDE: how many passed, of how many
told() {
  echo "$1: $(grep -c '^ok ' "$room/$1") of $(grep -c . "$room/$1") pass"
}

# judge: compares the two sides, and reports.  A test that fails with zke is a
# failure, unless the list of differences has it or ZooKeeper fails it, too; so
# is one that passes and is in the list.
judge() {
  told zke
  [ -e "$room/ZooKeeper" ] && told ZooKeeper
  passed=$(grep -c '^ok ' "$room/zke")
  for name in $(sed -n 's/^bad //p' "$room/zke"); do judge_test "$name"; done
  for name in $(sed -n 's/^ok //p' "$room/zke"); do
    [ -z "$(reason "$name")" ] && continue
    failed=$((failed + 1))
    echo "FAILED: $name passes, and test/foreign/differences says it cannot"
  done
  [ "$passed" -gt 0 ] || failed=$((failed + 1))
  report
}
