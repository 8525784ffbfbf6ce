# Every command sets up what is missing first. PYTHON chooses the interpreter that makes .venv.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
export PYTHONSAFEPATH := 1
# Tests whose only clock is their own: they run side by side. All others need the machine.
COMPUTED := tests/engine tests/kernels tests/text tests/training

.PHONY: setup demo test check fmt bench lock fuzz soak cluster audit

setup:
	@$(PYTHON) tools/bootstrap.py

demo: setup
	@$(VENV)/bin/playhead demo $(if $(ONCE),--once)

test: setup
	OMP_NUM_THREADS=1 $(RUN)/pytest -n auto --durations=15 $(COMPUTED)
	$(RUN)/pytest --durations=30 tests $(COMPUTED:%=--ignore=%)

check: setup
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/mypy tools/*.py agents/*.py
	$(RUN)/mypy --no-warn-return-any --allow-untyped-calls training/*.py
	$(RUN)/lint-imports
	OMP_NUM_THREADS=1 $(RUN)/pytest -n auto -m "not livekit and not browser and not slow and not gpu"

fmt: setup
	$(RUN)/ruff format .
	$(RUN)/ruff check --fix .

bench: setup
	PYTHONPATH=. $(RUN)/python -m tests.bench.engine_cpu
	PYTHONPATH=. $(RUN)/python -m tests.bench.room_cpu

fuzz: setup
	PYTHONPATH=. $(RUN)/python -m tests.bench.fuzz --seconds 600 --write

soak: setup
	PYTHONPATH=. $(RUN)/python -m tests.bench.soak --minutes 30

cluster: setup
	PYTHONPATH=. $(RUN)/python -m tests.bench.cluster

audit: # asks an advisory service, so it needs a network and its answer changes with the day
	uv tool run pip-audit --strict --no-deps --disable-pip -r requirements/engine.txt

lock:
	$(PYTHON) tools/lock.py
