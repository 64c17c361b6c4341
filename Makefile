# The developer's commands. Each does its own set-up; `setup` is done once and again when setup.cfg changes.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
unexport PYTHONDONTWRITEBYTECODE # the tests start Python hundreds of times, which would compile all modules each time
PACKAGES := docker.io strace containernetworking-plugins dnsmasq-base iptables nftables busybox-static iproute2 openssl python3-venv systemd
READY := $(VENV)/.ready
RELEASE := $(VENV)/.release
BUILD := .build-venv
COMMANDS := packaging/cni-invoker extras/cni_egress extras/cni_ipam_etcd extras/cni_plugin extras/cni_tool extras/cnm extras/netavark
DISTRIBUTIONS := $(COMMANDS) extras/pytest_cni .
EGRESS := extras/cni_egress/tests/kernel
KERNEL_OF_EXTRAS := $(filter-out $(EGRESS),$(wildcard extras/*/tests/kernel)) $(EGRESS)/test_escapes.py $(EGRESS)/test_lives.py
JOBS := setup demo fmt lint types imports prose libcni fast pythons kernel crash system alike shortsoak smoke

.PHONY: help setup venv demo check fmt lint types imports prose libcni fuzz quick fast coverage test interrupted kernel crash crashfull shortsoak alike alike-auto alike-fast soak system renewals smoke pythons test-engines test-pythons bench docs screenshots plots man wheels constraints inventory deb deb-packages install debs test-deb release-key release test-release plugin test-plugin test-swarm test-etcd test-egress test-hosts test-install test-long test-podman clean

help: # the targets that most people need
	@for group in use develop release; do \
	    echo "$$group"; \
	    awk -F':.*## |: ' -v group=$$group '$$2 == group { printf "  make %-8s %s\n", $$1, $$3 }' $(MAKEFILE_LIST); \
	    echo; \
	done
	@echo 'CONTRIBUTING.md has all of them.'

setup: ## develop: Debian packages (root), and a virtual environment in .venv
	@PACKAGES="$(PACKAGES) $$(packaging/leveldb-packages)" tests/lab/install-packages
	@$(MAKE) --no-print-directory venv

venv: $(READY)

define new-venv
	@command -v python3 >/dev/null || { echo "python3 is missing: apt-get install python3 python3-venv"; exit 1; }
	@for package in $$(packaging/leveldb-packages); do \
	    [ "$$(dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null)" = installed ] || { \
	        echo "PyPI has no LevelDB for this Python; to build it, $$package is missing: make setup (as root) installs it"; exit 1; }; \
	done
	python3 -m venv $(@D)
endef

$(READY): pyproject.toml $(DISTRIBUTIONS:%=%/setup.cfg)
	$(new-venv)
	@# First, because removing an older cni-bridge, which had both commands, also removes cni-invoker's.
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	$(BIN)/pip install --quiet --disable-pip-version-check $(COMMANDS:%=--editable %) --editable '.[dev]'
	@touch $@

demo: setup ## use: two containers on a CNI network, in a private lab (root)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.lab -- demo/story

check: venv fmt lint types imports prose quick ## develop: everything quick that needs no root, in under a minute

fmt:
	$(BIN)/ruff format --check .

lint:
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports

prose: # plain English: the phrases of tests/prose/phrases.py stay out
	$(BIN)/python -m tests.prose

libcni: venv # libcni from Debian, built for the tests beside it; if it is not available, they report what they skip
	@$(BIN)/python -m tests.differential --build || true
	@$(BIN)/python -m tests.conformance --build || true

fuzz: venv # CASES=100000 random cases for cni_invoker and libcni side by side; SEED= repeats them
	$(BIN)/python -m tests.differential --cases $(or $(CASES),100000) $(if $(SEED),--seed $(SEED))

quick:
	$(BIN)/pytest --numprocesses 4 --hypothesis-profile quick -m 'not slow' tests/unit tests/contract extras/*/tests/unit

fast: # all that need no root
	$(BIN)/pytest --numprocesses 4 tests/unit tests/contract extras/*/tests/unit

coverage: venv # which lines the fast tests run, without those of processes that they start
	$(BIN)/pytest --numprocesses 4 --cov --cov-report term:skip-covered tests/unit tests/contract extras/*/tests/unit

interrupted: setup # no lost DEL: RUNS=10000 of a runtime with a file cache, killed and hindered; SEED= repeats them (needs root)
	unshare --mount --propagation private $(BIN)/python -m extras.cni_tool.tests.interrupted --runs $(or $(RUNS),10000) $(if $(SEED),--seed $(SEED))

kernel: setup # with more workers than processors: many of these tests wait
	@$(BIN)/python -m tests.lab.fetch plugins || true # without them the tests say what they skip
	@$(BIN)/python -m tests.lab.fetch etcd || true
	$(BIN)/pytest --numprocesses 5 -m 'not long' tests/kernel $(KERNEL_OF_EXTRAS)

test-egress: setup # all tests of guarded networks, with a thousand containers in each mode; ENGINE=26.1 (needs root)
	@PACKAGES="ufw firewalld dbus" tests/lab/install-packages
	@$(BIN)/python -m tests.lab.fetch engines || true
	$(BIN)/pytest --numprocesses 2 extras/cni_egress/tests/kernel
	$(BIN)/pytest tests/system/test_guarded_networks.py $(if $(ENGINE),--engine $(ENGINE))

crash: setup
	$(BIN)/pytest --numprocesses 4 tests/crash

crashfull: setup # the daemon killed at every pair of boundaries, which takes hours (needs root)
	CNI_BRIDGE_CRASH=full $(BIN)/pytest --numprocesses 2 tests/crash

shortsoak: setup
	$(BIN)/pytest -m 'not long' tests/soak

soak: setup ## develop: N=1000 random operations and kills; SEED= repeats (root)
	$(BIN)/python -m tests.soak --operations $(or $(N),1000) $(if $(SEED),--seed $(SEED)) $(if $(ENGINE),--engine $(ENGINE)) $(if $(ATTACH),--attach $(ATTACH)) $(if $(TROUBLES),--troubles $(TROUBLES))

system: setup
	@$(BIN)/python -m tests.lab.fetch engines || true # without the main one the machine's is tested, which the end reports
	@$(BIN)/python -m tests.lab.fetch prometheus compose || true # without them the tests report what they skip
	$(BIN)/pytest --numprocesses 4 -m 'not long' tests/system

test-long: setup # the long tests and the variants that `make test` leaves out (needs root)
	@$(BIN)/python -m tests.lab.fetch engines || true
	$(BIN)/pytest --numprocesses 4 -m long tests/system
	$(BIN)/pytest --numprocesses 4 -m long tests/kernel $(KERNEL_OF_EXTRAS)
	$(BIN)/pytest -m long tests/soak

alike: setup # the same docker commands on Docker's own bridge and on our networks; ENGINE=26.1 (needs root)
	@$(BIN)/python -m tests.lab.fetch engines || true # without the main one the tests report what they skip
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target alike-auto alike-fast

alike-auto:
	$(BIN)/pytest tests/alike --attach auto $(if $(ENGINE),--engine $(ENGINE))

alike-fast:
	$(BIN)/pytest tests/alike --attach fast $(if $(ENGINE),--engine $(ENGINE))

renewals: setup # DHCP leases survive restarts in every order, in ten minutes; ENGINE=26.1 (needs root)
	$(BIN)/python -m tests.renewals --engine $(or $(ENGINE),28.5)

smoke: setup # what is not available is reported at the end, and is no failure
	$(BIN)/python -m tests.system.matrix --smoke --numprocesses 4

pythons: venv # the quick tests under Debian's stable one; if it is not available, that is reported, and is no failure
	$(BIN)/python -m tests.lab.pythons --only 3.13 --numprocesses 4 --hypothesis-profile quick -m 'not slow'

test: ## develop: what .ci/run runs, with a table of its jobs (root)
	@tests/jobs $(JOBS)

test-engines: setup # all system tests on every engine with every set of plugins (needs root and a Debian mirror)
	$(BIN)/python -m tests.system.matrix --numprocesses 2

test-pythons: venv # the fast tests under each supported Python that PATH or Debian has
	$(BIN)/python -m tests.lab.pythons --numprocesses 2

bench: setup ## develop: what a container costs, and many endpoints (root)
	$(BIN)/python -m tests.lab --no-dockerd -- $(CURDIR)/$(BIN)/python -m tests.bench.records
	$(BIN)/python -m tests.lab --no-dockerd -- $(CURDIR)/$(BIN)/python -m tests.bench.names
	$(BIN)/python -m tests.lab --no-dockerd -- $(CURDIR)/$(BIN)/python -m tests.bench.packets
	@$(BIN)/python -m tests.lab.fetch engines || true # those that can be had are measured
	$(BIN)/python -m tests.bench.containers

$(RELEASE): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check $(COMMANDS:%=--editable %) --editable '.[dev,release]'
	@touch $@

$(BUILD)/.ready: pyproject.toml $(DISTRIBUTIONS:%=%/setup.cfg) # what builds wheels, without what tests need
	$(new-venv)
	@echo "installing what builds wheels, in $(BUILD)"
	@$(BUILD)/bin/pip install --quiet --disable-pip-version-check $(COMMANDS:%=--editable %) --editable . build click-man 'setuptools>=77' wheel
	@touch $@

man: $(BUILD)/.ready # the manual pages, from the commands' help, into packaging/man, and completions for shells beside them
	$(BUILD)/bin/python packaging/man_pages.py "$$(git log -1 --format=%cs 2>/dev/null || date +%F)" # an archive has no history
	$(BUILD)/bin/python packaging/completions.py

docs: $(RELEASE) ## develop: the documentation as a site, in build/docs/site
	$(BIN)/python packaging/docs_site.py

screenshots: docs # pictures of that site for looking at, into build/docs/screenshots; no page may be too wide for a phone (needs root or chromium)
	@PACKAGES=chromium tests/lab/install-packages
	$(BIN)/python packaging/screenshots.py

plots: venv # the picture of docs/performance.md, from the table beside it
	$(BIN)/python packaging/plots.py

wheels: man # source archives and wheels of cni-bridge, cni-invoker and the extras, into dist
	rm -rf dist
	@echo "building wheels"
	@for one in $(DISTRIBUTIONS); do \
	    $(BUILD)/bin/python -m build --no-isolation --outdir dist $$one >$(BUILD)/log 2>&1 || { tail -n 20 $(BUILD)/log >&2; exit 1; }; \
	done

constraints: wheels $(RELEASE) # packaging/constraints.txt: what a release was tested with, with hashes of all files on PyPI
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	    --find-links dist --no-emit-package cni-invoker --system-certs --output-file packaging/constraints.txt setup.cfg

inventory: wheels $(RELEASE) # dist/inventory.json, for a release: licences and known vulnerabilities of the libraries in constraints.txt
	$(BIN)/python packaging/inventory.py dist/inventory.json

deb-packages: # what the package is built with; first, because python3-venv is among them
	@PACKAGES="build-essential $$(awk '/^[^ ]/ { on = /^Build-Depends:/ } /^ / && on { sub(/-compat|,$$/, "", $$1); print $$1 }' packaging/debian/control)" tests/lab/install-packages

deb: deb-packages ## release: the Debian package for this machine, into dist (root)
	@$(MAKE) --no-print-directory wheels
	packaging/build-deb

install: ## use: the Debian package, and Docker and plugins if missing (root)
	@packaging/install-deb

debs: wheels # the package for each release that it is made for
	@PACKAGES=mmdebstrap tests/lab/install-packages
	$(BIN)/python -m tests.install.packages

release-key: # before half an hour of building
	@{ [ -n "$(KEY)" ] && gpg --list-secret-keys "$(KEY)" >/dev/null; } || { \
	    echo "gpg has no secret key $(KEY) to sign with: make release KEY=FINGERPRINT; see gpg --list-secret-keys"; exit 1; }

release: release-key inventory debs ## release: a signed folder of packages, KEY= and URL= (root)
	@PACKAGES="mmdebstrap apt-utils gpg unzip" tests/lab/install-packages
	packaging/build-plugin
	packaging/build-release

test-release: setup inventory debs # such a folder with a temporary key, installed from with apt on new systems (needs root and mirrors)
	@PACKAGES="mmdebstrap systemd-container apt-utils gpg unzip" tests/lab/install-packages
	packaging/build-plugin
	$(BIN)/pytest tests/install/test_release.py

test-deb: setup wheels # the package on Debian 12 and 13 and Ubuntu 24.04 with systemd: install, reboot, upgrade, purge; the README on a new system, what docs/hosts.md sets up at boot (needs root)
	@PACKAGES="mmdebstrap systemd-container lintian" tests/lab/install-packages
	$(BIN)/pytest tests/install/test_deb.py tests/install/test_new_machine.py tests/install/test_hosts_units.py

plugin: deb # the managed plugin, for `docker plugin create NAME build/plugin` (needs root and a Debian mirror)
	@PACKAGES=mmdebstrap tests/lab/install-packages
	packaging/build-plugin

test-plugin: setup plugin # the managed plugin on a lab, and a swarm of two nodes; ENGINE=26.1 for another engine (needs root and a Debian mirror)
	$(BIN)/pytest tests/managed_plugin $(if $(ENGINE),--engine $(ENGINE))

test-swarm: setup plugin # of these only the swarm
	$(BIN)/pytest tests/managed_plugin/test_swarm*.py $(if $(ENGINE),--engine $(ENGINE))

test-hosts: setup plugin # the networks of docs/hosts.md on two linked labs, with FRR and OVN; ENGINE=26.1 for another engine (needs root and a Debian mirror)
	@PACKAGES="frr ovn-central ovn-host openvswitch-switch jq ethtool" tests/lab/install-packages
	$(BIN)/pytest tests/hosts $(if $(ENGINE),--engine $(ENGINE))

test-etcd: setup # cni-ipam-etcd: three members that are killed and cut off, and two Docker hosts; ENGINE=26.1 for another engine (needs root and a Debian mirror)
	$(BIN)/python -m tests.lab.fetch etcd
	$(BIN)/pytest tests/etcd/members
	$(BIN)/pytest tests/etcd/hosts $(if $(ENGINE),--engine $(ENGINE))

test-install: wheels # the wheels in environments with others' packages, under each Python that PATH or Debian has
	$(BIN)/pytest tests/install/test_wheel.py

test-podman: setup # the driver `cni` with Debian 13's podman and netavark, with root and rootless (needs root and a Debian mirror)
	@PACKAGES="mmdebstrap systemd-container" tests/lab/install-packages
	$(BIN)/pytest tests/install/test_podman.py

clean: # remove what the targets above made
	rm -rf $(VENV) $(BUILD) $(DISTRIBUTIONS:%=%/build) dist packaging/completions packaging/man *.egg-info packaging/*/*.egg-info extras/*/src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
