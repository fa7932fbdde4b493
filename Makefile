# Drafthouse: put a draft model in front of any LLM, on any GPU box, and prove that it pays.
# `make help` lists every target. Variables: PROFILE=name INVENTORY=local|workstation|vastai ARGS='-e key=value'
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
PYTHON ?= python3
BIN := .venv/bin
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
.PHONY: help venv venv-dev $(PROFILES) $(shell sed -n 's/^\([a-z-]*\): .*; @.*/\1/p' Makefile)
# make's variables as options. A shell may have a HOST of its own: `told` counts only what was said to make. What is not
# plainly a yes spends and removes nothing (`on`); DRY_RUN=anything stays dry (`not_off`).
opt = $(if $($1),--$2 "$($1)")
told = $(if $(filter command,$(firstword $(origin $1))),$(call opt,$1,$2))
on = $(if $(filter 1 y yes true on,$($1)),--$2)
not_off = $(if $(filter-out 0 n no false off,$($1)),--$2)
box = $(call opt,INVENTORY,inventory)
sets = $(foreach setting,$(SET),--set $(setting))
site = $(PROFILE) $(box) $(sets)
plays = $(if $(strip $(ARGS)),-- $(ARGS))
# A sign of life every 5 seconds, for what is silent until it ends.
ticking = (while sleep 5 >/dev/null 2>&1; do echo "  ... $@: $$SECONDS s"; done) & tick=$$!; trap 'kill $$tick 2>/dev/null' EXIT;
help:
	@awk '/^# --- /{print substr($$0, 7) ":"} /^[a-z-]+:.*## /{name = $$0; sub(/:.*/, "", name); sub(/.*## /, ""); printf "  %-16s %s\n", name, $$0}' Makefile
	@printf '  %-16s %s\n' '<profile>' 'serve and measure it: $(PROFILES)'
# With BUNDLE=file (of `make bundle`) packages, weights and image come from it, and no network is asked.
ifneq ($(strip $(BUNDLE)),)
override ARGS += -e '{"drafthouse_bundle": "$(if $(filter /%,$(BUNDLE)),,$(CURDIR)/)$(BUNDLE)"}'
WHEELS := build/bundle
FROM := --no-index --find-links $(WHEELS)/wheels
$(WHEELS)/manifest.json: $(BUNDLE)
	@$(PYTHON) scripts/unbundle.py --wheels $< $(WHEELS) && touch $@
endif
$(BIN)/uv: | $(if $(WHEELS),$(WHEELS)/manifest.json)
	@$(PYTHON) scripts/can_make_venv.py
	@echo "making .venv with $$($(PYTHON) --version)"
	@$(ticking) $(PYTHON) -m venv .venv
	@$(ticking) $(BIN)/python -m pip install --quiet --disable-pip-version-check $(FROM) --require-hashes -r roles/box_env/files/uv.txt
	@ln -sf ../../scripts/drafthouse $(BIN)/drafthouse
# pip stands in where uv cannot reach an index that only pip is set up for.
.venv/.%: %.txt | $(BIN)/uv $(if $(WHEELS),$(WHEELS)/manifest.json)
	@echo "installing $< into .venv"
	@$(ticking) uv pip install --quiet $(FROM) --require-hashes --python $(BIN)/python -r $< || $(BIN)/python -m pip install $(FROM) --require-hashes -r $<
	@touch $@
$(PROFILES): venv ; @scripts/drafthouse run $@ $(box) $(sets) $(call opt,DESTROY,destroy) $(plays)
# --- Start here
venv: .venv/.requirements ## the environment alone: .venv/bin/drafthouse and ansible-playbook
venv-dev: .venv/.requirements .venv/.requirements-dev ## the same with the tests' and linters' tools
demo: venv ; @scripts/drafthouse run cpu-smollm2-ngram --inventory local --stop-after $(plays) ## the whole job on this very machine: no GPU, no account; stops what it started
test: venv-dev ; @pytest -m "not soak and not alone" --numprocesses 3 --dist loadfile && pytest -m "not soak and alone" ## the tests, a real engine included; ends with pytest's own summary
# --- Without a box
profiles: venv ; @scripts/drafthouse profiles $(ARGS) ## a table of all profiles
plan: venv ; @scripts/drafthouse plan $(site) $(call opt,RUNTIME,runtime) $(ARGS) ## what would it do, would it fit, what will it download (PROFILE=name)
render: venv ; @scripts/drafthouse render $(site) $(call opt,RUNTIME,runtime) $(ARGS) ## write both arms' files to build/<profile>/ (PROFILE=name)
translate: override export CMD := $(value CMD)
translate: venv ; @scripts/drafthouse translate $(if $(value CMD),"$$CMD") $(ARGS) ## a serve command from a blog as a profile and as today's command (CMD='vllm serve ...')
compare: venv ; @scripts/drafthouse compare $(if $(A),"$(A)") $(if $(B),"$(B)") $(call opt,REGRESSION,regression) $(call on,ANYWAY,anyway) $(ARGS) ## two kept reports side by side (A=profile~1 B=profile, or folders; REGRESSION=5 fails where B is worse)
reports: venv ; @scripts/drafthouse reports $(PROFILE) $(ARGS) ## every kept report in a line, the newest first (PROFILE=name: of that one)
# --- On a box
tune: venv ; @scripts/drafthouse tune $(site) $(call opt,BUDGET,budget) $(call on,AGAIN,again) $(if $(LIST),--list) $(plays) ## find the best draft length, method and draft for a profile on its box (PROFILE=name BUDGET=30m; LIST=1 shows what it would try)
doctor: venv ; @scripts/drafthouse doctor $(box) $(call opt,PROFILE,profile) $(call opt,OUTSIDE,from) $(if $(JSON),--json) $(plays) ## what is wrong with a box and its server, a line each, and what to do (INVENTORY=name PROFILE=name OUTSIDE=host; JSON=1)
logs: venv ; @scripts/drafthouse logs $(box) $(if $(FOLLOW),--follow) $(call told,LINES,lines) $(call told,HOST,host) $(call opt,ONLY,only) $(ARGS) ## the logs of every box of INVENTORY (FOLLOW=1 until Ctrl-C; LINES=100 HOST=name ONLY=speculative)
bundle-report: venv ; @scripts/drafthouse bundle-report $(box) $(call opt,PROFILE,profile) $(plays) ## one file for whoever is asked for help, without secrets: build/support/ (INVENTORY=name PROFILE=name)
tunnel: venv ; @scripts/drafthouse tunnel $(box) $(call told,HOST,host) $(call told,PORT,port) $(ARGS) ## a box's API as http://127.0.0.1:8000, over SSH, until Ctrl-C (INVENTORY=vastai HOST=name PORT=8000)
history: venv ; @scripts/drafthouse history $(box) $(plays) ## who served what on the box, when, and why it ended (INVENTORY, local unless said otherwise)
rollback: venv ; @scripts/drafthouse rollback $(box) $(call opt,TO,to) $(plays) ## serve what served before (INVENTORY; TO=a release that make history shows)
upgrade: venv ; @scripts/drafthouse upgrade $(PROFILE) $(ENGINE_VERSION) $(box) $(sets) $(call opt,FROM_VERSION,from) $(if $(LIST),--list) $(plays) ## another version of the engine, kept where it is no worse on the box (PROFILE=name ENGINE_VERSION=0.33.0; LIST=1 shows the flags)
stop: venv ; @scripts/drafthouse stop $(box) $(plays) ## stop the server of INVENTORY (local unless said otherwise)
teardown: venv ; @scripts/drafthouse teardown $(box) $(plays) ## stop, and remove what was put on the box (ARGS='-e weights=true', container_engine=true, nvidia_driver=true: those too)
# --- Weights
weights: venv ; @scripts/drafthouse weights $(site) $(plays) ## the weights of a profile alone, on the box where it would run (PROFILE=name)
verify: venv ; @scripts/drafthouse verify $(site) $(plays) ## the same, and every byte that is there is read again (PROFILE=name)
prune: venv ; @scripts/drafthouse prune $(box) $(call on,YES,remove) $(ARGS) ## list the weights on this machine that no profile uses; YES=1 removes them
bundle: venv ; @scripts/drafthouse bundle $(site) $(call opt,RUNTIME,runtime) $(ARGS) ## one file of all that a profile fetches, for boxes without a network (PROFILE=name)
# --- Rented boxes
rent: venv ; @scripts/drafthouse rent $(site) $(call opt,MAX_PRICE,max-price) $(call opt,HOURS,hours) $(call on,YES,yes) $(call not_off,DRY_RUN,dry-run) $(ARGS) ## rent the cheapest box at vast.ai that fits (PROFILE=name MAX_PRICE=2.50 HOURS=3; YES=1, DRY_RUN=1)
destroy: venv ; @scripts/drafthouse destroy $(call on,YES,yes) $(ARGS) ## end every box that this clone rented, and no other (ARGS=--list: what bills, and what it has cost; YES=1)
# --- More tests
test-fast: venv-dev ; @pytest -m "not soak and not alone and not processes" --no-processes --numprocesses 2 --dist loadfile tests/unit ## the unit tests that start no process, in under a minute
test-fresh: venv-dev ; @pytest -m "not soak" tests/fresh ## make demo and make test in a Debian of debootstrap with five packages, as an ordinary user (needs root, debootstrap)
test-load: venv-dev ; @pytest -m "not soak and not alone" --numprocesses 4 --dist load tests/load && pytest -m "not soak and alone" tests/load ## our client, the ladder, the crossover and the gates against servers of known speed and known faults
test-health: venv-dev ; @pytest -m "not soak" --numprocesses 2 --dist loadfile tests/health ## watchdog, monitoring and doctor with the real llama.cpp, Caddy and Prometheus on this machine
test-engines: venv-dev ; @pytest -m "not soak and not alone" --numprocesses 2 --dist loadfile tests/real_engines && pytest -m "not soak and alone" tests/real_engines ## the real vLLM for CPU, older versions, llama.cpp: parsers, configuration checks, faults, real A/B runs
test-weights: venv-dev ; @pytest -m "not soak and not alone" --numprocesses 2 --dist loadfile tests/weights && pytest -m "not soak and alone" tests/weights ## downloads against a hub of our own with every fault, kills, full disks, a slow link (parts need root)
test-hosts: venv-dev ; @pytest -m "not soak" --numprocesses 3 --dist loadfile --no-loadscope-reorder tests/hosts ## real hosts in containers: driver, Docker, firewall, both kinds of boxes (needs root; starts Docker)
test-vast: venv-dev ; @pytest -m "not soak" --numprocesses 2 --dist loadfile --no-loadscope-reorder tests/vast ## vast.ai by a server of our own whose instances are real containers: offer to report to nothing billing (root, Docker)
tests/pages/node_modules/.package-lock.json: tests/pages/package-lock.json ; @npm ci --prefix tests/pages --ignore-scripts --no-audit --no-fund || echo 'nothing from npm: the tests of axe-core and of Grafana'\''s types are skipped by name'
test-pages: venv-dev tests/pages/node_modules/.package-lock.json ; @pytest tests/pages ## the report in a real browser, read by axe (chromium, npm; it says what it skips without)
soak: venv-dev truth ; @pytest -m soak tests/unit tests/fresh tests/load tests/e2e tests/health tests/weights tests/real_engines tests/hosts tests/vast ## the long series: load on real engines, more methods, every firewall situation, kills, eight hosts at once
truth: venv-dev ; @PYTHONPATH=src:collections:. python -m tests.truth.table $(call told,SEED,seed) $(call told,RUNS,runs) && PYTHONPATH=src:collections:. python -m tests.truth.attacks ## does the verdict say what is true: experiments of known truth, judged, as a table (SEED=7 draws anew, RUNS=100 is quicker)
# --- The repository
lint: venv-dev ; @ruff check . && ruff format --check . && mypy && PYTHONPATH=src lint-imports && scripts/structure.py && deptry --config .deptry.toml src scripts collections/ansible_collections/drafthouse/core/plugins && yamllint --strict . && ansible-lint --offline ## ruff, mypy, the order and the size of the rooms, dependencies, yamllint and ansible-lint
lock: venv ; @scripts/lock.py ## write every lock anew, with hashes: requirements*.txt, the box's, the engines' (versions stay)
docs: venv ; @scripts/docs.py ## write the generated pages of docs/ and roles/ from their sources
golden: venv-dev ; @WRITE_GOLDEN=1 pytest -q tests/golden ## write tests/golden/ anew; look at the difference before you commit it
monitoring-check: venv ; @scripts/monitoring_check.py ## promtool on the monitoring's rules, of every profile and engine: a line each
sbom: venv-dev ; @scripts/sbom.py ## what a release consists of, as CycloneDX: build/drafthouse-VERSION.cdx.json
collection: venv ; @scripts/collection.py ## the Ansible collection as one file: build/drafthouse-core-VERSION.tar.gz
wheel: venv-dev ; @python -m hatchling build -t wheel -d build ## the command drafthouse as a wheel: build/drafthouse-VERSION-py3-none-any.whl
