# bench.mk - make bench.  Included by the Makefile.

# The peers' C clients are linked in if they exist, which is checked only when a
# benchmark is made.
bench_client = $(if $(findstring bench,$(MAKECMDGOALS)),$(shell \
  CC='$(CC)' sh test/deps.sh $(1)-client >/dev/null 2>&1 && echo $(1)))
BENCH_CLIENTS := $(call bench_client,zookeeper) $(call bench_client,redis)
BENCH_SOURCES := $(filter-out test/bench/zookeeper.c test/bench/redis.c, \
  $(wildcard test/bench/*.c)) $(BENCH_CLIENTS:%=test/bench/%.c)

$(BUILD)/bench: $(BENCH_SOURCES:%.c=$(BUILD)/%.o) $(TEST_ARCHIVE) \
  $(RECIPE_ARCHIVE) $(OBJECTS)
	$(program) $(if $(filter zookeeper,$(BENCH_CLIENTS)),-lzookeeper_mt) \
	  $(if $(filter redis,$(BENCH_CLIENTS)),-lhiredis) $(LIBS)

##@ Benchmarks
## bench           zkembed compared with plain SQL, flock and the servers that
##                 are installed: QUICK=1 ONLY=lock
## bench-peers     the same, after fetching ZooKeeper, etcd and Redis
## bench-plots     draws the figures of the last run into doc/performance
.PHONY: bench bench-peers bench-plots
bench: $(BUILD)/bench $(SHARED) $(COMMAND)
	@sh test/bench/peers.sh $<

# Once the clients exist, another make finds them.
bench-peers:
	@$(MAKE) --no-print-directory bench

bench-plots:
	@sh test/bench/plots.sh $(BUILD)/bench.json doc/performance
