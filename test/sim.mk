# sim.mk - how the simulated host (test/sim/sim.h) is built, and what runs in
# it.  Included by the Makefile.

# It is built where the laboratory is (LAB): switching fibers and swapping
# variables works as on x86-64, and a sanitizer reports both as faults.
SIM_OBJECTS := $(patsubst test/sim/%.c,$(BUILD)/sim/%.o, \
  $(filter-out %/engine.c test/sim/calibrate%,$(wildcard test/sim/*.c))) \
  $(BUILD)/sim/fiber.o $(BUILD)/sim/drawing.o $(BUILD)/sim/model.o \
  $(BUILD)/sim/uses.o $(BUILD)/sim/recipes.o
SIM_RECIPES := $(patsubst %.c,$(BUILD)/sim/%.o, \
  $(wildcard recipes/*.c recipes/part/*.c) \
  shell/extension/outbox.c shell/extension/owned.c)
# With -fexceptions the compiler handles cleanup handlers, which then leave no
# trace in the C library's data of the one real thread.
# Debug information of variables would take a fifth of the compile time.
SIM_CFLAGS = $(COMMON_CFLAGS:-g=-g1) -O1 -fno-lto -fexceptions -I. \
  -I$(BUILD)/sim -D_GNU_SOURCE= -DSQLITE_CORE= $(WARNINGS)
# Few pages, so that checkpoints come often.
SIM_ENGINE = -DZKE_DEBUG -DZKE_CHECKPOINT_PAGES=40 \
  -DZKE_CHECKPOINT_RETRY_PAGES=20 -fdata-sections
SIM_LIBS = $(or $(SQLITE_OBJECT),-l:libsqlite3.a) -lm -ldl -lpthread

$(BUILD)/sim/%.o: test/sim/%.c | $(BUILD)/sim/function_list.h
	$(cc) $(SIM_CFLAGS) -c -o $@ $<
$(BUILD)/sim/fiber.o $(BUILD)/sim/drawing.o: $(BUILD)/sim/%.o: test/lab/%.c
	$(cc) $(SIM_CFLAGS) -c -o $@ $<
$(BUILD)/sim/model.o: test/model/model.c
	$(cc) $(SIM_CFLAGS) -c -o $@ $<
$(BUILD)/sim/uses.o: test/recipes/uses.c
	$(cc) $(SIM_CFLAGS) -c -o $@ $<
$(SIM_RECIPES): $(BUILD)/sim/%.o: %.c
	$(cc) $(SIM_CFLAGS) -include test/sim/instead.h -c -o $@ $<
$(BUILD)/sim/function_list.h: zkembed.h test/functions.awk
	$(call run,AWK) awk -f test/functions.awk zkembed.h >$@
$(BUILD)/sim/engine-plain.o: test/sim/engine.c | $(BUILD)/sim/function_list.h
	$(cc) $(SIM_CFLAGS) $(SIM_ENGINE) -c -o $@ $<

# The process's variables of the engine and of the recipes are in one section.
$(BUILD)/sim/recipes.o: $(SIM_RECIPES) test/sim/gather.ld
	$(call run,LD) $(LD) -r -T test/sim/gather.ld -o $@ $(SIM_RECIPES)
$(BUILD)/sim/engine.o: $(BUILD)/sim/engine-plain.o test/sim/gather.ld
	$(call run,LD) $(LD) -r -T test/sim/gather.ld -o $@ $<

$(BUILD)/simulation: $(BUILD)/sim/engine.o $(SIM_OBJECTS) $(SQLITE_OBJECT)
	$(call run,LD) $(CC) $(LINK) -o $@ $(BUILD)/sim/engine.o $(SIM_OBJECTS) \
	  $(SIM_LIBS)

# The simulated kernel alone, to compare it with the real one.
$(BUILD)/sim/kernel.a: $(filter-out %/main.o,$(SIM_OBJECTS))
	$(ar)
CALIBRATE_OBJECTS := $(patsubst test/%.c,$(BUILD)/%.o, \
  $(wildcard test/sim/calibrate*.c))
$(BUILD)/calibrate: $(CALIBRATE_OBJECTS) $(BUILD)/sim/kernel.a \
  $(BUILD)/zkembed.o | $(SQLITE_OBJECT)
	$(program) $(SIM_LIBS)

# An engine that counts its lines; the counters are not a process's variables.
$(BUILD)/sim/cover/plain.o: test/sim/engine.c | $(BUILD)/sim/function_list.h
	$(cc) $(SIM_CFLAGS) $(SIM_ENGINE) -O0 --coverage -c -o $@ $<
$(BUILD)/sim/cover/engine.o: $(BUILD)/sim/cover/plain.o test/sim/gather.ld
	$(call run,LD) $(LD) -r -T test/sim/gather.ld -o $@ $<
$(BUILD)/sim/cover/simulation: $(BUILD)/sim/cover/engine.o $(SIM_OBJECTS) \
  $(SQLITE_OBJECT)
	$(call run,LD) $(CC) $(LINK) --coverage -o $@ $< $(SIM_OBJECTS) $(SIM_LIBS)

-include $(wildcard $(BUILD)/sim/*.d $(BUILD)/sim/*/*.d \
  $(BUILD)/sim/recipes/part/*.d $(BUILD)/sim/shell/extension/*.d)

##@ The simulated host
## sim             random calls of simulated processes, with faults: SEED=1
##                 RUNS=100000 SECONDS=10 PROCESSES=; RECIPES=1: all use recipes,
##                 RECIPES=NAME: a use of them; REPLAY=STRING for one run:
##                 STORY=1 tells it, PICTURE=FILE.svg draws it, SHRINK=1 makes
##                 it smaller, V=1 prints all calls, V=2 all steps
## sim-calibrate   the simulated kernel acts like the real one: SEED=1
##                 RUNS=100000 SECONDS=10 DIRS="/tmp /dev/shm"
## sim-calibrate-mutants   mistakes planted in the simulated kernel are found:
##                 SECONDS=60 ONLY=NAME
## sim-mutants     mistakes planted in the engine are found: SEEDS=1 SECONDS=60
##                 JOBS=2 ONLY="NAME ..."; ONLY=again: faults that it once
##                 had; RECIPES=1: those of test/lab/mutants, in the recipes
## sim-sometimes   it reaches rare states: SEED=1 SECONDS=60
## sim-replays     what once found a fault finds nothing
## sim-compilers   gcc and clang give the same for a seed: SEED=1 RUNS=200
SIM_GOALS = sim sim-calibrate sim-calibrate-mutants sim-mutants sim-sometimes \
  sim-replays sim-compilers
.PHONY: $(SIM_GOALS)
ifeq ($(LAB),)
$(SIM_GOALS):
	@echo The simulated host needs x86-64, glibc and no sanitizer: nothing is run
else
sim: export SECONDS := $(or $(SECONDS),10)
sim: export RECIPES := $(RECIPES)
sim: $(BUILD)/simulation
	@$< $(if $(STORY),-t) $(if $(PICTURE),-p '$(PICTURE)') $(if $(V),-v) \
	  $(if $(filter 2,$(V)),-v) $(if $(REPLAY),$(if $(SHRINK),-s) '$(REPLAY)', \
	  -s '$(or $(SEED),1)' '$(or $(RUNS),100000)')

sim-calibrate: $(BUILD)/calibrate
	@SEED=$(SEED) RUNS=$(RUNS) SECONDS=$(SECONDS) DIRS="$(DIRS)" \
	  sh test/sim/calibrate.sh

sim-calibrate-mutants: $(BUILD)/calibrate
	@CC="$(CC)" SIM_CFLAGS="$(SIM_CFLAGS)" LIBS="$(SIM_LIBS)" ONLY="$(ONLY)" \
	  SECONDS=$(SECONDS) sh test/sim/calibrate_mutants.sh $(CALIBRATE_OBJECTS) \
	  $(BUILD)/zkembed.o

# The objects for the simulation of test/sim/with_engine.sh.
WITH_ENGINE = CC="$(CC)" LD="$(LD)" SIM_CFLAGS="$(SIM_CFLAGS) $(SIM_ENGINE)" \
  SIM_LIBS="$(SIM_LIBS)" SIM_BUILD=$(BUILD)/sim
sim-mutants: $(BUILD)/simulation
	@$(WITH_ENGINE) SEEDS=$(or $(SEEDS),1) ONLY="$(ONLY)" \
	  TABLE=$(if $(RECIPES),test/lab/mutants,test/sim/mutants) \
	  SECONDS=$(or $(SECONDS),60) JOBS=$(or $(JOBS),2) \
	  sh test/sim/mutants.sh $< $(SIM_OBJECTS)

sim-sometimes: $(BUILD)/sim/cover/simulation
	@SEED=$(or $(SEED),1) SECONDS=$(or $(SECONDS),60) \
	  sh test/sim/sometimes.sh $< $(BUILD)/sim/cover/plain.o

sim-replays: $(BUILD)/simulation
	@sh test/run.sh test/sim/replays.sh

sim-compilers:
	@$(MAKE) --no-print-directory CC=gcc BUILD=build build/simulation
	@$(MAKE) --no-print-directory CC=clang BUILD=build/clang \
	  build/clang/simulation
	@sh test/sim/compilers.sh build/simulation build/clang/simulation
endif
