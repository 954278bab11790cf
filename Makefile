# zkembed's build: libraries, command, installation.  `make help` lists the
# goals; everything is built in build/.  Tests and tools are in test/*.mk.
#
# An object depends on the headers that it includes, which the compiler writes
# to *.d.  A program is linked from everything that it depends on.

# ---- settings --------------------------------------------------------------

PREFIX = /usr/local
INCLUDEDIR = $(PREFIX)/include
LIBDIR = $(PREFIX)/lib
BINDIR = $(PREFIX)/bin
MANDIR = $(PREFIX)/share/man
DOCDIR = $(PREFIX)/share/doc/zkembed
SHAREDIR = $(PREFIX)/share/zkembed
COMPLETIONDIR = $(PREFIX)/share/bash-completion/completions
DESTDIR =

##@ Variables, for all goals; a variant has a directory of its own
## CC=clang        SAN=address,undefined, SAN=thread, SQLITE=.../sqlite3.c
## V=1             shows whole commands; WERROR=1: warnings are errors
## JOBS=4          this many compilers, then test programs, at a time
SAN =# sanitizers, as -fsanitize= takes them
SQLITE =# path of a sqlite3.c to compile in; empty: the system's library
WERROR =# 1: warnings are errors
FUZZ_CC = clang# of make fuzz

CFLAGS ?= $(if $(SAN),-O1 -g -fno-omit-frame-pointer,-O2 -g)
# (gcc looks for each line's indentation from the start of the file, which takes
# a quarter of the time for zkembed.c.  `make check-format` checks indentation.)
WARNINGS = -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wundef \
  -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wcast-qual \
  -Wno-misleading-indentation $(if $(WERROR),-Werror)

# Compiling takes most of the time: so make uses all processors for these goals,
# unless -j or JOBS says otherwise, and one job more, since tests run at the
# same time.
ifeq ($(MAKELEVEL) $(word 2,$(MAKECMDGOALS)),0 )
MAKEFLAGS += $(if $(filter all install demo test test-% transcripts valgrind \
  coverage mutate,$(or $(MAKECMDGOALS),all)),-j$(or $(JOBS),$(shell \
  expr $$(nproc) + 1)))
endif

# ---- derived from the settings ---------------------------------------------

VERSION := $(shell sed -n 's/^.define ZKE_VERSION "\(.*\)"/\1/p' zkembed.h)
MAJOR := $(firstword $(subst ., ,$(VERSION)))

# A variant is built in its own directory, such as build/clang.
empty =
comma = ,
VARIANT = $(filter-out cc gcc,$(notdir $(CC))) $(subst $(comma), ,$(SAN)) \
  $(if $(SQLITE),amalgamation)
BUILD = build$(addprefix /,$(subst $(empty) $(empty),-,$(strip $(VARIANT))))

SAN_FLAGS = $(SAN:%=-fsanitize=% -fno-sanitize-recover=all)
COMMAND = $(BUILD)/zke

# Missing packages are fetched before anything is made: so no compiler runs
# without its headers, and the package manager runs only once.  `make -n`
# fetches nothing.
ifeq ($(findstring n,$(firstword -$(MAKEFLAGS))),)
ifneq ($(shell $(foreach v,BUILD CC COMMAND FUZZ_CC SAN_FLAGS SERVER SERVERS \
  SHORT SQLITE SUITE,$v='$($v)') sh test/deps.sh --goals \
  $(or $(MAKECMDGOALS),all) >&2 || echo no),)
$(error nothing was made, since packages are missing)
endif
endif

SQLITE_CFLAGS = $(if $(SQLITE),-I$(dir $(SQLITE)))
SQLITE_OBJECT = $(if $(SQLITE),$(BUILD)/sqlite3.o)
LIBS = $(if $(SQLITE),-ldl,-lsqlite3) -lpthread
LINK = $(LDFLAGS) $(SAN_FLAGS)

# The library is compiled without _GNU_SOURCE on the command line, as in a
# program that has its files among its own.
COMMON_CFLAGS = -std=c11 $(SQLITE_CFLAGS) \
  $(if $(SAN),-DZKE_DEBUG) $(CPPFLAGS) $(CFLAGS) $(SAN_FLAGS)
LIB_CFLAGS = $(COMMON_CFLAGS) -fvisibility=hidden $(WARNINGS) -Wswitch-enum
# On 32 bits, files beyond 2 GiB and times after 2037.
WIDE_CFLAGS = -D_FILE_OFFSET_BITS=64 -D_TIME_BITS=64
PROGRAM_CFLAGS = $(COMMON_CFLAGS) $(WIDE_CFLAGS) -I. $(WARNINGS)
TEST_CFLAGS = $(COMMON_CFLAGS) $(WIDE_CFLAGS) -DZKE_DEBUG -D_GNU_SOURCE= -I. \
  -I$(BUILD)/test \
  $(filter-out -Wconversion,$(WARNINGS))
OWN_FLAGS =# of one object

OBJECTS = $(BUILD)/zkembed.o $(SQLITE_OBJECT)
ARCHIVE = $(BUILD)/libzkembed.a
SHARED = $(BUILD)/libzkembed.so.$(VERSION)

RECIPE_SOURCES := $(wildcard recipes/*.c recipes/*/*.c)
RECIPE_HEADERS := $(wildcard recipes/*.h recipes/*/*.h)
# The headers that programs include.
PUBLIC_HEADERS := zkembed.h $(wildcard recipes/*.h) recipes/engine/compose.h \
  recipes/engine/zookeeper.h
# The parts of recipes, the lowest layer first.
RECIPE_PARTS = part/text part/doubt part/limit support part/object part/znode \
  part/view part/entry part/deadlock part/party part/line part/queue_tree \
  part/queue_item part/queue_list part/queue_put part/queue_claim \
  part/queue_wait part/phase_step part/phase_tree part/phase_look \
  part/phase_list part/double_barrier_tree part/double_barrier_list \
  part/partition_plan part/partition_item
RECIPE_OBJECTS = $(RECIPE_SOURCES:%.c=$(BUILD)/%.o)
RECIPE_ARCHIVE = $(BUILD)/libzkembed-recipes.a
RECIPE_SHARED = $(BUILD)/libzkembed-recipes.so.$(VERSION)

# The command reads JSON with jansson, and edits lines with libedit if that is
# there.
COMMAND_SOURCES := $(wildcard shell/*.c shell/serve/*.c)
COMMAND_OBJECTS = $(COMMAND_SOURCES:%.c=$(BUILD)/%.o)
# All of it except main(), for other programs.
COMMAND_ARCHIVE = $(BUILD)/shell/shell.a
EDIT := $(shell $(CC) -E -include histedit.h -x c /dev/null >/dev/null 2>&1 && \
  echo 1)
COMMAND_LIBS = -ljansson $(if $(EDIT),-ledit)

# Engine, recipes and SQL functions, for the SQLite of the program that loads
# it.  So the files that call SQLite are compiled for that; only one of the
# recipes does.
EXTENSION = $(BUILD)/zkembed.so
EXTENSION_SOURCES := zkembed.c recipes/fence.c $(wildcard shell/extension/*.c)
EXTENSION_OBJECTS = $(EXTENSION_SOURCES:%.c=$(BUILD)/extension/%.o)

# The laboratory copies and restores the program's memory, which a sanitizer
# reports as a fault, and its stack switching is written for one kind of
# machine.  The one that forks works on every Linux.  zke-lab-serve is for
# programs in other languages.
LAB := $(if $(SAN),,$(shell $(CC) -dumpmachine | grep -v musl | grep x86_64))
LAB_FORKED := $(shell $(CC) -dumpmachine | grep linux)
LAB_ARCHIVE = $(if $(LAB),$(BUILD)/libzkembed-lab.a)
LAB_FORKED_ARCHIVE = $(if $(LAB_FORKED),$(BUILD)/libzkembed-lab-forked.a)
LAB_ARCHIVES = $(LAB_ARCHIVE) $(LAB_FORKED_ARCHIVE)
LAB_LIBS = $(or $(SQLITE_OBJECT),-l:libsqlite3.a) -lm -ldl -lpthread
LABSERVE = $(if $(LAB),$(COMMAND:%zke=%zke-lab-serve))
LABSERVE_PYTHON = $(BUILD)/zkelab.py

CONFIGS = $(addprefix $(BUILD)/,zkembed.pc zkembed-recipes.pc \
  $(if $(LAB),zkembed-lab.pc) $(if $(LAB_FORKED),zkembed-lab-forked.pc))

export BUILD CC LAB LAB_LIBS LIBS MAKE PUBLIC_HEADERS RECIPE_PARTS \
  SAN SQLITE_CFLAGS WARNINGS

# ---- libraries and the command ---------------------------------------------

##@ Build
## make            libraries, pkg-config files, the command zke, the laboratory;
##                 COMMAND= leaves out zke, and with it the need of jansson
## extension       zkembed.so, the extension for SQLite alone
.PHONY: all extension
all: $(ARCHIVE) $(SHARED) $(RECIPE_ARCHIVE) $(RECIPE_SHARED) $(COMMAND) \
  $(EXTENSION) $(LAB_ARCHIVES) $(LABSERVE) $(CONFIGS)
extension: $(EXTENSION)

.DELETE_ON_ERROR:
.SUFFIXES:

# Each command makes the target's directory and prints one short line, or with
# V=1 the command itself.
run = $(if $(V),,@echo '  $(1)  $@' &&) mkdir -p $(@D) &&
cc = $(call run,CC) $(CC) -MMD -MP -MF $@.d
ar = $(call run,AR) rm -f $@ && $(AR) qcs $@ $(filter %.o,$^)
# A program from the objects and archives that it depends on, in any order.
program = $(call run,LD) $(CC) $(COMMON_CFLAGS) $(LINK) -o $@ $(filter %.o,$^) \
  -Wl,--start-group $(filter %.a,$^) -Wl,--end-group
# shared LIBRARIES: with the names that the loader and the linker use
define shared
$(call run,LD) $(CC) -shared -Wl,-soname,$(@F:.$(VERSION)=.$(MAJOR)) $(LINK) \
  -o $@ $(filter %.o %.lo,$^) $(1)
@ln -sf $(@F) $(@:.$(VERSION)=.$(MAJOR))
@ln -sf $(@F) $(@:.$(VERSION)=)
endef

$(BUILD)/zkembed.lo: OWN_FLAGS = -fPIC
$(BUILD)/zkembed.o $(BUILD)/zkembed.lo: zkembed.c
	$(cc) $(LIB_CFLAGS) $(OWN_FLAGS) -c -o $@ $<

$(BUILD)/recipes/%.o: recipes/%.c
	$(cc) $(LIB_CFLAGS) -I. -fPIC -c -o $@ $<

# Only this file differs without libedit (terminal_edit.sh builds on it).
$(BUILD)/shell/edit.o: OWN_FLAGS = $(if $(EDIT),-DZKE_EDIT)
$(BUILD)/shell/%.o: shell/%.c
	$(cc) $(PROGRAM_CFLAGS) -D_GNU_SOURCE= $(OWN_FLAGS) -c -o $@ $<

# It exports only its init function: if it exported others, its calls could go
# to another copy of the engine in the program.  It is never unloaded, since its
# thread-local variables would stay.
$(BUILD)/extension/shell/%.o: OWN_FLAGS = -D_GNU_SOURCE=
$(BUILD)/extension/%.o: %.c
	$(cc) $(LIB_CFLAGS) $(OWN_FLAGS) -DZKE_API= -fPIC -I. \
	  -include shell/extension/sqlite.h -c -o $@ $<
$(EXTENSION): $(EXTENSION_OBJECTS) $(RECIPE_ARCHIVE)
	$(call run,LD) $(CC) -shared -Wl,-z,nodelete -Wl,--exclude-libs,ALL \
	  $(LINK) -o $@ $^ -lpthread

# SQLite's own file follows other rules about warnings.
$(BUILD)/sqlite3.o: $(SQLITE)
	$(cc) $(CFLAGS) $(SAN_FLAGS) -w -fPIC -fvisibility=hidden \
	  -DSQLITE_THREADSAFE=1 -DHAVE_USLEEP=1 -c -o $@ $(SQLITE)

$(BUILD)/libzkembed.a: $(OBJECTS)
	$(ar)
$(BUILD)/libzkembed-recipes.a: $(RECIPE_OBJECTS)
	$(ar)
$(BUILD)/shell/shell.a: $(filter-out %/main.o,$(COMMAND_OBJECTS))
	$(ar)

$(SHARED): $(BUILD)/zkembed.lo $(SQLITE_OBJECT)
	$(call shared,$(LIBS))

$(RECIPE_SHARED): $(RECIPE_OBJECTS) $(SHARED)
	$(call shared,-L$(BUILD) -lzkembed)

$(BUILD)/zke: $(COMMAND_OBJECTS) $(RECIPE_ARCHIVE) $(ARCHIVE)
	$(program) $(COMMAND_LIBS) $(LIBS)

# ---- install ---------------------------------------------------------------

INSTALL = install

# Written each time, since PREFIX may have changed.
.PHONY: $(CONFIGS)
write_config = @mkdir -p $(@D) && printf '%s\n' >$@ 'prefix=$(PREFIX)' \
  'includedir=$(INCLUDEDIR)' 'libdir=$(LIBDIR)' '' 'Name: $(basename $(@F))' \
  'Version: $(VERSION)'
$(BUILD)/zkembed.pc:
	$(write_config) 'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -lzkembed' \
	  "Description: ZooKeeper's tree of znodes in one SQLite file" \
	  'Libs.private: $(strip $(LIBS))'

$(BUILD)/zkembed-recipes.pc:
	$(write_config) 'Description: Recipes over zkembed' 'Requires: zkembed' \
	  'Libs: -L$${libdir} -lzkembed-recipes' 'Libs.private: -lpthread'

# The laboratory contains engine and recipes.
$(BUILD)/zkembed-lab.pc:
	$(write_config) 'Description: Recipe code run in every order, with deaths' \
	  'Cflags: -I$${includedir}' \
	  'Libs: -L$${libdir} -lzkembed-lab $(strip $(LAB_LIBS))'

$(BUILD)/zkembed-lab-forked.pc:
	$(write_config) 'Cflags: -I$${includedir}' \
	  'Description: zkembed-lab for sanitizers, valgrind and other systems' \
	  'Libs: -L$${libdir} -lzkembed-lab-forked $(strip $(LIBS))'

MAN3 = $(BUILD)/man3/zkembed.3# and a page for each header and function
$(MAN3): doc/manual.awk $(PUBLIC_HEADERS) \
  $(if $(LAB_FORKED),test/lab/zkembed-lab.h)
	$(call run,AWK) rm -f $(@D)/* && awk -v out=$(@D) -v version=$(VERSION) \
	  -f $< $$(grep -l -e ZKE_API -e zkembed-lab.h $(filter %.h,$^))

# put DIRECTORY,FILES,MODE: installs the files there, if there are any; in `make
# uninstall` it removes them
put = $(if $(strip $(2)),$(if $(V),,@echo '  $@  $(DESTDIR)$(1)' &&) \
  $(if $(filter uninstall,$@), \
  rm -f $(patsubst %,"$(DESTDIR)$(1)/%",$(notdir $(2))), \
  $(INSTALL) -d "$(DESTDIR)$(1)" && \
  $(INSTALL) -m $(or $(3),644) $(2) "$(DESTDIR)$(1)"))
define put_all
$(call put,$(INCLUDEDIR),zkembed.h $(if $(LAB_FORKED),test/lab/zkembed-lab.h))
$(call put,$(INCLUDEDIR)/zkembed,$(wordlist 2,99,$(PUBLIC_HEADERS)))
$(call put,$(LIBDIR),$(ARCHIVE) $(SHARED) $(RECIPE_ARCHIVE) $(RECIPE_SHARED) \
  $(LAB_ARCHIVES))
$(call put,$(LIBDIR),$(EXTENSION),755)
$(call put,$(LIBDIR)/pkgconfig,$(CONFIGS))
$(call put,$(BINDIR),$(COMMAND) $(LABSERVE),755)
$(call put,$(COMPLETIONDIR),$(COMPLETION))
$(call put,$(DOCDIR),$(if $(COMMAND),doc/coprocess.md doc/server.md))
$(call put,$(DOCDIR)/examples/coprocess,$(if $(COMMAND), \
  $(wildcard doc/examples/coprocess/*.*)))
$(call put,$(SHAREDIR),$(LABSERVE:%=$(LABSERVE_PYTHON)))
$(call put,$(MANDIR)/man1,$(COMMAND:%=doc/zke.1))
$(call put,$(MANDIR)/man3,$(shell ls $(BUILD)/man3/*.3))
endef

# Directories for files of zkembed alone, deeper ones first.
OWN_DIRECTORIES = $(INCLUDEDIR)/zkembed $(DOCDIR)/examples/coprocess \
  $(DOCDIR)/examples $(DOCDIR) $(SHAREDIR)
LINKS = libzkembed.so libzkembed.so.$(MAJOR) \
  libzkembed-recipes.so libzkembed-recipes.so.$(MAJOR)
COMPLETION = $(COMMAND:%=$(BUILD)/completion/zke)
$(BUILD)/completion/zke: shell/zke.bash
	@mkdir -p $(@D) && cp $< $@

## install         puts them under PREFIX=/usr/local and DESTDIR; uninstall
.PHONY: install uninstall
install: all $(COMPLETION) $(MAN3)
	$(if $(word 2,$(PREFIX)),$(error PREFIX may have no space in it))
	$(put_all)
	@cp -P $(LINKS:%=$(BUILD)/%) "$(DESTDIR)$(LIBDIR)"
ifeq ($(DESTDIR),)
	@PATH=$$PATH:/sbin:/usr/sbin; ldconfig 2>/dev/null; \
	  ldconfig -p | grep -q ' $(LIBDIR)/libzkembed.so.$(MAJOR)$$' || \
	  echo 'Programs find $(LIBDIR)/libzkembed.so after ldconfig as root, if' \
	  '/etc/ld.so.conf names that directory; otherwise set LD_LIBRARY_PATH.'
endif

uninstall: $(MAN3)
	$(put_all)
	$(call put,$(LIBDIR),$(LINKS))
	@rmdir $(OWN_DIRECTORIES:%="$(DESTDIR)%") 2>/dev/null || :

# ---- releases, layout ------------------------------------------------------

##@ Files to pass on
## amalgamation    the four files to drop into a program, in build/four-files:
##                 zkembed.[ch], zkembed_recipes.[ch]; RECIPES="lock queue"
## dist            a release's tarball, build/zkembed-VERSION.tar.gz
## release         all files of a release, in build/release, and tries them
## deb             packages for Debian, in build/deb, built and tried in bare
##                 roots: SUITES="trixie bookworm" DEBFULLNAME= DEBEMAIL=
## format          lays all C files out as .clang-format says
## clean           removes build/
.PHONY: amalgamation dist release release-files deb format clean help
FOUR_FILES = $(BUILD)/four-files
amalgamation:
	@mkdir -p $(FOUR_FILES) && cp zkembed.c zkembed.h $(FOUR_FILES)
	@sh recipes/amalgamate.sh $(FOUR_FILES)/zkembed_recipes $(RECIPES)
	@ls $(FOUR_FILES)/*

dist:
	@mkdir -p $(BUILD)
	@sh test/dist.sh zkembed-$(VERSION) $(BUILD)/zkembed-$(VERSION).tar.gz

release: release-files
	@sh test/run.sh $(patsubst %,test/checks/check_%.sh,$(RELEASE_CHECKS))
	@ls $(BUILD)/release/*

release-files:
	@mkdir -p $(BUILD)
	@sh test/package/files.sh $(BUILD)/release

deb:
	@sh test/package/deb.sh

format:
	clang-format -i $(wildcard $(addsuffix *.[ch],./ test/ test/*/ \
	  doc/examples/ recipes/ recipes/*/ shell/ shell/*/))

clean:
	rm -rf build

help:
	@sed -n 's/^##@ /\n/p; s/^## /  /p' Makefile $(PARTS)
	@echo

PARTS = $(patsubst %,test/%.mk,tests lab torture extension sim fuzz checks \
  bench)
include $(PARTS)
-include $(wildcard $(BUILD)/*.d) $(shell find $(addprefix $(BUILD)/,recipes \
  shell extension doc test lab lab-forked labserve) $(FUZZ) -name '*.d' 2>/dev/null)
