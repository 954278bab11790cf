# servers.sh - what the scripts share that start servers: sourced, not run
#
# The sourcing script has set $directory, which is its own, to be removed.  It
# puts the numbers of its servers into $servers and of the program that talks to
# them into $driver, and starts both by $tied.  Whatever happens, no process and
# no file is left; should the shell be killed outright, the kernel stops them.

servers=
driver=

finish() {
  status=$?
  trap - EXIT
  trap '' HUP INT TERM
  for pid in $driver $servers; do
    kill "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
  done
  rm -rf "$directory"
  exit $status
}
trap finish EXIT
trap 'exit 130' HUP INT TERM

tied=
if command -v setpriv >/dev/null; then tied='setpriv --pdeathsig KILL'; fi
