# Two commands matter: `make run` and `make test`. Every target is one plain command, usable without make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DEBIAN := victoria-metrics prometheus prometheus-alertmanager prometheus-node-exporter postgresql chromium

.PHONY: run test check format docs audit bench bench-detect bench-detect-quick bench-detect-long servers clean

run: $(VENV)/.installed  ## the service on a recorded incident, played as if live
	$(BIN)/oddnode demo

test: $(VENV)/.dev servers check  ## everything CI runs
	$(BIN)/pytest -n 2

check: $(VENV)/.dev  ## style, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed  ## the documentation as a site, in build/site
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.dev servers  ## writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.run

bench-detect: $(VENV)/.dev  ## Oddnode and its rivals on synthetic incidents, writes benchmarks/DETECTION.md
	$(BIN)/python -m benchmarks.detect.run

bench-detect-quick: $(VENV)/.dev  ## 60 train cases: what a change of the detector does, with every miss and false alarm
	$(BIN)/python -m benchmarks.detect.run --quick --only oddnode --why

bench-detect-long: $(VENV)/.dev  ## three cluster-months of healthy time, generated as they are replayed
	$(BIN)/python -m benchmarks.detect.run --long

audit: $(VENV)/.dev  ## known weaknesses of exactly the pinned dependencies; asks the package index
	$(BIN)/pip install -q --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --strict --no-deps --disable-pip -r constraints.txt

servers:  ## real servers for the tests, from Debian, when we may install them
	@missing=""; for s in victoria-metrics vmagent vmauth prometheus promtool prometheus-alertmanager prometheus-node-exporter chromium; do \
	  command -v $$s >/dev/null || missing="$$missing $$s"; done; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(DEBIAN); \
	  else echo "missing for the server tests:$$missing (Debian packages: $(DEBIAN)); those tests will fail"; fi; fi

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist benchmarks/.cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
