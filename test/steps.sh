# steps.sh - run steps, and report the result of each: sourced by bash scripts
#
#   step NAME COMMAND...    runs it
#   beside NAME COMMAND...  runs it in parallel with others, on one processor
#   finish                  waits for all, prints a table of them, and exits
#
# Every step runs, whatever the result of the others.  Each has its log in
# $logs/NAME.log, and prints a line when it ends; failures are shown.  The table
# counts the tests and checks that a step reports, and the step itself.  The
# last line is "N passed, N failed".  Exit status 0: nothing failed.
#
# Everything is rebuilt, but not with
#
#   ONLY='NAME ...'         only these steps
set -uo pipefail

only=${ONLY-}
unset ONLY MAKELEVEL MFLAGS # the goals have an ONLY, too
export MAKEFLAGS=--no-print-directory
at_once=$(($(nproc) + 1)) # steps beside each other: some of them also wait
[[ $only ]] || rm -rf build
rm -rf "$logs" && mkdir -p "$logs" || exit 1

wanted() { [[ -z $only || " $only " == *" $1 "* ]]; }

# It runs in its own shell, so that no other step's processor time counts.
step() (
  wanted "$1" || exit 0
  name=$1 log=$logs/$1.log began=$SECONDS status=0
  shift
  echo "$name" >>"$logs/steps"
  echo 'FAILED 0 1 0 0' >"$logs/$name.sum" # until it has ended
  timeout -k 10 "${limit:-2400}" "$@" >"$log" 2>&1 </dev/null || status=$?
  times >"$logs/$name.times" # of the shell, and of all that it has waited for
  read -r passed failed < <(awk '
    /^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3 }
    END { print passed + 0, failed + 0 }' "$log")
  spent=$(tr ms '  ' <"$logs/$name.times" |
    awk 'END { print int($1 * 60 + $2 + $3 * 60 + $4) }')
  took=$((SECONDS - began))
  result=ok
  if ((status || failed)); then result=FAILED; fi
  echo "$result $((passed + (status == 0))) $((failed + (status != 0)))" \
    "$took $spent" >"$logs/$name.sum"
  tell "$@" | flock "$logs/telling" cat # one at a time
)

# tell COMMAND...: reports step()'s result, and shows failures
tell() {
  if [[ $result = ok ]]; then
    echo "ok      $name ($took s, $spent s of processor time)"
    return
  fi
  echo "FAILED  $name ($took s, exit status $status, $failed failed): $*"
  # First the failures reported by Check, compilers and harnesses, then all
  # output.
  grep -nE ':[FE]:|: (fatal )?error:|FAILED|violations: [1-9]|ERROR:|\*\*\* ' \
    "$log" | head -n 40 | sed 's/^/        ! /'
  tail -n 120 "$log" | sed 's/^/        | /'
}

# It may not build what another of them builds, too: common files are built by
# an earlier step.
beside() {
  wanted "$1" || return 0
  while (($(jobs -pr | wc -l) >= at_once)); do wait -n; done
  JOBS=1 step "$@" &
}

finish() {
  wait
  printf '\n%-24s %-6s %7s %7s %8s %10s\n' \
    step result passed failed seconds processor
  while read -r name; do
    echo "$name $(cat "$logs/$name.sum")"
  done <"$logs/steps" | awk '
    { printf "%-24s %-6s %7d %7d %8d %10d\n", $1, $2, $3, $4, $5, $6
      passed += $3; failed += $4; spent += $6 }
    END {
      printf "%-24s %-6s %7d %7d %8d %10d\n", "all", failed ? "FAILED" : "ok",
        passed, failed, '$SECONDS', spent
      print passed + 0 " passed, " failed + 0 " failed"
      exit failed > 0 || !passed
    }'
  exit
}
