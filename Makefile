# Every target sets up what it needs; `make` prints them.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MEMBERS := libs/common libs/client libs/cli services/controller services/segstore

.PHONY: help
help:
	@grep -E '^## ' $(MAKEFILE_LIST) | sed 's/^## //'

## make setup     create .venv with the locked dependencies and the parts, editable
.PHONY: setup
setup: $(STAMP)

$(STAMP): requirements.lock $(MEMBERS:%=%/pyproject.toml)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation $(MEMBERS:%=-e %)
	@touch $@

## make lock      renew requirements.lock from the parts' declared dependencies (needs uv)
.PHONY: lock
lock:
	uv export -q --all-packages --all-extras --all-groups --no-emit-workspace --no-header \
		--format requirements-txt -o requirements.lock
