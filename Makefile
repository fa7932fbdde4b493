# Drafthouse: put a draft model in front of any LLM, on any GPU box, and prove that it pays.
# `make help` lists every target. Variables: PROFILE=name INVENTORY=local|workstation|vastai ARGS='-e key=value'

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
BUNDLE ?=
BUDGET ?= 30m
PROFILES := $(basename $(notdir $(wildcard profiles/*.yml)))

export PATH := $(CURDIR)/$(BIN):$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PYTHONDONTWRITEBYTECODE := 1
# Ansible wants a locale of UTF-8; this one comes with the C library.
ifneq ($(shell locale charmap 2>&1),UTF-8)
export LC_ALL := C.UTF-8
endif
# Nothing is written outside of the clone but uv's cache, which other clones share; that too where the home is not writable.
export PIP_CACHE_DIR ?= $(CURDIR)/.drafthouse/cache/pip
ifneq ($(shell d="$${UV_CACHE_DIR:-$${XDG_CACHE_HOME:-$${HOME:+$$HOME/.cache}}/uv}"; mkdir -p "$$d" 2>&1 && [ -w "$$d" ] && echo writable),writable)
export UV_CACHE_DIR := $(CURDIR)/.drafthouse/cache/uv
endif

.PHONY: help venv venv-dev demo truth test test-fast test-fresh test-load test-health test-engines test-weights test-hosts test-vast test-pages soak lint sbom collection golden profiles plan render \
  translate tune compare reports history rollback upgrade weights verify bundle prune rent destroy tunnel doctor logs bundle-report stop \
  teardown lock docs $(PROFILES)

# A sign of life every 5 seconds, for what is silent until it ends.
ticking = (while sleep 5 >/dev/null 2>&1; do echo "  ... $@: $$SECONDS s"; done) & tick=$$!; trap 'kill $$tick 2>/dev/null' EXIT;

help: ## every target in one line
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '  %-12s %s\n' '<profile>' 'run site.yml for it: $(PROFILES)'

# --- environments ---------------------------------------------------------------------------------

# With BUNDLE=file (of `make bundle`) packages, weights and image come from it, and no network is asked.
ifneq ($(strip $(BUNDLE)),)
override ARGS += -e '{"drafthouse_bundle": "$(if $(filter /%,$(BUNDLE)),,$(CURDIR)/)$(BUNDLE)"}'
WHEELS := build/bundle
FROM := --no-index --find-links $(WHEELS)/wheels
$(WHEELS)/manifest.json: $(BUNDLE)
	@$(PYTHON) scripts/unbundle.py --wheels $< $(WHEELS) && touch $@
endif

$(VENV)/bin/uv: | $(if $(WHEELS),$(WHEELS)/manifest.json)
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; \
	  sys.exit(f"found: Python {v}\nneeded: Python 3.11 or newer\ndo: make PYTHON=python3.12 ...") \
	  if sys.version_info < (3, 11) else None'
	@[ -w . ] || { printf 'found: a folder that %s may not write to: %s\nneeded: a clone of your own\ndo: git clone it to where you may write, or chown it\n' "$$(id -un)" "$$PWD" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { printf 'found: a Python without venv\nneeded: its venv module\ndo: apt-get install python3-venv\n' >&2; exit 1; }
	@echo "making .venv with $$($(PYTHON) --version)"
	@$(ticking) $(PYTHON) -m venv $(VENV)
	@$(ticking) $(BIN)/python -m pip install --quiet --disable-pip-version-check $(FROM) --require-hashes -r roles/box_env/files/uv.txt

# pip stands in where uv cannot reach an index that only pip is set up for.
$(VENV)/.%: %.txt | $(VENV)/bin/uv $(if $(WHEELS),$(WHEELS)/manifest.json)
	@echo "installing $< into .venv"
	@$(ticking) uv pip install --quiet $(FROM) --require-hashes --python $(BIN)/python -r $< \
	  || $(BIN)/python -m pip install $(FROM) --require-hashes -r $<
	@touch $@

venv: $(VENV)/.requirements ## the environment alone, quick when it exists

venv-dev: $(VENV)/.requirements $(VENV)/.requirements-dev ## the same with the tests' and linters' tools

lock: venv ## write every lock anew, with hashes: requirements*.txt, the box's, the engines' (versions stay)
	@scripts/lock.py

# --- the main job ---------------------------------------------------------------------------------

demo: venv ## the whole job on this very machine: no GPU, no account; stops what it started
	@scripts/stoppable.py --stop-after -- ansible-playbook site.yml -i inventory/local -e profile=cpu-smollm2-ngram $(ARGS)

# A profile's hardware says which inventory it is for, unless INVENTORY does. DESTROY=always|on-success|never says what
# becomes of rented boxes when the run is over, however it ends; without it Ctrl-C stops what the run has started.
play = inventory="$${INVENTORY:-$$(scripts/profiles.py --inventory $1)}"; \
  scripts/$(if $(DESTROY),rented.py --destroy "$(DESTROY)" --inventory "$$inventory",stoppable.py) -- ansible-playbook $2 -i "inventory/$$inventory" -e profile=$1

$(PROFILES): venv
	@$(call play,$@,site.yml) $(ARGS)

profiles: venv ## a table of all profiles
	@scripts/profiles.py

plan: venv ## what would it do, would it fit, what will it download (PROFILE=name)
	@scripts/plan.py $(call needs,PROFILE) $(if $(INVENTORY),--inventory $(INVENTORY)) $(if $(RUNTIME),--runtime $(RUNTIME)) $(foreach setting,$(SET),--set $(setting))

render: venv ## write both arms' files to build/<profile>/ (PROFILE=name)
	@scripts/render.py $(call needs,PROFILE) $(if $(INVENTORY),--inventory $(INVENTORY)) $(if $(RUNTIME),--runtime $(RUNTIME)) $(foreach setting,$(SET),--set $(setting))

# The shell's dollars are the pasted command's own: make must not read them.
translate: override export CMD := $(value CMD)
translate: venv ## a serve command from a blog as a profile and as today's command (CMD='vllm serve ...')
	@scripts/translate.py $(if $(value CMD),"$$CMD") $(ARGS)

tune: venv ## find the best draft length, method and draft for a profile on its box (PROFILE=name BUDGET=30m)
	@scripts/tune.py $(call needs,PROFILE) --budget $(BUDGET) $(if $(INVENTORY),--inventory $(INVENTORY)) $(foreach setting,$(SET),--set $(setting)) $(if $(AGAIN),--again) -- $(ARGS)

# Switches. What is not plainly a yes spends and removes nothing: YES=no does not, and DRY_RUN=anything stays dry.
on = $(filter 1 y yes true on,$($1))
not_off = $(filter-out 0 n no false off,$($1))
compare: venv ## two kept reports side by side (A=profile~1 B=profile, or folders; REGRESSION=5 fails where B is worse)
	@scripts/compare.py $(if $(A),"$(A)") $(if $(B),"$(B)") $(if $(REGRESSION),--regression $(REGRESSION)) $(if $(call on,ANYWAY),--anyway) $(ARGS)

reports: venv ## every kept report in a line, the newest first (PROFILE=name: of that one)
	@scripts/compare.py --list $(PROFILE) $(ARGS)

history: venv ## who served what on the box, when, and why it ended (INVENTORY, local unless said otherwise)
	@ansible-playbook playbooks/history.yml -i inventory/$(or $(INVENTORY),local) $(ARGS)

rollback: venv ## serve what served before (INVENTORY; TO=a release that make history shows)
	@ansible-playbook playbooks/rollback.yml -i inventory/$(or $(INVENTORY),local) $(if $(TO),-e release=$(TO)) $(ARGS)

upgrade: venv ## another version of the engine, kept where it is no worse on the box (PROFILE=name ENGINE_VERSION=0.33.0; LIST=1 shows the flags)
	@scripts/upgrade.py $(call needs,PROFILE) $(call needs_version,ENGINE_VERSION) $(if $(FROM_VERSION),--from $(FROM_VERSION)) $(if $(INVENTORY),--inventory $(INVENTORY)) $(if $(LIST),--list) $(foreach setting,$(SET),--set $(setting)) -- $(ARGS)

# What was done is well when the doctor says so.
weights: venv ## the weights of a profile alone, on the box where it would run (PROFILE=name)
	@$(call play,$(call needs,PROFILE),playbooks/weights.yml playbooks/doctor.yml) -e '{"doctor_parts": ["weights"]}' $(ARGS)

verify: venv ## the same, and every byte that is there is read again (PROFILE=name)
	@$(call play,$(call needs,PROFILE),playbooks/weights.yml playbooks/doctor.yml) -e '{"doctor_parts": ["weights"]}' -e verify=true $(ARGS)

bundle: venv ## one file of all that a profile fetches, for boxes without a network (PROFILE=name)
	@scripts/bundle.py $(call needs,PROFILE) $(if $(INVENTORY),--inventory $(INVENTORY)) $(if $(RUNTIME),--runtime $(RUNTIME)) $(foreach setting,$(SET),--set $(setting)) $(ARGS)

prune: venv ## list the weights on this machine that no profile uses; YES=1 removes them
	@scripts/prune.py $(if $(INVENTORY),--inventory $(INVENTORY)) $(if $(call on,YES),--remove) $(ARGS)

rent: venv ## rent the cheapest box at vast.ai that fits (PROFILE=name MAX_PRICE=2.50 HOURS=3; YES=1, DRY_RUN=1)
	@scripts/rent.py $(call needs,PROFILE) $(if $(MAX_PRICE),--max-price $(MAX_PRICE)) $(if $(HOURS),--hours $(HOURS)) $(if $(call on,YES),--yes) $(if $(call not_off,DRY_RUN),--dry-run) $(foreach setting,$(SET),--set $(setting)) $(ARGS)

destroy: venv ## end every box that this clone rented, and no other (ARGS=--list: what bills, and what it has cost; YES=1)
	@scripts/destroy.py $(if $(call on,YES),--yes) $(ARGS)

# Only what was said to make itself: a shell may have a HOST of its own.
told = $(if $(filter command,$(firstword $(origin $1))),$($1))
tunnel: venv ## a box's API as http://127.0.0.1:8000, over SSH, until Ctrl-C (INVENTORY=vastai HOST=name PORT=8000)
	@scripts/tunnel.py $(if $(INVENTORY),--inventory $(INVENTORY)) $(if $(call told,HOST),--host $(call told,HOST)) $(if $(call told,PORT),--port $(call told,PORT)) $(ARGS)

# The profile's, unless INVENTORY says another. Set as a shell's variable: a name that no profile has ends the command there.
inventory_of = $(or $(INVENTORY),$(if $(PROFILE),$$(scripts/profiles.py --inventory $(PROFILE)),local))
# scripts/doctor.py itself ends with 0, 1 (something warns) or 2 (something fails); make says 2 to both.
doctor: venv ## what is wrong with a box and its server, a line each, and what to do (INVENTORY=name PROFILE=name OUTSIDE=host; JSON=1)
	@inventory="$(inventory_of)"; scripts/doctor.py --inventory "$$inventory" $(if $(PROFILE),--profile $(PROFILE)) $(if $(OUTSIDE),--from $(OUTSIDE)) $(if $(JSON),--json) $(if $(strip $(ARGS)),-- $(ARGS))

logs: venv ## the logs of every box of INVENTORY (FOLLOW=1 until Ctrl-C; LINES=100 HOST=name ONLY=speculative)
	@scripts/logs.py --inventory $(or $(INVENTORY),local) $(if $(FOLLOW),--follow) $(if $(call told,LINES),--lines $(call told,LINES)) $(if $(call told,HOST),--host $(call told,HOST)) $(if $(ONLY),--only $(ONLY)) $(ARGS)

bundle-report: venv ## one file for whoever is asked for help, without secrets: build/support/ (INVENTORY=name PROFILE=name)
	@inventory="$(inventory_of)"; ansible-playbook playbooks/bundle_report.yml -i "inventory/$$inventory" $(if $(PROFILE),-e profile=$(PROFILE)) $(ARGS)

stop: venv ## stop the server of INVENTORY (local unless said otherwise)
	@ansible-playbook playbooks/stop.yml -i inventory/$(or $(INVENTORY),local) $(ARGS)

teardown: venv ## stop, and remove what was put on the box (ARGS='-e weights=true', container_engine=true, nvidia_driver=true: those too)
	@ansible-playbook playbooks/teardown.yml -i inventory/$(or $(INVENTORY),local) $(ARGS)

needs = $(or $($1),$(error $(newline)found: no $1$(newline)needed: the name of a profile$(newline)do: make $@ $1=$(firstword $(PROFILES))  (make profiles shows them all)))
needs_version = $(or $($1),$(error $(newline)found: no $1$(newline)needed: the version to go to$(newline)do: make $@ PROFILE=$(PROFILE) $1=0.33.0))
define newline


endef

# --- tests ----------------------------------------------------------------------------------------

test: venv-dev ## the tests, a real engine included; ends with pytest's own summary
	@pytest -m "not soak and not alone" --numprocesses 3 --dist loadfile
	@pytest -m "not soak and alone"

test-fresh: venv-dev ## these two commands in a Debian of debootstrap with five packages, as an ordinary user (needs root, debootstrap)
	@pytest -m "not soak" tests/fresh

test-fast: venv-dev ## the unit tests that start no process, in under a minute
	@pytest -m "not soak and not alone and not processes" --no-processes --numprocesses 2 --dist loadfile tests/unit

test-load: venv-dev ## our client, the ladder, the crossover and the gates against servers of known speed and known faults
	@pytest -m "not soak and not alone" --numprocesses 4 --dist load tests/load
	@pytest -m "not soak and alone" tests/load

test-health: venv-dev ## watchdog, monitoring and doctor with the real llama.cpp, Caddy and Prometheus on this machine
	@pytest -m "not soak" --numprocesses 2 --dist loadfile tests/health

test-engines: venv-dev ## the real vLLM for CPU, and older versions: parsers, configuration checks, real A/B runs
	@pytest -m "not soak and not alone" --numprocesses 2 --dist loadfile tests/real_engines
	@pytest -m "not soak and alone" tests/real_engines

test-weights: venv-dev ## downloads against a hub of our own with every fault, kills, full disks, a slow link (parts need root)
	@pytest -m "not soak and not alone" --numprocesses 2 --dist loadfile tests/weights
	@pytest -m "not soak and alone" tests/weights

test-hosts: venv-dev ## real hosts in containers: driver, Docker, firewall, both kinds of boxes (needs root; starts Docker)
	@pytest -m "not soak" --numprocesses 3 --dist loadfile --no-loadscope-reorder tests/hosts

test-vast: venv-dev ## vast.ai by a server of our own whose instances are real containers: offer to report to nothing billing (root, Docker)
	@pytest -m "not soak" --numprocesses 2 --dist loadfile --no-loadscope-reorder tests/vast

tests/pages/node_modules/.package-lock.json: tests/pages/package-lock.json
	@npm ci --prefix tests/pages --ignore-scripts --no-audit --no-fund || echo 'nothing from npm: the tests of axe-core and of Grafana'\''s types are skipped by name'

test-pages: venv-dev tests/pages/node_modules/.package-lock.json ## the report in a real browser, read by axe (chromium, npm; it says what it skips without)
	@pytest tests/pages

# SEED=7 draws everything anew, RUNS=100 is quicker.
truth: venv-dev ## does the verdict say what is true: experiments of known truth, judged, as a table (minutes; SEED=7 RUNS=400)
	@PYTHONPATH=src:collections:. python -m tests.truth.table $(if $(call told,SEED),--seed $(call told,SEED)) $(if $(call told,RUNS),--runs $(call told,RUNS))
	@PYTHONPATH=src:collections:. python -m tests.truth.attacks

soak: venv-dev ## the long series: load on real engines, more methods, every firewall situation, kills, eight hosts at once
	@$(MAKE) truth
	@pytest -m soak tests/unit tests/fresh tests/load tests/e2e tests/health tests/weights tests/real_engines tests/hosts tests/vast

lint: venv-dev ## ruff, mypy, the order and the size of the rooms, yamllint and ansible-lint
	@ruff check . && ruff format --check .
	@mypy
	@PYTHONPATH=src lint-imports
	@scripts/structure.py
	@deptry --config .deptry.toml src scripts collections/ansible_collections/drafthouse/core/plugins
	@yamllint --strict .
	@ansible-lint --offline

sbom: venv-dev ## what a release consists of, as CycloneDX: build/drafthouse-VERSION.cdx.json
	@scripts/sbom.py

collection: venv ## the Ansible collection as one file: build/drafthouse-core-VERSION.tar.gz
	@scripts/collection.py

golden: venv-dev ## write tests/golden/ anew; look at the difference before you commit it
	@WRITE_GOLDEN=1 pytest -q tests/golden

docs: venv ## write the generated pages of docs/ and roles/ from their sources
	@scripts/docs.py
