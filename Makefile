SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
DAGSTER_PORT ?= 3000
ROOMS := pipelines sensors assets checks resources local bench
# All but the clients of two clouds, which no test can reach.
EXTRAS := alerts,clickhouse,digest,expectations,files,kubernetes,postgres-storage,s3,sqlserver,webserver
CHECKED := $(ROOMS) dagster-tableferry docker docs tests conftest.py .ci/prepare-servers .ci/changed
export DAGSTER_HOME ?= $(CURDIR)/.dagster_home

# No server is named, so that the local stack is used.
NO_SERVERS := ! env | grep -qE '^TABLEFERRY_(POSTGRES|SQLSERVER|CLICKHOUSE)_URL(_FILE)?=.'

.PHONY: help install demo dev env docs screenshots test test-changed test-slow test-soak test-mutants test-mutants-changed test-cluster test-engines test-tsql cluster-up cluster-logs test-storages test-all test-unit test-servers certify test-versions release wheels lint format audit sbom check-deployment image test-image bench bench-pairs clean constraints system-packages browser

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

install: $(INSTALLED) ## Install everything into .venv

$(INSTALLED): pyproject.toml local/pyproject.toml bench/pyproject.toml constraints.txt resources/digest/native/copy_text.c
	@PYTHON=$(PYTHON) local/system-packages run
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Tableferry needs Python 3.11 or newer: make PYTHON=python3.12 install" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	@echo "Installing into .venv (about 1.5 GB)" >&2
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python \
			--constraint constraints.txt --editable '.[$(EXTRAS),docs,dev]' --editable ./local --editable ./bench \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check \
			--constraint constraints.txt --editable '.[$(EXTRAS),docs,dev]' --editable ./local --editable ./bench
	@$(BIN)/python -m compileall -q $(ROOMS)
	@touch $@

demo: install ## Move the demo's data through three databases, and show what arrived
	@$(BIN)/python -m tableferry.pipelines.command.demo

dev: install ## Open Dagster's user interface (DAGSTER_PORT=3000)
	@if $(NO_SERVERS) && [ -z "$${TABLEFERRY_TRANSFERS:-}" ]; then $(BIN)/python -m tableferry.pipelines.command.demo --prepare; fi
	@exec $(BIN)/ferry dev --port $(DAGSTER_PORT)

env: install ## Settings for a shell in this checkout: eval "$$(make -s env)"
	@if $(NO_SERVERS); then $(BIN)/ferry local up >&2; $(BIN)/ferry local env; fi
	@printf 'export DAGSTER_HOME=%q PATH=%q:"$$PATH"\n' "$(DAGSTER_HOME)" "$(CURDIR)/$(BIN)"

# What takes them: of Dagster's pages, and of a terminal
PICTURED = tests/integration/operating/test_ui.py tests/integration/operating/test_dbt.py::test_the_graph_is_seen \
	local/tests/stack/integration/test_demo.py::test_the_picture_of_the_first_minutes_shows_what_is_printed

screenshots: install browser ## Take the pictures of the documentation anew
	@TABLEFERRY_SCREENSHOTS=docs/images $(BIN)/python -m pytest -m slow $(PICTURED) $(ARGS)

# A worker more than cores: tests also wait, for processes that start, daemons' ticks, locks. A file stays on one
# worker, as what it makes once serves all of its tests.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
TOGETHER = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Servers, homes and event logs of tests come and go all the time: in memory, where there is room
ROOM = $(shell df -k --output=avail /dev/shm 2>/dev/null | tail -1)
IN_MEMORY = $(if $(TMPDIR),,$(shell [ "$(ROOM)" -gt 8000000 ] 2>/dev/null && echo TMPDIR=/dev/shm))

# Of each file of tests that need servers, so many; none: all of them. Each commit has others, but an archive without git.
MOST ?= 2
TURN ?= $(shell git rev-parse --short=7 HEAD 2>/dev/null || echo 0)

test: install system-packages ## Run the unit tests, and some of each file of those that need servers (MOST=: all)
	@$(IN_MEMORY) $(BIN)/python -m pytest $(TOGETHER) $(if $(ARGS),$(ARGS),$(if $(MOST),--most $(MOST) --turn $(TURN)) $(if $(SHARE),--share $(SHARE)))

# In a check of a commit
test-changed: install browser ## Run those of test-slow that concern the rows, or what has changed
	@left_out=$$($(BIN)/python .ci/changed); $(IN_MEMORY) $(BIN)/python -m pytest $(TOGETHER) -m slow $$left_out $(ARGS)

test-slow: install browser ## Run those that need a browser, Compose, other projects or environments
	@$(IN_MEMORY) $(BIN)/python -m pytest $(TOGETHER) -m slow $(ARGS)

test-soak: install system-packages ## Run the long random tests (TABLEFERRY_SEED=n repeats them)
	@$(IN_MEMORY) $(BIN)/python -m pytest $(TOGETHER) -m soak $(ARGS)

# Of the tests of ClickHouse, those that leave it to Tableferry to make, alter and exchange tables; the stand-in
# knows nothing of blocks that another node has got
CLUSTERED = tests/integration/systems/test_clickhouse_target.py tests/integration/systems/test_targets.py \
	tests/integration/log/test_markers.py \
	tests/integration/moving/test_crash_matrix.py tests/integration/moving/test_two_runs_at_once.py \
	tests/integration/moving/test_move_direct.py tests/integration/moving/test_clickhouse_to_postgres.py \
	tests/integration/proving/test_verdicts.py
ALIKE = not sqlserver and not same_block_sent_twice and not taken_for_dead and not crashed_between_exchange \
	and not existing_table_is_verified and not engine_that_cannot and not does_not_write_are_kept and not place_of_the_target

# they wait for the other node most of the time
ON_CLUSTER = $(BIN)/python -m pytest -n 6 --dist worksteal $(CLUSTERED) -k "$(ALIKE)" $(ARGS)

test-cluster: install system-packages ## Run tests of ClickHouse on two replicas: a stand-in, or TABLEFERRY_TEST_CLICKHOUSE_URL
	@if [[ "$${TABLEFERRY_TEST_CLICKHOUSE_URL:-}" == *cluster=* ]]; then exec env $(IN_MEMORY) $(ON_CLUSTER); fi; \
	failed=; for how in "--delay 0" "--delay 0.2" "--delay 2 --sticky" --alone; do \
		$(IN_MEMORY) $(BIN)/python -m tableferry_local.cluster $$how $(ON_CLUSTER) || failed=$$how; \
	done; test -z "$$failed"

CLUSTER = docker compose --file .ci/clickhouse-cluster/compose.yml

cluster-up: ## Start two replicas of ClickHouse, a Keeper and a balancer (needs Docker)
	@$(CLUSTER) up --wait

cluster-logs: ## Print what these have logged
	@$(CLUSTER) logs

# What depends on the event log most
STORED = tests/integration/log tests/integration/proving tests/integration/operating \
	tests/integration/moving/test_crash_matrix.py tests/integration/moving/test_repair.py

# Those that can be had out of packages: of PostgreSQL, and of ClickHouse
ENGINES ?= 14 15 16 17 24.8 25.5 25.8 26.1 26.3 26.5 26.7

# Routes, types, publishing, markers, columns that come and go, and digests, tried on each PostgreSQL
ON_POSTGRES = tests/integration/moving/test_move_direct.py tests/integration/moving/test_move_postgres_to_postgres.py \
	tests/integration/moving/test_types_postgres_clickhouse.py tests/integration/moving/test_types_postgres_sqlserver.py \
	tests/integration/moving/test_types_sqlserver_postgres.py tests/integration/moving/test_evolution.py \
	tests/integration/moving/test_schema_drift.py tests/integration/log/test_markers.py \
	tests/integration/proving/test_publishing_step.py tests/integration/proving/test_digest_agreement.py \
	tests/integration/proving/test_record_digest.py tests/integration/proving/test_reconcile_mutations.py \
	tests/integration/systems/test_targets.py tests/integration/systems/test_transactional_targets.py \
	tests/integration/systems/test_postgres_resource.py tests/integration/systems/test_postgres_logins.py

test-engines: install system-packages ## Move rows on older servers, kill and restart them (ENGINES="14 25.8 26.3")
	@failed=; $(IN_MEMORY) TABLEFERRY_TEST_ENGINES="$(ENGINES)" $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal \
		-m slow tests/integration/systems/test_engines.py $(ARGS) || failed=restarts; \
	for engine in $(filter 1%,$(ENGINES)); do \
		$(IN_MEMORY) $(BIN)/python -m tests.integration.support.engines $$engine \
			$(BIN)/python -m pytest $(TOGETHER) $(ON_POSTGRES) -k postgres $(ARGS) || failed=$$engine; \
	done; test -z "$$failed"

# A stand-in takes more than SQL Server does
test-tsql: install system-packages ## Have Microsoft's parser judge the T-SQL that tests send, of the guide and of the setup (MOST=: of all tests)
	@$(IN_MEMORY) $(BIN)/python -m tests.tsql $(BIN)/python -m pytest $(TOGETHER) $(if $(MOST),--most $(MOST) --turn $(TURN)) \
		tests/integration $(ARGS)

test-storages: install system-packages ## Run tests of the event log, proofs and operating on Dagster's own storages
	@failed=; for storage in sqlite postgres; do \
		$(IN_MEMORY) TABLEFERRY_TEST_STORAGE=$$storage \
			$(BIN)/python -m pytest $(TOGETHER) $(STORED) $(ARGS) || failed=$$storage; \
	done; test -z "$$failed"

test-mutants: install ## Change the code that decides what is true, and see that tests fail (ARGS='digest --sample 60')
	@$(IN_MEMORY) $(BIN)/python -m tests.mutants $(ARGS)

# In a check of a commit, so long at most; one that takes long may take another minute
test-mutants-changed: install system-packages ## Change what differs from the commit in .ci/judged, for four minutes
	@$(IN_MEMORY) $(BIN)/python -m tests.mutants --seconds 240 --workers $(WORKERS) --seed $$((16#$(TURN))) $(ARGS)

test-all: ## Run all tests
	@$(MAKE) test MOST=
	@$(MAKE) test-slow test-soak test-cluster test-storages

# Beside the tests that need servers, those that go through files, logs, states and processes for seconds
LONGER = integration files log model processes

test-unit: install ## Run Tableferry's own tests that need no servers, and are quick
	@$(IN_MEMORY) $(BIN)/python -m pytest -n auto --dist worksteal tests $(LONGER:%=--ignore-glob="*/%") $(ARGS)

test-servers: install ## Prepare the servers that TABLEFERRY_TEST_..._URL name, and test on them
	@PYTHONPATH=. $(BIN)/python .ci/prepare-servers
	@$(MAKE) test test-slow MOST=

certify: install ## Certify the servers that TABLEFERRY_TEST_..._URL name, else the local stack, into build/certificate
	@TABLEFERRY_POSTGRES_URL="$$TABLEFERRY_TEST_POSTGRES_URL" \
		TABLEFERRY_SQLSERVER_URL="$$TABLEFERRY_TEST_SQLSERVER_URL" \
		TABLEFERRY_CLICKHOUSE_URL="$$TABLEFERRY_TEST_CLICKHOUSE_URL" \
		$(BIN)/ferry certify --output build/certificate $(ARGS)

test-versions: install system-packages ## Test with the oldest and the newest dependencies that pyproject.toml allows
	@$(IN_MEMORY) .ci/test-versions $(BIN)/uv $(ENDS)

release: install ## Build the distributions of Tableferry and dagster-tableferry in dist/, check and use them
	@.ci/release $(BIN)/uv

wheels: install ## Build the wheel for this machine's processor, with the extension in C, in dist/ (needs Docker)
	@$(BIN)/uv tool run --quiet cibuildwheel==4.3.5 --output-dir dist "$$(echo dist/tableferry-*.tar.gz)"

lint: install ## Check style and types
	@$(BIN)/ruff check $(CHECKED)
	@$(BIN)/ruff format --check --quiet $(CHECKED) \
		|| { echo "Not formatted: make format" >&2; exit 1; }
	@mkdir -p build/types && ln -sfn ../.. build/types/tableferry
	@$(BIN)/mypy

format: install ## Format the code
	@$(BIN)/ruff format $(CHECKED)

docs: install ## Build the guide as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

audit: install ## Look up the pinned packages among the known vulnerabilities
	@.ci/audit $(BIN)/python

sbom: install ## List what the image contains, as CycloneDX, in build/sbom.json
	@mkdir -p build
	@$(BIN)/uv pip compile --quiet --no-header --no-annotate pyproject.toml $$(docker/install extras) \
		--constraint constraints.txt --output-file build/requirements.txt
	@PYTHONWARNINGS=ignore $(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements build/requirements.txt \
		--pyproject pyproject.toml --output-reproducible --of JSON --output-file build/sbom.json
	@echo "build/sbom.json: $$(wc -l < build/requirements.txt) packages"

check-deployment: ## Check docker-compose.yml and the workflows by the tools that read them (needs Go)
	@.ci/check-deployment

image: ## Build the image, by docker, podman or buildah (IMAGE=tableferry:local)
	@docker/image build

test-image: install ## Move rows in the image, as its own user on a read-only root
	@if $(NO_SERVERS); then \
		$(BIN)/python -m tableferry.pipelines.command.demo --prepare >/dev/null; eval "$$($(BIN)/ferry local env)"; \
	fi; docker/image test

bench: install ## Measure, with what it is compared to (results in .benchmarks/; ARGS="--suite standard")
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable './bench[peers]'
	@$(BIN)/ferry bench run $(ARGS)

bench-pairs: install ## Load small tables by this client and by that of .ci/judged in turns, and compare their CPU seconds
	@$(BIN)/python -m tableferry_bench.pairs $(ARGS)

clean: ## Stop the local stack and delete its data, Dagster's memory, and caches
	@if [ -x $(BIN)/ferry ]; then $(BIN)/ferry local down --remove; fi
	@rm -rf .dagster_home .benchmarks .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@rm -rf {,local/,bench/,dagster-tableferry/}{build,dist,*.egg-info}
	@find $(ROOMS) tests -name __pycache__ -prune -exec rm -rf {} +

constraints: install ## Pin everything again, after a change of pyproject.toml
	@$(BIN)/uv pip compile pyproject.toml local/pyproject.toml bench/pyproject.toml --all-extras --universal --python-version 3.11 \
		--no-header --no-annotate --quiet --output-file constraints.txt
	@echo 'uv==$(shell $(BIN)/uv --version 2>/dev/null | cut -d" " -f2)' >> constraints.txt
	@$(BIN)/uv lock --quiet --directory dagster-tableferry

system-packages:
	@local/system-packages test

browser:
	@local/system-packages browser
