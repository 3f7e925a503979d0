# make demo    set up, then train one network and an ensemble of five on few handwritten digits and corrupt the test images;
#              ends with what the ensemble gains, and a report one can open. 80 epochs: of 20, 40 and 80 the best for the
#              single network on validation images, over three seeds
# make picture take docs/report.png from the report of the demo (needs chromium)
# make test    set up, then style, types, doctests and every test that is not marked slow
# make test-all  the same, then the slow tests
# make docs    write docs/cli.md and build the documentation into site/
# make repository URL=https://github.com/you/murmuration   write where the repository is into every file that names it
# make drill   kill commands, damage files and give hostile input, for a while (tools/)
# make lock    write requirements.lock: all packages of the tests by version and hash
# Needs Python 3.11 or newer with pip and venv, nothing else. TORCH_INDEX is a package index to look for torch in too: the
# wheel on the default index brings several GB of CUDA, that of PyTorch's CPU index does not:
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
# LOCKED=1 installs from requirements.lock and refuses a file with another hash, as CI does. torch alone is installed by its
# version: its builds for the CPU and for CUDA are different files that need different packages.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := runs/demo
PLACEHOLDER := https://github.com/OWNER/murmuration
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALL = $(PIP) --constraint constraints.txt \
	$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
BY_HASH = $(PIP) --no-deps --require-hashes --requirement requirements.lock && $(INSTALL) torch && \
	$(PIP) --no-deps --no-build-isolation --editable .

.PHONY: demo test test-slow test-all drill bench report-check picture docs lock repository clean

demo: $(VENV)/installed
	$(BIN)/murmur compare digits --net small-cnn --recipes single,deep-ensemble --members 5 --epochs 80 --seed 0 \
		--val 0.15 --test 0.7 --corruptions --severities 1,3,5 --out $(DEMO)

test: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

test-all: test test-slow

drill: $(VENV)/installed-dev
	$(BIN)/python -m pytest tools

bench: $(VENV)/installed
	$(BIN)/python benchmarks/members.py --json

report-check: demo
	$(BIN)/python tools/check_report.py $(DEMO)/report.html

picture: demo
	$(BIN)/python tools/picture.py $(DEMO)

docs: $(VENV)/installed-dev
	$(BIN)/python docs/make_cli_page.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

repository:
	@test -n "$(URL)" || { echo "write make repository URL=https://github.com/you/murmuration" >&2; exit 2; }
	git grep -lI "$(PLACEHOLDER)" -- ':!Makefile' | xargs sed -i "s#$(PLACEHOLDER)#$(URL)#g"

lock: $(VENV)/installed-dev
	$(BIN)/python tools/lock.py

$(VENV)/installed: pyproject.toml constraints.txt $(if $(LOCKED),requirements.lock)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(if $(LOCKED),$(BY_HASH),$(INSTALL) --editable .)
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(if $(LOCKED),,$(INSTALL) --editable '.[dev]')
	touch $@

clean:
	rm -rf $(VENV) $(DEMO) site
