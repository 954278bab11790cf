#!/bin/sh
# deps.sh - see that what a make target needs is there, or fetch it
#
#   deps.sh [-y] NEED...
#
# A need is probed by using it, not by asking for a package.  With -y what is
# missing is installed through apt-get, directly as root and else by `sudo -n`;
# the command is printed before it runs.  Where that cannot be, the one command
# to type is printed and the exit status is 1.

. "$(dirname "$0")/report.sh"

fetch=no
if [ "$1" = -y ]; then
  fetch=yes
  shift
fi
needs=$*
compiler=${CC:-cc}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# links CODE LIBRARY...: a program of this code can be compiled and linked
links() {
  printf '%s\n' "$1" >"$scratch/probe.c"
  shift
  # $compiler may be several words
  $compiler -o "$scratch/probe" "$scratch/probe.c" "$@" 2>>"$scratch/why"
}

# there NEED: it can be used
there() {
  case $1 in
    compiler) links '#include <stdio.h>
      int main(void) { return puts("") < 0; }' ;;
    sqlite) links '#include <sqlite3.h>
      int main(void) { return sqlite3_libversion_number() < 3037002; }' \
      -lsqlite3 ;;
    check) command -v pkg-config >/dev/null &&
      links '#include <check.h>
      int main(void) { return srunner_ntests_run(srunner_create(NULL)); }' \
        $(pkg-config --libs check 2>/dev/null) -lpthread ;;
    jansson) links '#include <jansson.h>
      int main(void) { return json_null() == NULL; }' -ljansson ;;
    libedit) command -v pkg-config >/dev/null &&
      pkg-config --exists libedit ;;
    shell) command -v sqlite3 >/dev/null && command -v curl >/dev/null ;;
    zookeeper) command -v java >/dev/null &&
      [ -e "${ZOOKEEPER_HOME:-/usr/share/java/zookeeper.jar}" ] ;;
    zookeeper-client) links '#include <zookeeper/zookeeper.h>
      int main(void) { return zookeeper_close(NULL) == ZOK; }' \
      -lzookeeper_mt ;;
    etcd) command -v etcd >/dev/null ;;
    redis) command -v redis-server >/dev/null ;;
    redis-client) links '#include <hiredis/hiredis.h>
      int main(void) { return redisConnect == 0; }' -lhiredis ;;
    kazoo) python_with 'kazoo, puresasl, pytest' ;; # one that has all
    python-*) python_with "${1#python-}" ;;
    c++) command -v c++ >/dev/null ;;
    musl) command -v musl-gcc >/dev/null ;;
    cppunit) [ -e /usr/include/cppunit/Test.h ] ;;
    dpkg-dev) command -v dpkg-source >/dev/null ;;
    zookeeper-java) [ -e /usr/share/java/zookeeper.jar ] ;;
    curator) [ -e /usr/share/java/curator-recipes.jar ] ;;
    curator-tests) [ -e /usr/share/java/curator-test.jar ] &&
      [ -e /usr/share/java/mockito-core.jar ] &&
      [ -e /usr/share/java/assertj-core.jar ] &&
      [ -e /usr/share/java/commons-math.jar ] ;;
    junit5) [ -e /usr/share/java/junit-platform-console.jar ] ;;
    go-zookeeper) [ -e /usr/share/gocode/src/github.com/samuel/go-zookeeper ] ;;
    libfuzzer) (compiler=clang; links '#include <stddef.h>
      int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n);
      int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n) {
        return !p && n; }' -fsanitize=fuzzer) ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# packages NEED: what brings it on Debian and Ubuntu
packages() {
  case $1 in
    compiler) echo gcc libc6-dev ;;
    sqlite) echo libsqlite3-dev ;;
    check) echo check libsubunit-dev pkg-config ;;
    jansson) echo libjansson-dev ;;
    libedit) echo libedit-dev pkg-config ;;
    node) echo nodejs ;;
    shell) echo sqlite3 curl ;;
    zookeeper) echo default-jre-headless zookeeper ;;
    zookeeper-client) echo libzookeeper-mt-dev ;;
    etcd) echo etcd-server ;;
    redis) echo redis-server ;;
    redis-client) echo libhiredis-dev ;;
    kazoo) echo python3 python3-kazoo python3-pure-sasl python3-pytest ;;
    python-*) echo python3 "python3-${1#python-}" ;;
    gnuplot) echo gnuplot-nox ;;
    c++) echo g++ ;;
    ctags) echo universal-ctags ;;
    musl) echo musl-tools ;;
    cppunit) echo libcppunit-dev ;;
    javac) echo default-jdk-headless ;;
    zookeeper-java) echo libzookeeper-java ;;
    curator) echo libcurator-recipes-java ;;
    curator-tests) echo libcurator-test-java libmockito-java \
      libassertj-core-java libcommons-math-java ;;
    go) echo golang-go ;;
    go-zookeeper) echo golang-github-samuel-go-zookeeper-dev ;;
    libfuzzer) echo clang libclang-rt-dev ;;
    *) echo "$1" ;;
  esac
}

# missing: the packages that bring what cannot be used
missing() {
  : >"$scratch/why"
  for need in compiler $needs; do
    there "$need" || packages "$need"
  done | tr ' ' '\n' | sort -u | paste -s -d ' '
}

# say and do
run() {
  echo "+ $*"
  "$@" </dev/null
}

list=$(missing)
[ -z "$list" ] && exit 0
install="apt-get install -y --no-install-recommends $list"

if ! command -v apt-get >/dev/null; then
  echo "Missing.  Install what Debian calls: $list" >&2
  exit 1
fi
if [ $fetch = no ]; then
  echo "Missing.  Type: make deps   (or, as root: $install)" >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  root="env DEBIAN_FRONTEND=noninteractive"
elif sudo -n true 2>/dev/null; then
  root="sudo -n env DEBIAN_FRONTEND=noninteractive"
else
  echo "Missing, and neither root nor sudo without a password is at hand." >&2
  echo "Type: sudo sh -c 'apt-get update && $install'" >&2
  exit 1
fi

# The lists of packages may be absent or too old: fetch them only then.
if ! run $root $install; then
  run $root apt-get update && run $root $install
fi

list=$(missing)
[ -z "$list" ] && exit 0
echo "Still missing: $list" >&2
cat "$scratch/why" >&2
echo "Type: sudo sh -c 'apt-get update && $install'" >&2
exit 1
