# Every target builds the environment it needs from nothing: Python 3.11 and make are enough.
PYTHON ?= python3.11
VENV := .venv
OLDEST := .venv-oldest
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
TEST_TOOLS := pytest pytest-xdist hypothesis lightgbm xgboost-cpu numba pyarrow liac-arff openpyxl ray matplotlib jinja2 selenium pillow transformers accelerate lightning skorch opacus sphinx furo myst-parser
CHECK_TOOLS := ruff mypy pandas-stubs scipy-stubs build hatchling cleanlab

.DEFAULT_GOAL := help
.PHONY: help venv demo docs test test-portable test-slow test-oldest check format bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

venv: $(VENV)/.installed ## build .venv

# torch comes first and pinned: unpinned, pip would choose a build with gigabytes of CUDA.
$(VENV)/.installed: pyproject.toml constraints.txt
	command -v $(PYTHON) >/dev/null && $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e . $(TEST_TOOLS) $(CHECK_TOOLS)
	touch $@

demo: venv ## compare plain training with peer loss on built-in data
	$(BIN)/peerloss demo --jobs -1

test: venv ## run the tests, except slow ones (a few minutes)
	$(BIN)/python -m pytest -n 2 -m "not slow"

# Results are rounded differently, as on another processor.
NUMERICAL := $(addprefix tests/,functional losses training noise theory posterior estimators persistence crowd audit)
test-portable: venv ## run the numerical tests without vector instructions, on one thread
	ATEN_CPU_CAPABILITY=default NUMBA_CPU_NAME=generic OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow" $(NUMERICAL)

test-slow: venv ## run all tests, including slow ones
	$(BIN)/python -m pytest -n 2

# The oldest torch on PyPI brings its CUDA packages: about 5 GB. Old packages raise deprecation warnings.
test-oldest: ## run the tests with the oldest supported dependencies
	command -v $(PYTHON) >/dev/null && $(PYTHON) -m venv $(OLDEST) || python3 -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet -c constraints-oldest.txt -e . $(TEST_TOOLS)
	$(OLDEST)/bin/python -m pytest -n 2 -m "not slow" -W ignore::DeprecationWarning -W ignore::FutureWarning

check: venv ## run linter, type checks and doctests; test the built wheel
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q --doctest-modules src --ignore=src/peerloss/functional/kernels/triton_source.py  # which needs Triton
	$(BIN)/python benchmarks/check_wheel.py

format: venv ## format the code and apply automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: venv ## build the site in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo docs/_build/html/index.html

bench: venv ## measure speed and memory relative to other libraries
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/bench_engine.py
	$(BIN)/python benchmarks/bench_audit_speed.py

clean: ## remove everything that the other targets build
	rm -rf $(VENV) $(OLDEST) dist build docs/_build docs/results docs/examples.md docs/tutorial.md docs/api/command_line.md .pytest_cache .mypy_cache .ruff_cache .hypothesis
