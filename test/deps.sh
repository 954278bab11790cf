#!/bin/sh
# deps.sh - check that the needs of a make goal are met, or fetch them
#
#   deps.sh [-y] NEED...
#   deps.sh --goals GOAL...
#
# A need is tested by using it, not by asking for a package.  With -y missing
# packages are installed with apt-get, directly as root and otherwise with `sudo
# -n`; the command is printed before it runs.  If that is impossible, the one
# command to type is printed and the exit status is 1.
#
# --goals takes the needs of make's goals.  What was found is noted in
# $BUILD/deps, and not tested again.  If all goals are files, or made by plain
# `make`, nothing is installed.

. "$(dirname "$0")/report.sh"

# needs_of GOAL: its needs, with the settings of the Makefile
needs_of() {
  case $1 in
    clean | help | uninstall | amalgamation | dist | release-check) return ;;
    style) echo ctags pmccabe; return ;;
    format) echo clang-format; return ;;
    bench-plots) echo gnuplot; return ;;
    fresh | deb) echo mmdebstrap; return ;;
  esac
  command=${COMMAND:+jansson libedit}
  tests="check shell python3 node tmux kazoo $command"
  servers='zookeeper zookeeper-client'
  echo compiler
  [ "$SQLITE" ] || echo sqlite
  case $1 in
    all | install | "$BUILD/zke" | "$BUILD"/zke-* | bench | check-symbols | \
      check-docs)
      echo "${COMMAND:+jansson}" ;;
    other-machines)
      echo $command check mmdebstrap qemu-arm-static i686-linux-gnu-gcc \
        arm-linux-gnueabihf-gcc aarch64-linux-gnu-gcc s390x-linux-gnu-gcc ;;
    "$BUILD"/test/* | powerloss | lab | lab-mutants | mutate*) echo check ;;
    test-ensemble) echo "$tests"; [ "$SERVER" = zke ] || echo zookeeper ;;
    deps | test | test-* | transcripts) echo "$tests" ;;
    programs) echo "$tests" zookeeper-client ;;
    sim-compilers) echo clang ;;
    valgrind) echo "$tests" valgrind ;;
    coverage*) echo "$tests" gcovr ;;
    sqlite-*) echo "$tests" npm $servers ;;
    build/deps/sqlite-*) echo npm ;;
    release) echo "$tests" pkg-config mandoc cmake meson ninja ;;
    check-dist) echo "$tests" pkg-config ;;
    check-packages) echo cmake meson ninja ;;
    check-release) echo shell mandoc ;;
    platforms) echo "$tests" pkg-config clang c++ musl cmake npm ;;
    torture-host*) echo $command python3 ;;
    torture-ensemble)
      echo $command
      case $SERVER$SERVERS in '' | zke) ;; *) echo zookeeper ;; esac ;;
    torture-serve) echo $command ;;
    powerloss-machine) echo $command qemu-system-x86_64 mkfs.ext4 xz ;;
    torture-extension) echo $command python3 shell ;;
    bench-extension) echo python3 python-filelock ;;
    order-ensemble) echo $command zookeeper ;;
    conformance) echo $command $servers ;;
    "$BUILD/conformance") echo zookeeper-client ;;
    foreign)
      echo $command kazoo javac zookeeper-java curator junit5 go go-zookeeper
      [ "$SHORT" ] || echo python-objgraph $servers cppunit c++ dpkg-dev
      case $SUITE in *curator*) echo curator-tests ;; esac ;;
    bench-peers)
      echo "${COMMAND:+jansson}" $servers etcd redis redis-client ;;
    fuzz*) echo $command libfuzzer ;;
    lint) echo $command clang-tidy cppcheck ;;
    interface | check-interface) echo ctags ;;
    check-headers) echo c++ ;;
    check-format) echo clang-format ;;
    check-install) echo "${COMMAND:+jansson}" pkg-config ;;
    check-manuals) echo "${COMMAND:+jansson}" mandoc ;;
    check) echo "${COMMAND:+jansson}" c++ ctags clang-format pkg-config mandoc ;;
  esac
}

fetch=no
goals=
case $1 in
  -y)
    fetch=yes
    shift
    needs=$* ;;
  --goals)
    shift
    for goal in "$@"; do
      case $goal in all | install | build/*) ;; *) fetch=yes ;; esac
      for need in $(needs_of "$goal"); do
        [ -e "$BUILD/deps/$need" ] || needs="$needs $need"
      done
    done
    [ "$needs" ] || exit 0
    goals=$* ;;
  *) needs=$* ;;
esac
compiler="${CC:-cc} $SAN_FLAGS"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# found: notes that all goals' needs are met, and ends the script
found() {
  [ -z "$goals" ] || {
    mkdir -p "$BUILD/deps" && (cd "$BUILD/deps" && touch $needs)
  }
  exit
}

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
    libedit) links '#include <histedit.h>
      int main(void) { return el_init("", stdin, stdout, stderr) == NULL; }' \
      -ledit ;;
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
    mkfs.ext4) PATH=$PATH:/usr/sbin:/sbin command -v mkfs.ext4 >/dev/null ;;
    dpkg-dev) command -v dpkg-source >/dev/null ;;
    zookeeper-java) [ -e /usr/share/java/zookeeper.jar ] ;;
    curator) [ -e /usr/share/java/curator-recipes.jar ] ;;
    curator-tests) [ -e /usr/share/java/curator-test.jar ] &&
      [ -e /usr/share/java/mockito-core.jar ] &&
      [ -e /usr/share/java/assertj-core.jar ] &&
      [ -e /usr/share/java/commons-math.jar ] ;;
    junit5) [ -e /usr/share/java/junit-platform-console.jar ] ;;
    go-zookeeper) [ -e /usr/share/gocode/src/github.com/samuel/go-zookeeper ] ;;
    libfuzzer) (compiler=${FUZZ_CC:-clang}; links '#include <stddef.h>
      int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n);
      int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n) {
        return !p && n; }' -fsanitize=fuzzer) ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# packages NEED: the packages that have it on Debian and Ubuntu
packages() {
  case $1 in
    compiler)
      case $compiler in
        *clang*) echo clang libclang-rt-dev libc6-dev ;;
        *musl*) echo musl-tools ;;
        *) echo gcc libc6-dev ;;
      esac ;;
    sqlite) echo libsqlite3-dev ;;
    check) echo check libsubunit-dev pkg-config ;;
    jansson) echo libjansson-dev libedit-dev ;; # make does not ask for libedit
    libedit) echo libedit-dev ;;
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
    ninja) echo ninja-build ;;
    go-zookeeper) echo golang-github-samuel-go-zookeeper-dev ;;
    libfuzzer) echo clang libclang-rt-dev ;;
    qemu-*-static) echo qemu-user-static ;;
    qemu-system-x86_64) echo qemu-system-x86 ;;
    mkfs.ext4) echo e2fsprogs ;;
    xz) echo xz-utils ;;
    *-gcc) echo "gcc-${1%-gcc}" ;; # a cross compiler
    *) echo "$1" ;;
  esac
}

# missing: the packages for the needs that are not met
missing() {
  : >"$scratch/why"
  for need in compiler $needs; do
    there "$need" || packages "$need"
  done | tr ' ' '\n' | sort -u | paste -s -d ' '
}

# apt ARGUMENT...: prints and runs apt-get.  While another program holds one of
# its locks, it says so and retries, for ten minutes in all.
waited=0
apt() {
  echo "+ ${root:+$root }apt-get $*"
  said=
  until $root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$@" \
    </dev/null 2>"$scratch/error"; do
    lock=$(grep -m 1 'Could not get lock' "$scratch/error") &&
      [ $waited -lt 600 ] || return 1
    [ "$said" ] || echo "Waiting for another program that installs packages," \
      "for up to ten minutes: ${lock#E: }"
    said=1 waited=$((waited + 1))
    sleep 1
  done
}

list=$(missing)
[ -z "$list" ] && found
install="install -y --no-install-recommends $list"
by_hand="apt-get update && apt-get $install"

# refuse REASON: says what to type, and ends the script
refuse() {
  echo "Missing: $list.${1:+  $1}" >&2
  if ! command -v apt-get >/dev/null; then
    echo 'Install them by the names that your system has for these.' >&2
  elif [ "$(id -u)" = 0 ]; then
    echo "Type: $by_hand" >&2
  else
    echo "Type: sudo sh -c '$by_hand'" >&2
  fi
  case " $goals " in
    *' all '* | *' install '*)
      case $list in *jansson*)
        echo 'Or: make COMMAND=   leaves out zke, and so needs no jansson.' >&2
      esac ;;
  esac
  exit 1
}

command -v apt-get >/dev/null || refuse 'There is no apt-get that brings them.'
[ $fetch = yes ] || refuse
if [ "$(id -u)" = 0 ]; then
  root=
elif sudo -n true 2>/dev/null; then
  root='sudo -n'
else
  refuse 'Neither root nor sudo without a password is at hand.'
fi

# The lists of packages may be missing or too old: fetch them only then.
apt $install || { apt update && apt $install; } || cat "$scratch/error" >&2

list=$(missing)
[ -z "$list" ] && found
cat "$scratch/why" >&2
refuse 'apt-get did not bring them.'
