# make demo   the main job, two minutes: a film enhanced, a batch, bits, the ladder and its picture
# make test   the tests, with linters and types
# make bench  single products beside NumPy, measured on this machine, and the tables that show them
# make figures  every table of the processor's, about 15 minutes of a machine that does nothing else
#
# make docs   the site, into site/html: reference, gallery (run), every page; no warning is let through
# make docs-links  asks for every address outside that a page names, with a network
# make mesa   the case list on Mesa's rusticl over llvmpipe (Debian: mesa-opencl-icd), a quarter of an hour
# make arm    parts of the suite in an aarch64 userland under QEMU, which it makes; no such hardware
#             is needed; half an hour of processor time
# make kills  films killed at thirty drawn moments, and 10,000 pictures: about eight minutes
#
# Each sets itself up in .venv on a bare machine (Python >= 3.11 with pip); the next run reuses it.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test bench figures tables mesa arm kills docs docs-links lint clean
.DELETE_ON_ERROR:

demo: .venv/ready-demo
	$(BIN)/tilewright demo

# A process more than two cores: most of the suite is one thread that compiles, plans or checks,
# and some of it waits for processes that it started. Linters and types go beside it, told last.
test: .venv/ready-dev
	@$(MAKE) --no-print-directory lint > .venv/lint.log 2>&1 & lint=$$!; \
	  $(BIN)/python -m pytest -n 3; tests=$$?; \
	  wait $$lint; lint=$$?; cat .venv/lint.log; exit $$((tests | lint))

lint: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready-demo
	$(BIN)/python -m bench.dense
	$(BIN)/python -m bench.tables

figures: .venv/ready-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check mkl
	$(BIN)/python -m bench.processor

mesa: .venv/ready-dev
	RUSTICL_ENABLE=llvmpipe $(BIN)/python -m pytest -n 2 -k rusticl

kills: .venv/ready-dev
	$(BIN)/python -m bench.film_survival --output bench/results/film-survival-cpu.json

arm:
	PYTHON=$(PYTHON) tests/support/arm.sh

docs: .venv/ready-docs
	$(BIN)/python -m docs.site.build

docs-links: .venv/ready-docs
	$(BIN)/python -m docs.site.build --links

tables: .venv/ready-demo
	$(BIN)/python -m bench.tables

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: $(PYTHON) is older than 3.11; try make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/ready-demo: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cpu,plot,files,video,report]'
	@touch $@

.venv/ready-dev: pyproject.toml .venv/ready-demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

.venv/ready-docs: pyproject.toml .venv/ready-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

clean:
	rm -rf .venv site
