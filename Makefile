# make run    sets up and trains the default recipe on the embedded corpus
# make test   sets up and passes lint, types and tests
# make lint   formats nothing, reports everything
# make docs   builds the site of docs/ in docs/_build/html
# make bench  times this library against the same network written by hand
# make notebooks  executes the notebooks in full and writes what they show
# make attack kills and damages the programs for hours, and prints a table
# make lowest passes the core of the tests with the lowest versions that are declared
#
# Options of a program go in ARGS: make run ARGS="--guide mean-field --train.steps 500"

PYTHON ?= python3
VENV := .venv
export PYTHONDONTWRITEBYTECODE :=
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs
# setuptools warns of each editable installation
INSTALL := -W ignore -m pip install --quiet --disable-pip-version-check

# what hardly anything here imports is compiled when it is
UNREAD := /(tests?|testing|pip|setuptools|_vendor|distutils|rich|torchgen|werkzeug|grpc|joblib|lxml|anyio|networkx|fontTools|mypyc?|pygments|pydantic|tensorboard|_inductor|onnx|transformers/(models|pipelines|cli|exporters)|sympy/(physics|stats|combinatorics|parsing|tensor))/
# what each process of the tests imports at once
OWN := latentheads models guides experiments

LOWEST := .venv-lowest
PROGRAMS := run translate generate score analyse prune
CORE := tests/latentheads tests/models tests/guides $(PROGRAMS:%=tests/experiments/test_%.py)

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# each part of the tests is a process of its own, and the long ones begin first; some tests wait,
# so that there is work for two processes more than there are cores
JOBS := $(shell $(PYTHON) -c 'import os; print(2 + os.cpu_count())')
PARTS := experiments latentheads others annotated
# in this part calls of the library are checked against their annotations, sizes of tensors too
annotated := tests/models tests/guides tests/test_typechecking.py
annotated += $(patsubst %,tests/latentheads/%,attention distributions inference layers training)
experiments := tests/experiments
latentheads := $(patsubst %/,%,$(wildcard tests/latentheads/test_*.py tests/latentheads/[a-z]*/))
latentheads := $(filter-out tests/latentheads/contrib $(annotated),$(latentheads))
others := tests $(patsubst %,--ignore=%,$(annotated) $(experiments) $(latentheads))

.PHONY: run test suite lint types docs bench notebooks attack lowest

run: $(READY)
	$(BIN)/python experiments/run.py $(or $(ARGS),--guide cascaded)

test: $(READY)
	$(MAKE) --no-print-directory --keep-going --jobs $(JOBS) lint types $(PARTS:%=part-%)

suite: $(READY)
ifdef ARGS
	$(PYTEST) $(ARGS)
else
	$(MAKE) --no-print-directory --keep-going --jobs $(JOBS) $(PARTS:%=part-%)
endif

$(PARTS:%=part-%): part-%: $(READY)
	$(if $(filter annotated,$*),CHECK_ANNOTATIONS=1) $(PYTEST) $($*)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

docs: $(DOCS)
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html docs docs/_build/html

$(DOCS): $(READY)
	$(BIN)/python $(INSTALL) --no-compile --constraint constraints.txt --editable '.[docs]'
	touch $@

bench: $(READY)
	$(BIN)/python experiments/studies/bench.py $(ARGS)

notebooks: $(VENV)/.notebooks
	$(BIN)/python experiments/notebooks $(ARGS)

$(VENV)/.notebooks: $(READY)
	$(BIN)/python $(INSTALL) --constraint constraints.txt --editable '.[notebooks]'
	touch $@

attack: $(READY)
	$(BIN)/python -m tests.attack $(ARGS)

lowest: $(LOWEST)/.ready
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest $(CORE) $(ARGS)

$(LOWEST)/.ready: pyproject.toml tests/lowest.py
	$(PYTHON) -m venv --clear $(LOWEST)
	$(PYTHON) tests/lowest.py > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python $(INSTALL) --constraint $(LOWEST)/lowest.txt --editable '.[test]'
	touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "latentheads needs Python 3.11 or newer")'
	@echo "installing into $(VENV), 1 to 3 minutes ..."
	$(PYTHON) -m venv --upgrade-deps $(VENV)  # pip of 2023 takes twice as long as today's
	$(BIN)/python $(INSTALL) --no-compile --constraint constraints.txt --editable '.[test]'
	@$(BIN)/python -m compileall -q -j 0 -x '$(UNREAD)' $(VENV)/lib $(OWN) > $(VENV)/compiled.txt 2>&1 || true
	touch $(READY)
