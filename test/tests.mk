# tests.mk - the programs of `make test`, and the goals that run them in other
# ways.  Included by the Makefile.

# Of test_*.c and of the engine that most of them use.  Few run long enough to
# gain what it takes to optimize them.
TEST_OPTIMIZE = -O0
FAST_TESTS = file watch tree fork thread session path multi acl memory growth \
  virtual semantics

# AddressSanitizer does not notice when unwinding ends a thread: it takes the
# marks of old stack frames for current ones.
TEST_SOURCES := $(filter-out $(if $(findstring address,$(SAN)),%cancel.c) \
  $(if $(LAB),,$(filter-out %_forked.c,$(wildcard test/lab/test_*.c))) \
  $(if $(LAB_FORKED),,%_forked.c),$(wildcard test/*/test_*.c))
TESTS := $(patsubst test_%.c,%,$(notdir $(TEST_SOURCES)))
TEST_SCRIPTS := $(wildcard test/shell/*.sh test/server/*.sh \
  $(if $(LAB),test/labserve/*.sh)) \
  $(if $(LAB),$(patsubst %,test/sim/%.sh,replays seeds refusals calibrate))

# ---- how they are made -----------------------------------------------------

# The sources are in folders by subject, the programs in one.
T = $(BUILD)/test
TEST_PROGRAMS = $(TESTS:%=$T/test_%)
WORKER = $T/worker
vpath test_%.c $(sort $(dir $(TEST_SOURCES)))

$(TEST_PROGRAMS:%=%.o): $T/%.o: %.c | $T/function_list.h $T/recipe_list.h
	$(cc) $(TEST_CFLAGS) $(TEST_OPTIMIZE) $(OWN_FLAGS) -c -o $@ $<
$T/%.o: test/%.c | $T/function_list.h $T/recipe_list.h
	$(cc) $(TEST_CFLAGS) $(OWN_FLAGS) -c -o $@ $<

# The functions of the headers; the laboratory treats some differently.
$(BUILD)/lab/function_list.h: test/lab/exceptions zkembed.h
$T/function_list.h: zkembed.h
$T/recipe_list.h: $(filter recipes/%,$(PUBLIC_HEADERS))
$(BUILD)/lab/function_list.h $T/function_list.h $T/recipe_list.h: \
  test/functions.awk
	$(call run,AWK) awk -f test/functions.awk $(filter-out %.awk,$^) >$@

# Objects that programs share; each takes those that it uses.
TEST_ARCHIVE = $T/help.a
$(TEST_ARCHIVE): $(patsubst %,$T/%.o,test seam recipes/recipes recipes/crew \
  recipes/sessions recipes/steps recipes/lines recipes/one_order recipes/uses \
  server/wire server/peer ensemble/proxy ensemble/services ensemble/stub \
  power/powervfs shell/sql torture/recipe_history program)
	$(ar)

CHECK_LIBS = $$(pkg-config --libs check)
$(TEST_PROGRAMS) $(WORKER): %: %.o $(TEST_ARCHIVE)
	$(program) $(TEST_LDFLAGS) $(CHECK_LIBS) $(LIBS)

# Engines that stop if one of their functions is called against its assumptions
# (REQUIRE).  One has the usual limits, one checkpoints after a few pages, one
# checkpoints often and checks for dead processes more often.  A sanitizer's
# library is made with REQUIRE, and is the first of them.
TEST_ENGINE = $(if $(SAN),$(BUILD),$T)/zkembed.o
POWER_ENGINE = $T/zkembed-power.o
TORTURE_ENGINE = $T/zkembed-torture.o
$T/zkembed.o: OWN_FLAGS = -DZKE_DEBUG $(TEST_OPTIMIZE)
$(POWER_ENGINE): OWN_FLAGS = -DZKE_DEBUG -O0 -DZKE_CHECKPOINT_PAGES=8 \
  -DZKE_CHECKPOINT_RETRY_PAGES=2
$(TORTURE_ENGINE): OWN_FLAGS = -DZKE_DEBUG -O0 -DZKE_CHECKPOINT_PAGES=48 \
  -DZKE_CHECKPOINT_RETRY_PAGES=8 -DZKE_TICK_MS=100 -DZKE_DUTY_TICK_MS=50 \
  -DZKE_TRIM_EVENTS=16
$T/zkembed.o $(POWER_ENGINE) $(TORTURE_ENGINE): zkembed.c
	$(cc) $(LIB_CFLAGS) $(OWN_FLAGS) -c -o $@ $<

# The engine that a program is linked with: none if its text is included, the
# laboratory's (with the recipes) in its tests, else the usual one.
TEXT_PROGRAMS := $(patsubst %.c,$T/%,$(notdir $(shell \
  grep -l '^.include "zkembed\.c"' $(TEST_SOURCES))))
POWER_PROGRAMS = $T/test_walreset $T/test_power_fence
LAB_PROGRAMS := $(patsubst test/lab/%.c,$T/%, \
  $(filter test/lab/%,$(TEST_SOURCES)))
LAB_FORKED_PROGRAMS := $(filter %_forked,$(LAB_PROGRAMS))

$(filter-out $(LAB_PROGRAMS),$(TEST_PROGRAMS)) $(WORKER): \
  $(RECIPE_ARCHIVE) $(SQLITE_OBJECT)
$(filter-out $(LAB_PROGRAMS) $(TEXT_PROGRAMS) $(POWER_PROGRAMS), \
  $(TEST_PROGRAMS)) $(WORKER): $(TEST_ENGINE)
$(POWER_PROGRAMS): $(POWER_ENGINE)
$(filter-out $(LAB_FORKED_PROGRAMS),$(LAB_PROGRAMS)): $(LAB_ARCHIVE)
$(filter-out $(LAB_FORKED_PROGRAMS),$(LAB_PROGRAMS)): private LIBS = $(LAB_LIBS)
$(LAB_FORKED_PROGRAMS): $(LAB_FORKED_ARCHIVE) $(SQLITE_OBJECT)

# The recipes' tests also run on a server, if ZKE_TEST_SERVER names one.  But
# tests of composed services have their own servers, and SQL needs a file.
ENSEMBLE_PROGRAMS := $(patsubst test/recipes/%.c,$T/%,$(filter-out \
  %/test_order.c %/test_compose.c %/test_fence.c %/test_recipe_sql.c, \
  $(wildcard test/recipes/test_*.c)))
$(ENSEMBLE_PROGRAMS): $T/ensemble/engine.o

# The texts of test/semantics also run on the model.
$T/test_semantics $(BUILD)/mutate/test_semantics: $(patsubst %,$T/%.o, \
  semantics/text semantics/verbs semantics/stage model/model ensemble/engine)

# The model next to an engine, with random calls.  It also judges the tables of
# the laboratory.
MODEL_RUN = $(patsubst %,$T/%.o,model/run model/model model/side \
  conformance/base conformance/gen conformance/masks)
$T/test_lab_tables: $(MODEL_RUN)

EXAMPLES := $(patsubst doc/examples/%.c,$(BUILD)/%,$(wildcard doc/examples/*.c))
$(BUILD)/doc/%.o: doc/%.c
	$(cc) $(PROGRAM_CFLAGS) -c -o $@ $<
$(EXAMPLES): $(BUILD)/%: $(BUILD)/doc/examples/%.o $(RECIPE_ARCHIVE) $(OBJECTS)
	$(program) $(LIBS)

# ---- all of them -----------------------------------------------------------

# The programs that mostly wait run while the others are compiled.  Among the
# others the longest begin first, so that nothing long is left at the end.  The
# documents' programs are in `make check`, and with sanitizers here, too.
TEST_RUN = $(TEST_PROGRAMS) $(TEST_SCRIPTS) \
  $(if $(SAN),test/checks/check_docs.sh)
WAITING = environment serve process wait queue leftovers light control \
  zk_faults zookeeper zk_link dispatch_failures ensemble recipes
LONGEST = fault check_docs transcripts tell seeds lab_serve file kazoo \
  transfer power_fence order recovery zk_memory thread extension_bindings \
  terminal_edit coprocess coprocess_clients mcp lab lab_forked lines scale \
  shell_work election two_phase semaphore rwlock corpus lock multilock \
  lab_recipes limits guard changes double_barrier lab_bugs
named_tests = $(foreach t,$(1),$(filter %/test_$t %/$t.sh,$(TEST_RUN)))
TEST_WAITING = $(call named_tests,$(WAITING))
TEST_FIRST = $(call named_tests,$(LONGEST))
TEST_OTHERS = $(TEST_FIRST) \
  $(filter-out $(TEST_WAITING) $(TEST_FIRST),$(TEST_RUN))
TEST_NEEDS = $(WORKER) $(COMMAND) $(LABSERVE) $(EXTENSION) $(EXAMPLES)
# For the scripts of test/sim.
SIMULATION = $(if $(LAB),$(BUILD)/simulation $(BUILD)/calibrate)

##@ Tests
## test            all tests; FULL=1: all places that they otherwise sample
## test-fast       the quick programs, in seconds
## test-NAME       one program, such as test-watch
## test-programs   builds them, and runs none
## test-tsan       the thread tests under ThreadSanitizer
## test-ensemble   the recipes' tests and test/semantics on `zke serve` and on a
##                 ZooKeeper server:
##                 SERVER=zke ONLY=NAME SHORT=1
## transcripts     what doc/ and test/shell say that zke prints, it prints
## demo            counts the words of this checkout with several processes
## deps            fetches the packages that tests need, as each goal does
.PHONY: test test-waiting test-others test-fast test-programs test-tsan \
  test-ensemble transcripts demo deps $(TESTS:%=test-%)
# (ensemble.sh runs test_semantics.)
test: $(TEST_WAITING) $(TEST_NEEDS) $T/test_semantics $(ARCHIVE) $(SIMULATION)
	@$(MAKE) --no-print-directory test-waiting test-others
	@sh test/run.sh --sum $(TEST_WAITING) $(TEST_OTHERS)

test-waiting:
	@JOBS=$(or $(JOBS),$(words $(WAITING))) sh test/run.sh --each $(TEST_WAITING)

test-others: $(TEST_PROGRAMS)
	@sh test/run.sh --each $(TEST_OTHERS)

test-programs: $(TEST_PROGRAMS) $(TEST_NEEDS)

# (They need no other program except the worker.)
test-fast: $(FAST_TESTS:%=$T/test_%) $(WORKER)
	@sh test/run.sh $(FAST_TESTS:%=$T/test_%)

$(TESTS:%=test-%): test-%: $T/test_% $(TEST_NEEDS)
	@sh test/run.sh $<

test-tsan:
	@TRANSCRIPTS=test/shell/coprocess.txt $(MAKE) --no-print-directory \
	  SAN=thread EXAMPLES= test-thread test-coprocess transcripts \
	  test-lab_forked

test-ensemble: $(ENSEMBLE_PROGRAMS) $T/test_semantics $(BUILD)/zke
	@sh test/ensemble/recipes.sh $(ENSEMBLE_PROGRAMS) $T/test_semantics

transcripts: $(TEST_NEEDS)
	@sh test/run.sh test/shell/transcripts.sh

demo: $(BUILD)/wordcount
	@rm -rf $(BUILD)/demo.db*
	LC_ALL=C $(BUILD)/wordcount $(BUILD)/demo.db

deps:
	@:

# ---- in other ways ---------------------------------------------------------

##@ The quick tests in other ways
## sqlite-oldest sqlite-newest  with the oldest SQLite that is accepted and the
##                 newest, which npm fetches; with conformance, torture and the
##                 simulated host
## valgrind        under valgrind: VALGRIND_TESTS=multi
## mutate          they notice wrong lines in the engine: LINES=50 SEED=1
##                 ONLY=FUNCTION LIST=1
## coverage        what of zkembed.c all tests reach; by gcc
SQLITE_OLDEST = 3.37.2 better-sqlite3@7.5.0
SQLITE_NEWEST = 3.54.1 better-sqlite3@13.2.0
SQLITE_TESTS = $(FAST_TESTS) gather lockfree extension outbox
AMALGAMATIONS = build/deps/sqlite-oldest/sqlite3.c \
  build/deps/sqlite-newest/sqlite3.c

.PHONY: sqlite-oldest sqlite-newest sqlite-here sqlite-sources
sqlite-sources: $(AMALGAMATIONS)
sqlite-oldest sqlite-newest: sqlite-%: build/deps/sqlite-%/sqlite3.c \
  $(RECIPE_ARCHIVE)
	@$(MAKE) --no-print-directory SQLITE=$< BUILD=build/sqlite-$* \
	  RECIPE_ARCHIVE=$(RECIPE_ARCHIVE) CFLAGS='-O1 -g1' sqlite-here

# The recipes do not depend on the SQLite version, except for the one that calls
# it.
sqlite-here: $(SQLITE_TESTS:%=$T/test_%) $(WORKER) $(EXTENSION) \
  $(BUILD)/zke $(BUILD)/recipes/fence.o
	@sh test/run.sh $(SQLITE_TESTS:%=$T/test_%)
	@$(MAKE) --no-print-directory OPS=$(or $(OPS),15000) SEED=$(or $(SEED),1) \
	  conformance
	@$(MAKE) --no-print-directory KILLS=150 torture-recipes
	@$(MAKE) --no-print-directory SECONDS=20 sim

build/deps/sqlite-oldest/sqlite3.c: private IS = $(SQLITE_OLDEST)
build/deps/sqlite-newest/sqlite3.c: private IS = $(SQLITE_NEWEST)
$(AMALGAMATIONS): test/amalgamation.sh
	@sh test/amalgamation.sh $(IS) $(@D)
	@touch $@

# Each test is a process that fails if anything is found in it.
VALGRIND_TESTS = $(filter-out thread,$(FAST_TESTS))
# A suppression names a function that is more than the usual 12 calls up.
VALGRIND = valgrind --quiet --error-exitcode=99 --num-callers=50 \
  --leak-check=full --show-leak-kinds=definite,indirect \
  --errors-for-leak-kinds=definite --suppressions=test/checks/valgrind.supp
.PHONY: valgrind
valgrind: $(VALGRIND_TESTS:%=$T/test_%) $(WORKER)
	@CK_TIMEOUT_MULTIPLIER=20 RUNNER="$(VALGRIND)" \
	  sh test/run.sh $(VALGRIND_TESTS:%=$T/test_%)

# They are linked with the engine as a shared library, of which the script makes
# many variants.
LINES = 50
MUTATED = $(FAST_TESTS:%=$(BUILD)/mutate/test_%) $(BUILD)/mutate/worker
$(MUTATED): $(BUILD)/mutate/%: $T/%.o $(TEST_ARCHIVE) $(RECIPE_ARCHIVE) \
  $(SHARED)
	$(program) -L$(BUILD) -lzkembed $(CHECK_LIBS) $(LIBS)

.PHONY: mutate mutate-programs
mutate-programs: $(MUTATED)
mutate: $(MUTATED) $(if $(LAB),$(BUILD)/simulation)
	@$(WITH_ENGINE) SIM_OBJECTS="$(if $(LAB),$(SIM_OBJECTS))" \
	  ENGINE=libzkembed.so.$(MAJOR) LINES=$(LINES) SEED=$(or $(SEED),1) \
	  ONLY=$(ONLY) LIST=$(LIST) sh test/checks/mutate.sh $(FAST_TESTS)

AT_LEAST_LINES = 100
AT_LEAST_BRANCHES = 95
.PHONY: coverage coverage-here
coverage:
	@$(MAKE) --no-print-directory BUILD=build/coverage CC=gcc \
	  CFLAGS='-O0 -g --coverage -fprofile-update=atomic' \
	  CPPFLAGS=-DZKE_COVERAGE LDFLAGS=--coverage TEST_LDFLAGS=-Wl,--wrap=_exit \
	  FULL=1 coverage-here

# The tests that call zkembed.c in their own process.  The laboratory takes the
# counters for states of its programs, and users without rights cannot write
# them.
COVERAGE_TESTS = $(patsubst %.c,$T/%,$(notdir $(wildcard \
  $(patsubst %,test/%/test_*.c,engine power recipes semantics))))
coverage-here: $(COVERAGE_TESTS) $(WORKER)
	@AT_LEAST_LINES=$(AT_LEAST_LINES) AT_LEAST_BRANCHES=$(AT_LEAST_BRANCHES) \
	  sh test/checks/coverage.sh $(COVERAGE_TESTS)
