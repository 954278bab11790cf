#!/bin/sh
# deb.sh - build Debian packages of the last commit, and try them
#
#   SUITES="trixie bookworm"    the releases of Debian
#   DEBFULLNAME= DEBEMAIL=      who stands in them as the maintainer
#
# In a bare root of each release (test/checks/roots.sh) a user builds the source
# package: the tarball of `make dist` with test/package/debian/.  It goes into
# build/deb/SUITE/ with what was built.  In another copy of the root the
# packages are installed, used as README and doc/ tell, and purged.
. test/report.sh
. test/checks/roots.sh

major=${version%%.*}
name=zkembed-$version
maintainer="${DEBFULLNAME:-the zkembed authors}"
maintainer="$maintainer <${DEBEMAIL:-zkembed@example.org}>"
home=$root/home/somebody
install='apt-get -qy --no-install-recommends install'

# debian: the directory of this name, in the version of zkembed.h
debian() {
  cp -r test/package/debian "$home/zkembed" &&
    cd "$home/zkembed/debian" && mv control control.in &&
    sed -e "s/@MAJOR@/$major/" -e "s/@MAINTAINER@/$maintainer/" control.in \
      >control && rm control.in &&
    mv libzkembed.install "libzkembed$major.install" &&
    sed -e 1,4d -e 's/^$/./' -e 's/^/ /' ../LICENSE >>copyright &&
    printf '%s\n' "zkembed ($version-1) unstable; urgency=medium" '' \
      "  * Version $version." '' " -- $maintainer  $(LC_ALL=C date -u -R \
        -d "@$(stat -c %Y ../zkembed.h)")" >changelog
}

# source_package: it lies with the user
source_package() {
  tarball=$home/zkembed_$version.orig.tar.gz
  sh test/dist.sh "$name" "$tarball" && tar -xzf "$tarball" -C "$home" &&
    mv "$home/$name" "$home/zkembed" && (debian) &&
    chown -R 1000:1000 "$home"
}

# needs: what Build-Depends names, and no more but for lintian
needs() {
  mkdir "$root/root/zkembed" && inside 0 "apt-get -q update &&
    $install build-essential lintian &&
    apt-get -qy --no-install-recommends build-dep /home/somebody/zkembed"
}

built() { inside 1000 'dpkg-buildpackage -us -uc'; }

# lint: lintian has nothing to say.  No request in Debian's bug tracker waits for
# the first version.
lint() {
  nothing inside 1000 'lintian ../*.changes \
    --suppress-tags initial-upload-closes-no-bugs'
}

kept() {
  rm -rf "$kept" && mkdir -p "$kept" &&
    cp "$home"/*.deb "$home"/*.dsc "$home"/*.tar.* "$home"/*.changes "$kept"
}

# installed: in another copy, with what the programs below need
installed() {
  copy $suite && mkdir "$root/root/zkembed" &&
    cp "$kept"/*.deb README.md "$root/root/zkembed" &&
    rm -f "$root"/root/zkembed/*-dbgsym_*.deb &&
    inside 0 "apt-get -q update && $install ./*.deb pkg-config sqlite3"
}

# program N: README's Nth, as app.c
program() {
  readme_program "$1" zkembed/lock.h >"$root/root/zkembed/app.c"
}

# first: with the shared library, which it asks for by its soname
first() {
  program 1 && inside 0 "cc -o app app.c \
      \$(pkg-config --cflags --libs zkembed) &&
    ldd app | grep 'libzkembed\.so\.$major ' && ./app" | grep leading
}

# lock LIBRARY...: README's second, with these
lock() { program 2 && inside 0 "cc -o app app.c $* && ./app" | grep '^held'; }

command_works() {
  inside 0 'zke app.db lock backup -- echo held && zke --version' |
    grep "$version"
}

extension() {
  inside 0 "sqlite3 app.db '.load zkembed' \"SELECT zke_lock('nightly')\""
}

has() { for file; do [ -s "$root/usr/share/$file" ] || return; done; }

purged() {
  inside 0 "dpkg-query -W -f '\${Package} \${Source}\n' |
      awk '\$1 == \"zkembed\" || \$2 == \"zkembed\" { print \$1 }' |
      xargs apt-get -qy purge"
}

# left: files by our names, and packages
left() {
  find "$root" -xdev -path "$root/root" -prune -o \
    \( -iname '*zkembed*' -o -iname 'zke*' \) -print
  inside 0 'dpkg-query -W "*zkembed*" 2>/dev/null'
}

for suite in ${SUITES:-trixie bookworm}; do
  made_bare $suite || continue
  kept=$(pwd)/build/deb/$suite
  copy $suite || exit 1
  says 'a source package' source_package
  says 'what it needs' needs
  says 'packages are built' built
  says 'lintian is content' lint
  says "they are in $kept" kept
  says 'they are installed' installed
  says "README's first program" first
  says 'a program with a lock, shared libraries' \
    lock -lzkembed-recipes -lzkembed
  says 'a program with a lock, static libraries' \
    lock -l:libzkembed-recipes.a -l:libzkembed.a -lsqlite3 -lpthread
  says 'the command' command_works
  says 'the extension' extension
  says 'manual pages, completion' has man/man1/zke.1.gz \
    man/man3/zke_create.3.gz bash-completion/completions/zke
  says 'they are purged' purged
  says 'nothing is left' nothing left
done
[ $((passed + failed)) -gt 0 ] || expect 'one of these releases is there' false
report
