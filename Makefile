# All targets but `gpu` install what they need in .venv; what does not fit in there has a separate environment, which
# `parallel-core compare` finds. A second call starts at once.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
TOOLS := .venv/tools-ready
LIGHT := .venv-tools
SPHINX := .venv/docs-ready
LANGUAGES := ko vi zh_CN
CU112 := .venv-cu112
JAX := .venv-jax
MXNET := .venv-mxnet
# MXNet ends at Python 3.11 and NumPy 1.23, and JAX begins at NumPy 2.
NUMPY_FOR_JAX := 2.4.6
IS_3_11 := -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null
PYTHON_3_11 := $(shell for python in $(firstword $(wildcard $(BIN)/python) $(PYTHON)) python3.11 \
  "$$HOME"/.pyenv/versions/3.11*/bin/python "$$HOME"/.local/share/uv/python/*3.11*/bin/python /usr/bin/python3.11; do \
  "$$python" $(IS_3_11) && { echo "$$python"; break; }; done)
ifeq ($(PYTHON_3_11),$(firstword $(wildcard $(BIN)/python) $(PYTHON)))
FRAMEWORKS := mxnet,torch
COMPARED := $(FRAMEWORKS)
else
# MXNet has an environment of its own if there is a Python for it; if there is none, the comparison says so.
FRAMEWORKS := torch,jax
COMPARED := mxnet,$(FRAMEWORKS)
APART := $(if $(PYTHON_3_11),$(MXNET)/ready)
endif
# What the tests fail without.
REQUIRE ?= $(FRAMEWORKS)
PINS := cat constraints.txt
SAY := printf 'parallel-core: %s\n'
# worksteal: neighbours in a file share what their fixtures made, and no worker ends long before the other.
PYTEST := python -m pytest --dist worksteal
# The tests start hundreds of processes, and each would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

# Two targets install into one environment.
.NOTPARALLEL:

.PHONY: demo tools check test test-long conformance test-cu112 test-jax test-matrix bench measure gpu notebooks docs translations lint clean

# Two minutes, four on a slow machine. It needs the frameworks alone; all else needs the tools as well.
demo: $(READY) $(APART)
	$(BIN)/parallel-core compare --quick --backends $(COMPARED)

# Two minutes from a fresh clone, for a change that needs no framework: lint, types, and the tests that pass without one.
# Left out are those of frameworks, those that measure, train or grade on NumPy, and those that need further packages.
LEFT_OUT := backends/conformance backends/jax backends/mxnet backends/torch benchmarks docs $(addprefix parallel_core/, \
  experiments jobs labs training)
tools: lint
	$(LIGHT)/bin/$(PYTEST) -n 2 -m 'not long' $(LEFT_OUT:%=--ignore=tests/%)

# The tests of one module, FILE=parallel_core/terminal/trace.py, and of what commands say: with frameworks, if they are
# installed for the tests.
CHECKING := $(if $(wildcard $(TOOLS)),.venv,$(LIGHT))
check: $(if $(wildcard $(TOOLS)),$(TOOLS),$(LIGHT)/ready)
	@test -f '$(FILE)' || { $(SAY) 'make check FILE=parallel_core/terminal/trace.py'; exit 2; }
	$(CHECKING)/bin/ruff check $(FILE)
	$(CHECKING)/bin/$(PYTEST) -n 2 -m 'not long' $$($(CHECKING)/bin/python -m tests.tree $(FILE))

# MXNet reads its engine at import, so each engine has processes of its own. Many tests wait for processes that they
# start: while the asynchronous engine's three workers do, the synchronous engine's one takes their cores.
# Of an environment: what its tests fail without, and which tests, on each engine.
define TEST
@$(1)/bin/$(PYTEST) -n 1 --engine sync -m 'not long' --require '$(2)' $(4) >$(1)/test-sync.log 2>&1 & sync=$$!; \
$(1)/bin/$(PYTEST) -n 3 --engine async -m 'not long' --require '$(2)' $(3); async=$$?; \
wait $$sync; sync=$$?; $(SAY) 'the synchronous engine:'; cat $(1)/test-sync.log; exit $$((async | sync))
endef

test: $(TOOLS) $(APART)
	$(call TEST,.venv,$(REQUIRE))
	$(if $(APART),$(call TEST,$(MXNET),mxnet,-k mxnet,-k mxnet tests/backends))

# What `make test` leaves out: what starts several processes, two hosts, notebooks, the pages' tables, the site, and pages
# in Chromium.
test-long: $(TOOLS) $(SPHINX)
	$(BIN)/$(PYTEST) -n 2 -m long --require '$(REQUIRE)'

# Random programs over the protocol's verbs, the same ones each time, on every backend and engine: two minutes.
conformance: $(TOOLS)
	$(BIN)/parallel-core conformance --all --minutes 0.4 --seed 1

# MXNet's CUDA build, from wheels of 2 GB in an environment of its own, with a driver that finds no GPU: all tests but
# PyTorch's, which skip themselves. Those marked slow are for this environment alone.
test-cu112: $(CU112)/ready $(CU112)/driver/libcuda.so.1
	export LD_LIBRARY_PATH='$(CURDIR)/$(CU112)/driver'; for engine in async sync; do \
	  $(CU112)/bin/$(PYTEST) -n 2 --engine $$engine --require mxnet || exit; done

# JAX, which needs NumPy 2, in an environment of its own: the tests with jax in their name or folder, and those of what is
# said without MXNet and PyTorch, and of NumPy 2's numbers in JSON. What else there is, `make test` runs. Of the synchronous
# engine, the backend's own tests. `parallel-core compare --backends jax,mxnet,torch` compares it with the others.
test-jax: $(JAX)/ready
	$(call TEST,$(JAX),jax,-k 'jax or test_doctor or registry or test_trace',-k jax tests/backends)

# Whether versions work together: the backends' tests and random programs in each environment that is there, or by PYTHONS
# of others. 3 minutes for each on an idle machine, up to half an hour on a busy one.
PYTHONS ?= $(patsubst %/pytest,%/python,$(wildcard $(addsuffix /bin/pytest,.venv $(JAX) $(MXNET))))
test-matrix: $(TOOLS)
	for python in $(PYTHONS); do \
	  PYTHONPATH='$(CURDIR)' "$$python" -m pytest -p no:xdist -q -m 'not long' tests/backends || exit; \
	  PYTHONPATH='$(CURDIR)' "$$python" -m parallel_core conformance --all --minutes 0.5 --seed 1 || exit; done

# Three benchmarks, one after the other, and which targets they met: about an hour on two cores.
bench: $(TOOLS)
	$(BIN)/python -m benchmarks bench

# All that the pages show of a machine with two cores, in the order in which it counts, into benchmarks/results: four
# hours, in which nothing else may run. The minutes behind the commands are those of a virtual machine.
MEASURE := $(BIN)/python -m benchmarks
measure: $(TOOLS) $(JAX)/ready
	$(BIN)/parallel-core compare --backends mxnet,mxnet-as-shipped,torch,jax --rounds 5 --out runs/published   # 40
	$(MEASURE).tables.timelines runs/published
	$(MEASURE) exercises                                              # 8
	for over in mxnet torch; do $(MEASURE) planted-faults --over $$over && \
	  $(MEASURE) planted-faults --over $$over --trials 2 --spinning 1 || exit; done   # 26
	$(MEASURE) twins                                                  # 9
	for spinning in 0 1 2; do $(MEASURE) recordings --spinning $$spinning || exit; done   # 65
	$(MEASURE) under-load && $(MEASURE) under-load --spinning 2       # 10
	$(MEASURE) self-test                                              # 5
	$(MEASURE) variants                                               # 10
	$(MEASURE) bench                                                  # 60
	$(MEASURE).tables

# All that ten minutes with one GPU can show, in runs/gpu; a second call adds what is missing. PYTHON names a Python with
# PyTorch: .venv is not needed. OPTIONS=--rehearse tries it on CPUs.
gpu:
	@$(PYTHON) -m benchmarks.gpu $(OPTIONS)

# The notebooks, run from top to bottom and stored with what they showed: on PyTorch where they are, and on MXNet.
notebooks: $(TOOLS)
	$(BIN)/jupyter execute --inplace docs/lessons/*.ipynb
	mkdir -p docs/lessons/on-mxnet
	PARALLEL_CORE_BACKEND=mxnet $(BIN)/jupyter execute --output 'on-mxnet/{notebook_name}' docs/lessons/*.ipynb

# The site in docs/_build/html, with its translated pages in ko, vi and zh_CN there, of what the notebooks stored: a
# minute. It needs no framework, and no network once it is installed.
docs: $(SPHINX)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html docs docs/_build/html
	for language in $(LANGUAGES); do $(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html \
	  -D language=$$language docs docs/_build/html/$$language || exit; done
	@$(SAY) 'the site: docs/_build/html/index.html'

# A package index has no files for README's links: there they lead to the repository that setup.cfg names.
REPOSITORY = $(shell sed -n 's/^ *Repository = //p' setup.cfg)
.PHONY: absolute-links
absolute-links:
	@sed -E -e 's#(!\[[^]]*\]\()([^:)]+\))#\1$(REPOSITORY)/raw/HEAD/\2#g' \
	  -e 's#(\]\()([^:)]+\))#\1$(REPOSITORY)/blob/HEAD/\2#g' README.md >README.absolute && mv README.absolute README.md

# An sdist and a wheel of what is committed, looked over as a package index does.
.PHONY: dist
dist: $(TOOLS)
	@git diff --quiet HEAD || $(SAY) 'what is not committed is left out of dist/'
	@rm -rf dist .venv/committed && mkdir -p .venv/committed
	git archive HEAD | tar -x -C .venv/committed
	@$(MAKE) --no-print-directory -C .venv/committed absolute-links
	$(BIN)/python -m build --no-isolation --outdir dist .venv/committed >.venv/dist.log 2>&1 || { tail .venv/dist.log; exit 1; }
	$(BIN)/twine check --strict dist/*

# What is to be translated, put into the catalogues: what is new is empty there, and what has changed is marked fuzzy.
translations: $(SPHINX)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --builder gettext --tag for_translators docs docs/_build/gettext
	$(BIN)/sphinx-intl update --pot-dir docs/_build/gettext --locale-dir docs/locales --line-width 120 --no-obsolete \
	  $(LANGUAGES:%=--language %)

# PyTorch's own types are checked where it is installed: .venv/bin/mypy.
lint: $(LIGHT)/ready
	$(LIGHT)/bin/ruff check .
	$(LIGHT)/bin/ruff format --check .
	$(LIGHT)/bin/mypy
	$(LIGHT)/bin/mypy --platform darwin --cache-dir .mypy_cache/darwin

clean:
	rm -rf .venv $(LIGHT) $(CU112) $(JAX) $(MXNET) docs/_build docs/reference/experiments

$(CU112)/driver/libcuda.so.1: tests/backends/installation/driver_without_gpus.c | $(CU112)/ready
	@mkdir -p $(@D)
	$(CC) -shared -fPIC -Wl,-soname,$(@F) -o $@ $<

$(TOOLS): $(READY)
$(READY): EXTRAS := $(FRAMEWORKS)
$(TOOLS): EXTRAS := $(FRAMEWORKS),test,tools,dev
$(LIGHT)/ready: EXTRAS := tools
$(SPHINX): EXTRAS := docs
$(CU112)/ready: EXTRAS := mxnet-cu112,test
$(JAX)/ready: EXTRAS := jax,test
$(MXNET)/ready: EXTRAS := mxnet,test
WITH = $(PYTHON)
$(CU112)/ready $(MXNET)/ready: WITH = $(or $(PYTHON_3_11),python3.11)
$(JAX)/ready: PINS := sed 's/^numpy==1[^;]*/numpy==$(NUMPY_FOR_JAX)/' constraints.txt
# Python compiles a module when it is first imported, and keeps that: of most modules that are installed, none is.
$(READY) $(TOOLS) $(LIGHT)/ready $(SPHINX) $(CU112)/ready $(JAX)/ready $(MXNET)/ready: setup.cfg pyproject.toml constraints.txt
	@$(WITH) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { $(SAY) '$(WITH) is not Python 3.11 or later: make PYTHON=/path/to/python3'; exit 1; }
	@$(WITH) -c 'import ensurepip, venv' 2>/dev/null || \
	  { $(SAY) 'Python lacks its venv module: apt-get install python3-venv'; exit 1; }
	@mkdir -p $(@D) 2>/dev/null && test -w $(@D) || \
	  { $(SAY) 'cannot write to $(CURDIR)/$(@D): copy the checkout to where files can be written'; exit 1; }
	@$(SAY) 'installing $(EXTRAS) into $(@D), once (the log is $@.log)'
	@$(@D)/bin/python -m pip --version >/dev/null 2>&1 || $(WITH) -m venv $(@D)
	@$(PINS) >$@.txt
	@$(@D)/bin/python -m pip install --disable-pip-version-check --retries 2 --no-compile -c $@.txt \
	  -e '.[$(EXTRAS)]' >$@.log 2>&1 || { \
	  if grep -qE 'NewConnectionError|ConnectTimeout|Network is unreachable|name resolution' $@.log; \
	  then $(SAY) 'no package index can be reached: is there a network? (details in $@.log)'; \
	  else $(SAY) "the installation failed: $$(grep -m1 ERROR $@.log || tail -n1 $@.log)"; fi; exit 1; }
	@touch $@
