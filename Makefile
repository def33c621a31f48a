# Two commands are all a newcomer needs: make demo, make test.
# PYTHON=python3.11 chooses the interpreter; PIPFLAGS is handed to pip.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q $(PIPFLAGS) -c constraints.txt

.PHONY: help demo test slow coverage mutants check format bench clean

help:
	@echo "make demo    set up, then watch a small model memorise wrong labels (no download of data)"
	@echo "make test    set up, then run the fast tests"
	@echo "make slow    the tests that take minutes (real data: set UNDERTOW_DATA)"
	@echo "make coverage  the fast tests with the share of src that they reach (at least 92 %)"
	@echo "make mutants   small changes to the code that matters most: which does no test notice?"
	@echo "make check   format, lint and types"
	@echo "make bench   side-by-side measurements; QUICK=1: three minutes, into docs/benchmarks.md"

demo: $(VENV)/.ready
	$(BIN)/undertow demo

test: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --durations=30 --durations-min=10

slow: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -m slow

coverage: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --cov=src/undertow --cov-report=term:skip-covered --cov-fail-under=92

mutants: $(VENV)/.ready-dev
	$(BIN)/python tests/tools/mutants.py $(or $(MANY),15)

check: $(VENV)/.ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.ready-dev
ifdef QUICK
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python bench/quick.py
else
	for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done
endif

clean:
	rm -rf $(VENV) demo

# A set-up that fails half way leaves no stamp, so the next call begins again.
$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else "undertow needs Python 3.11 (tested) to 3.13 (not tested), this is %d.%d: make demo PYTHON=python3.11" % v)'
	@echo "Setting up $(VENV) (a few minutes the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	@echo "Adding the test tools ..."
	@$(PIP) -e '.[dev]'
	@touch $@
