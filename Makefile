# Everything runs in .venv, which is made with PYTHON (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_FLAGS ?= -n auto

.PHONY: demo test check readme experiments package-check clean

demo: $(VENV)/.installed-local  ## run an order with the local model, up to its reservation
	$(BIN)/fulfil checkpoint

test: $(VENV)/.installed-dev  ## run the tests
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

check: $(VENV)/.installed-dev  ## what a change must pass
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

readme: $(VENV)/.installed-dev  ## write the tables of the README again
	$(BIN)/python tools/readme_tables.py

experiments: $(VENV)/.installed-local  ## the end-to-end experiments and the whole crash matrix, with the local model
	$(BIN)/fulfil experiments
	$(BIN)/fulfil experiments --crash-matrix

package-check: $(VENV)/.installed-dev  ## build the wheel and try it in an empty environment
	PYTHON=$(BIN)/python tools/package_check.sh

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one: make $(MAKECMDGOALS) PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-local: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[local]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[local,dev]'
	@touch $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
