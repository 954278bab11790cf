#!/bin/sh
# style.sh - figures about the code, as a table
#
#   style.sh [NAME FILE...]      without arguments: the parts of this tree
#
# It measures, and judges nothing: no figure has a limit, and no comment is
# written for one.
#
#   lines     of code, and of comments for each of them; not blank lines
#   dupl.     of 100 lines of code, how many are in a run of 5 or more that also
#             occurs elsewhere in the same row.  Comments, blank lines, #include
#             and lines with only braces are skipped, and blanks do not matter;
#             names do, so a copy with other names is not found
#   functions how many; percent with a comment "above"; length: the median, the
#             longest, and how many have more than 40 lines
#   ?:        conditional expressions per 100 lines of code
#   complex   pmccabe's complexity: median, greatest, how many above 15
#
# Headers have hardly any functions; they have their own rows.

# functions FILE...: "file first-line last-line", a line for each
functions() {
  ctags -x --c-kinds=f --language-force=C --_xformat='%F %n %{end}' "$@"
}

complexities() { pmccabe "$@" 2>/dev/null | cut -f 1 | sort -n; }

# the lengths of functions and the comments above them, comments, and "?"s
lines='
  function strip(s) { # without strings and characters
    gsub(/\\./, "", s)
    gsub(/"[^"]*"/, "", s)
    gsub(/\047[^\047]*\047/, "", s)
    return s
  }
  FNR == NR { begins[$1, $2] = $3 - $2 + 1; next }
  FNR == 1 { inside = above = 0 }
  {
    comment = inside || $0 ~ /^[ \t]*\/\*/
    if ($0 ~ /\/\*/) inside = 1
    if ($0 ~ /\*\//) inside = 0
    if (comment) comments++
    else if ($0 ~ /[^ \t]/) {
      code++
      plain = strip($0)
      questions += gsub(/\?/, "", plain)
    }
    # "above" holds from a comment to the end of the declaration behind it
    if ((FILENAME, FNR) in begins) {
      count++
      if (above) told++
      print begins[FILENAME, FNR] | sorted
    }
    if (comment) above = 1
    else if ($0 !~ /[^ \t]/ || $0 ~ /[;}]$/) above = 0
  }
  END {
    close(sorted)
    printf "%d %d %d %d %d\n", code, comments, count, told, questions
  }'

# the number of lines in runs that occur twice; a run is within one file
doubles='
  BEGIN { LONG = 5 }
  FNR == 1 { inside = 0; first = n + 1 }
  {
    line = $0
    if (inside && !sub(/^.*\*\//, "", line)) next
    inside = 0
    while ((at = index(line, "/*")) > 0) {
      rest = substr(line, at + 2)
      line = substr(line, 1, at - 1)
      if ((end = index(rest, "*/")) == 0) { inside = 1; break }
      line = line " " substr(rest, end + 2)
    }
    gsub(/[ \t]+/, "", line)
    if (line ~ /^[{}();,]*$/ || line ~ /^#include/) next
    text[++n] = line
    if (n < first + LONG - 1) next
    run = ""
    for (i = n - LONG + 1; i <= n; i++) run = run "\n" text[i]
    if (run in seen) {
      mark[seen[run]] = mark[n] = 1
    } else
      seen[run] = n
  }
  END { # the last line of each run is marked
    for (i = n; i > 0; i--) {
      if (i in mark) left = LONG
      if (left-- > 0) count++
    }
    print 0 + count
  }'

# row NAME FILE...
row() {
  name=$1
  shift
  set -- $(functions "$@" >"$work/functions"
    awk -v sorted="sort -n >$work/lengths" "$lines" "$work/functions" "$@"
    awk "$doubles" "$@"
    complexities "$@" >"$work/complex")
  awk -v name="$name" -v code="$1" -v comments="$2" -v count="$3" \
    -v told="$4" -v questions="$5" -v double="$6" '
    FILENAME ~ /lengths/ { len[++n] = $1; long += $1 > 40; next }
    { hard[++m] = $1; very += $1 > 15 }
    END {
      printf "%-16s %6d %6.2f %5.1f%%", name, code, comments / (code ? code : 1),
        100 * double / (code ? code : 1)
      if (!n) { print ""; exit }
      printf " %6d %5d%% %4d %4d %4d %7.1f %5d %4d %4d\n", n, 100 * told / n,
        len[int((n + 1) / 2)], len[n], long, 100 * questions / code,
        hard[int((m + 1) / 2)], hard[m], very
    }' "$work/lengths" "$work/complex"
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
: >"$work/lengths"

printf '%-16s %6s %6s %6s %6s %6s %14s %7s %15s\n' '' lines 'comm.' dupl. \
  funct. above 'length    >40' '?: /100' 'complex    >15'
if [ $# -gt 0 ]; then
  row "$@"
  exit
fi
row zkembed.c zkembed.c
row recipes/ recipes/*.c recipes/*/*.c
row shell/ shell/*.c shell/*/*.c
row 'test/' test/*.c test/*/*.c
row zkembed.h zkembed.h
row 'headers of these' recipes/*.h recipes/*/*.h
