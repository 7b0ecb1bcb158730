# Two commands on a fresh machine: `make quickstart` and `make test`. Both set up .venv themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: quickstart test test-slow check setup clean

# torch first and by its exact version: where a CPU wheel is offered (a local folder, or PyTorch's CPU index on
# Linux through TORCH_INDEX) it is taken, and the later install then finds torch satisfied and pulls no CUDA.
TORCH_INDEX ?=
$(VENV)/.ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q torch==2.13.0 $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(BIN)/pip install -q -e '.[offline,test,check]'
	touch $@

setup: $(VENV)/.ready

quickstart: setup
	$(BIN)/msdc quickstart

test: setup
	$(BIN)/python -m pytest

test-slow: setup
	$(BIN)/python -m pytest -m slow

check: setup
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist *.egg-info
