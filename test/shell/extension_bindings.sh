#!/bin/sh
# extension_bindings.sh - the packages of the extension for Python and Node are
# made, installed from their files, and work
#
# Missing interpreters are left out, and reported.  NODE_PATH may name a
# directory with the packages sqlite3 and better-sqlite3.
. test/report.sh

tests=$(pwd)/test/shell
ZKE=$(cd "$BUILD" && pwd)/zke
export ZKE
scratch room extension-bindings

# A python3 that can load extensions, such as Debian's.
python_that_loads() {
  for python in python3 /usr/bin/python3 ''; do
    [ -n "$python" ] && $python -c 'import sqlite3
sqlite3.connect(":memory:").enable_load_extension(True)' 2>/dev/null && return
  done
  return 1
}

has_driver() { NODE_PATH=$drivers node -e "require('$1')" 2>/dev/null; }

same_version() {
  grep -q "^version = \"$version\"" shell/extension/python/pyproject.toml &&
    grep -q "\"version\": \"$version\"" shell/extension/node/package.json
}

# The Python package stays small.
is_small() {
  [ "$(grep -c . shell/extension/python/zkembed/__init__.py)" -le 200 ]
}

make_packages() {
  $MAKE --no-print-directory extension-packages &&
    cp "$BUILD"/packages/*.whl "$BUILD"/packages/*.tgz "$room"
}

install_wheel() {
  $limited $python -m pip install -q --no-index --no-deps \
    --target "$room/python" "$room"/*.whl
}

install_archive() {
  (cd "$room" && echo '{}' >package.json && $limited npm install --silent \
    --offline --no-audit --no-fund --omit=peer ./*.tgz)
}

expect "packages: the library's version" same_version
expect 'Python: 200 lines' is_small
[ -z "${SAN:-}" ] || {
  echo 'extension_bindings: left out: other programs lack the runtime of SAN'
  report
}

# example COMMAND...: it writes a row under the lock, and does so again
example() {
  rm -rf "$room"/example.db*
  for round in 1 2; do
    ZKEMBED=$BUILD/zkembed $limited "$@" "$room/example.db" nightly || return
  done
  [ "$(sqlite3 "$room/example.db" 'SELECT count(*) FROM runs')" = 2 ]
}

# Linked into a program, together with its SQLite.
build_c() {
  $CC -DSQLITE_CORE -D_GNU_SOURCE= -I. -o "$room/linked" \
    doc/examples/extension/lock.c shell/extension/[a-z]*.c \
    "$BUILD/libzkembed-recipes.a" "$BUILD/libzkembed.a" $LIBS
}

build_go() {
  GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=$room/go GOFLAGS= \
    $limited go build -tags libsqlite3 -o "$room/lock" \
    doc/examples/extension/lock.go
}

drivers=${NODE_PATH:-}
expect 'C: linked into a program' build_c
expect 'C: the example' example "$room/linked"
expect 'packages: made, without any other' make_packages
if python_that_loads && $python -m pip --version >/dev/null 2>&1; then
  expect 'Python: the wheel is installed from its file' install_wheel
  expect 'Python: locks, queues, elections, ^C, asyncio' env \
    PYTHONPATH="$room/python" $limited $python "$tests/extension_bindings.py"
else
  echo 'extension_bindings: left out: no python3 with pip loads extensions'
fi
if command -v npm >/dev/null; then
  expect 'Node: the archive is installed from its file' install_archive
  for driver in sqlite3 better-sqlite3; do
    if has_driver $driver; then
      expect "Node: all of it by $driver" env \
        NODE_PATH="$room/node_modules:$drivers" $limited \
        node "$tests/extension_bindings.js" $driver
    else
      echo "extension_bindings: left out: node has no $driver"
    fi
  done
else
  echo 'extension_bindings: left out: there is no npm'
fi
if command -v ruby >/dev/null && ruby -e 'require "sqlite3"' 2>/dev/null; then
  expect 'Ruby: the example' example ruby doc/examples/extension/lock.rb
else
  echo 'extension_bindings: left out: there is no ruby-sqlite3'
fi
if command -v go >/dev/null && build_go >"$room/go.log" 2>&1; then
  expect 'Go: the example' example "$room/lock"
else
  echo 'extension_bindings: left out: there is no mattn/go-sqlite3 for Go'
fi
report
