# `make demo` and `make test` do all of their own set-up; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Extra arguments for installing torch, for example --index-url https://download.pytorch.org/whl/cpu
TORCH_ARGS ?=
STAMP := $(VENV)/.installed

.PHONY: help setup demo optimise test nightly mutate lint docs bench gpu validate chaos rehearse small serve images-rehearse clean

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

setup: $(STAMP) ## install Debian packages (as root) and the Python environment in .venv

$(STAMP): pyproject.toml constraints.txt infra/debian-packages
	@infra/debian-packages $(PYTHON)
	@echo "Python environment: $(VENV) (2.8 GB, about 3 minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --quiet --upgrade "pip>=23.2"
	@# Twice quiet: pip warns of each place of an index that has not this package
	@# torch first and pinned: a bare requirement would pull several GB of CUDA libraries onto a machine without a GPU
	@$(BIN)/python -m pip install --quiet --quiet -c constraints.txt $(TORCH_ARGS) torch
	@# setuptools warns of every editable installation, in a frame
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --quiet -c constraints.txt -e ".[dev]"
	@touch $(STAMP)

# Coarse and short: 24 designs in the time of eight, and a model learns from designs.
DEMO_SETTINGS := --set end_time=300 --set snapshot_interval=2 --set mesh_size=1.3 --set time_step=0.2

demo: setup ## 24 OpenFOAM cases, a dataset version, a trained model and a report, all under demo-run/
	@$(BIN)/courant run cylinder-flow --cases 24 $(DEMO_SETTINGS) --recipe cylinder-flow-demo --out demo-run

small: setup ## the longer run: 96 designs and a usable model, some 45 minutes on 2 cores, under small-run/
	@$(BIN)/courant run cylinder-flow --cases 96 --preset trial --recipe cylinder-flow-legible-small --out small-run

# A coarser mesh than the trial's, on which a pipe takes seconds.
OPTIMISE_SETTINGS := --set mesh_size=9
OPTIMISE_RUN = $$(ls -d optimise-run/runs/*)

optimise: setup ## from nothing to a proved design: 48 pipes, a model, its bands, 5 candidates; under optimise-run/
	@$(BIN)/courant run branched-pipe --cases 48 $(OPTIMISE_SETTINGS) --recipe branched-pipe-all-fields-demo --budget 2min --out optimise-run
	@$(BIN)/courant generate branched-pipe --cases 14 $(OPTIMISE_SETTINGS) --sampler uniform --seed 7 --split calibration --store optimise-run/store
	@$(BIN)/courant calibrate $(OPTIMISE_RUN)
	@$(BIN)/courant optimise $(OPTIMISE_RUN) --maximise branch1_share --subject-to 'pressure_loss<=40' --solves 5

# What hangs or crawls is told by name, before whoever started this gives up on it.
IN_TIME := --session-timeout=4200 --durations=20

test: setup lint ## ruff, mypy, import rules and the whole test suite (installs Chromium for it)
	@infra/debian-packages $(PYTHON) tests
	@# Many tests wait for servers and solvers: three files at once keep two cores busy. They start
	@# hundreds of processes, each of which would compile the project anew without its bytecode.
	@env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(IN_TIME)

# As root the power cut of a store is tested on a disk of its own too.
nightly: setup ## what is too long for every commit: faults, two nodes, fuzzing, damage, pages, images (hours)
	@infra/debian-packages $(PYTHON) tests
	@env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 COURANT_TEST_TRIALS=10 \
		$(BIN)/python -m pytest -m nightly -n 2 --dist loadfile --durations=40
	@$(BIN)/python -m bench.damage --trials 5000 --seed 1 --out damage-out
	@$(BIN)/python -m bench.foam_fuzz --cases 500 --seed 1
	@OMP_NUM_THREADS=1 $(BIN)/python -m bench.mutate

mutate: setup ## 200 lines broken one by one, and whether a test of their area fails; goes on where it was cut off
	@OMP_NUM_THREADS=1 $(BIN)/python -m bench.mutate

lint: setup ## ruff, mypy and the import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

serve: setup ## Prefect's server, a pool, every deployment and a worker, until Ctrl-C
	@infra/prefect/serve

validate: setup ## studies of the CFD itself: meshes, benchmarks, mesh convergence; tables and validation-out/
	@$(BIN)/python -m bench.validation

chaos: setup ## 100 seeded schedules of faults, held against an undisturbed run; goes on where it was cut off
	@$(BIN)/python -m bench.chaos --seeds 1-100 --out chaos-out

rehearse: setup ## as root: the whole cluster on this machine, a job on it, a table of checks (installs PostgreSQL)
	@infra/debian-packages $(PYTHON) rehearse
	@$(BIN)/python -m bench.rehearsal

docs: setup ## the pages as a site, build/site/index.html, with a reference made from the code
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

bench: setup ## benchmarks: tables on the screen, JSON under bench-out/
	@$(BIN)/python -m bench

# No set-up: a machine with a GPU comes with a Python of its own, whose torch fits its driver.
gpu: ## what only a GPU can show, with PYTHON's own packages: tests, precision, speed; a table and bench-out/gpu.json
	@$(PYTHON) -m bench gpu

IMAGE ?= solving
images-rehearse: ## as root, with debootstrap: the build steps of the image IMAGE without a container engine
	@$(PYTHON) infra/images/rehearse.py $(IMAGE)

clean: ## remove the Python environment and what runs left behind in the tree
	rm -rf $(VENV) demo-run optimise-run small-run bench-out validation-out chaos-out damage-out mutate-out build *.egg-info
