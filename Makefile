# Everything a developer runs. `make` alone lists the targets.

PYTHON ?= python3
NEXT_PYTHON ?=
PORT ?= 8000
# By number of tests, as pytest-xdist orders files, the longest ones would start last.
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder
# Databases (sqlite, postgres, mariadb, redis; comma-separated) that must answer, and the only ones to use.
REQUIRE ?= $(AYEWORK_TEST_REQUIRE)
ONLY ?= $(AYEWORK_TEST_ONLY)
# Which measurements make bench takes (all without names), by what their counts are multiplied, where it writes.
FIGURES ?=
SCALE ?= 1
OUT ?= bench/out
# What make chaos applies (all without names), for how many seconds each, and what repeats it; QUICK=1 is for CI.
FAULTS ?=
SECONDS ?=
SEED ?=
QUICK ?=
DOCS ?=
# The commit or tag that make test-upgrade starts from; the newest tag, or the commit before, without.
FROM ?=
# How much MariaDB is to keep in memory while the curves are measured, as 1G; what it has without.
POOL ?=

# The tests start hundreds of processes: without bytecode each would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
NEXT_VENV := .venv-next
PACKAGES_VENV := .venv-packages
BENCH_VENV := .venv-bench
VAR := example_project/var
SITE := docs/_build/html
PY := $(VENV)/bin/python
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
MANAGE := $(PY) manage.py

DJANGO_SUPERUSER_USERNAME ?= demo
DJANGO_SUPERUSER_PASSWORD ?= demo
DJANGO_SUPERUSER_EMAIL ?= demo@example.com

.PHONY: help demo serve test test-next test-packages size coverage test-pooled test-upgrade races chaos bench bench-docs check lint format types contracts migrations messages docs docs-serve dist test-install install-test mysql clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  make test REQUIRE=sqlite,postgres   fail when one of these does not answer"
	@echo "  make test ONLY=sqlite               use no other database"
	@echo "  make test PYTEST_ARGS='-k gates'    hand other arguments to pytest"
	@echo "  Addresses: POSTGRES_URL, MARIADB_URL, REDIS_URL. Another interpreter: PYTHON=python3.13"

# --- installation, once per change of pyproject.toml ---------------------------------------------------

$(PY):
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON) here. Install Python 3.11 or newer."; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(v < (3, 11) and \
	  "Python 3.11 or newer is needed, and $(PYTHON) is %d.%d. Name another one: make PYTHON=python3.12 ..." % v)'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make virtual environments (on Debian: apt-get install python3-venv)."; exit 1; }

$(VENV)/.installed-demo: $(PY) pyproject.toml
	@echo "Installing django-ayework and the demo's requirements into $(VENV) ..."
	@$(PY) $(PIP_INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.installed-test: $(PY) pyproject.toml
	@echo "Installing django-ayework and the test requirements into $(VENV) ..."
	@$(PY) $(PIP_INSTALL) -e '.[test,postgres]'
	@touch $@

$(VENV)/.installed-dev: $(PY) pyproject.toml
	@echo "Installing django-ayework and the developers' tools into $(VENV) ..."
	@$(PY) $(PIP_INSTALL) -e '.[dev]'
	@touch $@

$(VENV)/.installed-docs: $(PY) pyproject.toml
	@echo "Installing django-ayework and what builds the documentation into $(VENV) ..."
	@$(PY) $(PIP_INSTALL) -e '.[test,docs]'
	@touch $@

# The driver for MariaDB and MySQL comes as source: it is installed where it can be compiled.
mysql: $(VENV)/.installed-test
	@if $(PY) -c 'import MySQLdb' 2>/dev/null; then :; \
	elif ! { pkg-config --exists mysqlclient || pkg-config --exists mariadb || pkg-config --exists libmariadb; } 2>/dev/null; then \
	  echo "MariaDB: its driver cannot be compiled here (on Debian: apt-get install gcc pkg-config libmariadb-dev)."; \
	elif ! $(PY) $(PIP_INSTALL) -e '.[mysql]' >$(VENV)/mysqlclient.log 2>&1; then \
	  echo "MariaDB: its driver could not be compiled; see $(VENV)/mysqlclient.log (are Python's headers installed?)."; \
	fi

install-test: $(VENV)/.installed-test mysql

# --- see it work ---------------------------------------------------------------------------------------

# $(call with_worker,COMMAND): runs COMMAND beside a worker, and stops both, by their process ids, when it
# ends, when the worker ends first, and on Ctrl-C. The status is the command's.
define with_worker
mkdir -p $(VAR); \
$(MANAGE) ayework_worker >$(VAR)/worker.log 2>&1 & worker=$$!; \
$(1) & command=$$!; \
trap 'kill $$worker $$command 2>/dev/null; wait' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; \
failed() { echo; echo "$$1 The last lines of $(VAR)/worker.log:"; tail -n 20 $(VAR)/worker.log; exit 1; }; \
while kill -0 $$command 2>/dev/null; do \
  kill -0 $$worker 2>/dev/null || failed "The worker has stopped."; sleep 0.2; \
done; \
wait $$command || failed "$(1) failed."
endef

demo: $(VENV)/.installed-demo ## migrate SQLite, start a worker, run the audit, say where to look
	@$(MANAGE) migrate --verbosity 0
	@$(call with_worker,$(MANAGE) audit)
	@echo
	@echo "To look at the works behind this report, run:   make serve"
	@echo "then open http://127.0.0.1:$(PORT)/admin/ and sign in as $(DJANGO_SUPERUSER_USERNAME), password $(DJANGO_SUPERUSER_PASSWORD)."

serve: export DJANGO_SUPERUSER_USERNAME := $(DJANGO_SUPERUSER_USERNAME)
serve: export DJANGO_SUPERUSER_PASSWORD := $(DJANGO_SUPERUSER_PASSWORD)
serve: export DJANGO_SUPERUSER_EMAIL := $(DJANGO_SUPERUSER_EMAIL)
serve: $(VENV)/.installed-demo ## the demo's admin on http://127.0.0.1:8000/admin/, with a worker
	@$(MANAGE) migrate --verbosity 0
	@mkdir -p $(VAR); $(MANAGE) createsuperuser --noinput >$(VAR)/superuser.log 2>&1 \
	  || grep -q 'already taken' $(VAR)/superuser.log || { cat $(VAR)/superuser.log; exit 1; }
	@echo "http://127.0.0.1:$(PORT)/admin/   user $(DJANGO_SUPERUSER_USERNAME), password $(DJANGO_SUPERUSER_PASSWORD)   worker: $(VAR)/worker.log"
	@$(call with_worker,$(MANAGE) runserver --noreload 127.0.0.1:$(PORT))

# --- tests ---------------------------------------------------------------------------------------------

test: $(VENV)/.installed-test mysql ## the suite on SQLite and on every other database that answers
	@AYEWORK_TEST_REQUIRE='$(REQUIRE)' AYEWORK_TEST_ONLY='$(ONLY)' $(PY) -m tests.databases run $(PYTEST_ARGS)

# Sets python to a Python 3.13 or newer, or to nothing.
define find_next_python
python=; for candidate in $(NEXT_PYTHON) python3.13 $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.13*/bin/python3.13 python3.14 python3.15; do \
  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 13))' 2>/dev/null; then python=$$candidate; break; fi; \
done
endef

# Empty where there is none: what needs one says so, and does nothing.
$(NEXT_VENV)/.installed: pyproject.toml
	@set -e; $(find_next_python); test -n "$$python" || exit 0; \
	test -x $(NEXT_VENV)/bin/python || $$python -m venv $(NEXT_VENV); \
	echo "Installing django-ayework with Django 6.1 into $(NEXT_VENV) ..."; \
	$(NEXT_VENV)/bin/python $(PIP_INSTALL) -e '.[test,postgres]' 'django~=6.1.0' coverage; \
	$(NEXT_VENV)/bin/python $(PIP_INSTALL) -e '.[mysql]' >$(NEXT_VENV)/mysqlclient.log 2>&1 \
	  || echo "MariaDB: its driver could not be installed; see $(NEXT_VENV)/mysqlclient.log."; \
	touch $@

test-next: $(NEXT_VENV)/.installed ## the suite on Django 6.1 and Python 3.13; NEXT_PYTHON=<python> NEXT_VENV=<folder> for another
	@if [ ! -e $< ]; then \
	  echo "SKIPPED: there is no Python 3.13 or newer here, so nothing was tested on Django 6.1 (make test-next NEXT_PYTHON=...)."; exit 0; \
	fi; \
	set -e; \
	$(NEXT_VENV)/bin/python -c 'import django, sys; print("Python %s, Django %s" % (sys.version.split()[0], django.__version__))'; \
	AYEWORK_TEST_REQUIRE='$(REQUIRE)' AYEWORK_TEST_ONLY='$(ONLY)' $(NEXT_VENV)/bin/python -m tests.databases run $(PYTEST_ARGS)

size: $(VENV)/.installed-test ## how large the package is, and how far one work travels in it
	@$(PY) -m tests.architecture.figures

# Each folder runs in its own process, with Python 3.13. An exception that interrupts a handler may leave the lock of
# the tracer taken, and the process waits for ever: tests of interruption are left out. So are those of browsers.
coverage: $(NEXT_VENV)/.installed ## branch coverage of the package by the suite on SQLite
	@test -e $< || { echo "There is no Python 3.13 or newer here (make NEXT_PYTHON=...)."; exit 1; }
	@$(NEXT_VENV)/bin/python -m coverage erase
	@ls -d tests/*/ tests/test_*.py | grep -v __pycache__ | xargs -P 2 -I '{}' sh -c 'echo "{} $$(timeout 900 \
	  $(NEXT_VENV)/bin/python -m coverage run -p --branch --source=django_ayework --omit="*/migrations/*" \
	  -m pytest -q -n 0 -p no:cacheprovider -k "not interrupt and not abort" -m "not browser" {} | tail -n 1)"'
	@$(NEXT_VENV)/bin/python -m coverage combine --quiet
	@$(NEXT_VENV)/bin/python -m coverage report --skip-covered | tail -n 40

test-packages: ## the tasks of three packages with a worker, on SQLite and PostgreSQL, with Django 6.0 and Python 3.13
	@$(find_next_python); test -n "$$python" || { echo "There is no Python 3.13 or newer here (make NEXT_PYTHON=...)."; exit 1; }; \
	set -e; \
	test -x $(PACKAGES_VENV)/bin/python || $$python -m venv $(PACKAGES_VENV); \
	$(PACKAGES_VENV)/bin/python $(PIP_INSTALL) -e '.[test,postgres]' wagtail 'opencv-python-headless<5' \
	  django-pictures django-maintenance-tasks 'django~=6.0.0'; \
	$(PACKAGES_VENV)/bin/python -m pytest -q tests/tasks; \
	for url in "" "$${POSTGRES_URL:-postgres://postgres@127.0.0.1:5432/test}"; do \
	  DJANGO_SETTINGS_MODULE=tests.settings_packages DATABASE_URL="$$url" $(PACKAGES_VENV)/bin/python -m pytest -q tests/packages; \
	done

test-pooled: $(VENV)/.installed-test ## workers and races behind PgBouncer, and with Django's pool
	@$(PY) -m tests.pgbouncer $(PYTEST_ARGS)

test-upgrade: $(VENV)/.installed-test mysql ## old and new workers side by side on one database; FROM=<commit or tag>
	@AYEWORK_TEST_REQUIRE='$(REQUIRE)' AYEWORK_TEST_ONLY='$(ONLY)' $(PY) -m tests.upgrade $(if $(FROM),--from '$(FROM)')

races: $(VENV)/.installed-test mysql ## the races in full: more rounds than make test has time for
	@AYEWORK_RACES=full AYEWORK_TEST_REQUIRE='$(REQUIRE)' AYEWORK_TEST_ONLY='$(ONLY)' \
	  $(PY) -m tests.databases run -m races $(PYTEST_ARGS)

chaos: $(VENV)/.installed-test mysql ## faults on servers of its own; SEED=123 ONLY=postgres FAULTS=kill,stop SECONDS=20
	@$(PY) -m chaos --only '$(ONLY)' --faults '$(FAULTS)' $(if $(SEED),--seed '$(SEED)') \
	  $(if $(SECONDS),--seconds '$(SECONDS)') $(if $(QUICK),--quick) $(if $(DOCS),--write-docs)

# --- figures -------------------------------------------------------------------------------------------

# Django 6.1 on Python 3.13 where there is one. The peers are installed as far as they are to be had.
$(BENCH_VENV)/.installed: pyproject.toml
	@set -e; $(find_next_python); django='django~=6.1.0'; \
	if [ -z "$$python" ]; then python=$(PYTHON); django=django; fi; \
	test -x $(BENCH_VENV)/bin/python || $$python -m venv $(BENCH_VENV); \
	echo "Installing django-ayework and its peers into $(BENCH_VENV) ..."; \
	$(BENCH_VENV)/bin/python $(PIP_INSTALL) -e '.[bench]' "$$django" >$(BENCH_VENV)/peers.log 2>&1 \
	  || { echo "Some peers could not be installed; see $(BENCH_VENV)/peers.log. The rest is measured without them."; \
	       $(BENCH_VENV)/bin/python $(PIP_INSTALL) -e '.[demo,postgres,redis]' "$$django" psutil matplotlib; }; \
	$(BENCH_VENV)/bin/python $(PIP_INSTALL) -e '.[mysql]' >$(BENCH_VENV)/mysqlclient.log 2>&1 \
	  || echo "MariaDB: its driver could not be installed; see $(BENCH_VENV)/mysqlclient.log."; \
	touch $@

bench: $(BENCH_VENV)/.installed ## figures beside raw loops and peers, and of survival; FIGURES="drain peers" SCALE=0.1
	@AYEWORK_TEST_ONLY='$(ONLY)' BENCH_SCALE='$(SCALE)' BENCH_OUT='$(OUT)' BENCH_POOL='$(POOL)' \
	  $(BENCH_VENV)/bin/python -m bench $(FIGURES)

bench-docs: ## write the figures of make bench into docs/explanation/performance.md and bench/figures.md
	@BENCH_OUT='$(OUT)' $(BENCH_VENV)/bin/python -m bench.report.page

# --- what else must hold -------------------------------------------------------------------------------

check: test test-next lint types contracts migrations docs ## everything that must hold before a merge

lint: $(VENV)/.installed-dev ## ruff: rules and formatting
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

format: $(VENV)/.installed-dev ## ruff: mend what it can
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

types: $(VENV)/.installed-dev ## mypy (strict) and pyright
	$(VENV)/bin/mypy django_ayework example_project tests/typing
	$(VENV)/bin/pyright
	DJANGO_SETTINGS_MODULE=tests.settings_typing $(MANAGE) ayework_typing --check --output tests/typing/by_name.py

contracts: $(VENV)/.installed-dev ## who may import whom
	$(VENV)/bin/lint-imports

migrations: $(VENV)/.installed-test ## no model change without its migration
	DJANGO_SETTINGS_MODULE=tests.settings $(PY) -m django makemigrations --check --dry-run

messages: $(VENV)/.installed-test ## bring the catalogues of translations up to date with the sources, and compile them
	@$(PY) -m tests.messages

docs: $(VENV)/.installed-docs ## the documentation site, without warnings; every link and code block is checked
	$(PY) -m tests.docs
	$(PY) -m sphinx -q -W --keep-going -b html -d docs/_build/doctrees docs $(SITE)
	AYEWORK_SITE=$(SITE) $(PY) -m pytest -q tests/documentation/test_search.py
	@echo "The site is in $(SITE): $$(find $(SITE) -name '*.html' | wc -l) pages, $$(du -sh $(SITE) | cut -f 1)."

docs-serve: docs ## the site on http://127.0.0.1:8000/
	$(PY) -m http.server --bind 127.0.0.1 --directory $(SITE) $(PORT)

dist: $(VENV)/.installed-dev ## wheel and sdist, and what package indexes would say of them
	@rm -rf dist
	$(PY) -m build --quiet
	$(PY) -m twine check --strict dist/*

test-install: dist ## the quickstart in empty environments, on SQLite and PostgreSQL; QUICK=1 takes two of seven
	@$(PY) -m tests.install dist/*.whl $(if $(QUICK),--quick)

clean: ## remove environments, caches and local data
	rm -rf $(VENV) $(NEXT_VENV) $(BENCH_VENV) .venv-demo bench/out build dist docs/_build $(VAR) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f .tests.sqlite3*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
