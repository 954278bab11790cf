#!/bin/sh
# check_engines.sh - the table in doc/differences.md of what other engines do
# not have agrees with the code
#
# - Its rows that say "no" for an ensemble are the functions that zkembed.c
#   refuses for every other engine, and those without a row in the table of
#   recipes/engine/zookeeper.c.
# - Its rows that say "no" for several services are the former, and those with a
#   function in recipes/engine/compose_session.c that always refuses.
# - Every function that it names is in zkembed.h.
#
# Functions that are refused only in some cases ("not …") are left to a reader.
. test/report.sh
scratch work engines
document=doc/differences.md

# The functions of zkembed.c that no other engine can have.
of_files() {
  awk '
    /^(int|int64_t) zke_[a-z_]*\(/ { name = $2; sub(/\(.*/, "", name) }
    /return engine_lacks\(z->engine/ { print name }' zkembed.c
}

# The members of a zke_engine; and those that a table has, by name or, with the
# member's function, as "NAME FUNCTION".
members() {
  sed -n '/^typedef struct zke_engine/,/^} zke_engine/p' zkembed.h |
    sed -n 's/^  [a-z0-9_]* (\*\([a-z_]*\))(.*/\1/p'
}
rows() {
  sed -n '/^\(static \)\{0,1\}const zke_engine /,/^};/p' "$1" |
    sed -n 's/^ *\.\([a-z_]*\) = \([a-z_]*\),$/\1 \2/p'
}

# Members as functions: zke_delete() is "remove", since C++ has a word for it.
functions() { sed 's/^remove$/delete/; s/^/zke_/'; }

# Functions that always refuse: their only return is session_kept().
refusing() {
  awk '
    /^int zke_compose_[a-z_]*\(/ { name = $2; sub(/\(.*/, "", name) }
    /return session_kept\(\);/ { print name }' recipes/engine/compose_session.c
}

lacking_on_ensemble() {
  of_files
  members | sort >"$work/members"
  rows recipes/engine/zookeeper.c | sed 's/ .*//' | sort >"$work/there"
  comm -23 "$work/members" "$work/there" | functions
}
lacking_of_several() {
  of_files
  refusing >"$work/refusing"
  rows recipes/engine/compose.c >"$work/rows"
  members | while read -r member; do
    if function=$(grep "^$member " "$work/rows"); then
      grep -qx "${function#* }" "$work/refusing" || continue
    fi
    echo "$member"
  done | functions
}

# The rows of the table, "CELL|CELL|…" a line.
table() {
  awk '
    /^## / { inside = /What other engines do not have/ }
    inside && /^\| zke_/' "$document"
}

# refused COLUMN: the functions of the rows that say "no" there
refused() {
  table | awk -F'|' -v at="$1" '$at ~ /^ no( |$)/ { print $2 }' |
    grep -o 'zke_[a-z_]*()' | tr -d '()'
}

# agree COLUMN COMMAND: that column has what the command prints, each once
agree() {
  "$2" | sort >"$work/code"
  refused "$1" | sort >"$work/document"
  [ -s "$work/code" ] && diff "$work/code" "$work/document"
}

strangers() {
  table | cut -d'|' -f2 | grep -o 'zke_[a-z_]*()' | tr -d '()' |
    while read -r name; do
      grep -q "[ *]$name(" zkembed.h || echo "no $name() in zkembed.h"
    done
}

expect "six functions at least are of files alone" \
  [ "$(of_files | wc -l)" -ge 6 ]
expect "sixty members of an engine at least are seen" \
  [ "$(members | wc -l)" -ge 60 ]
expect "what an ensemble has not is in the table" agree 3 lacking_on_ensemble
expect "what several services have not is in the table" \
  agree 4 lacking_of_several
expect "the table names functions of zkembed.h" nothing strangers
report
