# sim.mk - the simulated host (test/sim/sim.h).  Included by the Makefile.
#
#   make sim                 SEED=1 RUNS=1000 SECONDS=10 PROCESSES=0 (as the seed
#                            has it)
#   make sim REPLAY=STRING   one run, as a finding printed it, and shrunk; V=1
#                            tells each result, V=2 each step
#   make sim-mutants         does it find mistakes?  SEEDS=1 SECONDS=60 ONLY=
#   make sim-sometimes       does it reach what is rare?  SEED=1 SECONDS=60

# Fibers are switched, and the engine's variables exchanged, as on x86-64; a
# sanitizer takes both for faults.
SIM := $(if $(SAN),,$(shell $(CC) -dumpmachine | grep -v musl | grep x86_64))
SIM_SOURCES := $(filter-out %/engine.c,$(wildcard test/sim/*.c))
SIM_OBJECTS = $(SIM_SOURCES:test/sim/%.c=$(BUILD)/sim/%.o) $(BUILD)/sim/fiber.o
SIM_HEADERS := $(wildcard test/sim/*.h) test/lab/fiber.h zkembed.h
SIM_OPTIMIZE = -O1
SIM_CFLAGS = $(COMMON_CFLAGS) -fno-lto -fexceptions $(SIM_OPTIMIZE) -I. \
  -D_GNU_SOURCE= $(WARNINGS)
# Few pages, so that checkpoints come often.
SIM_ENGINE = -DZKE_CHECKPOINT_PAGES=40 -DZKE_CHECKPOINT_RETRY_PAGES=20
SIM_LIBS = $(or $(SQLITE_OBJECT),-l:libsqlite3.a) -lm -ldl -lpthread

$(SIM_SOURCES:test/sim/%.c=$(BUILD)/sim/%.o): $(BUILD)/sim/%.o: test/sim/%.c \
  $(SIM_HEADERS)
	$(cc) $(SIM_CFLAGS) -c -o $@ $<

$(BUILD)/sim/fiber.o: test/lab/fiber.c test/lab/fiber.h
	$(cc) $(SIM_CFLAGS) -c -o $@ $<

# Its variables of a process lie in one section.
$(BUILD)/sim/engine.o: test/sim/engine.c zkembed.c test/sim/gather.ld \
  $(SIM_HEADERS)
	$(cc) $(SIM_CFLAGS) $(SIM_ENGINE) -c -o $(@:.o=-plain.o) $<
	@$(LD) -r -T test/sim/gather.ld -o $@ $(@:.o=-plain.o)

$(BUILD)/simulation: $(BUILD)/sim/engine.o $(SIM_OBJECTS) $(SQLITE_OBJECT)
	$(cc) $(LINK) -o $@ $(BUILD)/sim/engine.o $(SIM_OBJECTS) $(SIM_LIBS)

.PHONY: sim
sim: export SECONDS := $(or $(SECONDS),10)
sim: $(BUILD)/simulation
	@$< -s $(if $(REPLAY),$(if $(V),-v $(if $(filter 2,$(V)),-v)) '$(REPLAY)', \
	  $(or $(SEED),1) $(or $(RUNS),1000))

# Would it find mistakes in the engine?  The script plants them in copies.
.PHONY: sim-mutants
sim-mutants: $(SIM_OBJECTS) $(SQLITE_OBJECT)
	@CC="$(CC)" LD="$(LD)" SIM_CFLAGS="$(SIM_CFLAGS) $(SIM_ENGINE)" \
	  LIBS="$(SIM_LIBS)" SEEDS=$(or $(SEEDS),1) ONLY=$(ONLY) \
	  SECONDS=$(or $(SECONDS),60) sh test/sim/mutants.sh $(SIM_OBJECTS)

# Does it reach what is rare?  The engine counts its lines; the counters are no
# variables of a process.
$(BUILD)/sim/cover/engine.o: test/sim/engine.c zkembed.c test/sim/gather.ld \
  $(SIM_HEADERS)
	$(cc) $(SIM_CFLAGS) $(SIM_ENGINE) -O0 --coverage -fdata-sections -c -o $@ $<
	@$(LD) -r -T test/sim/gather.ld -o $(@:.o=-gathered.o) $@

$(BUILD)/sim/cover/simulation: $(BUILD)/sim/cover/engine.o $(SIM_OBJECTS) \
  $(SQLITE_OBJECT)
	$(cc) $(LINK) --coverage -o $@ $(<:.o=-gathered.o) $(SIM_OBJECTS) $(SIM_LIBS)

.PHONY: sim-sometimes
sim-sometimes: $(BUILD)/sim/cover/simulation
	@SEED=$(or $(SEED),1) SECONDS=$(or $(SECONDS),60) \
	  sh test/sim/sometimes.sh $< $(BUILD)/sim/cover/engine.o
