# Everything a person or CI runs. Needs Python 3.11 or later and make, nothing else.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := -m pip --disable-pip-version-check install --quiet
NEWEST_VENV ?= .venv-newest
BENCH_VENV ?= .venv-bench
WORKERS ?= 2
# Suites that never meet pydantic-ai: one run of them is enough.
WITHOUT_MODELS := $(patsubst %,--ignore-glob='tests/test_%*.py',parsing formats index hybrid embedding links languages \
	verification quotes sources site egress corpus chunking config packaging deploy scale runs security evals layers \
	access permissions backup dashboard page server_schema server_guard server_hostile) $(patsubst %,--ignore=tests/%,browser crash security)

.PHONY: demo test check format bench bench-modes bench-budget bench-tokens bench-overhead bench-load test-server test-crash test-formats test-scale-ingest bench-ingest test-browser test-security test-modes test-typescript test-wheel test-newest docs site lock clean
.DEFAULT_GOAL := test

demo: $(VENV)/.installed  ## answer a question over the bundled corpus, offline
	@$(BIN)/citehound demo

test: $(VENV)/.developed  ## run the tests
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

check: $(VENV)/.developed  ## format, lint, types, import contract, tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

format: $(VENV)/.developed  ## put the code into shape
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(VENV)/.developed  ## measure; the tables say what
	$(BIN)/python benchmarks/paths.py
	$(BIN)/python benchmarks/index.py

bench-modes: $(VENV)/.developed  ## every mode on the eval cases: recall, tokens, and what auto chose
	$(BIN)/python benchmarks/modes.py

bench-budget: $(BENCH_VENV)/.installed  ## 50 questions at once under one dollar cap
	$(BENCH_VENV)/bin/python benchmarks/budget.py

bench-tokens: $(BENCH_VENV)/.installed  ## input tokens of an investigation, beside a naive loop
	$(BENCH_VENV)/bin/python benchmarks/tokens.py

bench-overhead: $(BENCH_VENV)/.installed  ## what the loop adds to a step, beside LangChain's agent
	$(BENCH_VENV)/bin/python benchmarks/overhead.py

bench-load: $(VENV)/.developed  ## 64 questions at once against the server, and 2,000 of them
	$(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/load.py --questions 2000

test-server: $(VENV)/.developed  ## the long form: thousands of generated requests against the server's OpenAPI
	$(BIN)/python -m pytest -m slow tests/test_server_schema.py

test-crash: $(VENV)/.developed  ## the long form: 500 rounds of kill -9 while indexing, and of a disk that gets full
	$(BIN)/python -m pytest -n $(WORKERS) -m slow tests/crash

test-formats: $(VENV)/.developed  ## the long form: every file of the corpora, and the big nasty ones
	$(BIN)/python -m pytest -m slow tests/test_parsing.py tests/test_parsing_pdf.py tests/test_parsing_ocr.py tests/test_formats_nasty.py \
		tests/test_formats_sync.py tests/test_formats_awkward.py

test-scale-ingest: $(VENV)/.developed  ## the long form: 20,000 files, killed on the way, below 1 GB
	$(BIN)/python -m pytest -m slow tests/test_scale_ingest.py

bench-ingest: $(BENCH_VENV)/.installed  ## reading of all formats: speed, memory, fidelity, beside other readers
	$(BENCH_VENV)/bin/python benchmarks/ingest.py

test-browser: $(VENV)/.developed  ## the long form: the page in Chromium, every theme and width, hostile content, keyboard only
	$(BIN)/python -m pytest tests/browser

test-typescript: $(VENV)/.developed  ## the examples (TypeScript needs Node 20 and npm), and MCP processes that are ended
	$(BIN)/python -m pytest -m slow tests/test_examples.py tests/test_mcp.py

test-security: $(VENV)/.developed  ## the long form: every attack through every surface with a model that obeys, and what others may see
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile tests/security tests/test_security.py tests/test_egress.py \
		tests/test_attacks_inputs.py tests/test_faults.py \
		tests/test_server_guard.py tests/test_server_hostile.py tests/test_quarantine.py $(wildcard tests/test_permissions*.py)

test-modes: $(VENV)/.developed  ## the long form: 500 questions per mode with a model that lies, loops and stalls; every transcript
	$(BIN)/python -m pytest -m slow tests/test_routing.py tests/test_transcripts.py

test-wheel: $(VENV)/.developed  ## sdist and wheel, installed into an environment of their own, answer and serve
	$(BIN)/python -m pytest -m slow tests/test_deploy.py

test-newest: $(NEWEST_VENV)/.developed  ## the tests at the other end of the supported range: the newest pydantic-ai, without citehound[eval]
	$(NEWEST_VENV)/bin/python -m pytest -n $(WORKERS) -m "not slow" $(WITHOUT_MODELS)

docs: $(VENV)/.developed  ## make the examples in docs/ anew
	PYTHONPATH=benchmarks:tests $(BIN)/python scripts/docs.py

site: $(VENV)/.developed  ## the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock: $(VENV)/.developed  ## resolve the development dependencies anew
	for set in dev newest; do \
		$(BIN)/uv --quiet pip compile --universal --python-version 3.11 --upgrade --no-header --no-emit-index-url \
			--no-emit-find-links --no-annotate \
			pyproject.toml requirements/$$set.in -o requirements/$$set.txt || exit 1; \
	done

clean:
	rm -rf $(VENV)/.installed $(VENV)/.developed $(NEWEST_VENV) build dist site .pytest_cache .ruff_cache .hypothesis

# A stamp says that an environment is as pyproject.toml and the lock want it.

define new_venv
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Citehound needs Python 3.11 or later; $(PYTHON) is %d.%d. Name another: make PYTHON=python3.12 $(MAKECMDGOALS)" % sys.version_info[:2])'
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1) || \
		{ echo "python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2; rm -rf $(1); exit 1; }
endef

$(VENV)/.installed: pyproject.toml requirements/dev.txt
	$(call new_venv,$(VENV))
	@echo "installing Citehound into $(VENV) ..." >&2
	@$(BIN)/python $(INSTALL) --constraint requirements/dev.txt --editable '.[eval,mcp]'
	@touch $@

$(VENV)/.developed: pyproject.toml requirements/dev.txt
	$(call new_venv,$(VENV))
	@echo "installing Citehound and its development tools into $(VENV) ..." >&2
	@$(BIN)/python $(INSTALL) --requirement requirements/dev.txt
	@$(BIN)/python $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.installed

$(NEWEST_VENV)/.developed: pyproject.toml requirements/newest.txt
	$(call new_venv,$(NEWEST_VENV))
	@echo "installing Citehound with the newest pydantic-ai into $(NEWEST_VENV) ..." >&2
	@$(NEWEST_VENV)/bin/python $(INSTALL) --requirement requirements/newest.txt
	@$(NEWEST_VENV)/bin/python $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(BENCH_VENV)/.installed: pyproject.toml requirements/bench.in
	$(call new_venv,$(BENCH_VENV))
	@echo "installing what the benchmarks compare with into $(BENCH_VENV) ..." >&2
	@$(BENCH_VENV)/bin/python $(INSTALL) --requirement requirements/bench.in --editable .
	@touch $@
