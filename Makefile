# Drafthouse: add speculative decoding to an LLM server on an NVIDIA GPU box, and measure whether it pays.
# `make help` lists every target. Variables: PROFILE=name INVENTORY=local|workstation|vastai ARGS='-e key=value'
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
PYTHON ?= python3
BIN := .venv/bin
PROFILES := $(basename $(notdir $(wildcard profiles/*.yml)))
export PATH := $(CURDIR)/$(BIN):$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
# Bytecode is kept beside its source, whatever the shell says: every start would compile some 400 files again. Not in one
# folder for all (PYTHONPYCACHEPREFIX): it would outlive an environment that is made anew in the same place.
export PYTHONDONTWRITEBYTECODE :=
# Ansible requires a UTF-8 locale. This one is part of the C library.
ifneq ($(shell locale charmap 2>&1),UTF-8)
export LC_ALL := C.UTF-8
endif
# Only uv's cache is outside the clone, shared with other clones; it is inside if the home is not writable.
export PIP_CACHE_DIR ?= $(CURDIR)/.drafthouse/cache/pip
ifneq ($(shell d="$${UV_CACHE_DIR:-$${XDG_CACHE_HOME:-$${HOME:+$$HOME/.cache}}/uv}"; mkdir -p "$$d" 2>&1 && [ -w "$$d" ] && echo writable),writable)
export UV_CACHE_DIR := $(CURDIR)/.drafthouse/cache/uv
endif
.PHONY: help venv venv-dev $(PROFILES) $(shell sed -n 's/^\([a-z-]*\): .*; @.*/\1/p' Makefile)
# make's variables as options. The shell may set HOST, so `told` reads only make's command line. Only a clear yes
# spends or removes anything (`on`). Any other DRY_RUN value stays dry (`not_off`).
opt = $(if $($1),--$2 "$($1)")
told = $(if $(filter command,$(firstword $(origin $1))),$(call opt,$1,$2))
on = $(if $(filter 1 y yes true on,$($1)),--$2)
not_off = $(if $(filter-out 0 n no false off,$($1)),--$2)
box = $(call opt,INVENTORY,inventory)
sets = $(foreach setting,$(SET),--set $(setting))
site = $(PROFILE) $(box) $(sets)
plays = $(if $(strip $(ARGS)),-- $(ARGS))
run_options = $(box) $(sets) $(call opt,DESTROY,destroy) $(plays)
# A variable of make that was removed is refused by name (core/removed.py).
gone := $(filter $(shell sed -n 's/.*"make variable", "\([A-Z_]*\)".*/\1/p' src/drafthouse/core/removed.py),$(foreach set,$(MAKEOVERRIDES),$(firstword $(subst =, ,$(set)))))
ifneq ($(gone),)
$(shell $(PYTHON) scripts/targets.py "$(firstword $(gone))=" >&2)
$(error removed)
endif
# Prints a line every 5 seconds for commands without output.
ticking = (while sleep 5 >/dev/null 2>&1; do echo "  ... $@: $$SECONDS s"; done) & tick=$$!; trap 'kill $$tick 2>/dev/null' EXIT;
help:
	@$(PYTHON) scripts/targets.py
# Whatever is neither a target nor a file: a profile of one's own, outside profiles/, or a word to refuse.
.DEFAULT:
	@$(PYTHON) scripts/targets.py "$@"
	@$(MAKE) venv
	@scripts/drafthouse run $@ $(run_options)
$(BIN)/uv:
	@$(PYTHON) scripts/can_make_venv.py
	@echo "making .venv with $$($(PYTHON) --version)"
	@$(ticking) $(PYTHON) -m venv .venv
	@$(ticking) $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r roles/box_env/files/uv.txt
# uv installs everything else, so .venv need not keep them.
	@uv pip uninstall --quiet --python $(BIN)/python pip setuptools
	@ln -sf ../../scripts/drafthouse $(BIN)/drafthouse
# pip is the fallback if only pip is configured for the package index. Each lock is complete (scripts/lock.py).
.venv/.%: %.txt | $(BIN)/uv
	@echo "installing $< into .venv"
	@$(ticking) uv pip install --quiet --require-hashes --no-deps --python $(BIN)/python -r $< || { $(BIN)/python -m ensurepip && $(BIN)/python -m pip install --require-hashes --no-deps -r $<; }
	@touch $@
$(PROFILES): venv ; @scripts/drafthouse run $@ $(run_options)
# --- Start
venv: .venv/.requirements ## create .venv with drafthouse and ansible-playbook
demo: venv ; @scripts/drafthouse run cpu-smollm2-ngram --inventory local --stop-after $(plays) ## run the full workflow on this machine without a GPU or an account, then stop the server
profiles: venv ; @scripts/drafthouse profiles $(ARGS) ## list the profiles
plan: venv ; @scripts/drafthouse plan $(site) $(call opt,RUNTIME,runtime) $(ARGS) ## show memory, downloads and expected speed-up of a profile (PROFILE=name)
translate: override export CMD := $(value CMD)
translate: venv ; @scripts/drafthouse translate $(if $(value CMD),"$$CMD") $(ARGS) ## convert an old serve command to a profile and to today's command (CMD='vllm serve ...')
# --- Measure
tune: venv ; @scripts/drafthouse tune $(site) $(call opt,BUDGET,budget) $(call on,AGAIN,again) $(if $(LIST),--list) $(plays) ## find the best draft length, method and draft for a profile on its box (PROFILE=name BUDGET=30m; LIST=1 lists the candidates)
reports: venv ; @scripts/drafthouse reports $(PROFILE) $(ARGS) ## list the reports, newest first (PROFILE=name: only that profile)
compare: venv ; @scripts/drafthouse compare $(if $(A),"$(A)") $(if $(B),"$(B)") $(call opt,REGRESSION,regression) $(call on,ANYWAY,anyway) $(ARGS) ## compare two reports (A=profile~1 B=profile, or folders; REGRESSION=5 fails if B is worse)
# --- Operate
doctor: venv ; @scripts/drafthouse doctor $(box) $(call opt,PROFILE,profile) $(call opt,OUTSIDE,from) $(if $(JSON),--json) $(plays) ## check a box and its server, and say what to fix (INVENTORY=name PROFILE=name OUTSIDE=host; JSON=1)
logs: venv ; @scripts/drafthouse logs $(box) $(if $(FOLLOW),--follow) $(call told,LINES,lines) $(call told,HOST,host) $(call opt,ONLY,only) $(ARGS) ## show the logs of every box (INVENTORY=name FOLLOW=1 LINES=100 HOST=name ONLY=speculative)
history: venv ; @scripts/drafthouse history $(box) $(plays) ## show what the box served, when, and why it ended (INVENTORY=name, default local)
tunnel: venv ; @scripts/drafthouse tunnel $(box) $(call told,HOST,host) $(call told,PORT,port) $(ARGS) ## forward a box's API to http://127.0.0.1:8000 over SSH, until Ctrl-C (INVENTORY=vastai HOST=name PORT=8000)
fleet: venv ; @scripts/drafthouse fleet up $(box) $(plays) ## set up the boxes of inventory/fleet, measure each, and put one address in front (drafthouse fleet: status, drain, undrain, upgrade)
rollback: venv ; @scripts/drafthouse rollback $(box) $(call opt,TO,to) $(plays) ## serve the previous release again (INVENTORY=name; TO=a release listed by make history)
upgrade: venv ; @scripts/drafthouse upgrade $(PROFILE) $(ENGINE_VERSION) $(box) $(sets) $(call opt,FROM_VERSION,from) $(if $(LIST),--list) $(plays) ## change the engine version if the new one is no worse (PROFILE=name ENGINE_VERSION=0.33.0; LIST=1 shows the changed flags)
export: venv ; @scripts/drafthouse export $(PROFILE) $(call opt,TO,to) $(call opt,ARM,arm) $(call opt,REPLICAS,replicas) $(sets) $(ARGS) ## write an arm for SkyPilot, dstack, Kubernetes, production-stack, Compose or Quadlet (PROFILE=name TO=kubernetes; ARM=speculative REPLICAS=1..4)
stop: venv ; @scripts/drafthouse stop $(box) $(plays) ## stop the server (INVENTORY=name, default local)
teardown: venv ; @scripts/drafthouse teardown $(box) $(plays) ## stop, and remove what was installed on the box (ARGS='-e weights=true', images=true, container_engine=true, nvidia_driver=true: those too)
weights: venv ; @scripts/drafthouse weights $(site) $(plays) ## download and verify the weights of a profile on the box where it would run (PROFILE=name)
verify: venv ; @scripts/drafthouse verify $(site) $(plays) ## verify every byte of the weights again (PROFILE=name)
prune: venv ; @scripts/drafthouse prune $(box) $(call on,YES,remove) $(ARGS) ## list the weights on this machine that no profile uses; YES=1 removes them
bundle-report: venv ; @scripts/drafthouse bundle-report $(box) $(call opt,PROFILE,profile) $(plays) ## write a support bundle without secrets to build/support/ (INVENTORY=name PROFILE=name)
# --- Rent
rent: venv ; @scripts/drafthouse rent $(site) $(call opt,MAX_PRICE,max-price) $(call opt,BOXES,boxes) $(call opt,MAX_TOTAL,max-total) $(call opt,REGION,region) $(call not_off,ALL_OR_NOTHING,all-or-nothing) $(call opt,HOURS,hours) $(call on,YES,yes) $(call not_off,DRY_RUN,dry-run) $(ARGS) ## rent the cheapest suitable vast.ai boxes (PROFILE=name MAX_PRICE=2.50 HOURS=3; BOXES=4 MAX_TOTAL=9 REGION=same ALL_OR_NOTHING=1; YES=1, DRY_RUN=1)
destroy: venv ; @scripts/drafthouse destroy $(call on,YES,yes) $(ARGS) ## destroy every box that this clone rented (ARGS=--list: what is billing and what it has cost; YES=1)
# --- Develop
# The folders of `make test`. Of those that run alone only the files are collected: to collect all takes some 10 s.
TESTS := tests/unit tests/golden tests/mutation tests/roles tests/e2e tests/real_data
venv-dev: .venv/.requirements .venv/.requirements-dev ## create .venv with the tools for tests and lint too
render: venv ; @scripts/drafthouse render $(site) $(call opt,RUNTIME,runtime) $(ARGS) ## write the files of both arms to build/<profile>/ (PROFILE=name)
test: venv-dev ; @pytest -m "not soak and not alone" --numprocesses 4 --dist loadfile --no-loadscope-reorder && pytest -m "not soak and alone" $$(grep -rl --include='*.py' 'mark\.alone' $(TESTS)) ## run the tests, including those with a real engine
test-fast: venv-dev ; @pytest -m "not soak and not alone and not processes" --no-processes --numprocesses 2 --dist loadfile tests/unit ## unit tests that start no process, in under a minute
test-fresh: venv-dev ; @pytest -m "not soak" tests/fresh ## make demo and make test-fast on a bare Debian with five packages, as an ordinary user (needs root, debootstrap)
test-load: venv-dev ; @pytest -m "not soak and not alone" --numprocesses 4 --dist load tests/load && pytest -m "not soak and alone" tests/load ## client, load sweep, crossover and gates against servers of known speed and known faults
test-health: venv-dev ; @pytest -m "not soak and not alone" --numprocesses 2 --dist loadfile tests/health && pytest -m "not soak and alone" tests/health ## watchdog, monitoring and doctor with the real llama.cpp, Caddy and Prometheus
test-engines: venv-dev ; @pytest -m "not soak and not alone" --numprocesses 2 --dist loadfile tests/real_engines && pytest -m "not soak and alone" tests/real_engines ## the real vLLM for CPU, older versions, llama.cpp: parsers, configuration checks, faults, A/B runs
test-weights: venv-dev ; @pytest -m "not soak and not alone" --numprocesses 2 --dist loadfile tests/weights && pytest -m "not soak and alone" tests/weights ## downloads from a test hub with injected faults, kills, full disks, a slow link (parts need root)
test-hosts: venv-dev ; @pytest -m "not soak" --numprocesses 3 --dist loadfile --no-loadscope-reorder tests/hosts ## real hosts in containers: driver, Docker, firewall, both kinds of boxes (needs root; starts Docker)
test-fleet: venv-dev ; @pytest -m "not soak and not alone" --numprocesses 2 --dist loadfile tests/fleet && pytest -m "not soak and alone" tests/fleet ## three boxes behind one front: kills, a drain, an upgrade and what is open (needs root)
test-vast: venv-dev ; @pytest -m "not soak" --numprocesses 2 --dist loadfile --no-loadscope-reorder tests/vast ## renting against a server that implements vast.ai's protocol and starts real containers (needs root, Docker)
tests/pages/node_modules/.package-lock.json: tests/pages/package-lock.json ; @npm ci --prefix tests/pages --ignore-scripts --no-audit --no-fund || echo 'nothing from npm: the tests of axe-core and of Grafana'\''s types are skipped by name'
test-pages: venv-dev tests/pages/node_modules/.package-lock.json ; @pytest --numprocesses 2 --dist load tests/pages ## the report in a real browser, checked by axe (chromium, npm; skips what is missing, by name)
test-gpu: ; @PYTHONPATH=src:. $(PYTHON) -m tests.gpu.start $(call told,LEVEL,level) $(ARGS) ## on a box with an NVIDIA GPU: real readings, a real engine, evidence in evidence/ (LEVEL=0 to 3: no level above)
gpu-luggage: venv-dev ; @PYTHONPATH=src:. python -m tests.gpu.luggage $(ARGS) ## pack build/gpu-luggage.tar.xz for make test-gpu on a box without a network (ARGS='--python 3.12')
soak: venv-dev truth ; @pytest -m soak tests/unit tests/fresh tests/load tests/e2e tests/health tests/weights tests/real_engines tests/hosts tests/vast tests/fleet tests/gpu ## the long series: load on real engines, more methods, every firewall state, kills, eight hosts at once
truth: venv-dev ; @PYTHONPATH=src:collections:. python -m tests.truth.table $(call told,SEED,seed) $(call told,RUNS,runs); table=$$?; PYTHONPATH=src:collections:. python -m tests.truth.attacks && exit $$table ## judge simulated experiments of known truth and print the error rates (SEED=7 changes every draw, RUNS=100 is quicker)
lint: venv-dev ; @ruff check . && ruff format --check . && mypy && PYTHONPATH=src lint-imports && scripts/structure.py && deptry --config .deptry.toml src scripts collections/ansible_collections/drafthouse/core/plugins && yamllint --strict . && ansible-lint --offline ## ruff, mypy, import order and size of the rooms, dependencies, yamllint and ansible-lint
lock: venv ; @scripts/lock.py ## write all lock files with hashes: controller, box, engines (versions stay)
docs: venv ; @scripts/docs.py ## write the generated pages of docs/ and roles/
site: venv ; @scripts/site.py ## build the documentation as a site into build/site/, and check its links
pictures: venv-dev ; @PYTHONPATH=src:. python -m tests.pages.shots docs --kept "$(REPORT)" ## write the pictures of docs/ from a kept report, the newest by default (REPORT=name; chromium)
golden: venv-dev ; @WRITE_GOLDEN=1 pytest -q tests/golden ## write tests/golden/ again; review the difference before you commit it
monitoring-check: venv ; @scripts/monitoring_check.py ## check the monitoring's rules of every profile and engine with promtool, one line each
sbom: venv-dev ; @scripts/sbom.py ## write the SBOM of a release (CycloneDX) to build/drafthouse-VERSION.cdx.json
collection: venv ; @scripts/collection.py ## write the Ansible collection to build/drafthouse-core-VERSION.tar.gz
wheel: venv-dev ; @python -m hatchling build -t wheel -d build ## write the wheel of the command to build/drafthouse-VERSION-py3-none-any.whl
