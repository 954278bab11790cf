# report.sh - common functions of the check scripts: sourced, not run
#
# A script calls expect for each thing it checks, and report at its end.

: "${CC:=cc}" "${BUILD:=build}" "${LIBS:=-lsqlite3 -lpthread}"
: "${SQLITE_CFLAGS=}" "${MAKE:=make}"
# Put before a command that might hang; the limit allows for slow machines.
limited="timeout $((60 * ${CK_TIMEOUT_MULTIPLIER:-5}))"
passed=0
failed=0
version=$(sed -n 's/^.define ZKE_VERSION "\(.*\)"/\1/p' zkembed.h)

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

# nothing COMMAND...: it prints nothing; any output is an error
nothing() {
  found=$("$@" 2>&1)
  [ -z "$found" ] || { printf '%s\n' "$found"; return 1; }
}

# scratch VARIABLE NAME: sets it to the whole path of an empty directory, in the
# one that run.sh gives to tests or in the build directory; ends the script if
# none can be made.  (A function called by $(...) could not end it.)
scratch() {
  scratches=${ZKE_TEST_ROOM:-$BUILD/check}
  scratch=$scratches/$2
  mkdir -p "$scratches" && rm -rf "$scratch" && mkdir "$scratch" &&
    scratch=$(cd "$scratch" && pwd) && eval "$1=\$scratch" && return
  echo "$(basename "$0" .sh): $scratches/$2 cannot be emptied;" \
    "does another run use it?" >&2
  exit 1
}

# readme_program N [HEADER]: README's Nth program in C, with this header instead
# of those of all recipes
readme_program() {
  awk -v wanted="$1" '/^```/ { inside = 0 } inside && n == wanted
    /^```c$/ { inside = 1; n++ }' README.md |
    sed "${2:+s|\"zkembed_recipes.h\"|<$2>|}"
}

# python_with MODULES: sets python to the first one that has all of them, or to
# ""
python_with() {
  for python in python3 /usr/bin/python3 ''; do
    [ -n "$python" ] && $python -c "import $1" 2>/dev/null && return
  done
  return 1
}

# need_kazoo: sets python to one that has kazoo, its SASL and pytest, or ends
# the script
need_kazoo() {
  python_with 'kazoo, puresasl, pytest' && return
  give_up 'Missing.  Type:' \
    'apt-get install python3-kazoo python3-pure-sasl python3-pytest'
}

# need_terminal: ends the script if tmux cannot open a terminal
need_terminal() {
  python3 -c 'import os; os.openpty()' 2>/dev/null && return
  give_up 'No terminal can be opened.  Is devpts mounted on /dev/pts?'
}

# give_up WHY...: ends the script, with one failure more
give_up() {
  echo "$*"
  failed=$((failed + 1))
  report
}

report() {
  echo "$(basename "$0" .sh): $passed passed, $failed failed"
  [ $failed = 0 ]
  exit
}
