#!/bin/sh
# kazoo.sh ZKE - kazoo's own test suite against `zke serve`, and then against
# an ensemble of three ZooKeeper servers, which kazoo's harness starts
#
# Both run the tests of Debian's kazoo package.  kazoo_suite.py lists, with
# reasons, tests that must fail with zke.  Any other failure with zke counts,
# and so does a test of the list that passes.
# SHORT=1: only with zke, and only the recipes that people use most.
. test/report.sh

ZKE=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
export ZKE
scratch room foreign
log=$(cd "$room" && pwd)/log
suites=kazoo.tests limit=900
if [ -n "$SHORT" ]; then
  suites='' limit=200 # twice that and a little is all it may take
  for name in barrier counter election lock party queue watchers; do
    suites="$suites kazoo.tests.test_$name"
  done
fi

need_kazoo

# once NAME [OPTION]: kazoo's tests with a plugin.  A test that makes no
# progress for two minutes prints its threads' stacks; the run is ended later.
once() {
  PYTHONPATH=$PWD/test/foreign PYTHONDONTWRITEBYTECODE=1 \
    timeout -k 10 $limit $python -m pytest -v -o faulthandler_timeout=120 \
    -o cache_dir="$log.cache" -c /dev/null --rootdir="$room" \
    -p kazoo_suite --pyargs $suites $2 >"$log.$1" 2>&1
}

# tell NAME: pytest's last line, which has the counts, and the failures
tell() {
  echo "$1: $(grep -E ' (passed|failed|error).* in ' "$log.$1" | tail -n 1)"
  grep -E '^(FAILED|ERROR)|^E  ' "$log.$1"
}

# suite NAME: runs them.  Some have limits of a tenth of a second, and some wait
# without limit for something that another of their threads has already done.
# So failures on zke, or all tests of a run that hangs, are reported and
# repeated once.
suite() {
  once "$1"
  status=$?
  case $status,$1 in
    1,zke)
      tell "$1"
      echo "$1: only what failed, once more:"
      once "$1" --last-failed
      status=$?
      ;;
    124,*)
      echo "$1: a test hung:"
      tail -n 60 "$log.$1"
      once "$1"
      status=$?
      ;;
  esac
  tell "$1"
  return $status
}

suite zke && passed=1 || failed=1
if [ -z "$SHORT" ] && [ -e "${jars:=/usr/share/java/zookeeper.jar}" ]; then
  # The number that a ZooKeeper passes is reported; it is not ours to fix.
  ZKE='' ZOOKEEPER_CLASSPATH=/etc/zookeeper/conf:$jars suite ZooKeeper
fi
report
