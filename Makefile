# Every target sets up what it needs; `make` alone prints them.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BUDGET ?= 60
# One more than processors, because tests wait: each imports and collects everything for itself.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)
# Tests that share a cluster run one after the other in one process, which ends it after the last.
IN_GROUPS = -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
MEMBERS := libs/anabranch libs/common libs/client libs/cli libs/spark services/controller services/segstore services/gateway

# The tests start hundreds of processes: none of them shall compile what another one has compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help:
	@grep -E '^## ' $(MAKEFILE_LIST) | sed 's/^## //'

## make setup     create .venv with the locked dependencies and the parts, editable
.PHONY: setup
setup: $(STAMP)

# An editable install lists the packages that exist at that moment, so new ones renew it.
PACKAGES := $(wildcard $(MEMBERS:%=%/src/anabranch/*/__init__.py))

$(STAMP): requirements.lock $(MEMBERS:%=%/pyproject.toml) $(PACKAGES)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation $(MEMBERS:%=-e %)
	@touch $@

## make lock      renew requirements.lock from the parts' declared dependencies (needs uv)
.PHONY: lock
lock:
	uv export -q --all-packages --all-extras --all-groups --no-emit-workspace --no-header \
		--format requirements-txt -o requirements.lock
	@rm -f uv.lock

## make release   sdists and wheels in out/dist, tried in empty environments of every Python found
.PHONY: release
release: setup
	PYTHONPATH=tests $(BIN)/python -P -m kit.release $(ARGS)

## make demo      a cluster in one command: replays real flights, reads them back, checks all of it
.PHONY: demo
demo: setup
	$(BIN)/anabranch demo $(ARGS)

## make demo-scaling  the flights at a changing rate: the stream splits and merges by itself; plotted
.PHONY: demo-scaling
demo-scaling: setup
	$(BIN)/anabranch demo-scaling $(ARGS)

## make crash-demo  the same, while the segment store is killed three times
.PHONY: crash-demo
crash-demo: setup
	$(BIN)/anabranch demo --crash $(ARGS)

## make up        a cluster on this machine until Ctrl-C
.PHONY: up
up: setup
	$(BIN)/anabranch up $(ARGS)

## make test      every test that needs no Docker; the rules of the project are checked by `make check`
.PHONY: test
test: setup
	PYTHONHASHSEED=0 $(BIN)/pytest $(IN_GROUPS) --ignore=tests/tidy $(ARGS)

## make thorough  tests/unit with new examples, tests/simulation at all points: `make test` tries a few
.PHONY: thorough
thorough: setup
	PYTHONHASHSEED=0 ANABRANCH_TEST_THOROUGH=1 $(BIN)/pytest -n $(WORKERS) tests/unit tests/simulation $(ARGS)

## make test-spark  every test with Spark: `make test` takes those that cover each part once
.PHONY: test-spark
test-spark: setup
	ANABRANCH_TEST_THOROUGH=1 $(BIN)/pytest tests/integration/spark $(ARGS)

## make test-integration  all of tests/integration but Spark's: `make test` leaves the longest out
.PHONY: test-integration
test-integration: setup
	ANABRANCH_TEST_THOROUGH=1 $(BIN)/pytest $(IN_GROUPS) \
		tests/integration --ignore=tests/integration/spark $(ARGS)

## make test-containers  tests/integration with NATS and Redis in containers; needs Docker
.PHONY: test-containers
test-containers: setup
	ANABRANCH_TEST_INFRA=containers $(BIN)/pytest $(IN_GROUPS) tests/integration $(ARGS)

## make hurt      tests/integration while HURT (redis,nats) is emptied and restarted at random moments
HURT ?= redis,nats
.PHONY: hurt
hurt: setup
	ANABRANCH_TEST_HURT=$(HURT) $(BIN)/pytest $(IN_GROUPS) tests/integration $(ARGS)

## make asyncapi  renew docs/asyncapi.json from the messages and subjects
.PHONY: asyncapi
asyncapi: setup
	PYTHONPATH=tests $(BIN)/python -m tidy.asyncapi

## make wire-doc  renew the list of messages in docs/wire.md
.PHONY: wire-doc
wire-doc: setup
	PYTHONPATH=tests $(BIN)/python -m tidy.wire_document

## make command-doc  renew docs/command.md, the reference of the command
.PHONY: command-doc
command-doc: setup
	PYTHONPATH=tests $(BIN)/python -m tidy.command_document

## make errors-doc  renew the tables of errors in docs/errors.md
.PHONY: errors-doc
errors-doc: setup
	PYTHONPATH=tests $(BIN)/python -m tidy.errors_document

## make prose     headless words per document and package; ARGS=--write lowers the permitted figures,
##                ARGS=--moved follows modules that moved to other packages
.PHONY: prose
prose: setup
	@PYTHONPATH=tests $(BIN)/python -m tidy.prose $(ARGS)

## make check     linters, types, import rules, project rules, drift of the lock, asyncapi.json,
##                wire.md, errors.md and command.md; faster with -j2 -O
# The longest comes first, so that it does not run alone at the end of a parallel run.
CHECKS := check-types check-rules check-imports check-style
.PHONY: check $(CHECKS)
check: $(CHECKS)

check-types: setup
	$(BIN)/mypy

check-rules: setup
	$(BIN)/pytest tests/tidy

check-imports: setup
	$(BIN)/lint-imports --cache-dir .cache/import-linter

check-style: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

## make bench     WORKLOADS=W1,W2,W3… [QUICK=1|LONG=1] beside JetStream, Redis and the bare disk
# W13 starts Spark, W14 to W16 are about the control plane, W17 to W19 about the client and reader
# groups, W20 to W22 about key-value tables, W23 to W26 about logs on JetStream and replicated ones,
# W27 and W28 about topics: measured when they are named.
WORKLOADS ?= W1,W2,W3,W4,W5,W6,W7,W10,W11,W12
.PHONY: bench
bench: setup
	$(BIN)/python -m bench.run --workloads $(WORKLOADS) \
		--effort $(if $(QUICK),quick,$(if $(LONG),long,medium)) $(ARGS)

## make bench-compare  OLD=<revision|path> [NEW=.] [WORKLOADS=…] [PAIRS=7] [EFFORT=quick]: is NEW slower?
COMPARED := W1,W2,W3,W4,W6,W7,W14
NEW ?= .
PAIRS ?= 7
EFFORT ?= quick
.PHONY: bench-compare
bench-compare: setup
	$(BIN)/python -m bench.compare --old $(or $(OLD),$(error say what to compare with: OLD=<revision|path>)) \
		--new $(NEW) --pairs $(PAIRS) --effort $(EFFORT) \
		--workloads $(if $(filter file,$(origin WORKLOADS)),$(COMPARED),$(WORKLOADS)) $(ARGS)

## make append-costs  what one awaited append costs on client and store: time, system calls, objects
.PHONY: append-costs
append-costs: setup
	$(BIN)/python -m bench.append_costs $(ARGS)

## make bench-table  the table of the last `make bench` as Markdown
.PHONY: bench-table
bench-table: setup
	@$(BIN)/python -m bench.report --markdown $(ARGS)

## make sim       the simulation for BUDGET seconds (60), or SEEDS seeds; counts every kind of fault
.PHONY: sim
sim: setup
	PYTHONHASHSEED=0 PYTHONPATH=tests $(BIN)/python -m kit.simulate $(if $(SEEDS),--seeds $(SEEDS),--budget $(BUDGET)) $(ARGS)

## make chaos     KILLS (50) real kills of a cluster's parts; then every acknowledged event is counted
KILLS ?= 50
.PHONY: chaos
chaos: setup
	PYTHONPATH=tests $(BIN)/python -m kit.chaos --kills $(KILLS) $(ARGS)

## make failover  MINUTES (10) of kills, pauses and lost disks in a cluster of three stores;
##                with ARGS='--log replicated' the stores replicate the logs
MINUTES ?= 10
.PHONY: failover
failover: setup
	PYTHONPATH=tests $(BIN)/python -m kit.failover --minutes $(MINUTES) $(ARGS)

## make powerloss  the power of ROUNDS (20) fresh clusters is cut; all that was acknowledged is there
ROUNDS ?= 20
.PHONY: powerloss
powerloss: setup
	PYTHONPATH=tests $(BIN)/python -P -m kit.powerloss --rounds $(ROUNDS) $(ARGS)

## make fulldisk  the disks of journal, tier 2 and NATS are held full for HOLD (60) seconds each
HOLD ?= 60
.PHONY: fulldisk
fulldisk: setup
	PYTHONPATH=tests $(BIN)/python -P -m kit.full_disks --hold $(HOLD) $(ARGS)

## make soak      SECONDS (600) of readers of a group that are killed while the stream is scaled
SECONDS ?= 600
.PHONY: soak
soak: setup
	PYTHONPATH=tests $(BIN)/python -m kit.soak --seconds $(SECONDS) $(ARGS)

## make fuzz      the gateway of a fresh cluster by its OpenAPI document, EXAMPLES (200) an operation
EXAMPLES ?= 200
.PHONY: fuzz
fuzz: setup
	PYTHONPATH=tests $(BIN)/python -m kit.fuzz_gateway --examples $(EXAMPLES) $(ARGS)

## make fuzz-decoders  N (1000000) damaged inputs at the decoders of bytes from outside; SEED (0)
N ?= 1000000
SEED ?= 0
.PHONY: fuzz-decoders
fuzz-decoders: setup
	PYTHONPATH=tests $(BIN)/python -m kit.fuzz_decoders --inputs $(N) --seed $(SEED) $(ARGS)

## make e2e       the cluster of docker-compose.yml, used and hurt; skipped loudly without Docker
.PHONY: e2e
e2e: setup
	@$(BIN)/pytest tests/e2e $(ARGS)

## make e2e-spark  everything on a Spark cluster of two workers, tier 2 on a local S3 server
.PHONY: e2e-spark
e2e-spark: setup
	$(BIN)/pytest tests/e2e_spark $(ARGS)
