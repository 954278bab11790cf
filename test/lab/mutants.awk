# mutants.awk - one mistake of test/lab/mutants, planted in a copy of its file
#
#   awk -v name=NAME -f mutants.awk test/lab/mutants FILE >COPY
#
# An edit is "-" lines followed by "+" lines.  The former must be in the file
# exactly once; the latter replace them.

FILENAME == ARGV[1] {
  if (/^== /) here = $2 == name
  if (!here || !/^[-+]/) next
  if (/^-/ && last == "+") edits++
  last = substr($0, 1, 1)
  if (last == "-") was[edits + 0] = was[edits + 0] substr($0, 3) "\n"
  else becomes[edits + 0] = becomes[edits + 0] substr($0, 3) "\n"
  next
}

{ file = file $0 "\n" }

END {
  for (i = 0; i <= edits; i++) {
    at = was[i] == "" ? 0 : index(file, was[i])
    if (!at || index(substr(file, at + 1), was[i])) {
      print name ": not exactly once in the file:\n" was[i] >"/dev/stderr"
      exit 1
    }
    file = substr(file, 1, at - 1) becomes[i] substr(file, at + length(was[i]))
  }
  printf "%s", file
}
