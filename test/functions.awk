# functions.awk - the functions of headers that take a handle or an object, and
# return a result, as a list in C
#
#   awk -f test/functions.awk [WORDS] HEADER...
#
# prints a line for each: its name, the text parameter that names its subject,
# its parameters, the same as arguments, and valid arguments, of which the first
# is z:
#
#   FUNCTION(zke_count, path, (zke *z, const char *path, int64_t *count_out),
#            (z, path, count_out), (z, some_path, some_block))
#
# A program defines FUNCTION() and includes the list, so it has each function of
# the headers.  WORDS is a file of lines "zke_sync QUIET": there the line of
# zke_sync() begins with QUIET instead of FUNCTION.

FILENAME !~ /\.h$/ {
  if (NF == 2) word[$1] = $2
  next
}
# A declaration may have several lines.
/^ZKE_API int zke_[a-z_]*\(zke[a-z_]* \*[a-z]/ { inside = 1; text = "" }
inside { text = text " " $0 }
inside && /;$/ { print_function(text); inside = 0 }
END {
  for (name in word) {
    print "no header has " name "()" >"/dev/stderr"
    exit 1
  }
}

function print_function(text,   name, about, arguments, some, part, i) {
  split(text, part, "[ (]+")
  name = part[4]
  about = "\"\""
  gsub(/^[^(]*\(|\);$/, "", text)
  gsub(/  +/, " ", text)
  for (i = split(text, part, ", "); i > 1; i--) {
    some = ", " sample(part[i]) some
    if (part[i] ~ /^const char \*[a-z_]*$/) about = substr(part[i], 13)
    gsub(/.*[ *]|\[.*/, "", part[i])
    arguments = ", " part[i] arguments
  }
  sub(/.*\*/, "", part[1])
  printf "%s(%s, %s, (%s), (%s%s), (z%s))\n",
    name in word ? word[name] : "FUNCTION", name, about, text, part[1],
    arguments, some
  delete word[name]
}

# An argument for a parameter; test/functions.h has what it may name.
function sample(parameter) {
  if (parameter ~ /^const char \*(path|prefix)$/) return "some_path"
  if (parameter ~ /^const char \*[a-z_]*$/) return "\"a\""
  if (parameter ~ /^const zke_[a-z_]*options/) return "NULL"
  if (parameter ~ /^const zke_acls/) return "ZKE_OPEN_ACL"
  if (sub(/_fn .*/, "", parameter)) return "some_" substr(parameter, 5)
  return parameter ~ /[*[]/ ? "some_block" : "1"
}
