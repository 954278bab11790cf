# lab.mk - how the laboratory (doc/laboratory.md) is built, and how the recipes
# are tested in it.  Included by the Makefile.

# ---- objects ---------------------------------------------------------------

# These flags, if the compiler knows them.
accepted = $(shell $(CC) $(1) -x c -c /dev/null -o /dev/null 2>/dev/null && \
  echo $(1))
# Variables on the stack begin as zeros, so that equal states look equal; for
# the same reason the recipes' functions begin with a call (fiber.h).
LAB_ZEROS := $(call accepted,-ftrivial-auto-var-init=zero)
LAB_ENTRY := $(if $(LAB),$(call accepted,-pg -mfentry))
LAB_OPTIMIZE = -O1# its time goes into the C library's memcpy()
# With -fexceptions the compiler handles cleanup handlers, which then leave no
# trace in the C library's data of the one real thread.  Its objects are changed
# after compilation, so the linker cannot optimize their text.
# Debug information of variables would take a fifth of the compile time.
LAB_CFLAGS = $(COMMON_CFLAGS:-g=-g1) -fno-lto $(LAB_OPTIMIZE) -I. \
  -I$(BUILD)/lab -fno-builtin-malloc -fexceptions $(LAB_ZEROS) $(WARNINGS)
# Each call on a recipe's object begins with zke_sync(), to check the handle: as
# a step this would double the steps of all recipes, and show nothing.
LAB_RECIPE_CFLAGS = $(LAB_CFLAGS) -include test/lab/thread.h $(LAB_ENTRY) \
  -Dzke_sync=lab_real_zke_sync

# The objects that only one of the two has.  Engine and recipes are the same in
# both, without the network.
LAB_OF_ARENA = $(patsubst %,test/lab/%.c,arena fiber keep_arena state statics)
LAB_OF_FORK = $(patsubst %,test/lab/%.c,baton keep_fork)
LAB_SOURCES := $(filter-out test/lab/test_%,$(wildcard test/lab/*.c))
LAB_OBJECTS = $(patsubst test/lab/%.c,$(BUILD)/lab/%.o, \
  $(filter-out $(LAB_OF_FORK),$(LAB_SOURCES)))
LAB_FORKED_OBJECTS = $(BUILD)/lab/engine.o $(patsubst test/lab/%.c, \
  $(BUILD)/lab-forked/%.o,$(filter-out $(LAB_OF_ARENA) test/lab/engine.c, \
  $(LAB_SOURCES)))
LAB_RECIPES = $(patsubst %.c,$(BUILD)/lab/%.o,$(filter-out \
  recipes/engine/zookeeper.c recipes/engine/zk_%,$(RECIPE_SOURCES)))

$(BUILD)/lab/%.o: test/lab/%.c | $(BUILD)/lab/function_list.h
	$(cc) $(LAB_CFLAGS) -c -o $@ $<
$(BUILD)/lab-forked/%.o: test/lab/%.c | $(BUILD)/lab/function_list.h
	$(cc) $(LAB_CFLAGS) -DLAB_FORKED -c -o $@ $<
$(BUILD)/lab/recipes/%.o: recipes/%.c
	$(cc) $(LAB_RECIPE_CFLAGS) -c -o $@ $<

# The archives export zke_ names, and those of the C library's that the
# laboratory replaces; so all is one object.  Its variables are in one section,
# to distinguish them from those of a test (statics.c).
OBJCOPY = objcopy
$(LAB_ARCHIVE): $(LAB_OBJECTS)
$(LAB_FORKED_ARCHIVE): $(LAB_FORKED_OBJECTS)
$(LAB_ARCHIVES): $(LAB_RECIPES) test/lab/replaced test/lab/gather.ld
	$(call run,LD) $(LD) -r -T test/lab/gather.ld -o $(@:.a=.o) \
	  $(filter %.o,$^)
	@$(OBJCOPY) --wildcard --keep-global-symbol='zke_*' \
	  --keep-global-symbols=test/lab/replaced $(@:.a=.o)
	@rm -f $@ && $(AR) rcs $@ $(@:.a=.o)

# ---- zke-lab-serve ---------------------------------------------------------

# The protocol server's files answer the requests, on the laboratory's engine.
$(BUILD)/labserve/%.o: test/labserve/%.c
	$(cc) $(PROGRAM_CFLAGS) -D_GNU_SOURCE= -c -o $@ $<

$(BUILD)/zke-lab-serve: $(patsubst test/labserve/%.c,$(BUILD)/labserve/%.o, \
  $(wildcard test/labserve/*.c)) $(COMMAND_ARCHIVE) $(LAB_ARCHIVE) \
  $(LABSERVE_PYTHON)
	$(program) $(COMMAND_LIBS) $(LAB_LIBS)

$(LABSERVE_PYTHON): test/labserve/zkelab.py
	@mkdir -p $(@D) && cp $< $@

# ---- every recipe in it ----------------------------------------------------

##@ The laboratory
## lab             every recipe, for SECONDS=60 of processor time each;
##                 RECIPE=lock for one, SEED=; a finding says how to replay it
## lab-mutants     mistakes planted in the recipes are found: SEEDS=1 ONLY=NAME
.PHONY: lab lab-mutants
lab: export SECONDS := $(or $(SECONDS),60)
lab: $T/test_lab_recipes
	$<

LAB_MUTANT_OBJECTS = $T/test_lab_recipes.o $(TEST_ARCHIVE) \
  $(LAB_OBJECTS) $(LAB_RECIPES)
lab-mutants: $(LAB_MUTANT_OBJECTS) test/lab/mutants
	@LAB_CFLAGS="$(LAB_RECIPE_CFLAGS)" LIBS="$(CHECK_LIBS) $(LAB_LIBS)" \
	  SEEDS=$(or $(SEEDS),1) ONLY=$(ONLY) SECONDS=$(or $(SECONDS),20) \
	  sh test/lab/mutants.sh $(LAB_MUTANT_OBJECTS)
