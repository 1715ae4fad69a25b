# `make demo` and `make test` do all the set-up on a fresh machine; `make help` lists the rest.
# Works with GNU make since 3.81 and in parallel (-j).
ifneq ($(or yes),yes)
$(error this make is too old; install GNU make 3.81 or newer)
endif

.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: demo test lint types bench clean help always

# The interpreter that makes .venv; name another one with `make PYTHON=/path/to/python3.12 test`.
PYTHON ?= python3 python3.13 python3.12 python3.11 python3.14 python
# More arguments for pytest: `make test ARGS="-k handlers"`.
ARGS ?=
# The eval of examples/ that the demo packs and runs.
DEMO ?= examples/support-desk

# The environment is our own: a caller's must not leak into it.
unexport PYTHONHOME PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK = 1

venv := .venv
python := $(venv)/bin/python

# Expanded only when .venv must be made, so that $(error) can end make with its one line.
suitable := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))
found_python = $(shell for python in $(PYTHON); do \
	"$$python" -I -c '$(suitable)' >/dev/null 2>&1 && { echo "$$python"; break; }; done)
no_python = no Python 3.11 or newer with its venv module was found (looked for: $(PYTHON)); \
	on Debian or Ubuntu: apt-get install python3-venv; or name one: make PYTHON=/path/to/python3.12

# .venv is made again when it is broken or was copied along with the checkout from another folder.
venv_is_ours := $(shell [ -x $(python) ] && [ "$$(cat $(venv)/checkout 2>/dev/null)" = "$$(pwd -P)" ] && echo yes)

demo: $(venv)/run.stamp ## pack an example eval and run it: no API key, no engine
	$(python) -m harbor_tasks.cli run $(DEMO) --env local --agent replay

test: lint types ## everything: lint, format, types, all tests
	$(python) -m pytest $(ARGS)

lint: $(venv)/dev.stamp ## ruff: rules and format
	$(python) -m ruff check .
	$(python) -m ruff format --check .

types: $(venv)/dev.stamp ## mypy, strict
	$(python) -m mypy

bench: $(venv)/dev.stamp ## measure; prints ratios
	$(python) -m pytest tests/bench -s $(ARGS)

clean: ## remove .venv and what the tools left (jobs/ stays: your results)
	rm -rf $(venv) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name .git -prune -o -type d -name __pycache__ -exec rm -rf {} +

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 16

# What the package needs; the stamps say that an install went through, and for which pyproject.toml.
$(venv)/run.stamp: pyproject.toml $(if $(venv_is_ours),,always)
	$(if $(venv_is_ours),,@echo "making $(venv) with $(or $(found_python),$(error $(no_python)))")
	$(if $(venv_is_ours),,@rm -rf $(venv) && "$(found_python)" -m venv $(venv))
	@$(python) -m pip install -qq --editable .
	@pwd -P > $(venv)/checkout && touch $@

# What the checks need besides.
$(venv)/dev.stamp: $(venv)/run.stamp
	@echo "installing the tools for tests"
	@$(python) -m pip install -qq 'pip>=25.1'
	@$(python) -m pip install -qq --group dev
	@touch $@

always:
