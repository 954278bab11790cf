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
suites=kazoo.tests
if [ -n "$SHORT" ]; then
  suites=
  for name in barrier counter election lock party queue watchers; do
    suites="$suites kazoo.tests.test_$name"
  done
fi

need_kazoo

# suite NAME: kazoo's tests with a plugin; the last line of pytest's, which has
# the counts, is told under this name
suite() {
  PYTHONPATH=$PWD/test/foreign PYTHONDONTWRITEBYTECODE=1 \
    timeout 900 $python -m pytest -q -p no:cacheprovider -c /dev/null --rootdir="$room" \
    -p kazoo_suite --pyargs $suites >"$log.$1" 2>&1
  status=$?
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
