# Two commands do everything on a machine that has only Python and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install --constraint constraints.txt

# Two test workers on two cores, one thread each: more threads would only fight.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
WORKERS ?= 2
DATA ?= data

.PHONY: demo demo-reply test stories check audit bench bench-peers docs-test format clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.installed-demo  ## train and look into a pronunciation model, in about five minutes
	$(BIN)/seqloom demo

demo-reply: $(VENV)/.installed-demo  ## train and judge suggestions of short replies on chats
	$(BIN)/seqloom demo reply

test: $(VENV)/.installed-dev  ## parts, laws, faults and pages; continuous integration runs the stories as well
	$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --ignore tests/stories --ignore tests/docs tests

stories: $(VENV)/.installed-dev  ## what a person does from end to end, and every block of README and docs
	$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests/stories tests/docs

check: $(VENV)/.installed-dev  ## style, types, the direction of imports
	$(BIN)/ruff check src tests benchmarks docs recipes
	$(BIN)/ruff format --check src tests benchmarks docs recipes
	$(BIN)/mypy
	$(BIN)/lint-imports

audit:  ## known holes in what is installed (pip-audit), and risky code (bandit), as far as the network allows
	@$(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/python -m pip --quiet install bandit pip-audit || \
	  { echo 'audit: bandit and pip-audit cannot be installed from here: nothing was checked'; exit 1; }
	.venv-audit/bin/bandit --quiet --recursive src -ll
	.venv-audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip > .venv-audit/found.txt; code=$$?; \
	  cat .venv-audit/found.txt; missed=$$(grep -c 'could not be audited' .venv-audit/found.txt); \
	  echo "audit: advisories could not be asked for $$missed of $$(grep -c == constraints.txt) packages"; exit $$code

bench: $(VENV)/.installed-dev  ## speed of training and prediction against a bare PyTorch loop
	$(BIN)/python benchmarks/speed.py

bench-peers: $(VENV)/.installed-dev  ## the same next to other toolkits, for hours; DATA holds multi30k/ and cmudict/
	$(BIN)/python benchmarks/peers.py --data $(DATA)

docs-test: $(VENV)/.installed-dev  ## run every command and Python block of README and docs
	$(TEST_ENV) $(BIN)/python -m pytest tests/docs

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix src tests benchmarks docs recipes
	$(BIN)/ruff format src tests benchmarks docs recipes

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache

# Installing again is skipped while nothing changed.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing into $(VENV): PyTorch is large, this may take some minutes'
	$(INSTALL) --editable '.[demo,plot]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing into $(VENV): PyTorch is large, this may take some minutes'
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.installed-demo
