#!/bin/sh
# check_layers.sh - zkembed.c keeps the order that its head promises
#
# - Its sections are those of the table of contents, in that order.  - No static
# function is declared before its definition.  So the compiler
#   itself refuses a call from one section into a later one.
# - A function's name begins with its section's prefix.  In the last section it
#   begins with zke_, or with api_ if it is static.
# - A struct in struct store that is named for a section is used only by that
#   section, and by store_, which makes and ends it.  Exceptions: the
#   descriptors (fd) are fork_'s as well, and the program's connection (guest)
#   is app_'s and api_'s.  Duties to sessions (sess) are kept_'s, end_'s,
#   begin_'s, sweep_'s and api_'s, and not checked.
# - Functions that are not static are the public ones.  They are in the last
#   section, and are called nowhere else.
# - System calls are only in the os_ section, and calls of the C library's
#   allocator only in mem_.
# - SQLite is used only by zkembed.c, by shell/database.c of the command, which
#   checks the file, by fence.c of the recipes, which writes triggers, and by
#   the extension; recipes and command use only public headers.
# - The files of the command form no circle: none calls another that leads back
#   to it.  Nor do those of the recipes.
# - The parts of recipes call only those before them in the Makefile's list
#   (RECIPE_PARTS), and no recipe.
# - Recipes make system calls through the handle's table, in particular for the
#   clock.  Only getpid() and getentropy() are called directly: a thread
#   identifies itself with them without a handle.  The engine for an ensemble
#   (zookeeper.c and zk_*.c) is below the handle, and calls what it needs.
# - The top directory has only what a reader should see first, and build/.
. test/report.sh

scratch work layers
recipes=$(ls recipes/*.[ch] recipes/*/*.[ch])
command=$(ls shell/*.[ch] shell/*/*.[ch])

# sources FILE...: those that are no headers
sources() { printf '%s\n' "$@" | grep '\.c$'; }

source=${1:-zkembed.c}

contents() {
  awk '/CONTENTS/ { inside = 1 } / \*\// { exit }
    inside && /^ \*   [a-z(]/ {
      sub(/^ \*   /, ""); sub(/  .*/, ""); gsub(/[()]/, ""); print
    }' "$source"
}

banners() {
  awk '/^\/\* =====/ { getline
      sub(/^ \* /, ""); sub(/:.*/, ""); sub(/ \(.*/, ""); print
    }' "$source"
}

same_sections() {
  contents >"$work/contents"
  banners >"$work/banners"
  [ -s "$work/contents" ] && diff "$work/contents" "$work/banners"
}

# code FILE: its lines as "LINE<tab>SECTION<tab>CODE", without comments and the
# contents of strings and characters.
code() {
  awk '
    /^\/\* =====/ { banner = NR + 1 }
    NR == banner { section = $2; sub(/:$/, "", section) }
    {
      line = $0; out = ""
      while (line != "") {
        if (comment) {
          at = index(line, "*/")
          if (!at) break
          line = substr(line, at + 2); comment = 0
        } else if (match(line, /\/\*|"(\\.|[^"\\])*"|\047(\\.|[^\047\\])+\047/)) {
          out = out substr(line, 1, RSTART - 1)
          comment = substr(line, RSTART, 2) == "/*"
          if (!comment) out = out "\"\""
          line = substr(line, RSTART + RLENGTH)
        } else { out = out line; break }
      }
      print NR "\t" (section ? section : "-") "\t" out
    }' "$1"
}

# Declarations and definitions at file level, each on one line, up to its { or
# ;.
heads() {
  awk -F '\t' '
    $3 ~ /^[A-Za-z_]/ && $3 !~ /^(typedef|struct|union|enum|extern)\>/ &&
      $3 !~ /^_Static_assert/ &&
      !open { open = 1; head = ""; line = $1; section = $2 }
    $3 ~ /^#/ { open = 0 }
    open {
      head = head " " $3
      if ($3 ~ /[{;]/) { print line "\t" section "\t" head; open = 0 }
    }' "$work/code"
}

functions() {
  sed -E 's/[A-Z][A-Z_]+\([^()]*\)//' "$work/heads" | # attribute macros
    awk -F '\t' '$3 ~ /^[^=]*[a-z0-9_]\([^*=]/'
}

ahead() { functions | grep -P '\t static [^={]*;' || true; }

misnamed() {
  functions | awk -F '\t' '
    { name = $3; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
      first = name; sub(/_.*/, "_", first) }
    $3 ~ / static / && $2 ~ /_$/ && first != $2 {
      print $1 ": " name " in section " $2 }
    $3 ~ / static / && $2 == "zke_," && first != "api_" {
      print $1 ": " name " in section zke_" }
    $3 !~ / static / &&
      ($2 != "zke_," || first != "zke_") {
      print $1 ": " name " is public" }'
}

# calls SECTION NAMES [CODE]: calls of a name outside of the section
calls() {
  awk -F '\t' -v home="$1" -v names="$2" '
    BEGIN { gsub(/ /, "|", names) }
    $2 != home && $3 ~ "(^|[^A-Za-z0-9_.>])(" names ") *\\(" {
      print $1 ": " $3 }' "${3:-$work/code}"
}

public_calls() { calls zke_, 'zke_[a-z_]+'; }

# data WHERE: uses of a section's data; "own" or "strange" ones
data() {
  awk -F '\t' -v where="$1" '
    $3 !~ /^#define/ {
      text = $3
      gsub(/[ (&]t->/, " ", text) # a transaction has a list of that name
      while (match(text, /->(lock|life|wake|fd|fork|sweep|guest)\.[a-z_]+/)) {
        name = substr(text, RSTART + 2); sub(/\..*/, "", name)
        home = name == "guest" ? "app_" : name "_"
        own = $2 == home || $2 == "store_" ||
          (name == "fd" && $2 == "fork_") || (name == "guest" && $2 == "zke_,")
        if (own == (where == "own")) print $1 ": " $3
        text = substr(text, RSTART + RLENGTH)
      }
    }' "$work/code"
}

system_calls='open|openat|creat|close|dup|dup2|dup3|fcntl|flock|lockf|ioctl
  read|readv|pread|write|writev|pwrite|ftruncate|fsync|fdatasync|sync|mmap
  stat|fstat|lstat|fstatat|statfs|fstatfs|statvfs|access|readlink|realpath
  chmod|fchmod|chown|fchown|mkdir|mkfifo|unlink|unlinkat|rmdir|rename|link
  opendir|fdopendir|readdir|closedir|pipe|pipe2|eventfd|signalfd
  poll|ppoll|select|epoll_create1|epoll_ctl|epoll_wait|epoll_pwait
  timerfd_create|timerfd_settime|clock_gettime|gettimeofday|time|nanosleep
  clock_nanosleep|usleep|sleep|getpid|getppid|gettid|getuid|geteuid|kill
  fork|vfork|execve|waitpid|signal|sigaction|pthread_sigmask|sigtimedwait
  getrandom|getentropy|random|rand|getenv|syscall|pidfd_open|fopen|fclose'
system_calls=$(printf %s "$system_calls" | tr -s ' \n' '||')

recipes_call() {
  for recipe in $recipes; do
    case $recipe in recipes/engine/z*) continue ;; esac
    code "$recipe" >"$work/recipe"
    calls none "$(echo "$system_calls" | sed 's/|getpid|getppid//
      s/|getentropy//')" "$work/recipe" | sed "s|^|$recipe:|"
  done
}

knows_sqlite() {
  grep -ln 'sqlite3' $recipes $command |
    grep -vx -e 'shell/database.c' -e 'recipes/fence.c' -e 'shell/extension/.*'
  grep -n 'include <sqlite3' zkembed.h
}
knows_private() { grep -n '#include ".*zkembed\.c"' $recipes $command; }

# uses FILE...: each file with each other one that it takes something from: a
# function or a table at file level there that is not static.
uses() {
  for file; do code "$file" | sed "s|^|$file\t|"; done |
    awk -F '\t' '
      { name = $4; sub(/^__attribute__ *\(.*\)\) /, "", name) }
      name ~ /^[a-z_]/ && name ~ /[(\[]/ && name !~ /^(static|typedef|#)/ {
        sub(/[(\[].*/, "", name); sub(/.*[ *]/, "", name)
        home[name] = $1
      }
      { file[NR] = $1; text[NR] = $4 }
      END {
        for (i = 1; i <= NR; i++) {
          gsub(/(\.|->)[A-Za-z_]+/, "", text[i]) # members
          n = split(text[i], word, /[^A-Za-z0-9_]+/)
          for (j = 1; j <= n; j++)
            if (word[j] in home && home[word[j]] != file[i])
              print file[i], home[word[j]]
        }
      }' | sort -u
}
circles() { uses "$@" | tsort 2>&1 >"$work/sorted"; }

# Uses by parts of recipes of a recipe, or of a part after them in the list.
parts_above() {
  uses $(sources $recipes) | awk -v parts="$RECIPE_PARTS" '
    BEGIN { n = split(parts, part, " ")
      for (i = 1; i <= n; i++) level["recipes/" part[i] ".c"] = i }
    ($1 in level) && !(($2 in level) && level[$2] < level[$1])'
}

# The names in the top directory; in a checkout only tracked ones.
top() {
  { [ -e .git ] && git ls-files 2>/dev/null || ls -A; } |
    sed 's|/.*||' | sort -u | grep -vx -e build -e .git
}
strays() {
  top | grep -vxF -e .ci -e .clang-format -e .clang-tidy -e .gitignore \
    -e LICENSE -e Makefile -e README.md -e doc -e recipes -e shell -e test \
    -e zkembed.c -e zkembed.h
}

code "$source" >"$work/code"
heads >"$work/heads"
expect "sections as in the table of contents" same_sections
expect "over a hundred functions are seen" \
  [ "$(functions | wc -l)" -gt 100 ]
expect "no static function is declared ahead" nothing ahead
expect "functions bear their section's prefix" nothing misnamed
expect "fifty uses of sections' own data are seen" \
  [ "$(data own | wc -l)" -ge 50 ]
expect "a section's data is used by no other" nothing data strange
expect "only the last section calls public functions" nothing public_calls
expect "only os_ calls the system" nothing calls os_ "$system_calls"
expect "recipes call the system by the handle's table" nothing recipes_call
expect "recipes are made of at least five files" \
  [ "$(echo $RECIPE_PARTS | wc -w)" -ge 5 ]
expect "each of them uses only those before it in the list" nothing parts_above
expect "only mem_ calls the allocator" \
  nothing calls mem_ 'malloc|calloc|realloc|free|strdup|strndup|asprintf'
expect "SQLite is known to the engine, the extension, database.c and fence.c" \
  nothing knows_sqlite
expect "over a hundred uses among the command's files are seen" \
  [ "$(uses $(sources $command) | wc -l)" -gt 100 ]
expect "no circle among the command's files" \
  nothing circles $(sources $command)
expect "a hundred uses among the recipes' files are seen" \
  [ "$(uses $(sources $recipes) | wc -l)" -ge 100 ]
expect "no circle among the recipes' files" nothing circles $(sources $recipes)
expect "recipes and command include public headers only" nothing knows_private
expect "the names at the top are seen" [ "$(top | grep -cxF zkembed.c)" = 1 ]
expect "nothing else lies at the top" nothing strays
report
