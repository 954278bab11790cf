#!/bin/sh
# check_manuals.sh - the manual pages agree with the program and the headers
#
# - zke(1) has each command, verb and option of the program, and no others; -
# each function of the headers has a page (doc/manual.awk).
. test/report.sh
zke=$BUILD/zke
page=doc/zke.1
shared='Options of several commands'

lint() { nothing mandoc -Tlint "-W$@"; }
no_placeholders() { nothing grep -n '@[A-Z]*@' "$page"; }

# "get", "queue", "queue push" …, one per line
commands() { "$zke" --plain :memory: help | cut -f1; }
verbs() {
  for command in $(commands); do
    "$zke" --json :memory: help "$command" | sed 's/.*"command":"\([^"]*\)".*/\1/'
  done
}

# The entries of the page: ".It Cm queue push Ar name …".  A command with verbs
# has entries for these, and its own entry only if it takes options without a
# verb.
described() {
  sed -n 's/^\.It Cm \([a-z]*\( [a-z]\{2,\}\)\{0,1\}\).*/\1/p' "$page" | sort
}
same_commands() {
  verbs | sort >"$work/commands"
  for command in $(sed -n 's/ .*//p' "$work/commands" | uniq); do
    [ "$(options "$command")" ] || echo "$command"
  done >"$work/with-verbs"
  grep -vxFf "$work/with-verbs" "$work/commands" >"$work/wanted"
  described >"$work/described"
  [ -s "$work/wanted" ] && diff "$work/wanted" "$work/described"
}

# The options of a command or verb, "s stat" or "- lines", one per line: the
# letter, if people can give one, and the name.
help_rows() { "$zke" --json :memory: help $1 | head -n 1 | tr '{' '\n'; }
options() {
  help_rows "$1" | sed -n '1,2d
    s/.*"name":"\([^"]*\)","letter":"\(.\)".*/\2 \1/p'
}
without_line() { help_rows "$1" | grep '"letter":' | grep -v '"text":'; }

# The options in an entry, or in the section that several commands share: the
# words after Fl, "s" or "-stat".  An entry with "Ar wait-options" has those
# that this section lists under that name, up to the list's end.
entry() {
  awk -v name="$1" '
    /^\.It Cm / {
      split($0, words)
      verb = words[4] ~ /^[a-z][a-z]+$/ ? " " words[4] : ""
      inside = words[3] verb == name
    }
    /^\.S[hs] / { inside = 0 }
    inside' "$page"
}
section() {
  awk -v name="$shared" '/^\.S[hs] / { inside = substr($0, 5) == name }
    inside' "$page"
}
group() {
  section | awk -v name="$1" '/^\.It Ar / { inside = $3 == name }
    /^\.El/ { inside = 0 }
    inside'
}
groups() { section | sed -n 's/^\.It Ar //p'; }
entry_flags() {
  entry "$1" | grep -v '^\.Ic ' >"$work/text" # of multi's operations
  { cat "$work/text"
    for group in $(groups); do
      grep -qE "Ar ([a-z.]+ )*$group( |\$)" "$work/text" && group "$group"
    done; } | flags
}
flags() { grep -oE '\<Fl -?[A-Za-z0-9][a-z0-9-]*' | cut -c4- | sort -u; }

# Each option is in the entry, by its name or its letter; by its name it is
# there or among the shared ones.  Its description is in the entry, or in its
# line of `zke help`.
options_are_there() {
  entry_flags "$1" >"$work/entry"
  { cat "$work/entry"; section | flags; } >"$work/told"
  options "$1" >"$work/options"
  while read -r letter name; do
    grep -qxe "-$name" -e "$letter" "$work/entry" ||
      echo "not in the entry: --$name"
    grep -qxe "-$name" "$work/told" || echo "not named: --$name"
  done <"$work/options" >"$work/missing"
  without_line "$1" >>"$work/missing"
  cat "$work/missing"
  [ ! -s "$work/missing" ]
}

# And each option in the entry exists.
options_are_true() {
  options "$1" | sed 's/\(.\) \(.*\)/\1\n-\2/' >"$work/known"
  entry_flags "$1" | nothing grep -vxFf "$work/known"
}

# The program's own options, from its --help.
own_options() {
  "$zke" --help | grep -oE -e '--[a-z-]+' | cut -c2- | sort -u >"$work/own"
  awk '/^\.S[hs] / { inside = $2 == "DESCRIPTION" }
    inside' "$page" | flags >"$work/described"
  [ -s "$work/own" ] && nothing grep -vxFf "$work/described" "$work/own"
}

# Each function that a header exports has a page, made from its comment.
functions_have_pages() {
  sed -n '/^ZKE_API/,/;/p' $PUBLIC_HEADERS |
    grep -o '\<zke_[a-z0-9_]*(' | tr -d '(' | sort -u >"$work/functions"
  [ -s "$work/functions" ] && while read -r function; do
    [ -s "$BUILD/man3/$function.3" ] || echo "no page: $function"
  done <"$work/functions"
}

scratch work manuals
expect "$page by mandoc -Tlint" lint warning "$page"
expect "the headers' pages by mandoc -Tlint" lint error "$BUILD"/man3/*.3
expect "each function has a page" nothing functions_have_pages
expect "zke(1) is finished" no_placeholders
expect "zke(1) has the program's commands and verbs" same_commands
expect "zke(1) has the program's own options" own_options
verbs >"$work/verbs"
while read -r verb; do
  grep -qx "$verb" "$work/with-verbs" && continue
  expect "zke(1): $verb has its options" options_are_there "$verb"
  expect "zke(1): $verb has no others" options_are_true "$verb"
done <"$work/verbs"
report
