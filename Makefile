# Everything here needs python3 (3.11 or newer, with venv) and make; the rest is fetched into .venv.

PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.installed
# Tests wait for real time and real databases more than they compute: two workers a core.
WORKERS = $$(($$(nproc 2>/dev/null || echo 2) * 2))
# Databases of tests need not outlive them: in memory, where there is room for them.
SCRATCH = $$([ "$$(df -Pk /dev/shm 2>/dev/null | awk 'END {print $$4}')" -gt 4000000 ] 2>/dev/null \
	&& echo /dev/shm || echo "$${TMPDIR:-/tmp}")
# What is compiled is kept, whatever is set: a run starts hundreds of processes, and each would compile anew.
KEEPING = PYTHONDONTWRITEBYTECODE=

.DEFAULT_GOAL := help
.PHONY: help run test chaos lint format generate bench docs docs-serve clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(STAMP)  ## start a server and an agent that it wakes, to look at; for a while: make run ARGS='--seconds 20'
	@$(BIN)/wakeful demo $(ARGS)

test: $(STAMP)  ## run every test; some of them: make test ARGS='tests/unit -k dst'
	@echo "== pytest"
	@$(KEEPING) TMPDIR=$(SCRATCH) $(BIN)/pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

chaos: $(STAMP)  ## ten minutes of kills and crashes on PostgreSQL; another time: CHAOS_SECONDS=60
	@echo "== chaos"
	@$(BIN)/python -m tests.chaos

lint: $(STAMP)  ## check style, types and the direction of imports
	@echo "== ruff check"
	@$(BIN)/ruff check
	@echo "== ruff format --check"
	@$(BIN)/ruff format --check
	@echo "== mypy --strict"
	@$(BIN)/mypy --strict src tests benchmarks
	@echo "== lint-imports"
	@$(BIN)/lint-imports --no-logo

format: $(STAMP)  ## put the code into its format and repair what can be repaired
	@echo "== ruff format, ruff check --fix"
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

generate: $(STAMP)  ## rewrite the files that follow from the declarations of job fields
	@echo "== generate"
	@$(BIN)/python -m scripts.generate

bench: $(STAMP)  ## run every benchmark, one after another so that none disturbs the next
	@set -e; for file in $(sort $(wildcard benchmarks/*.py)); do \
		echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py); \
	done

docs: $(STAMP)  ## build the documentation into site/, and refuse a link that leads nowhere
	@echo "== mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs-serve: $(STAMP)  ## show the documentation at http://127.0.0.1:8000 while it is written
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean:  ## remove .venv and everything that was generated
	@echo "== clean"
	@rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "wakeful needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "== setting up .venv (once, and again when its ingredients change)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
