# Needs python3 (3.11 or newer, with venv) and make; everything else is installed into .venv.
# `make run` installs only the product; the other targets also install the developer tools.

PYTHON ?= python3
BIN    := .venv/bin
# Tests mostly wait for databases and processes: two workers per core.
WORKERS = $$(($$(nproc 2>/dev/null || echo 2) * 2))
# Test databases go to memory if there is room.
SCRATCH = $$([ "$$(df -Pk /dev/shm 2>/dev/null | awk 'END {print $$4}')" -gt 4000000 ] 2>/dev/null \
	&& echo /dev/shm || echo "$${TMPDIR:-/tmp}")
# Keep bytecode: pip does not compile the packages, and a test run starts hundreds of processes.
BYTECODE = PYTHONDONTWRITEBYTECODE=

.DEFAULT_GOAL := help
.PHONY: help product tools run check test test-all test-full test-tools chaos lint format generate bench docs docs-serve package clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: product  ## run the demo: a server and an agent; for 20 seconds: make run ARGS='--seconds 20'
	@$(BYTECODE) $(BIN)/wakeful demo $(ARGS)

check: tools  ## while editing: style, types and unit tests of what was changed; since: ARGS=main
	@$(BIN)/python -m scripts.check $(ARGS)

test: tools  ## run the tests; a part: make test ARGS='tests/unit -k dst'
	@$(BIN)/python -m tests.support.tools
	@echo "== pytest"
	@$(BYTECODE) $(BIN)/python -m scripts.precompile_tests
	@$(BYTECODE) TMPDIR=$(SCRATCH) $(BIN)/pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

test-all: tools  ## run all tests: on both databases, the examples of the documentation, and short chaos
	@WAKEFUL_TEST_ALL=1 $(MAKE) --no-print-directory test

test-full: tools  ## run all tests with all random cases and PostgreSQL versions; takes a few minutes more
	@WAKEFUL_TEST_ALL=1 WAKEFUL_TEST_FULL=1 WAKEFUL_TEST_ALL_VERSIONS=1 $(MAKE) --no-print-directory test

test-tools: tools  ## install optional programs for the tests; as root on Debian
	@echo "== test-tools"
	@scripts/test-tools

chaos: tools  ## kill replicas and databases for ten minutes each; for one: CHAOS_SECONDS=60
	@echo "== chaos"
	@$(BIN)/python -m tests.chaos

lint: tools  ## check style, types and import directions
	@echo "== ruff check"
	@$(BIN)/ruff check
	@echo "== ruff format --check"
	@$(BIN)/ruff format --check
	@echo "== mypy --strict"
	@$(BIN)/mypy --strict src tests benchmarks scripts
	@echo "== lint-imports"
	@$(BIN)/lint-imports --no-logo

format: tools  ## format the code and apply automatic fixes
	@echo "== ruff format, ruff check --fix"
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

generate: tools  ## rewrite the files that follow from job fields and commands
	@echo "== generate"
	@$(BIN)/python -m scripts.generate

bench: tools  ## run all benchmarks, one after another
	@set -e; for file in $(sort $(wildcard benchmarks/*.py)); do \
		echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py); \
	done

docs: tools  ## build the documentation into site/; broken links fail
	@echo "== mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs-serve: tools  ## serve the documentation at http://127.0.0.1:8000, with live reload
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

package: tools  ## build the sdist and the wheel into dist/, and try the wheel in a new environment
	@echo "== package"
	@$(BIN)/python -m scripts.package

clean:  ## remove .venv and all generated files
	@echo "== clean"
	@rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

product:
	@$(PYTHON) scripts/install.py product

tools:
	@$(PYTHON) scripts/install.py tools
