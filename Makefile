# make demo   everything, then MLflow and the dashboard until Ctrl-C
# make repro  the same without serving
# make check  lint and the fast tests
# make test   lint and the whole test suite; parts: make test PYTEST_ARGS="tests/data"

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
CONFIG := experiments/demo.yaml

export PATH := $(CURDIR)/$(BIN):$(PATH)

# The ablation: the same recipe on another blend, trained and scored outside the pipeline.
ABLATION := --no-publish --set blend.components.0.weight=0.05 --set blend.components.5.weight=0.35

# A file's tests run in one worker, for they share what the file made. Files start in the order of tests/conftest.py.
PYTEST := pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo repro ablation picture check docs test lint chromium clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY)  ## the environment in .venv

# torch comes first and alone: a later range would let pip replace it.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' || \
	  { echo "treering: Python 3.11 or 3.12 is needed, found: $$($(PYTHON) --version 2>&1); make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	@echo "installing torch …"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	@echo "installing everything else …"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[data,ray,trainer,evaluation,registry,ledger,dashboard,attestation,report,team,pipeline,s3,docs,test]'
	@touch $@

demo: repro  ## set up, run the pipeline, serve MLflow and the dashboard until Ctrl-C
	@treering up

repro: $(READY)  ## set up and run the pipeline; exit 0 at its end
	@dvc repro
	@treering summary $(CONFIG)

ablation: $(READY)  ## train and score a second blend outside the pipeline, to compare with the first
	@treering train $(CONFIG) $(ABLATION)
	@treering evaluate $(CONFIG) $(ABLATION)
	@echo "to compare the runs: treering up, page Compare"

picture: $(READY) chromium  ## renew the README's picture of the dashboard from the run with most evaluations
	@python -m treering_dashboard.picture

check: $(READY) lint  ## lint and the tests that are not slow, in about 3 minutes
	@$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test: $(READY) chromium lint  ## set up and pass the tests; a part of them: make test PYTEST_ARGS="-m 'not browser'"
	@$(PYTEST) $(PYTEST_ARGS)

docs: $(READY)  ## the documentation as a site in site/; a broken link or an unknown reference ends it
	@NO_MKDOCS_2_WARNING=1 mkdocs build

lint: $(READY) docs  ## ruff, mypy, the import borders, unused code, and the documentation's links and references
	@ruff check .
	@ruff check --preview --select DOC501 .
	@ruff format --check .
	@mypy
	@lint-imports --no-logo
	@vulture

# Browser tests need Debian's Chromium; without it they are skipped and say why.
chromium:
	@command -v chromium > /dev/null || { command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ] && \
	  echo "installing chromium …" && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium > /dev/null; } || \
	  echo "no chromium and no way to install it: browser tests will be skipped"

clean:  ## remove the environment and what the pipeline made (runs/ stays: it holds evidence)
	@rm -rf .venv site .treering data published published.evaluations metrics plots report.md mlflow.db treering.db mlartifacts
