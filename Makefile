# On a fresh machine: `make quickstart`, `make test`, `make check`. Each sets up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: quickstart test test-slow check generated dist setup clean

# torch first, by its exact version; the second install finds it satisfied and downloads no CUDA. On Linux it comes from
# PyTorch's CPU index, where that can be reached. With a GPU: `make GPU=1`. Another index: TORCH_INDEX.
TORCH := torch==2.13.0
CPU_INDEX := https://download.pytorch.org/whl/cpu
REACHED = $(PYTHON) -c 'import urllib.request as u; u.urlopen("$(CPU_INDEX)/torch/", timeout=5)' 2> /dev/null
GPU ?=
TORCH_INDEX ?=
$(VENV)/.ready: pyproject.toml
	@echo "setup: installs PyTorch and msdc into $(VENV), about 3 minutes"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@index="$(TORCH_INDEX)"; \
	if [ -z "$${index}$(GPU)" ] && [ "$$(uname)" = Linux ]; then \
		if $(REACHED); then index=$(CPU_INDEX); \
		else echo "setup: $(CPU_INDEX) is not reached; PyTorch comes from pip's own index"; fi; \
	fi; \
	set -x; $(BIN)/pip install -q $(TORCH) $${index:+--index-url "$$index"}
	$(BIN)/pip install -q -e '.[all,offline,test,check]'
	touch $@

setup: $(VENV)/.ready

quickstart: setup
	$(BIN)/msdc quickstart

# One worker per core. A file's tests stay together, so that its fixtures are made once; long files come first.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --durations=25

test: setup
	$(PYTEST)

test-slow: setup
	$(PYTEST) -m slow --timeout 0

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=benchmarks $(BIN)/mypy benchmarks/*.py
	$(BIN)/lint-imports
	$(BIN)/vulture
	$(BIN)/python .ci/names

# What is made from the code: reference pages, frozen options, figures of the pages, what is measured of shipped models.
generated: setup
	MSDC_WRITE=1 $(BIN)/python -m pytest -q tests/docs/test_api.py tests/docs/test_recipe_page.py tests/docs/test_docs.py \
		tests/msdc/test_command_line.py tests/export/test_shipped_models.py

# Ready-made bundles of msdc-mini for apps, with their hashes.
dist: setup
	$(BIN)/python .ci/bundles dist

clean:
	rm -rf $(VENV) build dist *.egg-info
