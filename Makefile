# Every command sets up what is missing first. PYTHON chooses the interpreter that makes .venv.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
export PYTHONSAFEPATH := 1
# Empty counts as unset: hundreds of processes are started, each would compile torch's sources again.
export PYTHONDONTWRITEBYTECODE :=
# Tests whose only clock is their own: they run side by side.
COMPUTED := tests/engine tests/kernels tests/text tests/training
# Tests that wait for processes within wide limits, more than they compute: three side by side, a
# file at a time, the long ones first. All others speak in rooms and need the machine.
UNHURRIED := tests/worker/test_watchdog.py tests/deploy tests/worker/bench tests/worker/simulate \
	tests/worker/http tests/worker/test_download.py tests/worker/test_machine_faults.py \
	tests/agents/test_openai_clients.py tests/agents/test_stored_voices.py \
	tests/worker/test_voice_process.py tests/worker/test_voice_command.py \
	tests/worker/test_verify.py tests/worker/test_doctor.py tests/worker/test_fleet.py \
	tests/worker/test_cli.py tests/worker/test_supervisor.py tests/worker/test_logs.py \
	tests/worker/test_watcher.py tests/worker/test_worker_drain.py \
	tests/worker/test_heard.py tests/worker/test_wire.py tests/worker/test_demo_check.py \
	tests/test_docs.py tests/test_guides.py tests/test_packaging.py tests/tools

.PHONY: setup demo test computed unhurried realtime check lint types quick fmt bench lock fuzz soak cluster audit

setup:
	@$(PYTHON) tools/bootstrap.py

demo: setup
	@$(VENV)/bin/playhead demo $(if $(ONCE),--once)

test: setup
	@$(MAKE) --no-print-directory --keep-going computed unhurried realtime

computed:
	OMP_NUM_THREADS=1 $(RUN)/pytest -n auto --durations=15 $(COMPUTED)

unhurried:
	OMP_NUM_THREADS=1 $(RUN)/pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=15 \
		$(UNHURRIED)

realtime:
	$(RUN)/pytest --durations=30 tests $(COMPUTED:%=--ignore=%) $(UNHURRIED:%=--ignore=%)

check: setup
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types quick

lint:
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/lint-imports

types:
	$(RUN)/mypy

quick:
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
	$(PYTHON) tools/audit.py

lock:
	$(PYTHON) tools/lock.py
