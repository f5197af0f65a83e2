# The front door. `make demo` and `make test` install what they need first (see tools/bootstrap and tools/venv).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
# Molecule looks for scenarios here and nowhere else.
export MOLECULE_GLOB := molecule/*/molecule.yml
export PYTHONDONTWRITEBYTECODE := 1

TIMED := tools/timed
PYTEST := python -m pytest
UV := uv==0.13.9

.PHONY: help
help: ## show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

# -- using it ------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: setup ## three simulated GPU servers from a fresh OS to a proven, locked driver, and a report
	@python -m sim.demo

.PHONY: build
build: venv ## the collection's tarball, into build/
	@ansible-galaxy collection build --force --output-path build .

.PHONY: docs
docs: venv ## bring the generated parts of the documentation up to date
	@python -m tools.role_docs

# -- testing it ----------------------------------------------------------------------------------------------------

.PHONY: test
test: setup ## everything that CI runs
	@rm -f build/minutes
	for layer in lint unit integration sanity molecule; do $(MAKE) $$layer; done
	echo; cat build/minutes

.PHONY: lint
lint: venv ## ruff, yamllint, ansible-lint, mypy
	@$(TIMED) lint tools/lint

.PHONY: unit
unit: venv ## backends against literal trees, and the laws of this repository
	@$(TIMED) unit $(PYTEST) -q -n auto tests/unit

.PHONY: integration
integration: setup ## the simulated NVML library, the runfile and the lab against their real users
	@$(TIMED) integration $(PYTEST) -q $(wildcard tests/nvml tests/runfile tests/lab tests/packages)

.PHONY: sanity
sanity: venv ## ansible-test sanity, all tests
	@$(TIMED) sanity tools/sanity

.PHONY: molecule
molecule: setup ## every role on throw-away hosts; one of them: make molecule SCENARIO=nouveau
	@$(TIMED) molecule tools/molecule test $(SCENARIO)

.PHONY: kills
kills: setup ## kill a driver's change in each of its phases, and see what the next run makes of it; some: make kills ROWS='*/load/*'
	@set -f; python -m tests.kills $(ROWS)

.PHONY: bench
bench: setup bench-venv ## controller CPU and wall time against a reference role and pyinfra
	@python -m tests.bench

.PHONY: test-vm
test-vm: setup ## site.yml on a virtual machine with a real kernel, through power cuts; long without KVM
	@tools/bootstrap tools/system-packages-vm.txt
	@tools/test-vm

.PHONY: test-gpu
test-gpu: ## on a machine with a real NVIDIA GPU: reads only; tests/gpu/wheels.sh brings what it needs
	@tests/gpu/run.sh -q -m gpu

# -- what they need ------------------------------------------------------------------------------------------------

.PHONY: setup
setup: bootstrap venv

.PHONY: bootstrap
bootstrap: ## the system packages that are missing
	@tools/bootstrap

.PHONY: venv
venv: ## .venv from the lock, and the checkout as a collection
	@tools/venv

.PHONY: bench-venv
bench-venv:
	@VENV=.venv-bench LOCK=requirements-bench.lock tools/venv

.PHONY: lock
lock: venv ## resolve requirements*.in again
	@python -m venv .cache/lock
	.cache/lock/bin/pip install --quiet --disable-pip-version-check $(UV) 2>/dev/null
	for name in requirements requirements-bench; do
	    .cache/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	        --no-emit-index-url --no-header --no-annotate --output-file $$name.lock $$name.in
	done

.PHONY: clean
clean: ## take the lab down and remove everything that was made here
	@[ ! -x .venv/bin/python ] || .venv/bin/python -m sim.lab down || true
	rm -rf .ansible .cache .venv .venv-bench build reports sim/nvml/build
	find . -name __pycache__ -prune -exec rm -rf {} +
