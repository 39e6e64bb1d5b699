# Two commands for a fresh machine, which needs no more than Python 3.11 and Java 17: make demo, make test.
# Each sets up what is missing and reuses what is there.

export PYTHON
# Bytecode is kept, also that of tests, which their workers share.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The releases that the demo and the usual tests run; the other ones are downloaded by test-all.
DEMO_RELEASES := 1.1.1
TEST_RELEASES := 1.1.1 0.8.2.2 0.10.2.2 3.9.1
# Side by side, each with servers of its own: tests/conftest.py has the units, and which are begun first.
PYTEST := $(BIN)/python -m pytest --numprocesses 6 --dist loadscope --no-loadscope-reorder --durations 25
READER_TESTS := tests/clients tests/connector tests/export tests/commands/test_messages.py $(wildcard tests/commands/test_consume*.py)
ALL_RELEASES := $(TEST_RELEASES) 0.9.0.1 0.10.1.1 0.11.0.3 2.8.2

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-python package releases sim faults steady lint format bench clean java test-programs

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: java $(INSTALLED) ## set up everything, and run nothing
	@$(BIN)/python scripts/prepare_servers.py $(DEMO_RELEASES)

demo: setup ## real servers, members of two kinds in one group, an export: in two minutes
	@$(BIN)/zkgroup sandbox demo

test: setup test-programs lint ## style, types, and all tests but the long ones
	@$(BIN)/python scripts/prepare_servers.py $(TEST_RELEASES)
	@$(PYTEST)

test-all: setup test-programs lint ## every test, with every release of Kafka
	@$(BIN)/python scripts/prepare_servers.py $(ALL_RELEASES)
	@$(PYTEST) --long

test-python: setup ## the tests that read messages, with the Python reader instead of the native one
	@$(BIN)/python scripts/prepare_servers.py $(TEST_RELEASES)
	@ZKGROUP_NATIVE=0 $(PYTEST) $(READER_TESTS)

package: setup ## build sdist and wheel, and run them where nothing of this checkout is: PYTHON=… chooses another
	@$(BIN)/python scripts/prepare_servers.py $(DEMO_RELEASES)
	@$(BIN)/python scripts/check_package.py $(if $(PYTHON),--python $(PYTHON))

releases: setup ## the small suite that every release of the broker has to stand: docs/reference/releases.md
	@$(BIN)/python scripts/prepare_servers.py $(ALL_RELEASES)
	@$(BIN)/python -m pytest --long tests/releases

sim: setup ## a million faults in virtual time, all mutants, ten thousand traces of ZooKeeper: docs/explanation/simulation.md
	@PYTHONPATH=tests $(BIN)/python -m sim run --faults 1000000
	@PYTHONPATH=tests $(BIN)/python -m sim mutants
	@$(BIN)/python -m pytest --long tests/clients/test_zookeeper_traces.py

faults: setup ## kill, stop, cut and restart under real members, and fifty cycles beside Scala consumers: docs/explanation/guarantees.md
	@PYTHONPATH=tests $(BIN)/python -m faults $(FAULTS)
	@PYTHONPATH=tests $(BIN)/python -m faults --cycles 50 --mix "roundrobin of 1.1"

steady: setup ## the tests that docs/explanation/guarantees.md names, twenty times in a row: RUNS=3 for fewer
	@$(BIN)/python scripts/prepare_servers.py $(TEST_RELEASES)
	@$(BIN)/python scripts/repeat_tests.py $(or $(RUNS),20)

lint: $(INSTALLED) ## style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(INSTALLED) ## put the code in form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup ## compare with the Scala consumer and others; prints the table of benchmarks/README.md
	@$(BIN)/python -m benchmarks

clean: ## remove what was built; downloaded jars stay in the cache folder
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# Asked before anything is downloaded: it is all that a fresh machine may lack.
java:
	@python=$$(scripts/find_python.sh) && "$$python" scripts/ensure_java.py

# Completion is tried in the real shells, Kerberos with a real KDC; what may not be installed has its tests skipped.
test-programs:
	@$(BIN)/python scripts/ensure_test_programs.py

$(INSTALLED): pyproject.toml scripts/make_venv.sh scripts/find_python.sh
	@scripts/make_venv.sh $(VENV)
	@touch $@
