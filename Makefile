# All targets set up what they need in .venv; a second call starts at once.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
EXTRAS := mxnet,torch,plot,test,dev
SAY := printf 'parallel-core: %s\n'

.PHONY: demo test bench docs lint clean

demo: $(READY)
	$(BIN)/parallel-core compare --quick

# MXNet reads its engine at import, so each engine has processes of its own: two at a time, a file in each.
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile --engine async --require mxnet,torch
	$(BIN)/python -m pytest -n 2 --dist loadfile --engine sync --require mxnet,torch

# All benchmarks, one after the other, and which targets they met: at most 15 minutes on two cores.
bench: $(READY)
	$(BIN)/python -m benchmarks.run_all

# The notebooks, run from top to bottom and stored with what they showed.
docs: $(READY)
	$(BIN)/jupyter execute --inplace docs/*.ipynb

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv

$(READY): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || \
	  { $(SAY) '$(PYTHON) is not Python 3.11, which MXNet 1.9.1 needs: make PYTHON=/path/to/python3.11'; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { $(SAY) 'Python lacks its venv module: apt-get install python3-venv'; exit 1; }
	@$(SAY) 'installing into .venv, once (the log is .venv/install.log)'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check --retries 2 -c constraints.txt -e '.[$(EXTRAS)]' \
	  >.venv/install.log 2>&1 || { \
	  if grep -qE 'NewConnectionError|ConnectTimeout|Network is unreachable|name resolution' .venv/install.log; \
	  then $(SAY) 'no package index can be reached: is there a network? (details in .venv/install.log)'; \
	  else $(SAY) "the installation failed: $$(grep -m1 ERROR .venv/install.log || tail -n1 .venv/install.log)"; fi; exit 1; }
	@touch $(READY)
