#!/bin/sh
# check_manuals.sh - the manual pages are free of what mandoc warns of, and
# zke(1) has each command and each option of the program, and no others.
. test/report.sh
zke=$BUILD/zke

lint() { nothing mandoc -Tlint -Wwarning "$1"; }
commands() { "$zke" --plain :memory: help | cut -f1 | sort; }

# What stands in zke(1) as ".It Cm NAME …"; one entry may have several.
described() {
  sed -n 's/^\.It Cm \([a-z]*\).*/\1/p' doc/zke.1 | sort -u
}
same_commands() {
  commands >"$work/commands"
  described >"$work/described"
  [ -s "$work/commands" ] && diff "$work/commands" "$work/described"
}

# The long options of a command's help, and those between its .It and the next.
options() {
  "$zke" --json :memory: help "$1" | tr '{' '\n' |
    sed -n 's/.*"name":"\([a-z-]*\)".*/\1/p' | sort -u
}
options_described() {
  awk -v name="$1" '
    /^\.It Cm / { inside = $3 == name }
    /^\.Sh / { inside = 0 }
    inside' doc/zke.1 | grep -oE 'Fl -[a-z-]+' | sed 's/Fl -//' | sort -u
}
same_options() {
  options "$1" >"$work/options"
  options_described "$1" >"$work/options-described"
  diff "$work/options" "$work/options-described"
}

work=$(scratch manuals)
for page in doc/*.[13]; do
  expect "$page by mandoc -Tlint" lint "$page"
done
expect "zke(1) has the program's commands" same_commands
for command in $(commands); do
  expect "zke(1): options of $command" same_options "$command"
done
report
