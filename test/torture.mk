# torture.mk - programs without a fixed running time: they kill, cut the power,
# or compare.  Included by the Makefile.

# ---- their objects ---------------------------------------------------------

$(BUILD)/torture-recipes: $T/torture/recipe_torture.o
$(BUILD)/torture-serve: $T/torture/serve_torture.o
$(BUILD)/torture-host: $T/torture/host_torture.o
$(BUILD)/torture-ensemble: $T/ensemble/ensemble_torture.o
$(BUILD)/order-ensemble: $T/ensemble/order_ensemble.o
$(BUILD)/conformance: $(patsubst %.c,$(BUILD)/%.o, \
  $(wildcard test/conformance/*.c))
$(BUILD)/conformance: private LIBS += -lzookeeper_mt
$(BUILD)/model: $T/model/main.o $(MODEL_RUN)

# The programs of doc/examples that torture-host kills.
HOST_PROGRAMS = $T/host-outbox $T/host-jobs
$(HOST_PROGRAMS): $T/host-%: $(BUILD)/doc/examples/%.o

OF_TORTURE_ENGINE = $(patsubst %,$(BUILD)/%,torture-recipes torture-serve \
  torture-host) $(HOST_PROGRAMS)
OF_ENGINE = $(patsubst %,$(BUILD)/%,torture-ensemble order-ensemble \
  conformance model)
$(OF_TORTURE_ENGINE): $(TORTURE_ENGINE)
$(OF_ENGINE): $(BUILD)/zkembed.o
$(OF_TORTURE_ENGINE) $(OF_ENGINE): $(TEST_ARCHIVE) $(RECIPE_ARCHIVE) \
  $(SQLITE_OBJECT)
	$(program) $(LIBS)

# ---- goals -----------------------------------------------------------------

# Everything that runs here, except what needs another compiler.
.PHONY: programs
programs: all test-programs $(OF_TORTURE_ENGINE) $(OF_ENGINE) $(BUILD)/bench \
  $(SIMULATION)

##@ Kills and power cuts
## torture-recipes  processes that are killed while they use recipes: KILLS=
##                 SEED= SECONDS= RECIPE=
## torture-serve   servers of one file that are killed: KILLS= SEED=;
##                 MISTAKE=1 or 2: what it must find
## torture-host    doc/examples with tables of their own, killed and deposed:
##                 KILLS= SEED= SECONDS=
## torture-host-mistakes  mistakes planted in these examples are found
## torture-ensemble  recipes on a server that fails, over a bad network:
##                 KILLS= LOSSES= SEED= SERVER=zookeeper SERVERS=3
## powerloss       power cuts while fenced rows are written: CUTS=200 EVERY=30
##                 SEED=
## powerloss-machine  a virtual machine loses its power while zke works in it:
##                 CUTS=20 SEED=
.PHONY: torture-recipes torture-serve torture-host torture-host-mistakes \
  torture-ensemble powerloss powerloss-machine
torture-recipes: export KILLS := $(or $(KILLS),2000)
torture-recipes: $(BUILD)/torture-recipes
	$< $T
torture-serve: $(BUILD)/torture-serve $(BUILD)/zke
	$< $(BUILD)/zke $T
torture-host: $(BUILD)/torture-host $(HOST_PROGRAMS) $(BUILD)/zke
	$< $T/host- $(BUILD)/zke doc/examples/ledger.py $T
torture-host-mistakes: $(BUILD)/torture-host $(HOST_PROGRAMS) $(BUILD)/zke
	@sh test/torture/host_mistakes.sh
torture-ensemble: $(BUILD)/torture-ensemble $(BUILD)/zke
	$< $T

powerloss: export CUTS := $(or $(CUTS),200)
powerloss: export EVERY := $(or $(EVERY),30)
powerloss: $T/test_power_fence
	$<
powerloss-machine: $(BUILD)/zke
	@bash test/power/machine.sh

##@ The same calls elsewhere
## model           random operations on zkembed and on a model of it in memory:
##                 OPS= SEED=
## conformance     random operations on zkembed and on a ZooKeeper server: OPS=
##                 SEED= SEEDS=; WIRE=1: on `zke serve`, frame by frame;
##                 ENGINE=zookeeper: on a second such server; MASKS=1 tells
##                 what is not compared
## order-ensemble  random programs over a file, `zke serve` and a ZooKeeper
##                 service with an observer: PROGRAMS= SEED=
## foreign         the tests of kazoo, the C client and go-zookeeper on
##                 `zke serve` and on ZooKeeper, and examples in Java and Go:
##                 SUITE=kazoo, zktest, go, examples or curator (40 minutes);
##                 SHORT=1
.PHONY: model conformance order-ensemble foreign
model: $(BUILD)/model
	@$<

conformance: export ZKE := $(BUILD)/zke
conformance: $(BUILD)/conformance $(if $(WIRE),$(BUILD)/zke)
	@sh test/conformance/conformance.sh $<

order-ensemble: $(BUILD)/order-ensemble $(BUILD)/zke
	$< $T

SUITES = $(or $(SUITE),kazoo examples $(if $(SHORT),,zktest go))
foreign: $(BUILD)/zke
	@status=0; for suite in $(SUITES); do \
	  SHORT=$(SHORT) sh test/foreign/$$suite.sh $< || status=1; \
	done; exit $$status
