# mutate.awk - possible changes in the lines that the tests run
#
#   awk -v seed=N -f mutate.awk zkembed.c.gcov
#
# Reads gcov's output for a source file and prints one change for each line that
# ran and can be changed:
#
#   FUNCTION <tab> LINE <tab> the line <tab> the changed line
#
# A hash decides the order, and which of a line's changes is taken: of the seed,
# the function's name, the line's text, and the number of equal lines above it
# in the function.  So lines that are added or removed elsewhere in the file
# change nothing.  Only what gcov counts is code: declarations, comments and
# lines left out by the preprocessor are not changed.

BEGIN {
  FS = "\n"
  for (i = 1; i < 128; i++) code_of[sprintf("%c", i)] = i
  prime = 2147483647
  factor = 1000 + (seed * 7919) % 1000003
}

function hash(text,    h, i) {
  h = seed % prime
  for (i = 1; i <= length(text); i++)
    h = (h * factor + code_of[substr(text, i, 1)] + 1) % prime
  return h
}

# The text with comments, strings and characters blanked out; columns stay.
function code(text,    out, at) {
  out = ""
  while (text != "") {
    if (in_comment) {
      at = index(text, "*/")
      if (!at) return out blank(length(text))
      out = out blank(at + 1)
      text = substr(text, at + 2)
      in_comment = 0
    } else if (match(text, /\/\*|"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047/)) {
      out = out substr(text, 1, RSTART - 1)
      in_comment = substr(text, RSTART, 2) == "/*"
      out = out blank(RLENGTH)
      text = substr(text, RSTART + RLENGTH)
    } else return out text
  }
  return out
}

function blank(n) { return sprintf("%" n "s", "") }

# Note one change: it replaces n characters from a column on.
function change(at, n, by) {
  changes[++change_count] = substr(line, 1, at - 1) by substr(line, at + n)
}

# Note a change for each place where a pattern matches; it replaces `n`
# characters that begin `skip` characters later.
function replace(pattern, skip, n, by,    rest, done) {
  rest = bare
  done = 0
  while (match(rest, pattern)) {
    change(done + RSTART + skip, n, by)
    done += RSTART
    rest = substr(rest, RSTART + 1)
  }
}

# The column that closes the parenthesis at a column; 0: on a later line.
function closing(at,    i, depth, c) {
  for (i = at; i <= length(bare); i++) {
    c = substr(bare, i, 1)
    depth += (c == "(") - (c == ")")
    if (!depth) return i
  }
  return 0
}

# Negate the condition of an `if` on this line.
function negate(    at, end) {
  if (!match(bare, /(^|[^a-z_])if \(/)) return
  at = RSTART + RLENGTH - 1
  end = closing(at)
  if (!end) return
  change(at, end - at + 1, "(!" substr(line, at, end - at + 1) ")")
}

# Drop a whole statement, or return from the function instead.
function statement(    at, text) {
  at = match(bare, /[^ ]/)
  if (match(bare, /^ *(else )?if \(/)) {
    at = closing(RSTART + RLENGTH - 1) + 2
    if (at == 2 || at > length(bare)) return
  } else if (before !~ /([;{}:)]|else)$/) return
  text = substr(bare, at)
  sub(/ *$/, "", text)
  if (text ~ /^return [^;]+;$/) {
    if (text !~ /^return (0|false|NULL|ZKE_OK);$/)
      change(at, length(text), "return 0;")
  } else if (text ~ /^[a-z_][][a-z0-9_.>-]*(\(|\+\+;| [-+*|&^]?= ).*;$/ ||
      text ~ /^(\+\+|--|\*)[a-z_].*;$/) {
    if (text ~ /^(for|while|if|switch|do|case) /) return
    change(at, length(text), ";")
    change(at, length(text), "return 0;")
  }
}

function all_changes() {
  change_count = 0
  negate()
  statement()
  replace(" == ", 1, 2, "!=")
  replace(" != ", 1, 2, "==")
  replace(" < ", 1, 1, "<=")
  replace(" <= ", 1, 2, "<")
  replace(" > ", 1, 1, ">=")
  replace(" >= ", 1, 2, ">")
  replace(" && ", 1, 2, "||")
  replace(" [|][|] ", 1, 2, "&&")
  replace(" [+] ", 1, 1, "-")
  replace(" - ", 1, 1, "+")
  replace("[+][+]", 0, 2, "--")
  replace("--", 0, 2, "++")
  replace(" [+]= ", 1, 2, "-=")
  replace(" -= ", 1, 2, "+=")
  replace("[^a-zA-Z0-9_.]0[^a-zA-Z0-9_.]", 1, 1, "1")
  replace("[^a-zA-Z0-9_.]1[^a-zA-Z0-9_.]", 1, 1, "0")
  replace("[^a-zA-Z0-9_]true[^a-zA-Z0-9_]", 1, 4, "false")
  replace("[^a-zA-Z0-9_]false[^a-zA-Z0-9_]", 1, 5, "true")
}

{
  # "    COUNT:  LINE:text"
  count = $0
  sub(/:.*/, "", count)
  gsub(/[ *]/, "", count)
  line = $0
  sub(/^[^:]*:/, "", line)
  number = line + 0
  sub(/^[^:]*:/, "", line)
  bare = code(line)
  if (number == 0) next
  if (bare ~ /^[A-Za-z].*\(/ && match(bare, /[A-Za-z0-9_]+\(/))
    name = substr(bare, RSTART, RLENGTH - 1)
  if (count ~ /^[0-9]+$/) {
    all_changes()
    key = name "\t" line
    h = hash(key " " (++seen[key]))
    if (change_count) {
      to = changes[1 + h % change_count]
      print h "\t" name "\t" number "\t" line "\t" to | "sort -n | cut -f 2-"
    }
  }
  if (bare ~ /[^ ]/) {
    before = bare
    sub(/ *$/, "", before)
  }
}
