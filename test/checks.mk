# checks.mk - checks that read or build, each by a script whose head describes
# it.  Included by the Makefile.

CHECKS = headers symbols interface layers format docs shapes engines \
  sqlite-version install $(if $(COMMAND),manuals surface) $(if $(SQLITE),,twice)
RELEASE_CHECKS = release dist packages# what make release runs
CHECKED =# what make check leaves out
LINT =# the files that make lint reads; empty: all

##@ Checks
## check           headers, symbols, layers, format, documents and so on
## check-NAME      one of: headers symbols interface layers format docs shapes
##                 engines sqlite-version install manuals surface twice; and, of
##                 make release, release dist packages
## interface       accepts a change of the interface: headers, commands, SQL
## lint            gcc -fanalyzer, clang-tidy and cppcheck: LINT=zkembed.c
## style           lengths, comments, duplicates and complexity, as a table
## platforms       README's platforms: a program is built and run on each
## other-machines  the engine on i386, armhf, arm64 and s390x, by cross compilers
##                 and qemu-user: MACHINES="..." SHORT=1
## fresh           README's commands on fresh Debians, 20 minutes: SUITES= SHORT=1
## release-check   what a release needs beside .ci/run, hours: SHORT=1 ONLY=
.PHONY: check $(CHECKS:%=check-%) $(RELEASE_CHECKS:%=check-%) interface lint \
  style platforms other-machines fresh release-check

check check-install check-surface check-symbols interface: all
check check-manuals: $(COMMAND) $(MAN3)
check check-docs: $(ARCHIVE) $(RECIPE_ARCHIVE) $(LAB_ARCHIVE)
check check-twice: $(BUILD)/zkembed.lo $(SQLITE_OBJECT)
$(RELEASE_CHECKS:%=check-%): release-files

check:
	@sh test/run.sh $(patsubst %,test/checks/check_%.sh,$(subst -,_, \
	  $(filter-out $(CHECKED),$(CHECKS))))

$(CHECKS:%=check-%) $(RELEASE_CHECKS:%=check-%): check-%:
	@mkdir -p $(BUILD)
	@sh test/run.sh test/checks/check_$(subst -,_,$*).sh

interface:
	@sh test/checks/check_interface.sh --accept
	@sh test/checks/check_surface.sh --accept

lint:
	@LINT="$(LINT)" sh test/run.sh test/checks/lint.sh

style:
	@sh test/checks/style.sh

platforms: build/deps/sqlite-newest/sqlite3.c
	@sh test/run.sh test/checks/check_platforms.sh

other-machines: $(BUILD)/zke
	@sh test/checks/other_machines.sh

fresh:
	@sh test/checks/fresh.sh

release-check:
	@bash test/release.sh
