# zkembed's build.  Everything is made under build/.
#
#   make               the libraries, the pkg-config files and the command zke;
#                      COMMAND= leaves out zke, and with it the need of jansson
#   make install       puts them under PREFIX (and DESTDIR); make uninstall
#   make demo          counts the words of this checkout with several processes
#   make test          all tests; test-fast: the quick ones; test-NAME: one;
#                      FULL=1: all of what they take a sample of without it
#   make transcripts   what doc/ and test/shell say that zke prints, it prints
#   make test-tsan     the thread tests under ThreadSanitizer
#   make coverage      what of zkembed.c all tests together reach; needs gcc
#   make torture       processes that are killed: KILLS=… SEED=… SECONDS=…
#   make torture-recipes  the same with recipes; RECIPE=… for one of them
#   make torture-serve    servers of one file that are killed: KILLS=… SEED=…;
#                      MISTAKE=1 or 2: what the torture has to find
#   make torture-host  doc/examples with tables of their own, killed and
#                      deposed: KILLS=… SEED=… SECONDS=…; torture-host-mistakes:
#                      mistakes planted in them are found
#   make torture-ensemble  recipes on a ZooKeeper server that fails, over a bad
#                      network: KILLS=… SEED=…; SERVER=zookeeper, else zke
#   make order-ensemble  random programs over a file, `zke serve` and a ZooKeeper
#                      service with an observer: PROGRAMS=… SEED=…
#   make test-ensemble the recipes' tests on `zke serve` and on a ZooKeeper
#                      server, which it fetches: SERVER=… ONLY=NAME SHORT=1
#   make powerloss     power cuts; CUTS=… EVERY=… SEED=… COMMITS=…
#   make fuzz          fuzzes with libFuzzer: SECONDS=60 for each target,
#                      TARGET=path, ops, file, lines, import, jute, client
#                      or server for one; see test/fuzz/fuzz.h
#   make conformance   the same random operations on zkembed and on a ZooKeeper
#                      server, which it fetches: OPS=… SEED=… SEEDS=…; MASKS=1
#                      tells what is not compared; ENGINE=zookeeper: zkembed
#                      on a second such server in place of a file
#   make foreign       the tests of kazoo, the C client and go-zookeeper on
#                      `zke serve`, and on ZooKeeper servers, and the examples in
#                      Java and Go; SUITE=kazoo, zktest, go or examples for one;
#                      SHORT=1: kazoo's recipes, on zke, and the examples;
#                      SUITE=curator: the tests of Curator's recipes, 40 minutes
#   make model         the same random operations on zkembed and on a model of it
#                      in memory, compared call by call: OPS=… SEED=…
#   make lab           every recipe in the laboratory (doc/laboratory.md), for
#                      SECONDS=60 each; RECIPE=lock for one of them; SEED=…
#   make lab-mutants   mistakes planted in the recipes are found there: SEEDS=1
#                      ONLY=NAME
#   make bench         zkembed beside plain SQL, flock and the servers that
#                      are installed; QUICK=1: briefly; ONLY=lock
#   make bench-peers   the same, after fetching ZooKeeper, etcd and Redis
#   make bench-plots   draws the figures of the last run into doc/performance
#   make interface     accepts a change of the libraries' interface
#   make check         headers, symbols, layers, format, documents and so on;
#                      check-NAME: one of CHECKS below
#   make amalgamation  the four files to drop into a program: zkembed.[ch] and
#                      zkembed_recipes.[ch], in build/four-files;
#                      RECIPES="lock queue" for some recipes
#   make dist          a release's tarball, build/zkembed-VERSION.tar.gz
#   make platforms     README's platforms: a program is built and run on each;
#                      the tarball of make dist works
#   make fresh         README's commands on fresh Debians, in bare roots that
#                      mmdebstrap makes; SHORT=1: packages and first programs
#   make lint          gcc -fanalyzer, clang-tidy and cppcheck find nothing;
#                      LINT=zkembed.c: in that file
#   make style         lengths, comments, duplicates and complexity, as a table
#   make valgrind      the quick tests under valgrind; VALGRIND_TESTS=…
#   make sqlite-oldest sqlite-newest  the quick tests, those of gathered writes
#                      and of lock-free reads, conformance and torture with the
#                      oldest SQLite that is accepted and the newest, which are
#                      fetched by npm
#   make mutate        wrong lines in the engine are noticed by the quick tests:
#                      LINES=50 SEED=1
#   make deps          fetches the packages that the tests need, as each goal
#                      does for what it needs itself
#   make format        lays all C files out as .clang-format says
#   make clean
#
# Any of these can be had in a variant, which has a directory of its own:
# CC=clang, SAN=address,undefined, SAN=thread, SQLITE=…/sqlite3.c.  V=1 shows
# whole commands.

# A minute of processor time goes into compiling the tests: so all processors
# do it, unless -j or JOBS says otherwise.  One more job is for the tests that
# run beside.
ifeq ($(MAKELEVEL) $(words $(MAKECMDGOALS)),0 1)
MAKEFLAGS += $(if $(filter test test-% transcripts valgrind coverage mutate, \
  $(MAKECMDGOALS)),-j$(or $(JOBS),$(shell expr $$(nproc) + 1)))
endif

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

FUZZ_CC = clang# of make fuzz
SAN =# sanitizers, as -fsanitize= takes them
SQLITE =# path of a sqlite3.c to compile in; empty: the system's library
WERROR =# 1: warnings are errors
TEST_OPTIMIZE = -O0# of test programs: most take longer to compile than to run
LAB_OPTIMIZE = -O1# of the laboratory: its time goes into the C library's memcpy()
LINT =# the files that make lint reads; empty: all
CHECKED =# what make check leaves out

CFLAGS ?= $(if $(SAN),-O1 -g -fno-omit-frame-pointer,-O2 -g)
WARNINGS = -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wundef \
  -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wcast-qual \
  $(if $(WERROR),-Werror)

FAST_TESTS = file watch tree fork thread session path multi acl memory growth \
  virtual
CHECKS = headers symbols interface layers format docs shapes engines \
  sqlite-version install $(if $(COMMAND),manuals) $(if $(SQLITE),,twice)

# ---- what follows from the settings ----------------------------------------

VERSION := $(shell sed -n 's/^.define ZKE_VERSION "\(.*\)"/\1/p' zkembed.h)
MAJOR := $(firstword $(subst ., ,$(VERSION)))

empty =
comma = ,
VARIANT = $(filter-out cc gcc,$(notdir $(CC))) $(subst $(comma), ,$(SAN)) \
  $(if $(SQLITE),amalgamation)
BUILD = build$(addprefix /,$(subst $(empty) $(empty),-,$(strip $(VARIANT))))

SAN_FLAGS = $(SAN:%=-fsanitize=% -fno-sanitize-recover=all)
COMMAND = $(BUILD)/zke

# What the goals need is looked for, and fetched, before anything is made: so no
# compiler runs without its headers, and there is one run of the package manager.
# (`make -n` fetches nothing.)
ifeq ($(findstring n,$(firstword -$(MAKEFLAGS))),)
ifneq ($(shell $(foreach v,BUILD CC COMMAND FUZZ_CC SAN_FLAGS SERVER SERVERS \
  SHORT SQLITE SUITE,$v='$($v)') sh test/deps.sh --goals \
  $(or $(MAKECMDGOALS),all) >&2 || echo no),)
$(error nothing was made, since packages are missing)
endif
endif
SQLITE_CFLAGS = $(if $(SQLITE),-I$(dir $(SQLITE)))
SQLITE_OBJECT = $(if $(SQLITE),$(BUILD)/sqlite3.o)
LIBS = $(if $(SQLITE),,-lsqlite3) -lpthread

# What is compiled for the library goes without _GNU_SOURCE on the command
# line, as it does for whoever drops it in.  The tests may define it as well.
COMMON_CFLAGS = -std=c11 $(SQLITE_CFLAGS) \
  $(if $(SAN),-DZKE_DEBUG) $(CPPFLAGS) $(CFLAGS) $(SAN_FLAGS)
LIB_CFLAGS = $(COMMON_CFLAGS) -fvisibility=hidden $(WARNINGS) -Wswitch-enum
PROGRAM_CFLAGS = $(COMMON_CFLAGS) -I. $(WARNINGS)
TEST_CFLAGS = $(COMMON_CFLAGS) -D_GNU_SOURCE= -I. -I$(BUILD)/test \
  $(filter-out -Wconversion,$(WARNINGS))
TEST_PROGRAM_CFLAGS = $(TEST_CFLAGS) $(TEST_OPTIMIZE)
LINK = $(LDFLAGS) $(SAN_FLAGS)
# Asked for when the first recipe needs it, and then once.
CHECK_LIBS = $(eval CHECK_LIBS := $$(shell pkg-config --libs check))$(CHECK_LIBS)

OBJECTS = $(BUILD)/zkembed.o $(SQLITE_OBJECT)
ARCHIVE = $(BUILD)/libzkembed.a
SHARED = $(BUILD)/libzkembed.so.$(VERSION)

RECIPE_SOURCES := $(wildcard recipes/*.c recipes/*/*.c)
RECIPE_HEADERS := $(wildcard recipes/*.h recipes/*/*.h)
# What programs include.
PUBLIC_HEADERS := zkembed.h $(wildcard recipes/*.h) recipes/engine/compose.h \
  recipes/engine/zookeeper.h
# What recipes are made of, the lowest layer first.
RECIPE_PARTS = part/text part/limit support part/znode part/object part/view \
  part/entry part/deadlock part/party part/line part/queue_tree \
  part/queue_item part/queue_list
RECIPE_ARCHIVE = $(if $(RECIPE_SOURCES),$(BUILD)/libzkembed-recipes.a)
RECIPE_SHARED = \
  $(if $(RECIPE_SOURCES),$(BUILD)/libzkembed-recipes.so.$(VERSION))
CONFIGS = $(BUILD)/zkembed.pc \
  $(if $(RECIPE_SOURCES),$(BUILD)/zkembed-recipes.pc) \
  $(if $(LAB),$(BUILD)/zkembed-lab.pc) \
  $(if $(LAB_FORKED),$(BUILD)/zkembed-lab-forked.pc)
# The command reads JSON by jansson, and edits lines by libedit where it is.
COMMAND_SOURCES := $(wildcard shell/*.c shell/*/*.c)
COMMAND_OBJECTS = $(COMMAND_SOURCES:%.c=$(BUILD)/%.o)
COMMAND_HEADERS := $(wildcard shell/*.h shell/*/*.h) $(RECIPE_HEADERS) zkembed.h
EDIT := $(shell pkg-config --exists libedit 2>/dev/null && echo 1)
COMMAND_LIBS = -ljansson $(if $(EDIT),$(shell pkg-config --libs libedit))

# The laboratory (doc/laboratory.md) moves the program's memory about, which a
# sanitizer takes for a fault, and switches stacks as one kind of machine does.
# The one that forks in place of this goes wherever Linux is.
LAB := $(if $(SAN),,$(shell $(CC) -dumpmachine | grep -v musl | grep x86_64))
LAB_FORKED := $(shell $(CC) -dumpmachine | grep linux)
LAB_ALL := $(filter-out test/lab/test_%,$(wildcard test/lab/*.c))
LAB_OF_ARENA = arena fiber keep_arena state statics
LAB_OF_FORK = baton keep_fork
LAB_SOURCES := $(if $(LAB),$(filter-out $(LAB_OF_FORK:%=test/lab/%.c), \
  $(LAB_ALL)))
LAB_FORKED_SOURCES := $(if $(LAB_FORKED), \
  $(filter-out $(LAB_OF_ARENA:%=test/lab/%.c),$(LAB_ALL)))
LAB_ARCHIVE = $(if $(LAB),$(BUILD)/libzkembed-lab.a)
LAB_FORKED_ARCHIVE = $(if $(LAB_FORKED),$(BUILD)/libzkembed-lab-forked.a)
LAB_ARCHIVES = $(LAB_ARCHIVE) $(LAB_FORKED_ARCHIVE)
LAB_FORKED_TESTS = $(if $(LAB_FORKED),lab_forked)
LAB_TESTS := $(if $(LAB),$(filter-out lab_forked, \
  $(patsubst test/lab/test_%.c,%,$(wildcard test/lab/test_*.c))))

# Programs in other languages: the protocol server's files answer, on the engine
# of the laboratory.
LABSERVE_SOURCES := $(wildcard test/labserve/*.c)
LABSERVE_OBJECTS = $(LABSERVE_SOURCES:test/labserve/%.c=$(BUILD)/labserve/%.o)
LABSERVE_PYTHON = $(BUILD)/zkelab.py
LABSERVE_SHELL = $(BUILD)/labserve/shell.a
LABSERVE = $(if $(COMMAND),$(LAB_ARCHIVE:%.a=$(BUILD)/zke-lab-serve))

# AddressSanitizer does not know the end of a thread by unwinding: it takes the
# marks of frames that are gone for those of its own.
TEST_SOURCES := $(filter-out \
  $(if $(findstring address,$(SAN)),%cancel.c) \
  $(filter-out $(patsubst %,test/lab/test_%.c,$(LAB_TESTS) \
    $(LAB_FORKED_TESTS)),$(wildcard test/lab/test_*.c)), \
  $(wildcard test/*/test_*.c))
TESTS := $(patsubst test_%.c,%,$(notdir $(TEST_SOURCES)))
# Tests of statics include zkembed.c and so are not linked with it.
WHITE_TESTS := $(patsubst test_%.c,%,$(notdir $(shell \
  grep -l '^.include "zkembed\.c"' /dev/null $(TEST_SOURCES))))
WORKER = $(BUILD)/test/worker

export BUILD CC LAB LAB_LIBS LIBS MAKE PUBLIC_HEADERS RECIPE_PARTS \
  SAN SQLITE_CFLAGS WARNINGS

# ---- libraries -------------------------------------------------------------

.PHONY: all
all: $(ARCHIVE) $(SHARED) $(RECIPE_ARCHIVE) $(RECIPE_SHARED) $(CONFIGS) \
  $(COMMAND) $(LAB_ARCHIVE) $(LAB_FORKED_ARCHIVE) $(LABSERVE)

.DELETE_ON_ERROR:
.SUFFIXES:

# Each command makes the target's directory and prints one short line, or with
# V=1 itself.
run = $(if $(V),,@echo '  $(1)  $@' &&) mkdir -p $(@D) &&
cc = $(call run,CC) $(CC)
ar = $(call run,AR) rm -f $@ && $(AR) rcs $@

$(BUILD)/zkembed.o: zkembed.c zkembed.h
	$(cc) $(LIB_CFLAGS) -c -o $@ zkembed.c

$(BUILD)/zkembed.lo: zkembed.c zkembed.h
	$(cc) $(LIB_CFLAGS) -fPIC -c -o $@ zkembed.c

# SQLite's own file has its own idea of warnings.
$(BUILD)/sqlite3.o: $(SQLITE)
	$(cc) $(CFLAGS) $(SAN_FLAGS) -w -fPIC -fvisibility=hidden \
	  -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -c -o $@ $(SQLITE)

$(ARCHIVE): $(OBJECTS)
	$(ar) $(OBJECTS)

$(SHARED): $(BUILD)/zkembed.lo $(SQLITE_OBJECT)
	$(cc) -shared -Wl,-soname,libzkembed.so.$(MAJOR) $(LINK) -o $@ $^ $(LIBS)
	@ln -sf $(@F) $(BUILD)/libzkembed.so.$(MAJOR)
	@ln -sf $(@F) $(BUILD)/libzkembed.so

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

# The laboratory has engine and recipes in it.
$(BUILD)/zkembed-lab.pc:
	$(write_config) 'Description: Recipe code run in every order, with deaths' \
	  'Cflags: -I$${includedir}' \
	  'Libs: -L$${libdir} -lzkembed-lab $(strip $(LAB_LIBS))'

$(BUILD)/zkembed-lab-forked.pc:
	$(write_config) 'Cflags: -I$${includedir}' \
	  'Description: zkembed-lab for sanitizers, valgrind and other systems' \
	  'Libs: -L$${libdir} -lzkembed-lab-forked $(strip $(LIBS))'

# ---- recipes and the command, once they have sources -----------------------

$(BUILD)/recipes/%.o: recipes/%.c $(RECIPE_HEADERS) zkembed.h
	$(cc) $(LIB_CFLAGS) -I. -fPIC -c -o $@ $<

$(BUILD)/libzkembed-recipes.a: $(RECIPE_SOURCES:%.c=$(BUILD)/%.o)
	$(ar) $^

$(BUILD)/libzkembed-recipes.so.$(VERSION): \
  $(RECIPE_SOURCES:%.c=$(BUILD)/%.o) $(SHARED)
	$(cc) -shared -Wl,-soname,libzkembed-recipes.so.$(MAJOR) $(LINK) -o $@ \
	  $(filter %.o,$^) -L$(BUILD) -lzkembed
	@ln -sf $(@F) $(BUILD)/libzkembed-recipes.so.$(MAJOR)
	@ln -sf $(@F) $(BUILD)/libzkembed-recipes.so

$(COMMAND_OBJECTS): $(BUILD)/%.o: %.c $(COMMAND_HEADERS)
	$(cc) $(PROGRAM_CFLAGS) -D_GNU_SOURCE= $(WITH_EDIT) -c -o $@ $<

# Only this file is another one without libedit (terminal_edit.sh builds on it).
$(BUILD)/shell/edit.o: private WITH_EDIT = $(if $(EDIT),-DZKE_EDIT)

$(BUILD)/zke: $(COMMAND_OBJECTS) $(RECIPE_ARCHIVE) $(ARCHIVE)
	$(cc) $(PROGRAM_CFLAGS) $(LINK) -o $@ $(COMMAND_OBJECTS) \
	  $(RECIPE_ARCHIVE) $(ARCHIVE) $(COMMAND_LIBS) $(LIBS)

# ---- install ---------------------------------------------------------------

INSTALL = install
MAN1 := $(wildcard doc/*.1)
MAN3 = $(BUILD)/man3/zkembed.3# and a page for each header and function
LINKS = libzkembed.so libzkembed.so.$(MAJOR) \
  $(if $(RECIPE_SOURCES),libzkembed-recipes.so libzkembed-recipes.so.$(MAJOR))

# put DIRECTORY,FILES,MODE: installs the files there, if there are any
put = $(if $(strip $(2)),$(if $(V),,@echo '  INSTALL  $(DESTDIR)$(1)' &&) \
  $(INSTALL) -d "$(DESTDIR)$(1)" && \
  $(INSTALL) -m $(or $(3),644) $(2) "$(DESTDIR)$(1)")

$(MAN3): doc/manual.awk $(PUBLIC_HEADERS) \
  $(if $(LAB_FORKED),test/lab/zkembed-lab.h)
	@rm -rf $(@D) && mkdir -p $(@D)
	$(if $(V),,@echo '  AWK $(@D)' &&) awk -v out=$(@D) \
	  -v version=$(VERSION) -f $< \
	  $$(grep -l -e ZKE_API -e zkembed-lab.h $(filter %.h,$^))

.PHONY: install uninstall
install: all $(MAN3)
	$(if $(word 2,$(PREFIX)),$(error PREFIX may have no space in it))
	$(call put,$(INCLUDEDIR),zkembed.h $(if $(LAB_FORKED), \
	  test/lab/zkembed-lab.h))
	$(call put,$(INCLUDEDIR)/zkembed,$(wordlist 2,99,$(PUBLIC_HEADERS)))
	$(call put,$(LIBDIR),$(ARCHIVE) $(SHARED) $(RECIPE_ARCHIVE) \
	  $(RECIPE_SHARED) $(LAB_ARCHIVES))
	@cp -P $(LINKS:%=$(BUILD)/%) "$(DESTDIR)$(LIBDIR)"
	$(call put,$(LIBDIR)/pkgconfig,$(CONFIGS))
	$(call put,$(BINDIR),$(COMMAND) $(LABSERVE),755)
	$(call put,$(COMPLETIONDIR),$(COMMAND:%=shell/zke.bash))
	$(if $(COMMAND),@cd "$(DESTDIR)$(COMPLETIONDIR)" && mv zke.bash zke)
	$(call put,$(DOCDIR),$(COMMAND:%=doc/coprocess.md))
	$(call put,$(DOCDIR)/examples/coprocess,$(if $(COMMAND),$(CLIENTS)))
	$(call put,$(SHAREDIR),$(if $(LABSERVE),$(LABSERVE_PYTHON)))
	$(call put,$(MANDIR)/man1,$(MAN1))
	$(call put,$(MANDIR)/man3,$(MAN3:zkembed.3=*.3))
ifeq ($(DESTDIR),)
	@PATH=$$PATH:/sbin:/usr/sbin; ldconfig 2>/dev/null; \
	  ldconfig -p | grep -q ' $(LIBDIR)/libzkembed.so.$(MAJOR)$$' || \
	  echo 'Programs find $(LIBDIR)/libzkembed.so after ldconfig as root, if' \
	  '/etc/ld.so.conf names that directory; otherwise set LD_LIBRARY_PATH.'
endif

CLIENTS := $(wildcard doc/examples/coprocess/*)
INSTALLED = $(INCLUDEDIR)/zkembed.h \
  $(addprefix $(INCLUDEDIR)/zkembed/,$(notdir $(PUBLIC_HEADERS))) \
  $(addprefix $(LIBDIR)/,$(LINKS) $(CONFIGS:$(BUILD)/%=pkgconfig/%) \
    $(notdir $(ARCHIVE) $(SHARED) $(RECIPE_ARCHIVE) $(RECIPE_SHARED))) \
  $(if $(LAB_FORKED),$(INCLUDEDIR)/zkembed-lab.h \
    $(addprefix $(LIBDIR)/,$(notdir $(LAB_ARCHIVES)))) \
  $(COMMAND:$(BUILD)/%=$(BINDIR)/%) \
  $(if $(LABSERVE),$(BINDIR)/zke-lab-serve $(SHAREDIR)/zkelab.py) \
  $(if $(COMMAND),$(COMPLETIONDIR)/zke $(DOCDIR)/coprocess.md \
    $(CLIENTS:doc/%=$(DOCDIR)/%)) \
  $(MAN1:doc/%=$(MANDIR)/man1/%)

uninstall: $(MAN3)
	rm -f $(INSTALLED:%="$(DESTDIR)%")
	cd $(<D) && for page in *; do rm -f "$(DESTDIR)$(MANDIR)/man3/$$page"; done

# ---- tests -----------------------------------------------------------------

TEST_PROGRAMS = $(TESTS:%=$(BUILD)/test/test_%)
TEST_HEADERS := $(wildcard test/*.h test/*/*.h) zkembed.h $(RECIPE_HEADERS) \
  $(BUILD)/test/function_list.h $(BUILD)/test/recipe_list.h
TEST_COMMON = $(addprefix $(BUILD)/test/,test.o recipes.o crew.o sessions.o)
TEST_LINKED = $(TEST_COMMON) $(RECIPE_ARCHIVE) $(OBJECTS)
EXAMPLES := $(patsubst doc/examples/%.c,$(BUILD)/%,$(wildcard doc/examples/*.c))
TEST_NEEDS = $(WORKER) $(COMMAND) $(LABSERVE) $(EXAMPLES)
COMMAND_TESTS := $(wildcard test/shell/*.sh test/server/*.sh \
  $(if $(LAB),test/labserve/*.sh))

# The programs lie in folders by subject; what is built lies in one.
vpath %.c test $(sort $(dir $(TEST_SOURCES)))

# What drives a server of the command has a raw client, too.
WIRE_OBJECT = $(BUILD)/test/wire.o
WIRE_PROGRAMS := $(patsubst test/server/%.c,$(BUILD)/test/%, \
  $(wildcard test/server/test_*.c))
$(WIRE_PROGRAMS): private TEST_COMMON += $(WIRE_OBJECT)
$(WIRE_PROGRAMS): $(WIRE_OBJECT)

# Between the two goes what makes a bad network of a good one.
PROXY_OBJECT = $(BUILD)/test/proxy.o $(BUILD)/test/stub.o
PROXY_PROGRAMS = $(BUILD)/test/test_proxy $(BUILD)/test/test_zookeeper \
  $(BUILD)/test/test_zk_faults $(BUILD)/test/test_zk_link \
  $(BUILD)/test/test_zk_memory
$(PROXY_PROGRAMS): private TEST_COMMON += $(WIRE_OBJECT) $(PROXY_OBJECT)
$(PROXY_PROGRAMS): $(WIRE_OBJECT) $(PROXY_OBJECT)
SERVED_PROGRAMS = $(BUILD)/test/test_compose_ensemble \
  $(BUILD)/test/test_zk_cancel
$(SERVED_PROGRAMS): private TEST_COMMON += $(WIRE_OBJECT)
$(SERVED_PROGRAMS): $(WIRE_OBJECT)

# What judges the order of several services.
ORDER_OBJECT = $(BUILD)/test/one_order.o
$(BUILD)/test/test_order: private TEST_COMMON += $(ORDER_OBJECT)
$(BUILD)/test/test_order: $(ORDER_OBJECT)

# The recipes' tests run on a server, too: where ZKE_TEST_SERVER names one.
ENSEMBLE_OBJECT = $(BUILD)/test/engine.o
# (What composes services has services of its own, and SQL needs a file.)
ENSEMBLE_PROGRAMS := $(patsubst test/recipes/%.c,$(BUILD)/test/%, \
  $(filter-out %/test_order.c %/test_compose.c %/test_fence.c \
    %/test_recipe_sql.c, \
    $(wildcard test/recipes/test_*.c)))
$(ENSEMBLE_PROGRAMS): private TEST_COMMON += $(ENSEMBLE_OBJECT)
$(ENSEMBLE_PROGRAMS): $(ENSEMBLE_OBJECT)

$(TEST_COMMON) $(WIRE_OBJECT) $(PROXY_OBJECT) $(ORDER_OBJECT) \
  $(ENSEMBLE_OBJECT): \
  $(BUILD)/test/%.o: %.c \
  $(TEST_HEADERS)
	$(cc) $(TEST_PROGRAM_CFLAGS) -c -o $@ $<

$(WHITE_TESTS:%=$(BUILD)/test/test_%): private OBJECTS = $(SQLITE_OBJECT)

$(TEST_PROGRAMS) $(BUILD)/test/worker: $(BUILD)/test/%: %.c \
  $(TEST_HEADERS) $(BUILD)/zkembed.o $(TEST_COMMON) $(RECIPE_ARCHIVE) \
  $(SQLITE_OBJECT)
	$(cc) $(TEST_PROGRAM_CFLAGS) $(LINK) $(TEST_LDFLAGS) -o $@ $< $(TEST_LINKED) \
	  $(CHECK_LIBS) $(LIBS)

# These and the long form of test_power have an engine that checkpoints after a
# few pages; the long form tries the usual one too.
POWER_OBJECTS = $(patsubst %,$(BUILD)/test/%.o,powervfs powerloss walreset)
POWER_LINKED = $(filter-out %/walreset.o,$(POWER_OBJECTS)) # it has tests
POWER_ENGINE = $(BUILD)/test/zkembed-power.o
POWER_NORMAL = $(BUILD)/test/power_normal

# A process that is killed inside a sync loses what was not synced.
$(BUILD)/test/test_crash: private OBJECTS += $(BUILD)/test/powervfs.o
$(BUILD)/test/test_crash: $(BUILD)/test/powervfs.o

POWER_TESTS = $(BUILD)/test/test_power $(BUILD)/test/test_power_recipes

$(POWER_TESTS): private OBJECTS = \
  $(POWER_LINKED) $(POWER_ENGINE) $(SQLITE_OBJECT)
$(POWER_TESTS): $(POWER_OBJECTS) $(POWER_ENGINE)
$(BUILD)/test/test_power: private POWER_LINKED = $(POWER_OBJECTS)

$(POWER_NORMAL): test/power/test_power.c $(TEST_HEADERS) $(POWER_OBJECTS) \
  $(OBJECTS) $(TEST_COMMON) $(RECIPE_ARCHIVE)
	$(cc) $(TEST_CFLAGS) $(LINK) $(TEST_LDFLAGS) -o $@ $< $(POWER_OBJECTS) \
	  $(TEST_LINKED) $(CHECK_LIBS) $(LIBS)

$(POWER_OBJECTS): $(BUILD)/test/%.o: test/power/%.c $(TEST_HEADERS)
	$(cc) $(TEST_CFLAGS) -c -o $@ $<

$(POWER_ENGINE): zkembed.c zkembed.h
	$(cc) $(LIB_CFLAGS) -O0 -DZKE_CHECKPOINT_PAGES=8 \
	  -DZKE_CHECKPOINT_RETRY_PAGES=2 -c -o $@ zkembed.c

CUTS = 4000
EVERY = 3
COMMITS = 5000
.PHONY: powerloss
powerloss: export CUTS := $(CUTS)
powerloss: export EVERY := $(EVERY)
powerloss: export COMMITS := $(COMMITS)
powerloss: $(POWER_TESTS) $(POWER_NORMAL)
	$(BUILD)/test/test_power
	$(BUILD)/test/test_power_recipes
	$(POWER_NORMAL) acknowledged_changes_survive

# Processes that are killed: an engine that checkpoints often and looks for the
# dead more often.  Most rounds are in memory, some on the disk.
TORTURE_ENGINE = $(BUILD)/test/zkembed-torture.o

$(TORTURE_ENGINE): zkembed.c zkembed.h
	$(cc) $(LIB_CFLAGS) -DZKE_CHECKPOINT_PAGES=48 \
	  -DZKE_CHECKPOINT_RETRY_PAGES=8 -DZKE_TICK_MS=100 \
	  -DZKE_DUTY_TICK_MS=50 -DZKE_TRIM_EVENTS=16 -c -o $@ zkembed.c

$(BUILD)/torture: test/torture/torture.c test/torture/history.c \
  test/torture/history.h zkembed.h $(TORTURE_ENGINE) $(SQLITE_OBJECT)
	$(cc) $(TEST_CFLAGS) $(LINK) -o $@ $(filter %.c %.o,$^) $(LIBS)

$(BUILD)/test/test_history: test/torture/history.c

.PHONY: torture
torture torture-recipes: export KILLS := $(or $(KILLS),2000)
torture: $(BUILD)/torture
	$(BUILD)/torture $(BUILD)/test

$(BUILD)/torture-recipes: test/torture/recipe_torture.c \
  test/torture/recipe_history.c test/torture/recipe_history.h zkembed.h \
  $(RECIPE_HEADERS) $(RECIPE_ARCHIVE) \
  $(TORTURE_ENGINE) $(SQLITE_OBJECT)
	$(cc) $(TEST_CFLAGS) $(LINK) -o $@ $(filter %.c,$^) $(RECIPE_ARCHIVE) \
	  $(TORTURE_ENGINE) $(SQLITE_OBJECT) $(LIBS)

$(BUILD)/test/test_recipes: test/torture/recipe_history.c

.PHONY: torture-recipes
torture-recipes: $(BUILD)/torture-recipes
	$(BUILD)/torture-recipes $(BUILD)/test

# Servers of one file that are killed, and clients that come back.
$(BUILD)/torture-serve: test/torture/serve_torture.c test/server/peer.c \
  test/server/peer.h $(RECIPE_HEADERS) $(RECIPE_ARCHIVE) zkembed.h \
  $(TORTURE_ENGINE) $(SQLITE_OBJECT)
	$(cc) $(TEST_CFLAGS) $(LINK) -o $@ $(filter %.c,$^) $(RECIPE_ARCHIVE) \
	  $(TORTURE_ENGINE) $(SQLITE_OBJECT) $(LIBS)

.PHONY: torture-serve
torture-serve: $(BUILD)/torture-serve $(BUILD)/zke
	$(BUILD)/torture-serve $(BUILD)/zke $(BUILD)/test

# The programs of doc/examples that have their tables beside the tree, killed.
$(BUILD)/torture-host: test/torture/host_torture.c zkembed.h $(TORTURE_ENGINE) \
  $(SQLITE_OBJECT)
	$(cc) $(TEST_CFLAGS) $(LINK) -o $@ $(filter %.c %.o,$^) $(LIBS)

$(BUILD)/test/host-%: doc/examples/%.c $(RECIPE_HEADERS) zkembed.h \
  $(RECIPE_ARCHIVE) $(TORTURE_ENGINE) $(SQLITE_OBJECT)
	$(cc) $(TEST_CFLAGS) $(LINK) -o $@ $< $(RECIPE_ARCHIVE) \
	  $(TORTURE_ENGINE) $(SQLITE_OBJECT) $(LIBS)

HOST_PROGRAMS = $(BUILD)/torture-host $(BUILD)/test/host-outbox \
  $(BUILD)/test/host-jobs $(BUILD)/zke
.PHONY: torture-host torture-host-mistakes
torture-host: $(HOST_PROGRAMS)
	$(BUILD)/torture-host $(BUILD)/test/host- $(BUILD)/zke \
	  doc/examples/ledger.py $(BUILD)/test

# The same with mistakes, which it has to find.
torture-host-mistakes: $(HOST_PROGRAMS)
	@BUILD=$(BUILD) MAKE='$(MAKE)' sh test/torture/host_mistakes.sh

# Recipes on a server that fails, over a bad network.
$(BUILD)/torture-ensemble: test/ensemble/ensemble_torture.c \
  test/ensemble/proxy.c test/ensemble/proxy.h test/torture/recipe_history.c \
  test/torture/recipe_history.h $(RECIPE_HEADERS) $(RECIPE_ARCHIVE) \
  zkembed.h $(OBJECTS)
	$(cc) $(TEST_CFLAGS) $(LINK) -o $@ $(filter %.c,$^) $(RECIPE_ARCHIVE) \
	  $(OBJECTS) $(LIBS)

.PHONY: torture-ensemble
torture-ensemble: $(BUILD)/torture-ensemble $(BUILD)/zke
	$(BUILD)/torture-ensemble $(BUILD)/test

# Services with an observer, behind a proxy.
SERVICES_SOURCES = test/ensemble/services.c test/ensemble/proxy.c
SERVICES_HEADERS = test/ensemble/services.h test/ensemble/proxy.h

# Several services as one: do outcomes fit one order?
$(BUILD)/order-ensemble: test/ensemble/order_ensemble.c \
  test/recipes/one_order.c test/recipes/one_order.h $(SERVICES_SOURCES) \
  $(SERVICES_HEADERS) $(RECIPE_HEADERS) $(RECIPE_ARCHIVE) zkembed.h $(OBJECTS)
	$(cc) $(TEST_CFLAGS) $(LINK) -o $@ $(filter %.c,$^) $(RECIPE_ARCHIVE) \
	  $(OBJECTS) $(LIBS)

.PHONY: order-ensemble
order-ensemble: $(BUILD)/order-ensemble $(BUILD)/zke
	$(BUILD)/order-ensemble $(BUILD)/test

# The laboratory: engine, recipes and SQLite in one program whose whole memory
# is copied and put back.  Variables on the stack begin as zeros, so that states
# which are equal look so; for the same reason the recipes' functions begin with
# a call (fiber.h).
# With -fexceptions a cleanup handler is a matter of the compiler, and leaves no
# trace in what the C library keeps for the one real thread.  Its objects are
# changed after they are compiled, so they are no text for a linker to optimize.
LAB_CFLAGS = $(COMMON_CFLAGS) -fno-lto $(LAB_OPTIMIZE) -I. -I$(BUILD)/lab \
  -fno-builtin-malloc -fexceptions $(LAB_ZEROS) $(WARNINGS)
LAB_ZEROS = $(eval LAB_ZEROS := $$(call accepted, \
  -ftrivial-auto-var-init=zero))$(LAB_ZEROS)
# Each call on a recipe's object begins with zke_sync(), to ask the handle: as a
# step this would double the steps of all recipes, and show nothing.
LAB_RECIPE_CFLAGS = $(LAB_CFLAGS) -include test/lab/thread.h $(LAB_ENTRY) \
  -Dzke_sync=lab_real_zke_sync
LAB_ENTRY = $(eval LAB_ENTRY := $(if $(LAB),$$(call accepted, \
  -pg -mfentry)))$(LAB_ENTRY)
# These flags, if the compiler knows them.
accepted = $(shell $(CC) $(1) -x c -c /dev/null -o /dev/null 2>/dev/null && \
  echo $(1))
LAB_HEADERS := $(wildcard test/lab/*.h) zkembed.h $(RECIPE_HEADERS) \
  $(BUILD)/lab/function_list.h
# Engine and recipes are the same in both.
LAB_ENGINE = test/lab/engine.c
# (There is no network in it.)
LAB_RECIPES = $(patsubst %.c,$(BUILD)/lab/%.o,$(filter-out \
  recipes/engine/zookeeper.c recipes/engine/zk_%,$(RECIPE_SOURCES)))
OBJCOPY = objcopy
LAB_LIBS = $(or $(SQLITE_OBJECT),-l:libsqlite3.a) -lm -ldl -lpthread

# The functions of headers; in the laboratory some are unlike the others.
$(BUILD)/lab/function_list.h: test/lab/exceptions zkembed.h
$(BUILD)/test/function_list.h: zkembed.h
$(BUILD)/test/recipe_list.h: $(filter recipes/%,$(PUBLIC_HEADERS))
$(BUILD)/lab/function_list.h $(BUILD)/test/function_list.h \
  $(BUILD)/test/recipe_list.h: test/functions.awk
	$(call run,AWK) awk -f test/functions.awk $(filter-out %.awk,$^) >$@

$(patsubst test/lab/%.c,$(BUILD)/lab/%.o,$(sort $(LAB_SOURCES) $(LAB_ENGINE))): \
  $(BUILD)/lab/%.o: test/lab/%.c zkembed.c $(LAB_HEADERS)
	$(cc) $(LAB_CFLAGS) -c -o $@ $<

$(LAB_RECIPES): $(BUILD)/lab/%.o: %.c $(LAB_HEADERS)
	$(cc) $(LAB_RECIPE_CFLAGS) -c -o $@ $<

LAB_FORKED_OBJECTS = $(patsubst test/lab/%.c,$(BUILD)/lab-forked/%.o, \
  $(filter-out $(LAB_ENGINE),$(LAB_FORKED_SOURCES)))

$(LAB_FORKED_OBJECTS): $(BUILD)/lab-forked/%.o: test/lab/%.c $(LAB_HEADERS)
	$(cc) $(LAB_CFLAGS) -DLAB_FORKED -c -o $@ $<

# The archives show zke_ names, and those of the C library's that the laboratory
# has in its place; so all is one object.  Its variables lie in one section, so
# that they are told from those of a test (statics.c).
$(LAB_ARCHIVE): $(patsubst test/lab/%.c,$(BUILD)/lab/%.o,$(LAB_SOURCES))
$(LAB_FORKED_ARCHIVE): $(LAB_FORKED_OBJECTS) $(BUILD)/lab/engine.o
$(LAB_ARCHIVES): $(LAB_RECIPES) test/lab/replaced test/lab/gather.ld
	$(call run,LD) $(LD) -r -T test/lab/gather.ld -o $(@:.a=.o) \
	  $(filter %.o,$^)
	@$(OBJCOPY) --wildcard --keep-global-symbol='zke_*' \
	  --keep-global-symbols=test/lab/replaced $(@:.a=.o)
	$(ar) $(@:.a=.o)

LAB_PROGRAMS = $(LAB_TESTS:%=$(BUILD)/test/test_%)
LAB_FORKED_PROGRAMS = $(LAB_FORKED_TESTS:%=$(BUILD)/test/test_%)
$(LAB_PROGRAMS) $(LAB_FORKED_PROGRAMS): private RECIPE_ARCHIVE =
$(LAB_PROGRAMS): private OBJECTS = $(LAB_ARCHIVE)
$(LAB_PROGRAMS): private LIBS = $(LAB_LIBS)
$(LAB_PROGRAMS): $(LAB_ARCHIVE)
$(LAB_FORKED_PROGRAMS): private OBJECTS = $(LAB_FORKED_ARCHIVE) $(SQLITE_OBJECT)
$(LAB_FORKED_PROGRAMS): $(LAB_FORKED_ARCHIVE) test/lab/test_lab.c

$(LABSERVE_OBJECTS): $(BUILD)/labserve/%.o: test/labserve/%.c \
  test/labserve/labserve.h test/lab/zkembed-lab.h $(COMMAND_HEADERS)
	$(cc) $(PROGRAM_CFLAGS) -D_GNU_SOURCE= -c -o $@ $<

# Only the files that are needed are linked.  (Two have the same name, and `r`
# would take the second for the first.)
$(LABSERVE_SHELL): $(filter-out %/main.o,$(COMMAND_OBJECTS))
	$(call run,AR) rm -f $@ && $(AR) qcs $@ $^

$(BUILD)/zke-lab-serve: $(LABSERVE_OBJECTS) $(LABSERVE_SHELL) $(LAB_ARCHIVE) \
  $(LABSERVE_PYTHON)
	$(cc) $(PROGRAM_CFLAGS) $(LINK) -o $@ $(filter-out %.py,$^) $(COMMAND_LIBS) \
	  $(LAB_LIBS)

$(LABSERVE_PYTHON): test/labserve/zkelab.py
	@mkdir -p $(@D) && cp $< $@

# By the clock of the processor; what finds something says how to replay it.
.PHONY: lab
lab: export SECONDS := $(or $(SECONDS),60)
lab: $(BUILD)/test/test_lab_recipes
	$(BUILD)/test/test_lab_recipes

# Would it find mistakes in the recipes?  The script plants them in copies.
LAB_MUTANT_OBJECTS = $(BUILD)/lab/test_lab_recipes.o $(TEST_COMMON) \
  $(patsubst test/lab/%.c,$(BUILD)/lab/%.o,$(LAB_SOURCES)) $(LAB_RECIPES)

$(BUILD)/lab/test_lab_recipes.o: test/lab/test_lab_recipes.c $(TEST_HEADERS) \
  $(LAB_HEADERS)
	$(cc) $(TEST_PROGRAM_CFLAGS) -c -o $@ $<

.PHONY: lab-mutants
lab-mutants: $(LAB_MUTANT_OBJECTS) test/lab/mutants
	@CC="$(CC)" LAB_CFLAGS="$(LAB_RECIPE_CFLAGS)" LIBS="$(CHECK_LIBS) $(LAB_LIBS)" \
	  SEEDS=$(or $(SEEDS),1) ONLY=$(ONLY) \
	  SECONDS=$(or $(SECONDS),20) \
	  sh test/lab/mutants.sh $(LAB_MUTANT_OBJECTS)

# Beside a ZooKeeper server, started and stopped by the script.
CONFORMANCE_SOURCES := $(wildcard test/conformance/*.c) test/server/peer.c \
  recipes/part/text.c recipes/engine/jute.c recipes/engine/zookeeper.c \
  $(wildcard recipes/engine/zk_*.c)

$(BUILD)/conformance: $(CONFORMANCE_SOURCES) $(wildcard test/conformance/*.h) \
  test/server/peer.h $(RECIPE_HEADERS) zkembed.h $(OBJECTS)
	$(cc) $(TEST_CFLAGS) $(LINK) -o $@ $(CONFORMANCE_SOURCES) $(OBJECTS) \
	  -lzookeeper_mt $(LIBS)

.PHONY: conformance
conformance: export ZKE := $(BUILD)/zke
conformance: $(BUILD)/conformance $(if $(WIRE),$(BUILD)/zke)
	@sh test/conformance/conformance.sh $<

# Other projects' tests of a ZooKeeper server, on `zke serve`.
SUITES = $(or $(SUITE),kazoo examples $(if $(SHORT),,zktest go))

.PHONY: foreign
foreign: $(BUILD)/zke
	@status=0; for suite in $(SUITES); do \
	  SHORT=$(SHORT) sh test/foreign/$$suite.sh $(BUILD)/zke || status=1; \
	done; exit $$status

# The engine beside a model of it.
MODEL_SOURCES = $(patsubst %,test/%.c,model/run model/model model/side \
  conformance/base conformance/gen conformance/masks)
MODEL_HEADERS = test/model/model.h test/model/run.h test/conformance/zke.c \
  test/conformance/conformance.h test/conformance/masks.h zkembed.h

$(BUILD)/model: $(MODEL_SOURCES) $(MODEL_HEADERS) $(OBJECTS)
	$(cc) $(TEST_CFLAGS) $(LINK) -o $@ $(MODEL_SOURCES) $(OBJECTS) $(LIBS)

.PHONY: model
model: $(BUILD)/model
	@$<

# The programs that mostly wait run while the others are compiled.  Of these,
# those that take longest begin first, so that nothing long is left at the end.
# The documents' programs are in `make check`; with sanitizers they are here, too.
TEST_RUN = $(TEST_PROGRAMS) $(COMMAND_TESTS) \
  $(if $(SAN),test/checks/check_docs.sh)
WAITING = environment serve process wait queue leftovers light control \
  zk_faults zookeeper zk_link admin dispatch_failures ensemble recipes
LONGEST = fault power check_docs transcripts coprocess guard lab_serve \
  power_recipes file shell_work crash kazoo order lab transfer terminal_edit \
  coprocess_clients scale election two_phase lab_forked semaphore rwlock \
  corpus lock lab_bugs multilock lab_recipes double_barrier tell
named_tests = $(foreach t,$(1),$(filter %/test_$t %/$t.sh,$(TEST_RUN)))
TEST_WAITING = $(call named_tests,$(WAITING))
TEST_FIRST = $(call named_tests,$(LONGEST))
TEST_OTHERS = $(TEST_FIRST) $(filter-out $(TEST_WAITING) $(TEST_FIRST), \
  $(TEST_RUN))
.PHONY: deps
deps:
	@:

TEST_TARGETS = test test-fast $(TESTS:%=test-%)
.PHONY: $(TEST_TARGETS) test-waiting test-others test-programs test-tsan

test: $(TEST_WAITING) $(TEST_NEEDS) $(ARCHIVE)
	@$(MAKE) --no-print-directory test-waiting test-others
	@sh test/run.sh --sum $(TEST_WAITING) $(TEST_OTHERS)

test-waiting:
	@JOBS=$(or $(JOBS),$(words $(WAITING))) sh test/run.sh --each $(TEST_WAITING)

test-others: $(TEST_PROGRAMS)
	@sh test/run.sh --each $(TEST_OTHERS)

.PHONY: transcripts
transcripts: $(TEST_NEEDS)
	@sh test/run.sh test/shell/transcripts.sh

# (They need no other program but the worker.)
test-fast: $(FAST_TESTS:%=$(BUILD)/test/test_%) $(WORKER)
	@sh test/run.sh $(FAST_TESTS:%=$(BUILD)/test/test_%)

$(TESTS:%=test-%): test-%: $(BUILD)/test/test_% $(TEST_NEEDS)
	@sh test/run.sh $<

# The recipes' tests on servers of both kinds.
.PHONY: test-ensemble
test-ensemble: $(ENSEMBLE_PROGRAMS) $(BUILD)/zke
	@sh test/ensemble/recipes.sh $(ENSEMBLE_PROGRAMS)

test-tsan:
	@$(MAKE) --no-print-directory SAN=thread EXAMPLES= test-thread \
	  test-coprocess test-lab_forked

test-programs: $(TEST_PROGRAMS) $(TEST_NEEDS)

# With other versions of SQLite, from an npm package that has it in one file.
SQLITE_OLDEST = 3.37.2 better-sqlite3@7.5.0
SQLITE_NEWEST = 3.54.1 better-sqlite3@13.2.0
SQLITE_TESTS = $(FAST_TESTS) gather lockfree
AMALGAMATIONS = build/deps/sqlite-oldest/sqlite3.c \
  build/deps/sqlite-newest/sqlite3.c

.PHONY: sqlite-oldest sqlite-newest sqlite-here sqlite-sources
sqlite-sources: $(AMALGAMATIONS)
sqlite-oldest sqlite-newest: sqlite-%: build/deps/sqlite-%/sqlite3.c \
  $(RECIPE_ARCHIVE)
	@$(MAKE) --no-print-directory SQLITE=$< BUILD=build/sqlite-$* \
	  RECIPE_ARCHIVE=$(RECIPE_ARCHIVE) CFLAGS='-O1 -g1' sqlite-here

# The recipes do not know which SQLite it is, but for the one that calls it.
sqlite-here: $(SQLITE_TESTS:%=$(BUILD)/test/test_%) $(WORKER) \
  $(BUILD)/recipes/fence.o
	@sh test/run.sh $(SQLITE_TESTS:%=$(BUILD)/test/test_%)
	@$(MAKE) --no-print-directory OPS=$(or $(OPS),15000) SEED=$(or $(SEED),1) \
	  conformance
	@$(MAKE) --no-print-directory KILLS=150 torture

build/deps/sqlite-oldest/sqlite3.c: private IS = $(SQLITE_OLDEST)
build/deps/sqlite-newest/sqlite3.c: private IS = $(SQLITE_NEWEST)
$(AMALGAMATIONS): test/amalgamation.sh
	@sh test/amalgamation.sh $(IS) $(@D)
	@touch $@

# By valgrind: each test is a process that fails if anything is found in it.
VALGRIND_TESTS = $(filter-out thread,$(FAST_TESTS))
VALGRIND = valgrind --quiet --error-exitcode=99 --leak-check=full \
  --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite \
  --suppressions=test/checks/valgrind.supp
.PHONY: valgrind
valgrind: $(VALGRIND_TESTS:%=$(BUILD)/test/test_%) \
  $(WORKER)
	@CK_TIMEOUT_MULTIPLIER=20 RUNNER="$(VALGRIND)" \
	  sh test/run.sh $(VALGRIND_TESTS:%=$(BUILD)/test/test_%)

# Would the quick tests notice a wrong line?  They are linked with the engine as
# a shared library, of which the script makes many.
LINES = 50
MUTATED = $(FAST_TESTS:%=$(BUILD)/mutate/test_%) $(BUILD)/mutate/worker

$(MUTATED): $(BUILD)/mutate/%: %.c $(TEST_HEADERS) $(TEST_COMMON) \
  $(RECIPE_ARCHIVE) $(SHARED)
	$(cc) $(TEST_PROGRAM_CFLAGS) -o $@ $< $(TEST_COMMON) $(RECIPE_ARCHIVE) \
	  -L$(BUILD) -lzkembed $(CHECK_LIBS) $(LIBS)

.PHONY: mutate mutate-programs
mutate-programs: $(MUTATED)
mutate: $(MUTATED)
	@ENGINE=libzkembed.so.$(MAJOR) LINES=$(LINES) SEED=$(or $(SEED),1) \
	  ONLY=$(ONLY) LIST=$(LIST) \
	  sh test/checks/mutate.sh $(FAST_TESTS)

# What of the engine do the tests reach?  A build of its own, by gcc.
AT_LEAST_LINES = 100
AT_LEAST_BRANCHES = 95
.PHONY: coverage coverage-here
coverage:
	@$(MAKE) --no-print-directory BUILD=build/coverage CC=gcc \
	  CFLAGS='-O0 -g --coverage -fprofile-update=atomic' \
	  CPPFLAGS=-DZKE_COVERAGE LDFLAGS=--coverage TEST_LDFLAGS=-Wl,--wrap=_exit \
	  FULL=1 coverage-here

coverage-here: test-programs
	@AT_LEAST_LINES=$(AT_LEAST_LINES) AT_LEAST_BRANCHES=$(AT_LEAST_BRANCHES) \
	  sh test/checks/coverage.sh $(TEST_PROGRAMS)

# ---- fuzzing ---------------------------------------------------------------

# test/fuzz/corpus is what `make test` replays; what a run finds new goes beside
# it, inputs that break something to build/fuzz/TARGET-crash-… and the like.
FUZZ_TARGETS = path ops file $(if $(COMMAND),$(FUZZ_COMMAND))
FUZZ_COMMAND = lines import jute client server # linked with the zke command
FUZZ_OPTIMIZE = -O1
FUZZ_CFLAGS = $(FUZZ_OPTIMIZE) -g -fno-omit-frame-pointer -DZKE_DEBUG \
  -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
FUZZ_SECONDS = $(or $(SECONDS),60)
TARGET = $(FUZZ_TARGETS)
FUZZ_RUNS = $(TARGET:%=fuzz-%)

$(BUILD)/test/test_corpus: $(wildcard test/fuzz/*.c)
# It has the engine as text, and in full size runs longest in that.
$(BUILD)/test/test_corpus: private TEST_OPTIMIZE = $(if $(FULL),-O1,-O0)

# All of the command but its main().  It has functions whose names statics of
# zkembed.c have too, so these targets are no part of test_corpus.c's text.
COMMAND_PARTS = $(filter-out %/main.c,$(COMMAND_SOURCES))
# fuzz/server.c has these two as text, with connections and a clock of its own;
# fuzz/client.c those of the client.
FUZZ_SERVER_TEXT = shell/serve/serve shell/serve/conn
FUZZ_CLIENT_TEXT = recipes/engine/zk_link recipes/engine/zk_handle
ifneq ($(COMMAND),)
CORPUS_OBJECTS = $(FUZZ_COMMAND:%=$(BUILD)/test/fuzz/%.o) \
  $(filter-out $(FUZZ_SERVER_TEXT:%=$(BUILD)/%.o), \
    $(COMMAND_PARTS:%.c=$(BUILD)/%.o)) $(RECIPE_ARCHIVE)
$(BUILD)/test/test_corpus: $(CORPUS_OBJECTS)
$(BUILD)/test/test_corpus: private OBJECTS = $(CORPUS_OBJECTS) $(SQLITE_OBJECT)
$(BUILD)/test/test_corpus: private LIBS += $(COMMAND_LIBS)
$(BUILD)/test/test_corpus: private TEST_CFLAGS += -DCORPUS_COMMAND
endif

$(FUZZ_COMMAND:%=$(BUILD)/test/fuzz/%.o): $(BUILD)/%.o: %.c \
  test/fuzz/fuzz.h shell/shell.h zkembed.h
	$(cc) $(TEST_CFLAGS) -DFUZZ_TOGETHER -c -o $@ $<

.PHONY: fuzz fuzz-programs $(FUZZ_TARGETS:%=fuzz-%)
fuzz: $(FUZZ_RUNS)
fuzz-programs: $(TARGET:%=build/fuzz/%)

# fuzz/path.c includes zkembed.c, the others are linked with it.
FUZZ_ENGINE = build/fuzz/objects/zkembed.o
FUZZ_PARTS = $(COMMAND_PARTS:%.c=build/fuzz/objects/%.o) \
  $(RECIPE_SOURCES:%.c=build/fuzz/objects/%.o)

build/fuzz/objects/%.o: %.c test/fuzz/fuzz.h zkembed.c $(COMMAND_HEADERS)
	$(call run,CC) $(FUZZ_CC) -std=c11 -D_GNU_SOURCE= -I. $(CPPFLAGS) \
	  $(FUZZ_CFLAGS) $(filter-out -Wconversion,$(WARNINGS)) -c -o $@ $<

$(FUZZ_TARGETS:%=build/fuzz/%): build/fuzz/%: build/fuzz/objects/test/fuzz/%.o
	$(call run,CC) $(FUZZ_CC) $(FUZZ_CFLAGS) -o $@ $^ \
	  $(if $(filter $*,$(FUZZ_COMMAND)),$(COMMAND_LIBS)) $(LIBS)

$(filter-out build/fuzz/path,$(FUZZ_TARGETS:%=build/fuzz/%)): $(FUZZ_ENGINE)
$(filter-out %/client %/server,$(FUZZ_COMMAND:%=build/fuzz/%)): $(FUZZ_PARTS)
build/fuzz/client: \
  $(filter-out $(FUZZ_CLIENT_TEXT:%=build/fuzz/objects/%.o),$(FUZZ_PARTS))
build/fuzz/objects/test/fuzz/client.o: $(FUZZ_CLIENT_TEXT:%=%.c)
$(BUILD)/test/fuzz/client.o: $(FUZZ_CLIENT_TEXT:%=%.c) $(RECIPE_HEADERS)
build/fuzz/server: \
  $(filter-out $(FUZZ_SERVER_TEXT:%=build/fuzz/objects/%.o),$(FUZZ_PARTS))
build/fuzz/objects/test/fuzz/server.o: $(FUZZ_SERVER_TEXT:%=%.c)
$(BUILD)/test/fuzz/server.o: $(FUZZ_SERVER_TEXT:%=%.c) $(COMMAND_HEADERS)

$(FUZZ_TARGETS:%=fuzz-%): fuzz-%: build/fuzz/%
	@mkdir -p build/fuzz/corpus/$*
	@echo "fuzzing $*: $(FUZZ_SECONDS) s, log in build/fuzz/$*.log"
	@ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
	  build/fuzz/$* -max_total_time=$(FUZZ_SECONDS) -max_len=600 -len_control=0 \
	  -timeout=25 -print_final_stats=1 -artifact_prefix=build/fuzz/$*- \
	  $(if $(filter client,$*),-malloc_limit_mb=64) \
	  build/fuzz/corpus/$* test/fuzz/corpus/$* >build/fuzz/$*.log 2>&1 || { \
	  tail -n 60 build/fuzz/$*.log >&2; exit 1; }
	@grep -E '^(#[0-9]+.DONE|Done )' build/fuzz/$*.log

# ---- examples, demo and bench ----------------------------------------------

$(EXAMPLES): $(BUILD)/%: doc/examples/%.c $(RECIPE_HEADERS) zkembed.h \
  $(RECIPE_ARCHIVE) $(OBJECTS)
	$(cc) $(PROGRAM_CFLAGS) $(LINK) -o $@ $< $(RECIPE_ARCHIVE) $(OBJECTS) $(LIBS)

.PHONY: demo
demo: $(BUILD)/wordcount
	@rm -rf $(BUILD)/demo.db*
	LC_ALL=C $(BUILD)/wordcount $(BUILD)/demo.db

# The peers' C clients are linked in where they can be, which is asked only when
# a benchmark is to be made; test/bench/peers.sh starts the servers that are
# installed, and stops them.
bench_client = $(if $(findstring bench,$(MAKECMDGOALS)),$(shell \
  CC='$(CC)' sh test/deps.sh $(1)-client >/dev/null 2>&1 && echo $(1)))
BENCH_CLIENTS := $(call bench_client,zookeeper) $(call bench_client,redis)
BENCH_SOURCES := $(filter-out test/bench/zookeeper.c test/bench/redis.c, \
  $(wildcard test/bench/*.c)) $(BENCH_CLIENTS:%=test/bench/%.c)
BENCH_OBJECTS = $(BENCH_SOURCES:%.c=$(BUILD)/%.o)
BENCH_LIBS = $(if $(filter zookeeper,$(BENCH_CLIENTS)),-lzookeeper_mt) \
  $(if $(filter redis,$(BENCH_CLIENTS)),-lhiredis)

$(BENCH_OBJECTS): $(BUILD)/%.o: %.c $(wildcard test/bench/*.h) \
  $(SERVICES_HEADERS) $(RECIPE_HEADERS) zkembed.h
	$(cc) $(TEST_CFLAGS) -c -o $@ $<

$(BUILD)/bench: $(BENCH_OBJECTS) $(SERVICES_SOURCES) $(SERVICES_HEADERS) \
  $(RECIPE_ARCHIVE) $(OBJECTS)
	$(cc) $(TEST_CFLAGS) $(LINK) -o $@ $(filter-out %.h,$^) $(BENCH_LIBS) \
	  $(LIBS)

.PHONY: bench bench-peers bench-plots
bench: $(BUILD)/bench $(SHARED) $(COMMAND)
	@sh test/bench/peers.sh $(BUILD)/bench

# Once the clients are there, another make finds them.
bench-peers:
	@$(MAKE) --no-print-directory bench

bench-plots:
	@sh test/bench/plots.sh $(BUILD)/bench.json doc/performance

# ---- checks: each is a script that says what it checks ---------------------

CHECK_TARGETS = $(CHECKS:%=check-%)
.PHONY: check $(CHECK_TARGETS)

check check-install check-symbols: all
check check-manuals: $(COMMAND) $(MAN3)
check check-docs: $(ARCHIVE) $(RECIPE_ARCHIVE) $(LAB_ARCHIVE)
check check-twice: $(BUILD)/zkembed.lo $(SQLITE_OBJECT)

check:
	@sh test/run.sh $(patsubst %,test/checks/check_%.sh,$(subst -,_, \
	  $(filter-out $(CHECKED),$(CHECKS))))

$(CHECK_TARGETS): check-%:
	@sh test/run.sh test/checks/check_$(subst -,_,$*).sh

.PHONY: interface
interface:
	@sh test/checks/check_interface.sh --accept

# README's platforms and a tarball; SQLite is compiled twice and all else once
# more, so not part of `make check`.
.PHONY: platforms check-dist
platforms: build/deps/sqlite-newest/sqlite3.c
	@sh test/run.sh test/checks/check_platforms.sh test/checks/check_dist.sh

check-dist:
	@mkdir -p $(BUILD)
	@sh test/run.sh test/checks/check_dist.sh

# README's commands on fresh machines; with SHORT=1 a minute, else an hour.
.PHONY: fresh
fresh:
	@sh test/checks/fresh.sh

# Read by the compilers' analyzers; minutes, so not part of `make check`.
.PHONY: lint
lint:
	@LINT="$(LINT)" sh test/run.sh test/checks/lint.sh

.PHONY: style
style:
	@sh test/checks/style.sh

# What a program drops in; RECIPES="lock queue" takes only these recipes.
FOUR_FILES = $(BUILD)/four-files
.PHONY: amalgamation dist
amalgamation:
	@mkdir -p $(FOUR_FILES) && cp zkembed.c zkembed.h $(FOUR_FILES)
	@sh recipes/amalgamate.sh $(FOUR_FILES)/zkembed_recipes $(RECIPES)
	@ls $(FOUR_FILES)/*

dist:
	@mkdir -p $(BUILD)
	@sh test/dist.sh zkembed-$(VERSION) $(BUILD)/zkembed-$(VERSION).tar.gz

.PHONY: format clean
format:
	clang-format -i $(wildcard $(addsuffix *.[ch],./ test/ test/*/ \
	  doc/examples/ recipes/ \
	  recipes/*/ shell/ shell/*/))

clean:
	rm -rf build
