# servers.sh - common to scripts that start servers: sourced, not run
#
# The sourcing script has set $directory, its own one, which is removed.  It
# puts the process ids of its servers into $servers and of the program that
# talks to them into $driver, and starts both with $tied.  No process and no
# file is left in any case; if the shell is killed outright, the kernel stops
# the processes.

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
