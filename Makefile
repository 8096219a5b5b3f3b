# Every target sets up .venv by itself when it is needed, from requirements/dev.txt.  With PYTHON=… on the command
# line that interpreter is used as it is: `make test-gpu PYTHON=python3` on a machine that has everything.  What only
# `make test-frameworks` needs, PyTorch above all, is in requirements/frameworks.txt.
BOOTSTRAP ?= python3
VENV := .venv
ifeq ($(origin PYTHON),command line)
READY :=
FRAMEWORKS :=
else
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
FRAMEWORKS := $(VENV)/.frameworks
endif
export PYTHONPATH := $(CURDIR)
WORKERS ?= auto
GPU_WORKERS ?= $(shell n=$$(nproc); echo $$((n > 12 ? 12 : n)))
OUT ?= build/cubins
BENCH ?=

.PHONY: help demo test test-frameworks generate check lint format test-gpu compile-all bench report docs clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.ready: requirements/dev.txt pyproject.toml
	@echo "setting up $(VENV) (once)"
	@$(BOOTSTRAP) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make … BOOTSTRAP=python3.x")'
	@test -x $(VENV)/bin/python || $(BOOTSTRAP) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.frameworks: requirements/frameworks.txt $(VENV)/.ready
	@echo "adding PyTorch and other array libraries to $(VENV) (once)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/frameworks.txt
	@touch $@

demo: $(READY) ## train the digits classifier through the library's plans (GPU if there is one, else the host)
	$(PYTHON) examples/train_digits.py

test: $(READY) ## every test that needs no GPU; those that meet PyTorch and JAX only where these are installed
	$(PYTHON) -m pytest -n $(WORKERS) --dist worksteal

test-frameworks: $(READY) $(FRAMEWORKS) ## install PyTorch, JAX, … and run the tests that meet them
	$(PYTHON) -m pytest -n $(WORKERS) --dist worksteal tests/test_functional.py tests/test_torch.py \
		tests/test_torch_modules.py tests/test_torch_tables.py tests/test_readme.py

generate: $(READY) ## expand the op tables and templates into generated/
	$(PYTHON) -m codegen

check: $(READY) lint ## lint, types, that generated/ is what the tables say, and the documents what was measured
	$(PYTHON) -m codegen --check
	$(PYTHON) -m benchmarks.report --check benchmarks/results/*.json
	$(PYTHON) -m mypy

lint: $(READY) ## ruff
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

format: $(READY) ## rewrite sources in ruff's format
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

test-gpu: $(READY) ## every test on the GPU, with compute-sanitizer where it is installed
	$(PYTHON) -m pytest -m "(gpu or sanitizer) and not alone" -n $(GPU_WORKERS) --dist loadgroup
	$(PYTHON) -m pytest -m "gpu and alone"

compile-all: $(READY) ## compile every variant for every architecture it names, into $(OUT)
	$(PYTHON) -m baracuda_registry compile -o $(OUT)

bench: $(READY) ## measure on this machine's GPU, beside peers; goes on where it was interrupted
	$(PYTHON) -m benchmarks $(BENCH)

report: $(READY) ## write docs/performance.md's tables and plots and the README's line from benchmarks/results/
	$(PYTHON) -m benchmarks.report benchmarks/results/*.json

docs: $(READY) ## build the documentation into build/docs
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements/docs.txt
	$(PYTHON) -m sphinx -W --keep-going -q -b html docs build/docs

clean: ## remove what the targets above made
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
