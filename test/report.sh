# report.sh - what the check scripts share: sourced, not run
#
# A script calls expect for each thing it checks, and report at its end.

: "${CC:=cc}" "${BUILD:=build}" "${LIBS:=-lsqlite3 -lpthread}"
: "${SQLITE_CFLAGS=}" "${MAKE:=make}"
passed=0
failed=0

# expect WHAT COMMAND...: the command succeeds; its output is shown if not
expect() {
  what=$1
  shift
  if output=$("$@" 2>&1); then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s\n%s\n' "$what" "$output"
  fi
}

# nothing COMMAND...: it prints nothing; what it prints is what is wrong
nothing() {
  found=$("$@" 2>&1)
  [ -z "$found" ] || { printf '%s\n' "$found"; return 1; }
}

# scratch NAME: an empty directory under the build directory; prints its path
scratch() {
  set -- "$BUILD/check/$1"
  rm -rf "$1" && mkdir -p "$1" && echo "$1"
}

report() {
  echo "$(basename "$0" .sh): $passed passed, $failed failed"
  [ $failed = 0 ]
  exit
}
