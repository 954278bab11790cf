#!/bin/sh
# check_packages.sh - doc/packages.md is true for CMake and Meson
#
# README's program with a lock is built from the tarball of `make release` in
# each of the ways described there, with the document's own lines, and runs.
. test/report.sh

scratch place packages
name=zkembed-$version
major=${version%%.*}
: "${PUBLIC_HEADERS:?is set by make}"
export CC CMAKE_BUILD_TYPE=Debug

# block LANGUAGE: the document's block in this language
block() {
  sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" doc/packages.md | sed '/```/d'
}

# program FOLDER HEADER: README's program, in its own folder, with this header
program() {
  mkdir -p "$place/$1" && readme_program 2 "$2" >"$place/$1/app.c" &&
    grep -q zke_lock_acquire "$place/$1/app.c"
}

# runs PROGRAM: it gets the lock
runs() { (cd "$place" && rm -rf app.db* && "$1" | grep '^held, token'); }

# cmake_builds FOLDER OPTION...: builds what CMakeLists.txt there describes
cmake_builds() {
  folder=$place/$1
  shift
  cmake -S "$folder" -B "$folder/build" "$@" && cmake --build "$folder/build"
}

tarball() {
  cp "$BUILD/release/$name.tar.gz" "$place" &&
    tar -xzf "$place/$name.tar.gz" -C "$place"
}

fetched() {
  program fetched zkembed/lock.h &&
    cp "$place/$name.tar.gz" "$place/fetched/zkembed.tar.gz" &&
    block cmake >"$place/fetched/CMakeLists.txt" &&
    cmake_builds fetched && runs fetched/build/app
}

# with LINE: the document's CMakeLists.txt, with this line to get zkembed
with() { block cmake | sed -e '/^include\|_Make/d' -e "s|^Fetch.*|$1|"; }

added() {
  program added zkembed/lock.h && cp -r "$place/$name" "$place/added/zkembed" &&
    with 'add_subdirectory(zkembed)' >"$place/added/CMakeLists.txt" &&
    cmake_builds added && runs added/build/app
}

# installed KIND OPTION...: installs into $place/KIND
installed() {
  kind=$1
  shift
  cp -r "$place/$name" "$place/source-$kind" &&
    cmake_builds "source-$kind" "$@" &&
    cmake --install "$place/source-$kind/build" --prefix "$place/$kind"
}

found() { # KIND: by find_package
  program "found-$1" zkembed/lock.h &&
    with "find_package(zkembed $version REQUIRED)" \
      >"$place/found-$1/CMakeLists.txt" &&
    cmake_builds "found-$1" -DCMAKE_PREFIX_PATH="$place/$1" &&
    runs "found-$1/build/app"
}

needs() {
  for library in zkembed zkembed-recipes; do
    readelf -d "$place/found-shared/build/app" |
      grep "\[lib$library\.so\.$major\]" || return
  done
}

same_headers() {
  [ "$(find "$place/static/include" -type f -printf '%f\n' | sort)" = \
    "$(basename -a $PUBLIC_HEADERS | sort)" ]
}

as_subproject() {
  folder=$place/meson
  program meson zkembed_recipes.h && block meson >"$folder/meson.build" &&
    mkdir -p "$folder/subprojects/packagefiles" &&
    cp "$place/$name.tar.gz" "$folder/subprojects/packagefiles" &&
    sum=$(sha256sum <"$place/$name.tar.gz") &&
    block ini | sed -e "s/VERSION/$version/" -e "s/SHA256/${sum%% *}/" \
      >"$folder/subprojects/zkembed.wrap" &&
    meson setup "$folder/build" "$folder" && ninja -C "$folder/build" &&
    runs meson/build/app
}

expect "the tarball" tarball
expect "CMake fetches it" fetched
expect "CMake has it in a directory" added
expect "CMake installs it" installed static
expect "as many headers as by make install" same_headers
expect "CMake finds what is installed" found static
expect "CMake installs shared libraries" installed shared -DBUILD_SHARED_LIBS=ON
expect "CMake finds these" found shared
expect "the program asks for them by their sonames" needs
expect "Meson has it as a subproject" as_subproject
report
