# `make demo` and `make test` do all of their own set-up; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Extra arguments for installing torch, for example --index-url https://download.pytorch.org/whl/cpu
TORCH_ARGS ?=
STAMP := $(VENV)/.installed

.PHONY: help setup demo test lint bench gpu validate small clean

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

setup: $(STAMP) ## install Debian packages (as root) and the Python environment in .venv

$(STAMP): pyproject.toml constraints.txt infra/debian-packages
	@infra/debian-packages $(PYTHON)
	@echo "Python environment: $(VENV) (2.8 GB, about 3 minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=23.2"
	@# torch first and pinned: a bare requirement would pull several GB of CUDA libraries onto a machine without a GPU
	@$(BIN)/python -m pip install --quiet -c constraints.txt $(TORCH_ARGS) torch
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $(STAMP)

demo: setup ## eight OpenFOAM cases, a dataset version, a trained model and a report, all under demo-run/
	@$(BIN)/courant run cylinder-flow --cases 8 --preset trial --recipe cylinder-flow-demo --out demo-run

small: setup ## the longer run: 96 designs and under an hour of training on 2 cores, under small-run/
	@$(BIN)/courant run cylinder-flow --cases 96 --preset trial --recipe cylinder-flow-small --out small-run

test: setup lint ## ruff, mypy, import rules and the whole test suite
	@# The end-to-end tests mostly wait for servers and solvers: they run beside the others, and print what they found after them.
	@$(BIN)/python -m pytest tests/end_to_end > test-end-to-end.log 2>&1 & beside=$$!; \
	$(BIN)/python -m pytest --ignore=tests/end_to_end; own=$$?; \
	echo "waiting for the end-to-end tests (test-end-to-end.log)"; \
	wait $$beside; other=$$?; cat test-end-to-end.log; \
	test $$own -eq 0 -a $$other -eq 0

lint: setup ## ruff, mypy and the import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

validate: setup ## studies of the CFD itself: meshes, benchmarks, mesh convergence; tables and validation-out/
	@$(BIN)/python -m tests.validation

bench: setup ## benchmarks: tables on the screen, JSON under bench-out/
	@$(BIN)/python -m tests.benchmarks

# No set-up: a machine with a GPU comes with a Python of its own, whose torch fits its driver.
gpu: ## what only a GPU can show, with PYTHON's own packages: tests, precision, speed; a table and bench-out/gpu.json
	@$(PYTHON) -m tests.benchmarks gpu

clean: ## remove the Python environment and what runs left behind in the tree
	rm -rf $(VENV) test-end-to-end.log demo-run small-run bench-out validation-out build *.egg-info
