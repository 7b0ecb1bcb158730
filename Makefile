# On a fresh machine: `make quickstart`, `make test`, `make check`. Each sets up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: quickstart test test-slow check setup clean

# torch first, by its exact version: from TORCH_INDEX (PyTorch's CPU index on Linux) if set. The second install then
# finds torch satisfied and downloads no CUDA.
TORCH_INDEX ?=
$(VENV)/.ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q torch==2.13.0 $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(BIN)/pip install -q -e '.[all,offline,test,check]'
	touch $@

setup: $(VENV)/.ready

quickstart: setup
	$(BIN)/msdc quickstart

# One worker per core. A file's tests stay together, so that its fixtures are made once.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile

test: setup
	$(PYTEST)

test-slow: setup
	$(PYTEST) -m slow

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist *.egg-info
