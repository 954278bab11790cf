# manual.awk - the manual pages of section 3, from the comments of the headers
#
#   awk -v out=DIRECTORY -v version=0.1.0 -f manual.awk HEADER...
#
# A header's first comment becomes zkembed(3) or, of a recipe, zkembed-lock(3),
# which ends with the header's functions and structs.  A comment right before
# functions or a struct becomes the page of each of them.  A comment between
# rules begins a group; its text, which holds for all of the group, is a section
# of each of the group's pages.  The text stays as it stands in the header.
# A recipe's pages name zkembed-support(3), which has the rules of all recipes.

function escaped(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  return (text ~ /^[.']/ ? "\\&" : "") text "\n"
}
function section(name, text) {
  printf ".SH %s\n.nf\n.in 2n\n%s.fi\n", name, text >page
}

# Writes a page for each of the names.  The first sentence of the text, up to a
# semicolon, tells what they are.
function write(names, declared, text, more, list, what, of, i) {
  what = text
  sub(/\n\n.*/, "", what)
  if (sub(/^[a-z][a-z_, ]*(\.h)? *\\- /, "", what))
    sub(/\n([A-Z][a-z]|[a-z][a-z_]* *\\- ).*/, "", what)
  gsub(/\n */, " ", what)
  sub(/(;|\. |\.$| $).*/, "", what)
  for (i = split(names, of, ", "); i > 0; i--) {
    page = out "/" of[i] ".3"
    printf ".TH %s 3 \"\" \"zkembed %s\"\n", toupper(of[i]), version >page
    printf ".SH NAME\n%s \\- %s\n", names, what >page
    section("SYNOPSIS", "#include <" include ">\n" declared)
    section("DESCRIPTION", text)
    if (group) section(toupper(title), group)
    section(more, list)
    close(page)
  }
  all = all names "\n"
}

# Takes the title and the text of a group from the comment that begins it.
function begin_group() {
  group = comment
  gsub(/(^|\n)(=|\\-)+\n/, "\n", group)
  sub(/^\n/, "", group)
  title = group
  sub(/\n.*/, "", title)
  sub(/^[^\n]*\n+/, "", group)
}

# Ends a comment and the declarations after it.
function flush() {
  if (names)
    write(names, "\n" declared, comment, "SEE ALSO", header "(3)" rules "\n")
  else if (comment ~ /^(=|\\-)+\n/) begin_group()
  names = declared = comment = ""
}
function end_header() {
  flush()
  group = ""
  if (header) write(header, "", overview, "FUNCTIONS AND STRUCTS", all)
  overview = all = ""
}

FNR == 1 {
  end_header()
  include = FILENAME
  sub(/.*\//, "", include)
  if (include !~ /^zkembed/) include = "zkembed/" include
  header = include
  sub(/\//, "-", header)
  sub(/\.h$/, "", header)
  rules = FILENAME ~ /recipes\/[a-z_]*\.h$/ && header != "zkembed-support" \
    ? ", zkembed-support(3)" : ""
}
/^\/\*/ { flush(); inside = 1 }
inside {
  line = $0
  sub(/^(\/\*| \*\/?) ?/, "", line)
  inside = !sub(/ *\*\/$/, "", line) && $0 !~ /\*\/$/
  comment = comment escaped(line)
  if (inside || overview) next
  overview = comment
  comment = ""
  next
}
/^$/ && !open { flush() }
comment && !open && /^[a-zA-Z]/ && match($0, /[ *]zke_[a-z0-9_]*[a-z0-9](\(| {)/) {
  open = 1
  name = substr($0, RSTART + 1, RLENGTH - 2)
  sub(/ $/, "", name)
  names = names (names ? ", " : "") name
  exported = sub(/^ZKE_API /, "")
}
open {
  if (exported) sub(/^        /, "")
  declared = declared escaped($0)
}
/^}/ || /\);$/ || /^ *;$/ || (/;$/ && !/^ /) { open = 0 }
END { end_header() }
