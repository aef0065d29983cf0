# Everything installs itself: a fresh machine needs Python 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SUITE := -n auto --dist loadfile --no-loadscope-reorder --ignore=tests/conformance --ignore=tests/soak --ignore=tests/auth/test_memory.py

unexport PYTHONDONTWRITEBYTECODE  # what is started a thousand times is compiled once

.DEFAULT_GOAL := help
.PHONY: help demo test check coverage bench journeys compat skills oracle conformance soak docs site lock release mcpb pictures programs clean

help:  ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

demo: $(VENV)/.installed  ## install into .venv and show a real session
	@$(BIN)/python demo/session.py

test: $(VENV)/.dev programs  ## install what the tests need and run them, with the checks; make conformance and make soak have the rest
	@nice $(MAKE) --no-print-directory check >$(VENV)/check.log 2>&1 & check=$$!; \
	$(BIN)/python -m pytest $(SUITE); suite=$$?; \
	wait $$check; check=$$?; cat $(VENV)/check.log; exit $$((suite | check))

check: $(VENV)/.dev  ## ruff, ruff format, mypy --strict, import direction
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_architecture.py

coverage: $(VENV)/.dev programs  ## branch coverage of the tests, with the processes that they start; fails below the floor in pyproject.toml
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q $(SUITE)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

bench: $(VENV)/.dev  ## ratios, measured side by side
	@$(BIN)/python bench/run.py

journeys: $(VENV)/.dev  ## how many of our calls and modules five journeys pass
	@$(BIN)/python bench/journeys.py

compat: $(VENV)/.installed  ## load and walk every document in CORPUS
	@[ -n "$(CORPUS)" ] || { echo "Say which directory: make compat CORPUS=path/to/documents"; exit 2; }
	@$(BIN)/python tests/support/compat.py $(CORPUS)

skills: $(VENV)/.installed  ## import real skills into workflows and export them again; fetched into SKILLS, needs npm
	@$(BIN)/python tests/support/skill_corpus.py $(SKILLS)

oracle: $(VENV)/.installed  ## ask what the reference was asked, in CASES, and compare
	@[ -n "$(CASES)" ] || { echo "Say which file: make oracle CASES=path/to/cases.json"; exit 2; }
	@$(BIN)/python tests/support/oracle.py $(CASES)

conformance: $(VENV)/.dev  ## the official conformance suites and the inspector; needs npm
	@WORKFLOWLOOKUP_TEST_INSPECTOR=1 $(BIN)/python -m pytest -q tests/conformance

soak: $(VENV)/.dev  ## the long runs: fuzz, crashes, many at once, replicas under load, restarted and without their database, kills of the store
	@HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -q tests/test_fuzz.py tests/test_walks.py tests/runs tests/execution tests/replicas/test_rolling.py tests/auth/test_memory.py tests/soak

docs: $(VENV)/.installed  ## write the generated pages of docs/ and the man page from the code
	@$(BIN)/python docs/generate.py

site: $(VENV)/.dev docs  ## build the documentation as a web site into site/, and check its links
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html is ready; for the search, serve it: $(BIN)/python -m http.server --directory site"

lock: $(VENV)/.dev  ## renew requirements-dev.lock, the versions with which CI installs
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --upgrade --system-certs \
	  --no-header --no-annotate --quiet --output-file requirements-dev.lock

release: $(VENV)/.dev  ## build and check everything that is published, into dist/; publishes nothing
	@$(BIN)/python packaging/release.py dist

mcpb: $(VENV)/.dev  ## build only the MCPB bundle for desktop clients, into dist/
	@$(BIN)/python packaging/release.py dist mcpb

pictures: $(VENV)/.dev programs  ## take the pictures of the console for docs/ again
	@WORKFLOWLOOKUP_PICTURES=1 $(BIN)/python -m pytest -q tests/console/test_browser.py -k pictures

programs: export PATH := $(PATH):/usr/sbin
programs:
	@missing=; \
	command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null 2>&1 || missing="chromium"; \
	command -v nginx >/dev/null 2>&1 || missing="$$missing nginx-light"; \
	[ -z "$$missing" ] || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing for the tests: $$missing …" && \
	    { apt-get install -y -qq $$missing || { apt-get update -qq && apt-get install -y -qq $$missing; }; } >/dev/null 2>&1; } || \
	  echo "Not here, and cannot be installed by this user: $$missing. The tests of the console in a browser (chromium) and behind a proxy (nginx-light) will be skipped."

clean:  ## remove what was installed and made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist site tests/clients/*/node_modules tests/console/axe/node_modules tests/conformance/*/node_modules

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing workflowlookup into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing workflowlookup and what the tests need into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.installed
