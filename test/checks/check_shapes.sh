#!/bin/sh
# check_shapes.sh - the table of shapes in doc/recipes.md agrees with the
# headers
#
# - Each function of a recipe's header is in its row once, not counting the
#   column "deadline in", and a row has no others.
# - A name is in the column of its shape: "step" drives, "cancel" cancels, and
#   so on.
# - "deadline in" has the functions with a parameter deadline_ms, and no others.
# - The word for the session's end is an enumerator of the header.
#
# In addition, the tests of all recipes use each recipe.
. test/report.sh
scratch work shapes
document=doc/recipes.md
plain='new:2 free:2 acquire:3 wait:3 start:4 try:4 step:5 due:5 release:6 stop:6
  cancel:7 state:8 token:9 check:10 op:11 ops:11 parties:12 list:12 get:12'

# "lock 3 acquire", a line for each name in a cell of the table; columns are
# counted from 1, the recipe's
awk -F'|' '
  /^## / { inside = $0 == "## Shapes" }
  inside && /^\| `/ {
    recipe = $2; gsub(/[ `]/, "", recipe)
    for (i = 3; i < NF; i++) {
      n = split($i, words, " ")
      for (k = 1; k <= n; k++) print recipe, i - 1, words[k]
    }
  }' "$document" >"$work/cells"
cut -d' ' -f1 "$work/cells" | sort -u >"$work/recipes"

# "zke_lock_acquire deadline" or "zke_lock_try -", a line for each function
for header in recipes/*.h; do
  case $header in */support.h) continue ;; esac
  tr '\n' ' ' <"$header" | sed 's/ZKE_API/\n&/g' |
    sed -n 's/^ZKE_API [a-z0-9_ ]*[ *]\(zke_[a-z_]*\)(\([^;]*\));.*/\1 \2/p' |
    awk '{ print $1, (/int64_t deadline_ms/ ? "deadline" : "-") }'
done | sort >"$work/functions"

# The functions that the table names, by its columns $1 of awk.
named() { awk "$1"' { print "zke_" $1 "_" $3 }' "$work/cells" | sort; }
same() { [ -s "$1" ] && diff "$1" "$2"; }

# Is a name in the column that the rule gives?
in_place() {
  for rule in $plain; do
    awk -v name="${rule%:*}" -v column="${rule#*:}" '
      $2 < 14 && $3 == name && $2 != column { print $1 ": " name }' \
      "$work/cells"
  done
}

end_words() {
  while read -r recipe column word; do
    [ "$column" = 15 ] || continue
    upper=$(echo "zke_${recipe}_" | tr '[:lower:]' '[:upper:]')$word
    grep -qwh "$upper" recipes/*.h || echo "no $upper"
  done <"$work/cells"
}

# A fence is no object, and needs a file; an observer is in election.h.
unused() {
  for test in recipes/test_object torture/recipe_torture recipes/uses; do
    grep -vx -e fence -e observer "$work/recipes" | while read -r recipe; do
      grep -q "zke_${recipe}_" "test/$test.c" || echo "$test: no $recipe"
    done
  done
}

cut -d' ' -f1 "$work/functions" >"$work/all"
named '$2 < 14' >"$work/named"
sed -n 's/ deadline$//p' "$work/functions" >"$work/deadlines"
named '$2 == 14' >"$work/deadlines-named"
expect "the table has each function of each recipe, once" \
  same "$work/all" "$work/named"
expect "the table says which take a deadline" \
  same "$work/deadlines" "$work/deadlines-named"
expect "each name stands in its column" nothing in_place
expect "what says that the session ended exists" nothing end_words
expect "the tests of all recipes use each" nothing unused
report
