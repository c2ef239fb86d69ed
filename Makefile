# The only entry point: `make demo` and `make test` do all their own set-up in .venv and build/.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := build/.setup
LOCK   := flock build/.lock
# A worker gets tests that follow each other, so that what a module shares is made once, and takes what is left.
# Tests wait for other processes, so there are more workers than cores; each of them collects all tests first.
WORKERS := $(shell echo $$(($$(nproc) * 2)))
PYTEST := $(PY) -m pytest -n $(WORKERS) --dist worksteal --durations 15
INPUTS  := 2000000
# Thousands of processes begin in a run: each would compile what it imports again.
unexport PYTHONDONTWRITEBYTECODE
BEGAN  := $(shell date +%s)
TOOK    = status=$$?; echo "make $@ took $$(($$(date +%s) - $(BEGAN))) s"; exit $$status

# Jails; a browser without a window for the page (a third of the work of one with), etcd for the registry: real ones.
PACKAGES := bwrap:bubblewrap etcd:etcd-server chromium-headless-shell:chromium-headless-shell chromedriver:chromium-driver

# --client NAME, --module PATTERN, --jobs N, --again, --keep, --report
CLIENTS :=

.PHONY: help setup lock packages gen build check collect ready test test-system test-all test-sanitize test-clients fuzz demo bench gpu clean

help:
	@echo "make demo           an unmodified CUDA program, natively and through gpuferry, compared"
	@echo "make test           checks and the test suite: a verdict (no GPU needed)"
	@echo "make test-system    more of whole systems: what dies, moves and comes back (some minutes)"
	@echo "make test-all       what needs load or luck too, and what is long"
	@echo "make test-sanitize  the native parts under ASan, UBSan and TSan"
	@echo "make test-clients   tests of Numba, CuPy, Warp, cuda-core from PyPI, natively and remotely (CLIENTS='--client numba')"
	@echo "make fuzz           hostile inputs for every parser, INPUTS for each in C (default 2000000)"
	@echo "make bench          measurements with their floors -> build/bench/results.json"
	@echo "make gpu            acceptance on a machine with a GPU"
	@echo "make lock           the versions that all of this uses (.ci/lock.txt), after a change of pyproject.toml"
	@echo "make build | gen | check | clean"

setup: $(STAMP)
$(STAMP): .ci/lock.txt .ci/setup.sh
	@mkdir -p build
	@$(LOCK) .ci/setup.sh $(PYTHON) $(VENV)
	@touch $@

lock:
	@.ci/lock.sh $(PYTHON)

packages:
	@.ci/packages.sh $(PACKAGES)

gen: $(STAMP)
	@$(PY) -m codegen

build: $(STAMP)
	@$(LOCK) .ci/build.sh $(VENV)

check: collect
	@.ci/check.sh $(VENV)

collect: build
	@.ci/collect.sh $(VENV)

# Packages are waited for in the network, so beside the rest.
ready:
	@.ci/packages.sh $(PACKAGES) & $(MAKE) --no-print-directory collect; status=$$?; wait; exit $$status

# The checks are done beside what comes first: the engine's compilation takes one core for two minutes.
test: gen
	@.ci/check.sh $(VENV) >build/check.log 2>&1 & checks=$$!; \
	$(MAKE) --no-print-directory ready && $(PYTEST) -m "not system and not slow and not gpu"; tests=$$?; \
	wait $$checks; checked=$$?; cat build/check.log; (exit $$((tests | checked))); $(TOOK)

test-system: ready
	@$(PYTEST) -m "system and not slow and not gpu"; $(TOOK)

test-all: ready check
	@GPUFERRY_FUZZ=1 $(PYTEST) -m "not gpu" && GPUFERRY_TEST_TLS=1 $(PYTEST) tests/differential -k remote; $(TOOK)

test-sanitize: build
	@.ci/sanitize.sh $(VENV)

test-clients: build
	@$(PY) -m tests.clients $(CLIENTS)

fuzz: build
	@$(PY) -m tests.fuzz --inputs $(INPUTS)

demo: build
	@$(PY) -m bench.demo

bench: build
	@$(PY) -m bench

gpu:
	@.ci/gpu.sh

clean:
	rm -rf build .venv
	find . -name _generated -type d -prune -exec rm -rf {} +
