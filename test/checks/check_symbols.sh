#!/bin/sh
# check_symbols.sh - the libraries export only zke_ symbols, the shared ones
# exactly those that their headers declare, and the extension only its init
# function.  A symbol that a file of the command exports to the others begins
# with the file's name or with a subject; one of the extension with ext_.
. test/report.sh

# With a compiled-in SQLite, the archive must define sqlite3_ names, too.
foreign='^(zke_|$)'
case $LIBS in *sqlite3*) ;; *) foreign='^(zke_|sqlite3|$)' ;; esac

# strangers PATTERN: the symbols, of those read, that do not match
strangers() { grep -vE "$1" || true; }

defined() { nm -g --defined-only "$1" | awk 'NF == 3 { print $3 }' | sort -u; }
exported() { nm -D --defined-only "$1" | awk 'NF == 3 { print $3 }' | sort -u; }

# declared HEADER...: those of these headers, not of the ones they include
declared() {
  sed '/^ *# *include/d' "$@" | $CC -E -P -DZKE_API=ZKE_API -x c - |
    tr '\n' ' ' | tr ';' '\n' | grep ZKE_API |
    sed -E 's/^.*ZKE_API[^(]*[ *](zke_[a-z0-9_]+)( *\(.*)?$/\1/' | sort -u
}

archive_is_clean() { defined "$1" | nothing strangers "$foreign"; }
# The laboratory replaces some functions of the C library, and no others.
laboratory_is_clean() {
  defined "$1" | grep -vxF -f test/lab/replaced | nothing strangers '^(zke_|$)'
}
shared_is_clean() { exported "$1" | nothing strangers '^(zke_|$)'; }
# shared_is_complete LIBRARY HEADER...
shared_is_complete() {
  exported "$1" >"$names/exported"
  shift
  declared "$@" >"$names/declared"
  [ -s "$names/declared" ] && diff "$names/declared" "$names/exported"
}

subjects='acls|arg|base64|cancel|child|clients?|command|conns?|cp|deleteall|emit'
subjects="$subjects|fail|faults|find|held|holders|letters|loss|option|path"
subjects="$subjects|patience|perms|place|processes|progress|requests|server"
subjects="$subjects|shared|shell|snapshot|spares?|status|store|target|timing"
subjects="$subjects|users|value|verbose|wait|word"
command_is_named() {
  for source in shell/*.c shell/serve/*.c; do
    name=$(basename "$source" .c)
    defined "$BUILD/${source%.c}.o" | strangers "^(main$|${name}_|($subjects)_)"
  done
}

extension_is_named() {
  for source in shell/extension/*.c; do
    defined "$BUILD/extension/${source%.c}.o" |
      strangers '^(ext_|sqlite3_api$|sqlite3_zkembed_init$)'
  done
}
only_its_init() {
  [ "$(exported "$BUILD/zkembed.so")" = sqlite3_zkembed_init ]
}

scratch names symbols
for library in "$BUILD"/*.a; do
  case $library in
    *-lab.a | *-lab-forked.a)
      expect "$library defines zke_ names and those that it replaces" \
        laboratory_is_clean "$library" ;;
    *) expect "$library defines only zke_ names" archive_is_clean "$library" ;;
  esac
done
for library in "$BUILD"/lib*.so; do
  expect "$library exports only zke_ names" shared_is_clean "$library"
done
expect "libzkembed.so exports what zkembed.h declares" \
  shared_is_complete "$BUILD/libzkembed.so" zkembed.h
expect "libzkembed-recipes.so exports what the other public headers declare" \
  shared_is_complete "$BUILD/libzkembed-recipes.so" ${PUBLIC_HEADERS#* }
expect "zkembed.so exports its init function alone" only_its_init
expect "names of the extension tell that they are its" \
  nothing extension_is_named
[ -x "$BUILD/zke" ] &&
  expect "names of the command tell their subject" nothing command_is_named
report
