"""The resolver: catalogue + profile + site in, one explicit dict or all the errors out.

It is pure: it reads no file, asks no box, and what it returns is all that plan, templates, roles, tests
and docs look at. Templates are rendered by the caller (`house.py`), from the arms it returns.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import monitoring, watchdog_site
from .arms import ARMS, STOCK, Data, Parts, build_arm
from .catalog import PROFILE, House
from .engine_choice import choose_engine
from .exposure import open_paths
from .fit import GB, MIB, Fit, decode_limit, expected_speedup, fit_arm
from .forms import FOLDER, HOST, IMAGE
from .gateway import gateway_of, site_problems
from .levels import check_room
from .options import OptionCheck
from .pairing import check_pair, check_tokens
from .pickles import pickles
from .pins import is_commit
from .problems import HouseError, Problem, did_you_mean
from .rental import rental_of
from .requirement_lines import pin_of
from .shape import Findings, List, Map, Value, check, check_text
from .steps import check_experiment, measured_part, plan_experiment
from .switching import support
from .trtllm_config import check_config, warnings_of
from .versions import NIGHTLY, known

SITE = Map(
    {
        "box_kind": Value(str, required=True, choices=("workstation", "rental")),
        "runtime": Value(str, required=True, choices=("process", "docker")),
        # Whether the command line names it. What the inventory says gives way where a profile has only one runtime.
        "runtime_asked": Value(bool),
        "home": Value(str, required=True, form=FOLDER),
        "models_dir": Value(str, required=True, form=FOLDER),
        "host": Value(str, required=True, form=HOST),
        "port": Value(int, required=True, low=1, high=65534),
        "allow_cidrs": List(Value(str)),
        # TLS and the API key in front of the engine, which then stays on loopback.
        "gateway": Value(bool),
        "gateway_port": Value(int, low=1, high=65535),
        "gateway_name": Value(str),
        # Whether speculation still pays on real traffic, and what to do where it does not.
        "watchdog": watchdog_site.SETTINGS,
        # Prometheus with rules and alerts for the engine, and a dashboard (docs/monitoring.md).
        "monitoring": monitoring.SITE,
        "engine_image": Value(str, form=IMAGE),
        "price_per_hour": Value(float, low=0),
        # Of the price, as a report writes it: EUR, $.
        "currency": Value(str),
        # Where weights may lie already, asked before the hub: a folder or mount of the box, or a host of the inventory.
        "weights_from": Value(str),
        "weights_from_box": Value(str),
        # A file of the controller (make bundle); packages and weights then come from it and from nowhere else.
        "bundle": Value(str),
    }
)


def resolve(
    house: House,
    name: str,
    site: Mapping[str, Any],
    suites: Mapping[str, Sequence[str]],
    overrides: Mapping[str, Any] | None = None,
) -> Data:
    """Join profile ``name`` with the catalogue for ``site``.

    ``suites`` names the kinds of every benchmark suite; ``overrides`` is laid over the profile (the third
    and last layer, for experiments). Returns the resolved profile without rendered files. Raises
    HouseError with every problem found.
    """
    if name not in house.profiles:
        raise HouseError(
            Problem(
                f"no profile '{name}'",
                f"one of: {', '.join(sorted(house.profiles))}",
                did_you_mean(name, house.profiles) + " (make profiles shows them all)",
                f"profiles/{name}.yml",
            )
        )
    if name in house.broken:
        raise HouseError(house.broken[name])
    findings = Findings(f"profiles/{name}.yml")
    profile = _merge(house.profiles[name], overrides or {})
    check(profile, PROFILE, findings)
    check_text(profile, findings)
    site_findings = Findings("site")
    check(dict(site), SITE, site_findings)
    check_text(dict(site), site_findings)
    findings.problems += site_findings.problems
    if findings.problems:
        raise HouseError(findings.problems)
    return _Join(house, name, profile, dict(site), suites, findings).run()


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Data:
    """Return ``over`` laid over ``base``; a null takes the key away (another method has no draft)."""
    merged = copy.deepcopy(dict(base))
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
            continue
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


@dataclass
class _Join:
    """One resolving: the parts it was given, and the problems it finds on the way."""

    house: House
    name: str
    profile: Data
    site: Data
    suites: Mapping[str, Sequence[str]]
    findings: Findings

    def run(self) -> Data:
        spec = self.profile["speculation"]
        self.hardware = self._entry("hardware", self.house.hardware, self.profile["hardware"])
        self.engine = self._entry("engine", self.house.engines, self.profile["engine"])
        self.target = self._entry("target", self.house.models, self.profile["target"])
        self.draft: Data | None = None
        if "draft" in spec:
            self.draft = self._entry("speculation.draft", self.house.models, spec["draft"])
        self._stop_if_wrong()
        # Side by side the arms take the next port too.
        ports = {self.site["port"], self.site["port"] + 1}
        self.findings.problems += site_problems(self.site, ports)
        ports |= {gateway["port"]} if (gateway := gateway_of(self.site)) else set()
        self.findings.problems += monitoring.site_problems(self.site, ports)
        self.chosen = choose_engine(
            self.findings, self.profile, self.engine, self.hardware, self.site, self.house.hashes
        )
        self.version = self.chosen.version
        # From here on the site says what is so.
        self.site = {key: value for key, value in self.site.items() if key != "runtime_asked"}
        self.site["runtime"] = self.chosen.runtime
        self.check = OptionCheck(
            self.findings,
            self.engine["name"],
            self.version,
            self.chosen.releases,
            self.hardware,
            spec["num_speculative_tokens"],
        )
        self._check_target()
        self.serve = self.check.options("serve", self.profile.get("serve") or {}, self.engine["options"])
        self.method = self._check_method()
        check_experiment(self.findings, self.profile["experiment"], self.suites)
        room = self._served("sequences_option", self.engine.get("sequences_default"))
        check_room(self.findings, self.profile["experiment"].get("ladder"), self.engine["sequences_option"], room)
        self.warnings = [self.chosen.note] if self.chosen.note else []
        self.warnings += self._check_draft() if self.method else []
        self.remote_code = self._remote_code()
        self.warnings += self._supply_notes()
        self.arms = (*ARMS, STOCK) if self.profile["experiment"].get("stock") else ARMS
        fits = {arm: self._fit(arm) for arm in self.arms}
        self._check_fit(fits)
        self._stop_if_wrong()
        self.parts = self._parts()
        self.built = {arm: build_arm(self.parts, arm) for arm in (*ARMS, STOCK)}
        self._check_configs()
        self._stop_if_wrong()
        return self._result(fits)

    def _stop_if_wrong(self) -> None:
        if self.findings.problems:
            raise HouseError(self.findings.problems)

    def _entry(self, path: str, table: Data, key: str) -> Data:
        if key in table:
            return {"id": key, **table[key]}
        self.findings.add(path, f"'{key}'", f"one of: {', '.join(sorted(table))}", did_you_mean(key, table))
        return {}

    # --- the parts of a profile -----------------------------------------------------------------

    def _check_target(self) -> None:
        family = self.engine.get("family", self.engine["id"])
        for path, model in (("target", self.target), ("speculation.draft", self.draft)):
            if model and family in model.get("since", {}):
                self.check.version_has(path, model["name"], {"since": model["since"][family]})
        if self.target["kind"] != "model":
            self.findings.add(
                "target",
                f"'{self.target['id']}', which is a {self.target['kind']}",
                "a model",
                "name the model it is for",
            )
        for path, model in (("target", self.target), ("speculation.draft", self.draft)):
            if model:
                self._check_pickles(path, model)
            if model and model["format"] not in self.engine["formats"]:
                self.findings.add(
                    path,
                    f"weights in the format {model['format']} ('{model['id']}')",
                    f"a format that {self.engine['name']} reads: {', '.join(self.engine['formats'])}",
                    "choose another model or another engine",
                )

    def _check_pickles(self, path: str, model: Data) -> None:
        """Refuse pickled weights that the catalogue names by their patterns; those it does not name, the hub lists."""
        wanted = model["source"].get("hub", {}).get("allow") or ()
        allowed = (model.get("allow_pickle") or {}).get("files") or ()
        for pattern in pickles([*wanted, model.get("file") or ""], allowed):
            self.findings.add(
                path,
                f"pickled weights: {pattern} of '{model['id']}'",
                "safetensors: a pickle runs its maker's code when it is loaded",
                "choose weights that come as safetensors, or name them in the model's entry: allow_pickle:"
                f' {{files: ["{pattern}"], reason: ...}}',
            )

    def _remote_code(self) -> list[Data]:
        """Return whose code the engine runs with trust_remote_code: repository and commit, a row each."""
        if not self.serve.get("trust_remote_code"):
            return []
        rows = []
        for path, model in (("target", self.target), ("speculation.draft", self.draft)):
            hub = (model or {}).get("source", {}).get("hub")
            if not model or not (hub or "path" in model["source"]):
                continue  # a file of ours, or made here: no repository has code for it
            if hub and not is_commit(hub["revision"]):
                self.findings.add(
                    "serve.trust_remote_code",
                    f"true, and {hub['repo']} ({path}) at {hub['revision']}, which may be another code tomorrow",
                    "a commit: the code that runs is then the code that somebody has read",
                    f"read the Python files of {hub['repo']}, then set the commit as its revision in"
                    " profiles/catalog/models.yml; or leave trust_remote_code out",
                )
            where = hub["repo"] if hub else model["source"]["path"]
            rows.append({"model": model["id"], "repo": where, "commit": hub["revision"] if hub else None})
        return rows

    def _supply_notes(self) -> list[str]:
        """Return what a person should know of where code and weights come from."""
        notes = [
            f"trust_remote_code: the engine runs the Python code of {row['repo']}"
            + (f" at {row['commit']}" if row["commit"] else ", a folder of yours")
            for row in self.remote_code
        ]
        for model in self._models():
            if pickle := model.get("allow_pickle"):
                files = ", ".join(pickle["files"])
                notes.append(f"pickled weights of {model['name']} ({files}) run code when loaded: {pickle['reason']}")
        return notes

    def _check_method(self) -> Data:
        spec = self.profile["speculation"]
        methods = self.engine["methods"]
        self.method_options: Data = {}
        method = methods.get(spec["method"])
        if method is None and ("," in spec["method"] or "+" in spec["method"]):
            self.findings.add(
                "speculation.method",
                f"'{spec['method']}', more than one method",
                f"one of: {', '.join(sorted(methods))}: a report must say which of them paid",
                "keep one, and make a second profile for the other",
            )
            return {}
        if method is None:
            self.findings.add(
                "speculation.method",
                f"'{spec['method']}', which {self.engine['name']} cannot do",
                f"one of its methods: {', '.join(sorted(methods))}",
                did_you_mean(spec["method"], methods),
            )
            return {}
        self.check.version_has("speculation.method", f"'{spec['method']}'", method)
        for key, needed in (method.get("requires", {}).get("serve") or {}).items():
            if self.serve.get(key, needed) != needed:
                self.findings.add(
                    f"serve.{key}",
                    f"{self.serve[key]}",
                    f"{needed}: {spec['method']} needs it ({method['requires']['reason']})",
                    "remove the key",
                )
        self.method_options = self.check.options(
            "speculation.options", spec.get("options") or {}, method.get("options", {})
        )
        if method["draft"] == "lookup" and self.draft:
            self.findings.add(
                "speculation.draft",
                f"'{self.draft['id']}'",
                f"no draft: '{spec['method']}' looks its tokens up in the text",
                "remove the key, or choose a method with a draft",
            )
        elif method["draft"] != "lookup" and not self.draft:
            fitting = [key for key, model in self.house.models.items() if model["kind"] == method["draft"]]
            self.findings.add(
                "speculation.draft",
                "nothing",
                f"a {method['draft']} for '{spec['method']}'",
                f"add one of: {', '.join(fitting)}",
            )
        elif self.draft and self.draft["kind"] != method["draft"]:
            self.findings.add(
                "speculation.draft",
                f"'{self.draft['id']}', which is a {self.draft['kind']}",
                f"a {method['draft']}: that is what '{spec['method']}' drafts with",
                "choose another draft or another method",
            )
        return {"id": spec["method"], **method}

    def _check_draft(self) -> list[str]:
        """Check what must match between method, draft and target; return warnings."""
        tokens = self.profile["speculation"]["num_speculative_tokens"]
        check_tokens(self.findings, tokens, self.draft, self.method)
        self._check_devices()
        warnings = [f"synthetic: {model['synthetic']}" for model in self._models() if "synthetic" in model]
        if self.draft:
            warnings += check_pair(self.findings, self.target, self.draft, self.method, self.house.models)
        options = self.engine["options"]
        warnings += [options[key]["warning"] for key, on in self.serve.items() if on and "warning" in options[key]]
        if self.version == NIGHTLY:
            warnings.append(f"unpinned: {self.engine['nightly']['reason']}")
        launch = self.engine["launch"]
        if "key_file" not in launch and "key_environment" not in launch:
            warnings.append(
                f"{self.engine['name']} asks nobody for a key: keep it on loopback, with a gateway in front"
            )
        return warnings

    def _models(self) -> list[Data]:
        return [model for model in (self.target, self.draft) if model]

    def _check_devices(self) -> None:
        """Check the tensor-parallel sizes: whole heads on every device; a draft on one device or on all."""
        devices = self._devices()
        where = f"serve.{self.engine.get('devices_option')}"
        if devices < 1 or self.target["heads"] % devices:
            self.findings.add(
                where,
                f"{devices} devices for {self.target['heads']} attention heads",
                "a number that divides them",
                f"use one of: {', '.join(str(n) for n in range(1, 17) if self.target['heads'] % n == 0)}",
            )
        drafting = self.method_options.get("draft_tensor_parallel_size")
        if drafting is not None and drafting not in (1, devices):
            self.findings.add(
                "speculation.options.draft_tensor_parallel_size",
                f"{drafting}",
                f"1, or the target's own {devices}: vLLM takes nothing else" if devices > 1 else "1",
                "correct it",
            )

    # --- memory and speed -----------------------------------------------------------------------

    def _served(self, option: str, default: Any) -> Any:
        """Return what the profile says of the option that the engine's entry names under ``option``."""
        value = self.serve.get(self.engine.get(option, ""))
        return default if value is None else value

    def _context(self) -> int:
        return int(self._served("context_option", self.target["context"]))

    def _devices(self) -> int:
        return int(self._served("devices_option", 1))

    def _fit(self, arm: str) -> Fit:
        engine = self.engine
        on_gpu = self.hardware["kind"] == "gpu"
        share = float(self._served("share_option", engine.get("share_default", 1)))
        devices = max(1, self._devices())
        return fit_arm(
            memory=self.hardware["memory_mib"] * MIB,
            utilization=share if engine["reserves"] == "share" and on_gpu else 1.0,
            cache_share=share if engine["reserves"] == "share_of_free" else 1.0,
            devices=devices,
            draft_devices=max(1, int(self.method_options.get("draft_tensor_parallel_size", devices))),
            target=self.target,
            draft=self.draft if arm == "speculative" else None,
            overhead=engine["overhead_mib"] * MIB,
            bytes_per_value=engine["kv_bytes_per_value"],
            context=self._context(),
            sequences=int(self._served("sequences_option", 1)),
            context_is_shared=engine["context_is_shared"],
            reserves_share=engine["reserves"] != "needed" and on_gpu,
        )

    def _check_fit(self, fits: Mapping[str, Fit]) -> None:
        context = self._context()
        where = f"serve.{self.engine['context_option']}"
        if context > self.target["context"]:
            self.findings.add(
                where,
                f"{context} tokens",
                f"{self.target['context']} or fewer: the model was made for no more",
                "make it shorter",
            )
        devices = self._devices()
        if devices > self.hardware["devices"]:
            self.findings.add(
                f"serve.{self.engine['devices_option']}",
                f"{devices} devices",
                f"{self.hardware['devices']}: all that '{self.hardware['id']}' has",
                "lower it, or choose other hardware",
            )
        arm = "speculative" if fits["speculative"].left < 0 else "baseline"
        fit = fits[arm]
        if fit.left < 0:
            drafted = f" + draft {fit.draft / GB:.1f}" if fit.draft else ""
            self.findings.add(
                "target",
                f"{arm} arm: weights {fit.weights / GB:.1f}{drafted} + KV cache {fit.kv_needed / GB:.1f}"
                f" + overhead {fit.overhead / GB:.1f} GB",
                f"at most {fit.memory * fit.utilization / GB:.1f} GB"
                f" ({fit.utilization:.0%} of {fit.memory / GB:.1f} GB on {self.hardware['name']})",
                f"shorten {where} to {fit.longest_context} or less"
                if fit.longest_context > 0
                else "choose smaller models or larger hardware",
            )

    def _gateway(self) -> Data | None:
        """Return the gateway; ``hold_s``, where it is there, is how long it holds requests for the watchdog."""
        gateway = gateway_of(self.site)
        hold_s = watchdog_site.hold_s(self.site, self.engine["ready_timeout_s"])
        return {**gateway, "hold_s": hold_s} if gateway and hold_s else gateway

    def _expectation(self) -> Data:
        k = self.profile["speculation"]["num_speculative_tokens"]
        bandwidth = self.hardware["bandwidth_gb_s"] * GB * self._devices()
        # A draft step reads the draft's weights, a target step the target's: memory-bound, both.
        read = [int(model.get("read_bytes") or model["weight_bytes"]) for model in self._models()]
        cost = read[1] / read[0] if self.draft else 0.0
        expect = self.profile.get("expect")
        return {
            "bandwidth_bytes_s": bandwidth,
            "bytes_per_token": read[0],
            "decode_limit_tok_s": decode_limit(read[0], bandwidth),
            "num_speculative_tokens": k,
            "draft_cost": cost,
            "acceptance": expect["acceptance"] if expect else None,
            "acceptance_source": expect["source"] if expect else None,
            "speedup": expected_speedup(expect["acceptance"], k, cost) if expect else None,
        }

    # --- what comes out ---------------------------------------------------------------------------

    def _weights(self) -> list[Data]:
        """Return everything to put in place, each after what it is made from."""
        ordered: list[Data] = []

        def add(key: str) -> None:
            model = {"id": key, **self.house.models[key]}
            source_kind, source = next(iter(model["source"].items()))
            if source_kind == "derived":
                add(source["from"])
            item = {
                "id": key,
                "name": model["name"],
                "source": source_kind,
                "details": source,
                "path": self.parts.model_path(model),
                "bytes": model["weight_bytes"],
            }
            if pickle := model.get("allow_pickle"):
                item["allow_pickle"] = list(pickle["files"])
            if source_kind == "derived":
                item["from_path"] = self.parts.model_path({"id": source["from"], **self.house.models[source["from"]]})
            if key not in [known_item["id"] for known_item in ordered]:
                ordered.append(item)

        add(self.target["id"])
        if self.draft:
            add(self.draft["id"])
        return ordered

    def _elsewhere(self) -> Data:
        """Return where weights may lie already, for the role `weights`; {} where only the hub is asked."""
        folder = f"{self.site['home']}/bundle/weights" if "bundle" in self.site else self.site.get("weights_from")
        return {"folder": folder, "models_dir": self.site["models_dir"]} if folder else {}

    def _shared_memory(self) -> int:
        """Return the bytes that the engine's processes share at least: those of several devices talk through it."""
        return self.engine.get("shared_memory_mib", 0) * MIB if self._devices() > 1 else 0

    def _pair(self) -> Data | None:
        """Return what the files of target and draft are held against each other by; None without a draft."""
        if self.draft is None:
            return None
        method = self.method
        difference = method.get("match", {}).get("vocab_difference", 0)
        return {
            "target_path": self.parts.model_path(self.target),
            "draft_path": self.parts.model_path(self.draft),
            "method": {"id": method["id"], "kind": method["draft"], "vocab_difference": difference},
        }

    def _engine_home(self) -> str:
        """Return the folder of the engine's environment; a method that adds to it has one of its own."""
        kind = "-cpu" if self.hardware["kind"] == "cpu" else ""
        extra = f"-{self.method['id']}" if "source_packages" in self.method else ""
        return f"{self.site['home']}/engines/{self.engine['id']}-{self.version}{kind}{extra}"

    def _parts(self) -> Parts:
        return Parts(
            name=self.name,
            site=self.site,
            hardware=self.hardware,
            engine=self.engine,
            version=self.version,
            target=self.target,
            draft=self.draft,
            method=self.method,
            method_options=self.method_options,
            tokens=self.profile["speculation"]["num_speculative_tokens"],
            serve=self.serve,
            image=self.chosen.derived.name if self.chosen.derived else self.chosen.image,
        )

    def _check_configs(self) -> None:
        """Check the YAML of an engine that cannot check it here itself, and say what it would silently change."""
        if self.engine["launch"].get("config", {}).get("schema") != "trtllm":
            return
        for arm, built in self.built.items():
            config = built["config"]
            self.findings.problems += check_config(
                config["data"], self.version, f"profiles/{self.name}.yml, as {config['file']} of the {arm} arm"
            )
        if not self.findings.problems:
            self.warnings += warnings_of(self.built["speculative"]["config"]["data"])

    def _result(self, fits: Mapping[str, Fit]) -> Data:
        engine, chosen, parts = self.engine, self.chosen, self.parts
        temperature = self.profile.get("temperature", self.target.get("temperature"))
        experiment = plan_experiment(self.profile["experiment"], fits, self.site["port"], temperature)
        weights = self._weights()
        return {
            "profile": self.name,
            "title": self.profile["title"],
            "article": self.profile.get("article"),
            "synthetic": " ".join(model["synthetic"] for model in self._models() if "synthetic" in model) or None,
            "unpinned": engine["nightly"]["reason"] if self.version == NIGHTLY else None,
            "verified": self.profile.get("verified", []),
            "warnings": self.warnings,
            "site": self.site,
            "hardware": self.hardware,
            "engine": {
                "id": engine["id"],
                "name": engine["name"],
                "version": self.version,
                "version_reason": chosen.reason,
                "plugin": chosen.plugin,
                "runtime": self.site["runtime"],
                "runtimes": chosen.runtimes,
                "home": self._engine_home(),
                "install": chosen.install,
                "image": parts.image,
                "template": engine["template"],
                "offline_template": engine.get("offline_template"),
                "health": engine["health"],
                "ready_timeout_s": engine["ready_timeout_s"],
                "metrics": engine["metrics"],
                "key_environment": engine["launch"].get("key_environment"),
                "has_key": "key_environment" in engine["launch"] or "key_file" in engine["launch"],
            },
            # Not below "engine", all of which decides whether a kept result is this profile's: its name is, there.
            "derived_image": chosen.derived.as_dict() if chosen.derived else None,
            "target": {**self.target, "served_name": parts.served_name, "path": parts.model_path(self.target)},
            "draft": {**self.draft, "path": parts.model_path(self.draft)} if self.draft else None,
            "method": {
                "id": self.method["id"],
                "name": self.method["id"],
                "kind": self.method["draft"],
                "num_speculative_tokens": parts.tokens,
                "settings": parts.speculation(),
                "requires": self.method.get("requires"),
            },
            "batch_schedule": support(engine, self.method, self.version),
            "scores": self._scores(),
            "weights": weights,
            "rental": rental_of(self.hardware, engine, chosen, weights),
            "shared_memory": self._shared_memory(),
            "pair": self._pair(),
            "elsewhere": self._elsewhere(),
            "key_file": parts.key_file,
            "open_paths": open_paths(engine, self.version),
            "gateway": self._gateway(),
            "monitoring": monitoring.monitoring_of(
                self.site, self.name, engine, self.built, self.hardware["kind"] == "gpu", gateway_of(self.site)
            ),
            "expectation": self._expectation(),
            "experiment": experiment,
            "ports": sorted({port for turn in experiment["turns"] for port in turn.values()}),
            "arms": {arm: {**self.built[arm], "fit": fits[arm].as_dict()} for arm in self.arms},
            # Shown by `make render` where it is something of its own; measured when the profile asks for it.
            "stock": self.built[STOCK] if self.method.get("requires") else None,
            "offline": self._offline(),
            # Not below "engine" either: another way to see that a file is the right one changes no result.
            "hashes": self._hashes(),
            "remote_code": self.remote_code,
        }

    def _hashes(self) -> Data:
        """Return the hashes of what the environment of the engine names without a lock, by ``name==version``."""
        install = self.chosen.install or {}
        lists = ("python_packages", "no_deps_packages", "build_packages", "source_packages")
        pins = {pin_of(package) for name in lists for package in install.get(name) or ()}
        return {pin: list(self.house.hashes[pin]) for pin in sorted(pins) if pin in self.house.hashes}

    def _scores(self) -> Data | None:
        """Return how this version of the engine scores a text, and up to how many tokens; None where it cannot."""
        scores = self.engine.get("scores")
        return {"by": scores["by"], "tokens": scores["tokens"]} if scores and known(self.version, scores) else None

    def _offline(self) -> Data:
        """Return what the engine's Python API takes of the options: those that are not about its server."""
        options = self.engine["options"]
        return {key: value for key, value in self.serve.items() if not options[key].get("server_only")}


def measured_key(resolved: Mapping[str, Any], *more: object) -> str:
    """Return the key of a result: a hash of all that can change it, and of nothing else.

    ``more`` is what the resolved profile does not hold, such as the box.
    The price, titles and notes may change without a new measurement.
    """
    parts = ("hardware", "engine", "target", "draft", "method", "experiment", "suites", "arms")
    relevant = {part: resolved[part] for part in parts}
    relevant["experiment"] = measured_part(resolved["experiment"])
    # What a shop calls the hardware changes nothing that is measured.
    relevant["hardware"] = {key: value for key, value in resolved["hardware"].items() if key != "vast_names"}
    text = json.dumps([relevant, *more], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
