# Every target runs in .venv, which tools/with-env makes on first use and whenever a lock file has changed.
#   PYTHON=python3.12   makes .venv with this Python (3.11, 3.12 or 3.13)
#   SECTION="files huge"  are the sections that scale runs
#   ARGS="-k routing"   are passed on to the last command of a target

export PYTHON
ENV := tools/with-env
TESTERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)# more than cores: tests with Spark wait most of the time
.DEFAULT_GOAL := help
CORE := model state program input check plan runtime sim
.PHONY: help run check test soak scale lint docs bench bench-quick bench-parts format lock clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 16

run: ## Run the demo
	@$(ENV) flumina demo --verify $(ARGS)

test: lint ## Check style and types, then run the tests
	@$(ENV) pytest -n $(TESTERS) $(ARGS)

check: lint ## Check style and types, then run the tests of the pure core, for the inner loop: two minutes
	@$(ENV) pytest -n $(TESTERS) -m "not soak and not slow" $(CORE:%=tests/%) tests/test_spec.py tests/test_tidy.py $(ARGS)

soak: ## Run the long searches, which test leaves out: 200,000 simulated schedules among them
	@$(ENV) pytest -m soak $(ARGS)
	@$(ENV) flumina sim --seeds 200000

scale: ## Run at real size, before every release; an hour (SECTION=frames for one, ARGS="--rows 100000" for a look)
	@$(ENV) python -m tests.scale $(SECTION) $(ARGS)

lint: ## Check style and types only
	@$(ENV) ruff check
	@$(ENV) ruff format --check
	@$(ENV) mypy

docs: ## Build the documentation into site/ (ARGS=serve to watch it while you write)
	@NO_MKDOCS_2_WARNING=1 $(ENV) --docs python -m mkdocs $(or $(ARGS),build --strict)

bench: ## Measure and simulate everything, and write benchmarks/report; half an hour (ARGS=throughput for one section)
	@$(ENV) python -m benchmarks.evaluation $(ARGS)

bench-quick: ## The same in less than five minutes, into benchmarks/report/quick
	@$(ENV) python -m benchmarks.evaluation --quick $(ARGS)

bench-parts: ## Measure planning, the simulator, outputs and the engines one by one, as ratios
	@$(ENV) python benchmarks/plan_bench.py
	@$(ENV) python benchmarks/sim_bench.py
	@$(ENV) python benchmarks/keys_bench.py
	@$(ENV) python benchmarks/outputs_bench.py
	@$(ENV) python benchmarks/engine_bench.py
	@$(ENV) python benchmarks/streaming_bench.py
	@$(ENV) python benchmarks/snapshots_bench.py

format: ## Put the code into the common format
	@$(ENV) ruff check --fix-only
	@$(ENV) ruff format

lock: ## Write the lock files anew (ARGS=--upgrade for newer versions)
	@$(ENV) tools/lock $(ARGS)

clean: ## Remove .venv and everything else that can be made again
	rm -rf .venv site build .mypy_cache .pytest_cache .ruff_cache .hypothesis dist spark-warehouse metastore_db derby.log
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +
