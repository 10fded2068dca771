# make demo    a virtual Mac trains a digits classifier, then what this machine has
# make test    every test                      make lint    ruff and pyright
# make bench   every benchmark                 make clean   away with what the others made
# make test-cuda-wheel   tests that pass on every build, with a CUDA build of a newer torch; Linux, no GPU
#
# Each makes .venv (the last one .venv-cuda) when it is missing or older than what it is made from. PYTHON=python3.12
# chooses the interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

CUDA_VENV := .venv-cuda
CUDA_BIN := $(CUDA_VENV)/bin
CUDA_STAMP := $(CUDA_VENV)/.installed
# Where this build and this release could differ from those of .venv: what torch does, and what stands in for it. Of its
# databases, the optimizers and the operators of three families in one dtype, so that it stays a matter of minutes.
CUDA_TESTS ?= tests/rehearse tests/torch_contract tests/backends tests/ops/test_catalog.py tests/test_native_functions.py \
	-k 'not test_module_db and (not test_op_db or (entry_agrees and float32 and (nn_functional or linalg or fft)))'

.PHONY: demo test test-cuda-wheel lint bench clean
.DEFAULT_GOAL := test

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("wherry needs Python 3.10 or newer, $(PYTHON) is %s; try make PYTHON=python3.12" % sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/wherry run --on mps examples/digits.py --device mps
	$(BIN)/wherry devices

# First those that count every byte of a device: in a process of their own, where nobody else has left any.
test: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) -m alone
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not alone'

$(CUDA_STAMP): pyproject.toml constraints.txt scripts/cuda_wheel.py scripts/nvidia_stand_ins.py
	$(PYTHON) scripts/cuda_wheel.py $(CUDA_VENV)
	@touch $@

test-cuda-wheel: $(CUDA_STAMP)
	LD_LIBRARY_PATH='$(CURDIR)/$(CUDA_VENV)/stand-ins' $(CUDA_BIN)/python -m pytest -n $(WORKERS) $(CUDA_TESTS)

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(STAMP)
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file; done

clean:
	rm -rf $(VENV) $(CUDA_VENV) .pytest_cache .ruff_cache .hypothesis dist build
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
