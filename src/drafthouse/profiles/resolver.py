"""The resolver: join a profile, the catalogue and a site into one explicit dict, or report every error in them.

It reads no file and contacts no box. Plan, templates, roles, tests and docs read nothing but what it returns. Its
caller, `workspace.py`, renders the templates. A site is the settings of an inventory; an arm is a server that the
benchmark compares (`arms.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ..core.errors import DrafthouseError, Problem, did_you_mean
from ..core.format import listing
from ..core.removed import removed
from ..core.requirement_lines import pin_of
from ..core.schema import Findings, check, check_text
from ..core.versions import NIGHTLY, supports
from ..engines.registry import engine_of
from ..prompts.load_levels import check_contexts, check_room
from . import fleet_settings as fleet
from . import monitoring_settings as monitoring
from . import several_hosts
from . import watchdog_settings as watchdog_site
from .arms import ARMS, STOCK, Parts, build_arm, own_program, takes_key
from .catalog import Catalog
from .draft_compat import check_pair, check_tokens
from .engine_options import OptionCheck, version_defaults
from .engine_version import choose_engine
from .experiment_plan import check_experiment, plan_experiment
from .exposure import open_paths
from .extra_flags import check_environment, check_extra
from .gateway_settings import gateway_of, site_problems
from .heads import builtin_head, draft_kind, head_as_target
from .known_issues import check_accepted, matching_issues, setup_of
from .method_check import check_method
from .model_check import check_models
from .model_names import model_named
from .overrides import with_overrides
from .published import published_of
from .rental_spec import rental_of
from .resolved_engine import resolved_engine
from .schemas import PROFILE, SITE
from .sizes import Sizes
from .supply import remote_code, supply_notes, weight_items

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogEngine, CatalogMethod, Options
    from drafthouse.profiles.catalog_types import BuiltinHead, CatalogModel
    from drafthouse.profiles.planned_types import PlannedExperiment
    from drafthouse.profiles.profile_types import Profile, Site, Unchecked
    from drafthouse.profiles.resolved_types import (
        Elsewhere,
        Fit,
        Gateway,
        Hardware,
        Model,
        Monitoring,
        Pair,
        RemoteCode,
        ResolvedArm,
        ResolvedMethod,
        ResolvedProfile,
        ScoresBy,
        WeightItem,
    )


def resolve(
    catalog: Catalog,
    name: str,
    site: Unchecked,
    suites: Mapping[str, Sequence[str]],
    overrides: Unchecked | None = None,
) -> ResolvedProfile:
    """The profile ``name``, joined with the catalogue for ``site``, without rendered files.

    ``catalog``: the catalogue and all profiles. ``suites``: by benchmark suite, the kinds of its prompts.
    ``overrides``: values that replace the profile's for one run or trial; None for none. Raises DrafthouseError: for a
    profile that is unknown, or whose file is broken; with all problems of the shapes of profile and site; then with all
    problems of the first step of `_Join.run` that finds any.
    """
    if name not in catalog.profiles:
        raise DrafthouseError(no_such_profile(catalog, name))
    if name in catalog.broken:
        raise DrafthouseError(catalog.broken[name])
    findings = Findings(catalog.file(name))
    profile = with_overrides(catalog.profiles[name], overrides or {})
    check(profile, PROFILE, findings)
    check_text(profile, findings)
    site_findings = Findings("site")
    check(site, SITE, site_findings)
    check_text(site, site_findings)
    findings.problems += site_findings.problems
    if findings.problems:
        raise DrafthouseError(findings.problems)
    own_site = cast("Site", dict(site))
    return _Join(catalog, name=name, profile=profile, site=own_site, suites=suites, findings=findings).run()


def no_such_profile(catalog: Catalog, name: str) -> Problem:
    """The problem of a profile that does not exist, with what replaced it, or else the most similar name."""
    if replaced := removed("profile", name, catalog.file(name)):
        return replaced
    needed = "a profile listed by drafthouse profiles"
    do = did_you_mean(name, catalog.profiles)
    return Problem("no-such-profile", f"no profile '{name}'", needed, do, catalog.file(name))


def _override_warning(files: Sequence[str]) -> list[str]:
    """The warning, [] for none, that a profile replaces others; ``files``: all of its name; the last is read."""
    if len(files) < 2:
        return []
    return [f"profile: {files[-1]}, in place of {listing(files[:-1])}"]


@dataclass
class _Join:
    """One run of the resolver. Its steps set further attributes, which later steps read."""

    catalog: Catalog
    name: str  # of the profile
    profile: Profile  # with the overrides
    site: Site  # its own copy: the chosen runtime is written into it
    suites: Mapping[str, Sequence[str]]  # by benchmark suite, the kinds of its prompts
    findings: Findings  # problems found until now

    def run(self) -> ResolvedProfile:
        """The resolved profile. Raises DrafthouseError with all problems of the first step that finds any.

        The steps: names that the catalogue lacks, values that do not fit together, the engine's configuration files.
        """
        target_notes = self._choose_from_catalogue()
        self._check_site()
        self._choose_version()
        method, flag_notes = self._check_options()
        self._check_experiment()
        self.warnings = [*filter(None, [self.chosen.note]), *target_notes, *flag_notes]
        if method:
            self.warnings += [*self._check_draft(method), *self._warnings_of_engine()]
        self._check_environment(method)
        self.arms: tuple[str, ...] = ARMS
        if self.profile["experiment"].get("stock"):
            self.arms = (*ARMS, STOCK)
        fits = {arm: self.sizes.fit(arm) for arm in self.arms}
        self.sizes.check_fits(self.findings, fits)
        self._raise_problems()
        assert method  # without one there was a problem, raised above
        self.method = method
        self.parts = self._parts()
        self.built = {arm: build_arm(self.parts, arm) for arm in (*ARMS, STOCK)}
        self._check_configs()
        self._raise_problems()
        return self._resolved_profile(fits)

    def _choose_from_catalogue(self) -> list[str]:
        """Look up hardware, engine, target and draft by their names; return the note on a head named as target.

        Raises DrafthouseError with the names that the catalogue lacks.
        """
        catalog = self.catalog
        profile = self.profile
        spec = profile["speculation"]
        self._look_up("hardware", catalog.hardware, profile["hardware"], catalog.broken_hardware)
        self._look_up("engine", catalog.engines, profile["engine"], catalog.broken_engines)
        target = self._look_up_model("target", profile["target"])
        draft = self._look_up_model("speculation.draft", spec["draft"]) if "draft" in spec else None
        self._raise_problems()
        served_target, draft, notes = head_as_target(target, draft, catalog.models)
        target = self._look_up_model("target", served_target)
        self._raise_problems()
        self.hardware: Hardware = {"id": profile["hardware"], **catalog.hardware[profile["hardware"]]}
        self.engine: CatalogEngine = {"id": profile["engine"], **catalog.engines[profile["engine"]]}
        self.target = self._model(target)
        if name := (self.site.get("fleet") or {}).get("served_name"):
            self.target["served_name"] = name
        self.draft = self._model(draft) if draft else None
        return list(notes)

    def _check_site(self) -> None:
        """Check addresses and ports of server, gateway, fleet front and monitoring: no port may be used twice."""
        # Two arms that are served side by side also use the next port.
        ports = {self.site["port"], self.site["port"] + 1}
        self.findings.problems += site_problems(self.site, ports)
        self.findings.problems += several_hosts.site_problems(self.site)
        if gateway := gateway_of(self.site):
            ports.add(gateway["port"])
        self.findings.problems += fleet.site_problems(self.site, ports)
        if front := fleet.fleet_of(self.site):
            ports |= fleet.ports_of(front)
        self.findings.problems += monitoring.site_problems(self.site, ports)

    def _choose_version(self) -> None:
        """Choose the engine's version, and its runtime: docker or process."""
        self.chosen = choose_engine(
            self.findings,
            profile=self.profile,
            engine=self.engine,
            hardware=self.hardware,
            site=self.site,
            hashes=self.catalog.hashes,
            images=self.target.get("images"),
        )
        self.version = self.chosen.version
        # From here on the site holds the chosen runtime.
        self.site.pop("runtime_asked", None)
        self.site["runtime"] = self.chosen.runtime

    def _check_options(self) -> tuple[CatalogMethod | None, list[str]]:
        """Check options and extra flags; return the method (None: a problem was added) and the flags' warnings."""
        spec = self.profile["speculation"]
        self.check = OptionCheck(
            findings=self.findings,
            engine=self.engine["name"],
            version=self.version,
            releases=self.chosen.releases,
            hardware=self.hardware,
            tokens=spec["num_speculative_tokens"],
        )
        check_models(self.check, engine=self.engine, target=self.target, draft=self.draft, models=self.catalog.models)
        given: object = self.profile.get("serve") or {}
        extra: object = []
        if isinstance(given, Mapping):
            given = dict(given)
            extra = given.pop("extra", [])
        self.serve = self.check.options("serve", given, self.engine["options"])
        lists = self.catalog.flags.get(self.engine["id"], {})
        self.extra, flag_notes = check_extra(self.findings, extra, self.engine, self.version, lists)
        method, self.method_options = check_method(
            self.check,
            spec,
            engine=self.engine,
            serve=self.serve,
            target=self.target,
            draft=self.draft,
            models=self.catalog.models,
        )
        self.builtin = None if self.draft else builtin_head(self.target, spec["method"], method)
        return method, flag_notes

    def _check_experiment(self) -> None:
        """Compute the sizes on this hardware, and check whether the experiment can be measured with them.

        Sets ``slots``, the number of requests that a server works on at once.
        """
        experiment = self.profile["experiment"]
        self.sizes = Sizes(
            engine=self.engine,
            hardware=self.hardware,
            target=self.target,
            draft=self.draft,
            builtin=self.builtin,
            serve=self.serve,
            method_options=self.method_options,
            tokens=self.profile["speculation"]["num_speculative_tokens"],
            hosts=several_hosts.hosts_of(self.site),
        )
        several_hosts.check(
            self.findings,
            site=self.site,
            sizes=self.sizes,
            engine=self.engine,
            version=self.version,
            experiment=experiment,
        )
        check_experiment(self.findings, experiment, self.suites)
        check_accepted(self.findings, self.profile.get("accept_known_issues", {}), self.catalog.issues)
        slots = self.sizes.served("sequences_option", self.engine.get("sequences_default"))
        check_room(self.findings, experiment.get("ladder"), self.engine["sequences_option"], slots)
        self.slots = int(slots or 1)
        context = self.sizes.context
        if self.engine.get("context_is_shared"):  # by all concurrent requests
            context //= self.slots
        answer_tokens = int(experiment.get("max_output_tokens") or 0)
        check_contexts(self.findings, experiment.get("ladder"), self.engine["context_option"], context, answer_tokens)

    def _check_environment(self, method: CatalogMethod | None) -> None:
        """Check the engine's environment variables and the third-party Python code that it is to run."""
        required: Mapping[str, str] = {}
        if method and (requirement := method.get("requires")):
            required = requirement.get("environment") or {}
        given = self.profile.get("environment") or {}
        self.environment = check_environment(self.findings, given, self.engine, required)
        self.remote_code: list[RemoteCode] = []
        if self.serve.get("trust_remote_code"):
            self.remote_code = remote_code(self.findings, {"target": self.target, "speculation.draft": self.draft})
        self.warnings += supply_notes(self.remote_code, self._models())

    def _raise_problems(self) -> None:
        """Raise DrafthouseError with all problems found until now, if there are any."""
        if self.findings.problems:
            raise DrafthouseError(self.findings.problems)

    def _look_up(self, path: str, table: Collection[str], key: str, broken: Mapping[str, list[Problem]]) -> None:
        """Add problems if ``key``, the profile's value at ``path``, is no entry of ``table``.

        ``broken``: by name, the problems of the user's own broken entries, which then are those of the profile.
        """
        if key in broken:
            self.findings.problems += broken[key]
        elif key not in table:
            self.findings.add(
                "unknown-value", path, f"'{key}'", f"one of: {', '.join(sorted(table))}", did_you_mean(key, table)
            )

    def _look_up_model(self, path: str, word: str) -> str:
        """The catalogue's name of the model ``word`` (a name, repository or folder), the profile's value at ``path``.

        An unknown model is a problem, and ``word`` itself is returned.
        """
        try:
            return model_named(word, self.catalog, f"{self.findings.file}: {path}")
        except DrafthouseError as error:
            self.findings.problems += error.problems
            return word

    def _model(self, key: str) -> CatalogModel:
        """The catalogue's entry of a model, with its name."""
        return {"id": key, **self.catalog.models[key]}

    # --- the parts of a profile -----------------------------------------------------------------

    def _check_draft(self, method: CatalogMethod) -> list[str]:
        """Check that method, draft and target match; return warnings of a pair that may accept few drafts."""
        tokens = self.profile["speculation"]["num_speculative_tokens"]
        check_tokens(self.findings, tokens, target=self.target, draft=self.draft, builtin=self.builtin, method=method)
        self.sizes.check_devices(self.findings)
        warnings = [f"synthetic: {note}" for note in self._synthetic()]
        if self.draft:
            warnings += check_pair(
                self.findings, target=self.target, draft=self.draft, method=method, models=self.catalog.models
            )
        return warnings

    def _warnings_of_engine(self) -> list[str]:
        """Warnings about options, a nightly build, the site's own program, and an engine without authentication."""
        warnings = []
        for key, value in self.serve.items():
            option = self.engine["options"][key]
            if value and "warning" in option:
                warnings.append(option["warning"])
        if self.version == NIGHTLY:
            warnings.append(f"unpinned: {self.engine['nightly']['reason']}")
        if program := own_program(self.site):
            warnings.append(
                f"engine: {program}, the site's own; not checked to be {self.engine['name']} {self.version}"
            )
        if not takes_key(self.engine["launch"]):
            warnings.append(
                f"{self.engine['name']} has no authentication: keep it on loopback, with a gateway in front"
            )
        return warnings

    def _models(self) -> list[CatalogModel]:
        """The target and, if there is one, the draft."""
        if self.draft is None:
            return [self.target]
        return [self.target, self.draft]

    def _synthetic(self) -> list[str]:
        """The catalogue's notes why target or draft is not a real model; [] if both are real."""
        return [model["synthetic"] for model in self._models() if "synthetic" in model]

    def _gateway(self) -> Gateway | None:
        """The site's gateway, if any; with ``hold_s`` if the watchdog may restart the engine behind it."""
        gateway = gateway_of(self.site)
        hold_s = watchdog_site.hold_s(self.site, self.engine["ready_timeout_s"])
        if gateway and hold_s:
            gateway["hold_s"] = hold_s
        return gateway

    # --- the resolved profile ---------------------------------------------------------------------

    def _elsewhere(self) -> Elsewhere:
        """The folder that may already hold weights, for the role `weights`; {} if the site names none."""
        folder = self.site.get("weights_from")
        if not folder:
            return {}
        return {"folder": folder, "models_dir": self.site["models_dir"]}

    def _pair(self) -> Pair | None:
        """What is needed to compare the files of target and draft on the box; None without a draft."""
        if self.draft is None:
            return None
        method = self.method
        difference = method.get("match", {}).get("vocab_difference", 0)
        return {
            "target_path": self.parts.model_path(self.target),
            "draft_path": self.parts.model_path(self.draft),
            "method": {"id": method["id"], "kind": draft_kind(method, self.draft), "vocab_difference": difference},
        }

    def _parts(self) -> Parts:
        """The checked parts from which the arms are built."""
        image = self.chosen.image
        if derived := self.chosen.derived:
            image = derived.name
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
            also=self.profile["speculation"].get("also", ""),
            tokens=self.profile["speculation"]["num_speculative_tokens"],
            # `Sizes` leaves these defaults out of the memory plan: so many sequences of full length are unusual.
            serve={**version_defaults(self.engine, self.version), **self.serve},
            extra=self.extra,
            environment=self.environment,
            image=image,
        )

    def _check_configs(self) -> None:
        """Check the engine's YAML configuration before it runs; warn of values that it would silently change."""
        engine = engine_of(self.engine["id"])
        for arm, built in self.built.items():
            if config := built["config"]:
                where = f"{self.findings.file}, as {config['file']} of the {arm} arm"
                self.findings.problems += engine.config_problems(config["data"], self.version, where)
        if (config := self.built["speculative"]["config"]) and not self.findings.problems:
            self.warnings += engine.config_warnings(config["data"])

    def _resolved_profile(self, fits: Mapping[str, Fit]) -> ResolvedProfile:
        """The result, from what the steps before have chosen and checked; ``fits``: the memory of each arm."""
        engine = self.engine
        chosen = self.chosen
        parts = self.parts
        experiment = self._planned_experiment(fits)
        arms: dict[str, ResolvedArm] = {arm: {**self.built[arm], "fit": fits[arm], "files": []} for arm in self.arms}
        weights = self._weights()
        ports = {port for turn in experiment["turns"] for port in turn.values()}
        # `make render` shows stock where it differs from the baseline; a profile may ask to measure it.
        stock = self.built[STOCK] if self.method.get("requires") else None
        return {
            "profile": self.name,
            "title": self.profile["title"],
            "article": self.profile.get("article"),
            "synthetic": " ".join(self._synthetic()) or None,
            "unpinned": engine["nightly"]["reason"] if self.version == NIGHTLY else None,
            "verified": self.profile.get("verified", []),
            "warnings": [*_override_warning(self.catalog.files.get(self.name, [])), *self.warnings],
            "known_issues": matching_issues(
                self.catalog.issues,
                setup_of(parts, self.built["speculative"]),
                self.profile.get("accept_known_issues", {}),
            ),
            "published": published_of(self.catalog.published, self.target, self.draft, self.method["id"], parts.tokens),
            "site": self.site,
            "hardware": self.hardware,
            "engine": resolved_engine(self.parts, chosen, self.method),
            # Not under "engine": all values there are part of the key of a kept result (`result_key`).
            "config_template": self._config_template(),
            # "engine" has the image's name.
            "derived_image": chosen.derived.as_dict() if chosen.derived else None,
            "target": {**self.target, "served_name": parts.served_name, "path": parts.model_path(self.target)},
            "draft": self._draft_on_box(),
            "method": self._resolved_method(),
            "scores": self._scores(),
            "weights": weights,
            "rental": rental_of(self.hardware, engine, chosen, weights),
            "shared_memory": self.sizes.shared_memory,
            "pair": self._pair(),
            "elsewhere": self._elsewhere(),
            "key_file": parts.key_file,
            "open_paths": open_paths(engine, self.version),
            "gateway": self._gateway(),
            "fleet": fleet.fleet_of(self.site),
            "monitoring": self._monitoring(),
            "expectation": self.sizes.expectation(
                self.profile.get("expect"), users=experiment["concurrency"], one_pass=self.method.get("one_pass", False)
            ),
            "experiment": experiment,
            "group_ports": several_hosts.group_ports(self.site),
            "ports": sorted(ports),
            "arms": arms,
            "stock": stock,
            "offline": self._offline(),
            # Not under "engine" either: further hashes of the same packages change no result.
            "hashes": self._hashes(),
            "remote_code": self.remote_code,
        }

    def _monitoring(self) -> Monitoring | None:
        """The site's monitoring, which watches this profile; None if the site has none."""
        return monitoring.monitoring_of(
            self.site,
            profile=self.name,
            engine=self.engine,
            arms=self.built,
            gpu=self.hardware["kind"] == "gpu",
            gateway=gateway_of(self.site),
        )

    def _planned_experiment(self, fits: Mapping[str, Fit]) -> PlannedExperiment:
        """The experiment with its steps; the profile's temperature has precedence over the target's."""
        return plan_experiment(
            self.profile["experiment"],
            fits,
            self.site["port"],
            self.profile.get("temperature", self.target.get("temperature")),
            several_hosts=self.sizes.hosts > 1,
            slots=self.slots,
        )

    def _weights(self) -> list[WeightItem]:
        """The weights of target and draft, each after the weights from which it is derived."""
        heads: dict[str, BuiltinHead] = {}
        if self.builtin:
            heads[self.target["id"]] = self.builtin
        names = [model["id"] for model in self._models()]
        return weight_items(self.catalog.models, names, self.parts.model_path, heads)

    def _draft_on_box(self) -> Model | None:
        """The draft with its path on the box; None for a method without one."""
        if self.draft is None:
            return None
        return {**self.draft, "path": self.parts.model_path(self.draft)}

    def _resolved_method(self) -> ResolvedMethod:
        """The method, with the name of the lookup that runs beside it, if there is one."""
        return {
            "id": self.method["id"],
            "name": " and ".join(filter(None, [self.method["id"], self.parts.also])),
            "kind": draft_kind(self.method, self.draft),
            "num_speculative_tokens": self.parts.tokens,
            "settings": self.parts.speculation(),
            "requires": self.method.get("requires"),
        }

    def _config_template(self) -> str | None:
        """The template of the engine's YAML configuration; None for an engine that reads none."""
        config = self.engine["launch"].get("config")
        return config and config["template"]

    def _hashes(self) -> dict[str, list[str]]:
        """Hashes by ``name==version`` of the packages that the engine's environment names without a lock file.

        {} if Drafthouse installs no engine. A package without hashes in the catalogue is left out.
        """
        install = self.chosen.install
        if not install or own_program(self.site):
            return {}
        requirements = [*install["python_packages"], *install.get("no_deps_packages", [])]
        requirements += [*install.get("build_packages", []), *install.get("source_packages", [])]
        pins = set(map(pin_of, requirements))
        return {pin: list(self.catalog.hashes[pin]) for pin in sorted(pins) if pin in self.catalog.hashes}

    def _scores(self) -> ScoresBy | None:
        """How this engine version scores a text, and the most tokens of such a text; None if it cannot."""
        scores = self.engine.get("scores")
        if not scores or not supports(self.version, scores):
            return None
        return {"by": scores["by"], "tokens": scores["tokens"]}

    def _offline(self) -> Options:
        """The options for the engine's Python API: all except those of its HTTP server."""
        options = self.engine["options"]
        return {key: value for key, value in self.serve.items() if not options[key].get("server_only")}
