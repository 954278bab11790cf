#!/bin/sh
# kazoo.sh ZKE - kazoo's own test suite against `zke serve`, and then against
# an ensemble of three ZooKeeper servers, which kazoo's harness starts
#
# Both run the tests that Debian's package of kazoo has.  A test that fails with
# zke and should not is a failure; so is one that passes and is said to fail in
# kazoo_suite.py, which has the list and the reasons.
# SHORT=1: with zke alone, and only the recipes that people use most.
. test/report.sh

ZKE=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
export ZKE
scratch room foreign
log=$(cd "$room" && pwd)/log
suites=kazoo.tests limit=900
if [ -n "$SHORT" ]; then
  suites='' limit=200
  for name in barrier counter election lock party queue watchers; do
    suites="$suites kazoo.tests.test_$name"
  done
fi

need_kazoo

# once NAME: kazoo's tests with a plugin.  A test that stands still for two
# minutes tells where its threads are; the run is ended later.
once() {
  PYTHONPATH=$PWD/test/foreign PYTHONDONTWRITEBYTECODE=1 \
    timeout -k 10 $limit $python -m pytest -v -o faulthandler_timeout=120 \
    -p no:cacheprovider -c /dev/null --rootdir="$room" \
    -p kazoo_suite --pyargs $suites >"$log.$1" 2>&1
}

# suite NAME: runs them; the last line of pytest's, which has the counts, is
# told under this name.  Some of them wait without limit for what another of
# their threads has done already: so a run that hangs is told, with what it
# last said, and made once more.
suite() {
  once "$1"
  status=$?
  if [ $status = 124 ]; then
    echo "$1: a test hung:"
    tail -n 60 "$log.$1"
    once "$1"
    status=$?
  fi
  echo "$1: $(grep -E ' (passed|failed|error).* in ' "$log.$1" | tail -n 1)"
  [ $status = 0 ] || grep -E '^(FAILED|ERROR)|^E  ' "$log.$1"
  return $status
}

suite zke && passed=1 || failed=1
if [ -z "$SHORT" ] && [ -e "${jars:=/usr/share/java/zookeeper.jar}" ]; then
  # How many of them a ZooKeeper passes is told; it is not ours to mend.
  ZKE='' ZOOKEEPER_CLASSPATH=/etc/zookeeper/conf:$jars suite ZooKeeper
fi
report
