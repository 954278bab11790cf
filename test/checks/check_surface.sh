#!/bin/sh
# check_surface.sh - the interface for scripts and SQL has not changed by
# accident
#
#   check_surface.sh            compare with surface.txt in this folder
#   check_surface.sh --accept   rewrite surface.txt, and show the change
#
# surface.txt lists the commands of zke with their options, its exit statuses,
# the views of a database with their columns, and the functions and tables of
# the extension.  The transcripts in test/shell fix the members of JSON.
. test/report.sh

stored=test/checks/surface.txt
scratch work surface

# The wording of the help may change.
commands() {
  zke=$BUILD/zke
  "$zke" "$work/a.db" --json help |
    sed 's/^{"command":"\([^"]*\)".*/\1/' |
    while read -r command; do
      "$zke" "$work/a.db" --json help "$command" || exit 1
    done |
    sed -E 's/,"(summary|text|group|example)":"([^"\\]|\\.)*"//g'
}

statuses() {
  sed -n 's/^  STATUS_\([A-Z]*\) = \([0-9]*\).*/exit \2 \1/p' shell/shell.h
}

sql() {
  python_with "sqlite3; sqlite3.connect('').enable_load_extension(True)" ||
    return 1
  $python - "$work/a.db" "$BUILD/zkembed" <<'PYTHON'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for row in db.execute("SELECT m.name, p.name FROM sqlite_schema m,"
                      " pragma_table_info(m.name) p WHERE m.type = 'view'"
                      " ORDER BY m.name, p.cid"):
    print("sql view %s.%s" % row)
db.enable_load_extension(True)
db.load_extension(sys.argv[2])
for row in db.execute("SELECT DISTINCT name, narg FROM pragma_function_list"
                      " WHERE name LIKE 'zke%' ORDER BY 1, 2"):
    print("sql function", *row)
for name, in db.execute("SELECT name FROM pragma_module_list"
                        " WHERE name LIKE 'zke%' ORDER BY 1").fetchall():
    for column in db.execute("SELECT name, hidden FROM pragma_table_xinfo(?)",
                             (name,)):
        print("sql table %s.%s %d" % (name, *column))
PYTHON
}

describe() { commands && statuses && sql; }

unchanged() {
  diff -u "$stored" "$work/surface" && return
  cat <<'TELL'
A script or a query that worked before may not work with this version.  If the
change is on purpose, type `make interface`, commit surface.txt with it, and tell
users in doc/changes.md.
TELL
  return 1
}

"$BUILD/zke" "$work/a.db" create /a >"$work/log" && describe >"$work/surface" || exit 1
if [ "$1" = --accept ]; then
  diff -u "$stored" "$work/surface"
  cp "$work/surface" "$stored"
  exit
fi
expect "commands, exit statuses and SQL are those of $stored" unchanged
report
