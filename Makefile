# Needs python3 (3.11 or newer, with venv) and make; everything else is installed into .venv.

PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.installed
# Tests mostly wait for databases and processes: two workers per core.
WORKERS = $$(($$(nproc 2>/dev/null || echo 2) * 2))
# Test databases go to memory if there is room.
SCRATCH = $$([ "$$(df -Pk /dev/shm 2>/dev/null | awk 'END {print $$4}')" -gt 4000000 ] 2>/dev/null \
	&& echo /dev/shm || echo "$${TMPDIR:-/tmp}")
# Keep bytecode: a test run starts hundreds of processes.
BYTECODE = PYTHONDONTWRITEBYTECODE=

.DEFAULT_GOAL := help
.PHONY: help run test chaos lint format generate bench docs docs-serve clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(STAMP)  ## run the demo: a server and an agent; for 20 seconds: make run ARGS='--seconds 20'
	@$(BIN)/wakeful demo $(ARGS)

test: $(STAMP)  ## run all tests; a part: make test ARGS='tests/unit -k dst'
	@echo "== pytest"
	@$(BYTECODE) TMPDIR=$(SCRATCH) $(BIN)/pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

chaos: $(STAMP)  ## kill replicas and PostgreSQL for ten minutes; for one: CHAOS_SECONDS=60
	@echo "== chaos"
	@$(BIN)/python -m tests.chaos

lint: $(STAMP)  ## check style, types and import directions
	@echo "== ruff check"
	@$(BIN)/ruff check
	@echo "== ruff format --check"
	@$(BIN)/ruff format --check
	@echo "== mypy --strict"
	@$(BIN)/mypy --strict src tests benchmarks scripts
	@echo "== lint-imports"
	@$(BIN)/lint-imports --no-logo

format: $(STAMP)  ## format the code and apply automatic fixes
	@echo "== ruff format, ruff check --fix"
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

generate: $(STAMP)  ## rewrite the files that follow from the declarations of job fields
	@echo "== generate"
	@$(BIN)/python -m scripts.generate

bench: $(STAMP)  ## run all benchmarks, one after another
	@set -e; for file in $(sort $(wildcard benchmarks/*.py)); do \
		echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py); \
	done

docs: $(STAMP)  ## build the documentation into site/; broken links fail
	@echo "== mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs-serve: $(STAMP)  ## serve the documentation at http://127.0.0.1:8000, with live reload
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean:  ## remove .venv and all generated files
	@echo "== clean"
	@rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "wakeful needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "== setting up .venv (again when pyproject.toml or constraints.txt change)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
