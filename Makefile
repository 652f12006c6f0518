# Two commands on a fresh machine: `make train` and `make test`. Both build .venv themselves.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help train test test-llm test-plugins test-portable test-slow test-faults lint check bench format docs docs-serve clean

help:
	@echo "make train      set up and train PQN with an adaptive batch on CartPole-v1 until it is solved, with a report"
	@echo "make test       set up everything and run the tests, but for the two kinds below"
	@echo "make test-llm   those of language models, which take TRL some minutes of their own"
	@echo "make test-plugins  those of Stable-Baselines3 and Tianshou with a batch that moves"
	@echo "make test-portable  those of numbers and of learning, under older instruction sets of the processor"
	@echo "make test-slow  the long evidence: learning on several seeds, and the next"
	@echo "make test-faults  hundreds of kills, flipped bits, full disks, signals and bad inputs; an hour and more"
	@echo "make lint       format, lint and types"
	@echo "make check      make lint, make test, make test-llm and make test-plugins"
	@echo "make bench      speed and memory beside others and beside the limit, into docs/results/speed.md; 15 minutes"
	@echo "make format     apply the formatter"
	@echo "make docs       the documentation as a site, into site/; a broken link is an error"
	@echo "make docs-serve the same in a browser while you write"

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/ready-to-test: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@ .venv/ready .venv/ready-for-docs

.venv/ready-to-bench: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	@touch $@ .venv/ready

.venv/ready-for-docs: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@ .venv/ready

train: .venv/ready
	$(BIN)/swell train CartPole-v1 --target-return 475 --evaluate-every 10000 --new --report

# -rfEs: what failed and what was skipped, and why, in a line each at the end.
test: .venv/ready-to-test
	$(BIN)/python -m pytest -n 2 -m "not slow" -rfEs --ignore=tests/llm --ignore=tests/plugins

test-llm: .venv/ready-to-test
	$(BIN)/python -m pytest -n 2 -m "not slow" -rfEs tests/llm

test-plugins: .venv/ready-to-test
	$(BIN)/python -m pytest -n 2 -m "not slow" -rfEs tests/plugins

# With the oldest instruction set of torch and oneDNN, and with that of most processors; `make test` has all of this one's.
test-portable: .venv/ready-to-test
	@for setting in "ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41" \
	    "ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2"; do \
	    echo "test-portable: env $$setting"; \
	    env $$setting $(BIN)/python -m pytest -n 2 -m "portable and not slow" \
	        || { echo "test-portable: FAILED under env $$setting" >&2; exit 1; }; \
	done

test-slow: .venv/ready-to-test test-faults
	$(BIN)/python -m pytest -n 2 -m slow --durations=0

# FAULTS="--only kills --number 20" and the like; `python -m tests.faults --help` lists its options.
test-faults: .venv/ready-to-test
	$(BIN)/python -m tests.faults $(FAULTS)

lint: .venv/ready-to-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

check: lint test test-llm test-plugins

# BENCH="--only atari" and the like go to the benchmark; `python -m benchmarks.speed --help` lists its options.
bench: .venv/ready-to-bench
	$(BIN)/python -m benchmarks.speed --out docs/results/speed.md $(BENCH)

format: .venv/ready-to-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/ready-for-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: .venv/ready-for-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean:
	rm -rf .venv site .pytest_cache .ruff_cache .hypothesis
