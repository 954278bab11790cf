# fuzz.mk - libFuzzer's programs (test/fuzz/fuzz.h), and the program of `make
# test` that replays their corpora.  Included by the Makefile.

##@ Fuzzing
## fuzz            libFuzzer: SECONDS=60 for each target; TARGET=path, ops,
##                 file, lines, import, jute, client or server for one
FUZZ_COMMAND = lines import jute client server# linked with the command
FUZZ_TARGETS = path ops file $(if $(COMMAND),$(FUZZ_COMMAND))
FUZZ_OPTIMIZE = -O1
FUZZ_CFLAGS = $(FUZZ_OPTIMIZE) -g -fno-omit-frame-pointer -DZKE_DEBUG \
  -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
FUZZ_SECONDS = $(or $(SECONDS),60)
TARGET = $(FUZZ_TARGETS)

.PHONY: fuzz fuzz-programs $(FUZZ_TARGETS:%=fuzz-%)
fuzz: $(TARGET:%=fuzz-%)
fuzz-programs: $(TARGET:%=build/fuzz/%)

# Some include the source of the engine, the recipes or the command.  So the
# rest is an archive, from which they take what they lack.
FUZZ = build/fuzz/objects
$(FUZZ)/%.o: %.c
	$(call run,CC) $(FUZZ_CC) -MMD -MP -std=c11 -D_GNU_SOURCE= -I. $(CPPFLAGS) \
	  $(FUZZ_CFLAGS) $(filter-out -Wconversion,$(WARNINGS)) -c -o $@ $<

$(FUZZ)/all.a: $(patsubst %.c,$(FUZZ)/%.o,zkembed.c $(RECIPE_SOURCES) \
  $(if $(COMMAND),$(filter-out %/main.c,$(COMMAND_SOURCES))))
	$(ar)

$(FUZZ_TARGETS:%=build/fuzz/%): build/fuzz/%: $(FUZZ)/test/fuzz/%.o \
  $(FUZZ)/all.a
	$(call run,LD) $(FUZZ_CC) $(FUZZ_CFLAGS) -o $@ $^ \
	  $(if $(COMMAND),$(COMMAND_LIBS)) $(LIBS)

# `make test` replays test/fuzz/corpus; new inputs of a run go to a directory
# next to it, inputs that break something to build/fuzz/TARGET-crash-... and the
# like.
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

# ---- test_corpus -----------------------------------------------------------

# It includes the engine's source, and in full size runs longest in that.  The
# targets linked with the command are objects, since the command has functions
# with the names of statics of zkembed.c.
$T/test_corpus.o: private TEST_OPTIMIZE = $(if $(FULL),-O1,-O0)
ifneq ($(COMMAND),)
$T/test_corpus.o: OWN_FLAGS = -DCORPUS_COMMAND
$(FUZZ_COMMAND:%=$T/fuzz/%.o): OWN_FLAGS = -DFUZZ_TOGETHER
$T/test_corpus: $(FUZZ_COMMAND:%=$T/fuzz/%.o) $(COMMAND_ARCHIVE)
$T/test_corpus: private LIBS += $(COMMAND_LIBS)
endif
