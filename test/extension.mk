# extension.mk - the SQLite extension in other languages: its packages, and
# processes that are killed.  Included by the Makefile.

PACKAGES = $(BUILD)/packages
PYTHON_PACKAGE = shell/extension/python/zkembed/__init__.py
NODE_PACKAGE = $(addprefix shell/extension/node/,index.js package.json)
# Debian's, since others often cannot load extensions.
EXTENSION_PYTHON = $(firstword $(wildcard /usr/bin/python3) python3)

# As if installed, for programs of this checkout.
$(PACKAGES)/python/zkembed/__init__.py: $(PYTHON_PACKAGE) $(EXTENSION)
	$(call run,CP) cp $(EXTENSION) $(@D) && cp $< $@
$(PACKAGES)/zkembed/index.js: $(NODE_PACKAGE) $(EXTENSION)
	$(call run,CP) cp $(EXTENSION) $(@D) && cp $(NODE_PACKAGE) $(@D)
PACKAGES_HERE = $(PACKAGES)/python/zkembed/__init__.py \
  $(PACKAGES)/zkembed/index.js

##@ The SQLite extension in other languages
## extension-packages  a wheel for pip and an archive for npm, with zkembed.so;
##                 into build/packages
## torture-extension  processes in Python, in Node, of the SQLite shell and of
##                 zke that are killed: KILLS=40 SEED= SECONDS=60; MISTAKE=1 to
##                 4: what it must find
.PHONY: extension-packages torture-extension
extension-packages: $(PACKAGES_HERE)
	@rm -f $(PACKAGES)/*.whl $(PACKAGES)/*.tgz
	@$(EXTENSION_PYTHON) shell/extension/packages.py $(EXTENSION) \
	  $(VERSION) $(PACKAGES)

torture-extension: $(PACKAGES_HERE) $(BUILD)/zke
	@mkdir -p $T
	@$(EXTENSION_PYTHON) test/torture/extension_torture.py $(BUILD)/zke \
	  $(EXTENSION:.so=) $(PACKAGES) $T

##@ Benchmarks of the SQLite extension
## bench-extension  from Python, compared with the functions of C, a table that
##                 is polled, flock and filelock: QUICK=1 ONLY=hand
.PHONY: bench-extension
bench-extension: export QUICK := $(QUICK)
bench-extension: export ONLY := $(ONLY)
bench-extension: $(PACKAGES_HERE) $(RECIPE_SHARED)
	@mkdir -p $T
	@$(EXTENSION_PYTHON) test/bench/extension.py $(EXTENSION:.so=) \
	  $(PACKAGES) $T
