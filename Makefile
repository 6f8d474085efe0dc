# Everything a person does with this repository. `make` alone lists it.
#
# A fresh clone needs Python 3.11 or later; the tests of Spark need Java as well (tools/java.sh).

BIN := .venv/bin
STAMP := .venv/.installed
STEP := @sh tools/step.sh
EXTRAS := dev,spark,connect,nats

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.PHONY: help setup kernel run test check lint types layers java campaign bench bench-peers format clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP)  ## prepare .venv (again only when pyproject.toml changed)
	@echo ".venv is ready"

$(STAMP): pyproject.toml tools/environment.sh
	@sh tools/environment.sh $(EXTRAS)
	@touch $@

# Once for both test workers; a second call only loads it.
kernel: $(STAMP)
	$(STEP) "kernel compiled" $(BIN)/python -c "from concordant.correlate.kernel import warm_up; warm_up()"

run: $(STAMP) java kernel  ## correlate a generated market day on Spark, into out/market
	@rm -rf out/market
	@$(BIN)/concordant run examples/pipelines/market.toml

# One module's tests stay in one worker, so what is dear to start (a JVM, a server) starts once.
test: $(STAMP) java kernel  ## run all tests, and the examples in docstrings
	@$(BIN)/python -m pytest -n 2 --dist loadscope

# In order and one at a time, so that the cheapest step that fails is the one you read.
check: $(STAMP)  ## what must pass before a change goes in: lint, types, layers, test
	@$(MAKE) lint
	@$(MAKE) types
	@$(MAKE) layers
	@$(MAKE) test

lint: $(STAMP)
	$(STEP) lint $(BIN)/ruff check .
	$(STEP) format $(BIN)/ruff format --check .

types: $(STAMP)
	$(STEP) types $(BIN)/mypy

layers: $(STAMP)
	$(STEP) layers $(BIN)/lint-imports

java:
	@sh tools/java.sh

campaign: $(STAMP)  ## run the long search for violations, planted bugs included
	@PYTHONPATH=. $(BIN)/python -m tests.campaign

bench: $(STAMP) kernel  ## measure, as ratios in one interleaved run
	@$(BIN)/python -m bench

bench-peers: $(STAMP) kernel  ## the same question to Flink SQL, the same messages to JGroups
	@$(BIN)/python -m bench.peers

format: $(STAMP)  ## write the code in the common form
	$(STEP) fixes $(BIN)/ruff check --fix .
	$(STEP) format $(BIN)/ruff format .

clean:  ## remove .venv and everything that was made
	@rm -rf .venv out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	    .import_linter_cache spark-warehouse metastore_db derby.log
	@find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "clean"
