# make demo    a virtual Mac trains a digits classifier, then what this machine has
# make test    every test                      make lint    ruff and pyright
# make bench   every benchmark                 make clean   away with what the others made
#
# Each makes .venv when it is missing or older than what it is made from. PYTHON=python3.12 chooses the interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: demo test lint bench clean
.DEFAULT_GOAL := test

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("wherry needs Python 3.10 or newer, $(PYTHON) is %s; try make PYTHON=python3.12" % sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/wherry run --on mps examples/digits.py --device mps
	$(BIN)/wherry devices

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS)

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(STAMP)
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file; done

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist build
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
