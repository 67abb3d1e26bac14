# Every target does its own set-up, on a fresh Debian 12 machine as root, and skips what is there already.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON := .venv/bin/python
PYTEST := cd tests && ../$(PYTHON) -m pytest
# A plain `su` leaves it without the folders of the servers.
export PATH := $(PATH):/usr/sbin:/sbin
# Where cargo builds: the environment and cargo's own configuration decide.
BUILT = $(shell scripts/build-folder.sh)

## Gateway

run: ## start a gateway on loopback with one LUN and one share (STORE=dir|s3, DETACH=1 for the background, ADDRESS=IP for other machines)
	scripts/setup.sh run
	STORE=$(or $(STORE),dir) scripts/run.sh $(if $(DETACH),--detach)

stop: ## stop what `make run DETACH=1` started
	scripts/run.sh --stop

build: setup-build ## build the daemon and the plugins for tgt and ganesha for production
	cargo build --release --locked -p tombolo
	$(MAKE) -C tgt_plugin all
	$(MAKE) -C fsal_plugin all

## Tests

test: setup-test ## all tests that belong to every change
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --locked --no-fail-fast
	$(PUBLIC_TRACES)
	$(MAKE) -C tgt_plugin all asan
	$(MAKE) -C fsal_plugin all sanitized
	# As the tests of the workspace have built it: alone it has other features, with which most of it would be built again.
	$(MAKE) sim SIM="$(BUILT)/debug/sim"
	$(MAKE) sim-python
	$(MAKE) lint-python
	$(MAKE) -C tgt_plugin check check-asan
	$(MAKE) -C fsal_plugin check check-sanitized
	$(MAKE) e2e

# Exactness on whole traces, in the tests that ignore it unless they are asked.
PUBLIC_TRACES = $(if $(TOMBOLO_TRACES),cargo test --workspace --locked --test reference --test replay -- --ignored libcachesim,\
	@echo "SKIPPED: misses of whole public traces against libCacheSim's: TOMBOLO_TRACES does not name their folder" >&2)

e2e: setup-test ## end-to-end tests against real clients and servers
	# The daemon as the tests of the workspace have built it: other features would build most of it again.
	cargo test --workspace --locked --no-run
	$(MAKE) -C tgt_plugin all
	$(MAKE) -C fsal_plugin all
	$(PYTEST)

# Not the release: an assertion or an overflow fails the seed.
sim: SIM = cargo run --locked -p tombolo-engine --bin sim --
sim: setup-build ## simulated crashes and faults: SEEDS=1000, or SEED=n to replay one
	$(SIM) $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000))

sim-python: setup-simulate ## the simulator's Python package, built into .venv, and its tests (TOMBOLO_TRACES=DIR: on public traces too)
	cd simulator/python && ../../.venv/bin/maturin develop --locked
	cd simulator/python && ../../$(PYTHON) -m pytest

SEEDS_OF_REPORTS = $(foreach seed,1 2 3 4 5,--seed $(seed))

report: setup-simulate ## the evaluations of the four papers and the choice of the defaults, on the traces in TRACES=DIR, into build/report (under two hours; continues where it was; REPORT_ARGUMENTS choose traces, TOMBOLO_ARGUMENTS windows for the largest report)
	@test -d "$(TRACES)" || { echo "TRACES=DIR must name the folder of traces" >&2; exit 2; }
	cd simulator/python && ../../.venv/bin/maturin develop --release --locked
	.venv/bin/tombolo-sim report gds-lc --traces "$(TRACES)" --output build/report $(SEEDS_OF_REPORTS)
	.venv/bin/tombolo-sim report hou --output build/report $(SEEDS_OF_REPORTS)
	.venv/bin/tombolo-sim report stout --output build/report $(SEEDS_OF_REPORTS)
	.venv/bin/tombolo-sim report defaults --traces "$(TRACES)" --output build/report $(SEEDS_OF_REPORTS) $(REPORT_ARGUMENTS)
	.venv/bin/tombolo-sim report tombolo --traces "$(TRACES)" --output build/report \
	    $(SEEDS_OF_REPORTS) --stand-ins 10 $(REPORT_ARGUMENTS) $(TOMBOLO_ARGUMENTS)

soak: setup-test ## many rounds of kills under load, large images, the simulator beside the daemon (over an hour; TOMBOLO_TRACES=DIR: public traces too)
	cargo build --release --locked -p tombolo -p tombolo-engine
	cargo build --release --locked -p tombolo-cloud-driver --example delay_proxy
	$(if $(TOMBOLO_TRACES),cargo test --release --locked -p tombolo-cache --test reference -p tombolo-trace --test public -- --ignored)
	$(if $(TOMBOLO_TRACES),cargo test --release --locked -p tombolo-engine --test replay keys_of_public_traces_miss_as_libcachesim_says -- --ignored)
	$(MAKE) -C tgt_plugin all
	$(MAKE) -C fsal_plugin all
	export TOMBOLO_BINARY="$(BUILT)/release/tombolo"; $(PYTEST) -m soak

conformance: setup-conformance ## foreign suites: iscsi-test-cu, smbtorture, pjdfstest; Linux's own clients in user-mode Linux
	cargo build --release --locked -p tombolo
	$(MAKE) -C tgt_plugin all
	$(MAKE) -C fsal_plugin all
	export TOMBOLO_BINARY="$(BUILT)/release/tombolo"; $(PYTEST) -m "" test_guest.py test_conformance.py test_shares_conformance.py test_run.py

mutants: setup-mutants ## small defects tried against unit tests and simulation: MUTANTS=25 MUTANTS_SEED=n; into docs/results/mutants.md
	$(PYTHON) tests/mutants.py --count $(or $(MUTANTS),25) $(if $(MUTANTS_SEED),--seed $(MUTANTS_SEED)) $(MUTANTS_ARGUMENTS)

fuzz: setup-build ## fuzz every decoder for FUZZ_S seconds each (60)
	scripts/fuzz.sh $(or $(FUZZ_S),60)

bench: setup-bench ## side-by-side measurements; results in docs/results
	cargo build --release --locked -p tombolo
	cargo build --release --locked -p tombolo-cloud-driver --example raw_throughput --example delay_proxy \
		--example capacity_proxy
	cd simulator/python && ../../.venv/bin/maturin develop --release --locked
	$(MAKE) -C tgt_plugin all
	$(MAKE) -C fsal_plugin all
	export TOMBOLO_BINARY="$(BUILT)/release/tombolo"; \
	export TOMBOLO_RAW_THROUGHPUT="$(BUILT)/release/examples/raw_throughput"; \
	cd tests && ../$(PYTHON) -m bench $(BENCH_ARGUMENTS)

## Upkeep

lint: setup-test lint-python ## formatting and static checks of every language, and of the deployment files
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cd tests && ../$(PYTHON) -m pytest test_deploy.py test_lints.py

lint-python:
	cd tests && ../$(PYTHON) -m ruff format --check . && ../$(PYTHON) -m ruff check . && ../$(PYTHON) -m mypy .
	cd simulator/python && ../../$(PYTHON) -m ruff format --check . && ../../$(PYTHON) -m ruff check . && ../../$(PYTHON) -m mypy .

fmt: setup-test ## format Rust and Python
	cargo fmt --all
	cd tests && ../$(PYTHON) -m ruff format . && ../$(PYTHON) -m ruff check --fix .
	cd simulator/python && ../../$(PYTHON) -m ruff format . && ../../$(PYTHON) -m ruff check --fix .

clean: ## remove everything that was built (installed packages and a running gateway's ./run stay)
	cargo clean
	rm -rf build .venv

help: ## this list
	@awk '/^## / { printf "\n%s\n", substr($$0, 4) } \
		/^[a-z-]+:.*## / { split($$0, part, ":.*## "); printf "  make %-12s %s\n", part[1], part[2] }' $(MAKEFILE_LIST)

setup-%:
	scripts/setup.sh $*

.PHONY: run stop build test e2e sim sim-python report soak conformance mutants fuzz bench lint lint-python fmt clean help
