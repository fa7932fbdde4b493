"""Translate pasted serve commands into profiles and into commands of the engines' current versions.

Pure: a function is passed in to read files that a command names. Every part of a paste is translated, passed on
unchanged or listed in the changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import yaml

from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.shell import Flag, compact_json, flag
from ..core.versions import having, releases, supports
from ..engines.pasted import Change, Speculation
from ..profiles.catalog import Catalog
from ..profiles.engine_options import LOSSLESS, lossy_word
from ..profiles.heads import method_for_head
from .extras import sort_extras
from .flags import OldFlags
from .nearest_profile import (
    ProfilePlan,
    catalogue_id,
    choose_context,
    choose_hardware,
    choose_speculation,
    choose_tokens,
    differences,
    guessed_catalogue_id,
    nearest_models,
    profiles_like,
    repository,
    slug,
)
from .reader import Reading
from .repairs import WINDOWS
from .sources import commands_of
from .values import nested, shell_quoted, with_numbers

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogEngine, Settings
    from drafthouse.profiles.profile_types import Profile
    from drafthouse.profiles.profile_types import Speculation as SpeculationWishes

#: A flag that turns on speculation, anywhere in a text.
_SPECULATES = re.compile(r"--(?:speculative|spec-type|model-draft|draft-max)[\w-]*")


@dataclass
class Translation:
    """A translated command."""

    name: str  # of the profile's file
    engine: str
    engine_name: str
    version: str
    profile: Profile
    command: list[Flag]  # the program with the model, then an item per flag
    environment: list[str]  # NAME=value before the command, quoted for a shell
    files: dict[str, str]  # texts of the files that the command reads, by name
    changes: list[Change]
    same: list[str]  # existing profiles with the same engine, target, method and draft
    near: list[str]  # existing profiles with another draft or method, or with the most similar target
    differs: list[str]  # differences from the first of `same`
    baseline: bool  # True if the command does not speculate
    left_out: list[str]  # parts of the command that are not in the profile
    asked: list[str]  # parts that may speculate and were not pasted; the user must paste them
    missing: list[str]  # models that are not in the catalogue; the profile does not resolve without them


def translate(
    text: str, catalog: Catalog, flags: OldFlags, read: Callable[[str], str | None]
) -> tuple[list[Translation], list[str], list[Problem]]:
    """Translate every serve command of ``text``; ``catalog`` is the catalogue with all profiles.

    ``flags`` comes from `load_flags`; ``read`` returns the text of a file by its name, or None. The second result are
    incomplete commands (flags alone, a program without a model), the third the reasons why other commands were not
    translated. Raises DrafthouseError with every problem if no command could be translated.
    """
    commands, paste = commands_of(text)

    translations: list[Translation] = []
    problems = list(paste.problems)
    for command in commands:
        try:
            file_of = partial(_file_text, files={**paste.files, **command.files}, read=read)
            translations.append(_Translator(Reading(command, catalog, flags, file_of)).translation())
        except DrafthouseError as error:
            for problem in error.problems:
                where = f"line {command.line}, {command.program}: {problem.where}".removesuffix(": ")
                problems.append(replace(problem, where=where))
    problems = list(dict.fromkeys(problems))
    if not translations:
        raise DrafthouseError(problems)
    incomplete: list[str] = []
    refused: list[Problem] = []
    for problem in problems:
        if problem.code == "no-model":
            incomplete.append(f"{problem.where} (no model)")
        else:
            refused.append(problem)
    if all(translation.baseline and not translation.asked for translation in translations):
        unreached = _unreached_speculation(text)
        incomplete += unreached
        if WINDOWS.search(text):  # read by rewriting it, so a line that is not reached may not have been understood
            for translation in translations:
                translation.asked += unreached
    return translations, [*paste.loose_flags, *incomplete], refused


def _file_text(name: str, files: dict[str, str], read: Callable[[str], str | None]) -> str | None:
    """The text of a file that the paste holds, also in another folder (a container has its own); else from ``read``."""
    base_name = name.rsplit("/", 1)[-1]
    for pasted_name in (name, name.removeprefix("./"), base_name):
        if pasted_name in files:
            return files[pasted_name]
    texts = {text for pasted_name, text in files.items() if pasted_name.rsplit("/", 1)[-1] == base_name}
    if len(texts) == 1:
        return texts.pop()
    return read(name)


def _unreached_speculation(text: str) -> list[str]:
    """The lines with a speculation flag in a paste whose commands do not speculate: a branch not taken, a sentence."""
    lines: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        match = _SPECULATES.search(line)
        if match and not line.lstrip().upper().startswith(("#", "//", "REM ", "::")):
            lines.append(f"line {number}: {match[0]} (not reached)")
    return lines


class _Translator:
    """Makes the profile and the current command of a command that `Reading` has parsed."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.catalog = reading.catalog
        self.engine = reading.engine
        self.note = reading.note
        self.speculation = reading.speculation
        self.version = reading.version

    def translation(self) -> Translation:
        """The translation; without speculation the profile gets one, to compare with the command as its baseline."""
        self._head_as_model()
        reading = self.reading
        speculation = self.speculation
        target = self._catalogue_id(reading.target, "model")
        method = speculation.method if speculation else ""
        self._drop_builtin_draft()
        draft_name, draft = self._draft()
        wanted = ProfilePlan(reading.engine_id, self.engine, target, draft or draft_name or None, method, reading.serve)
        same, near = profiles_like(self.catalog, wanted, reading.target)
        similar_profiles: list[str] = []
        if target:
            similar_profiles = [*same, *near]
        if speculation is None:
            spec, why = choose_speculation(self.catalog, wanted, similar_profiles)
            self.note("(no speculation)", f"method: {spec['method']}", f"{why}; a profile compares both", "chosen")
            # No profile is the same without speculation: the command is the baseline arm of the nearest one.
            same = similar_profiles[:1]
            near = near[len(same) :]
        else:
            spec = self._wishes(speculation, draft or draft_name, draft_name, similar_profiles)
            self._choose_version(method)
        chosen_draft = spec.get("draft") if spec.get("draft") in self.catalog.models else None
        wanted = ProfilePlan(reading.engine_id, self.engine, target, chosen_draft, spec["method"], reading.serve)
        hardware, why = choose_hardware(self.catalog, wanted, similar_profiles)
        self.note("(no hardware)", f"hardware: {hardware}", why, "chosen")
        self._context(wanted, hardware, similar_profiles)
        self._apply_requirements(spec["method"])
        engine: CatalogEngine = {"id": reading.engine_id, **self.engine}
        extra, environment = sort_extras(reading, self.catalog, engine, self.version, spec["method"])
        profile = self._profile(hardware, target or reading.target, spec, extra, environment)
        name = f"{hardware}-{slug(target or reading.target)}-{slug(spec['method'])}"
        if name in self.catalog.profiles:
            name += "-pasted"
        models = (profile["target"], spec.get("draft"))
        return Translation(
            name=name,
            engine=reading.engine_id,
            engine_name=self.engine["name"],
            version=self.version,
            profile=profile,
            command=self._command(),
            environment=reading.environment,
            files=self._files(),
            changes=reading.changes,
            same=same,
            near=near,
            differs=differences(profile, self.catalog.profiles[same[0]]) if same else [],
            baseline=speculation is None and not reading.asked,
            left_out=reading.left_out,
            asked=reading.asked,
            missing=[model for model in models if model and model not in self.catalog.models],
        )

    def _drop_builtin_draft(self) -> None:
        """Remove a draft that is the target itself, which some commands name for a built-in head."""
        speculation = self.speculation
        if speculation is None or speculation.draft != self.reading.target:
            return
        entry = self.engine["methods"].get(speculation.method)
        if entry and entry["draft"] == "builtin":
            self.note(f"model: {self.reading.target}", "", "the head is inside the target", "moved")
            speculation.words = {key: value for key, value in speculation.words.items() if value != speculation.draft}
            speculation.draft = ""

    def _draft(self) -> tuple[str, str | None]:
        """The draft's current repository and its catalogue id; "" and None for a method without a draft."""
        if self.speculation is None or not self.speculation.draft:
            return "", None
        name = self.reading.moved_repository(self.speculation.draft)
        entry = self.engine["methods"].get(self.speculation.method)
        if entry and (entry["draft"] == "head" or entry.get("or_head")):
            return name, self._catalogue_id(name, "head")
        return name, self._catalogue_id(name, "model")

    def _head_as_model(self) -> None:
        """Use a head that is served as the model as the draft of the target that its configuration or entry names."""
        name = self.reading.target
        head = self.catalog.models.get(catalogue_id(self.catalog, name) or "")
        if head is None and "-speculator." in name and not self.speculation:
            why = "by its name a head's repository: run drafthouse model add, then translate again"
            self.note(name, name, why, "kept")
        method = method_for_head(self.engine, head.get("head_method", ""), "head") if head else None
        if self.speculation or head is None or method is None:
            return
        entry = self.engine["methods"][method]
        speculators = head.get("speculators")
        names = entry["names"]
        catalogue_target = self.catalog.models.get(head.get("head_for", ""))
        model, tokens = "", None
        if speculators:
            model, tokens = speculators["target"], speculators["tokens"]
        elif catalogue_target:
            model = repository(catalogue_target)
        if not model or not {"method", "model"} <= names.keys():
            return
        words: Settings = {names["method"]: entry.get("value", method), names["model"]: name, **entry.get("always", {})}
        if speculators:
            words[names["num_speculative_tokens"]] = tokens
        self.speculation = Speculation(method, name, tokens, words)
        self.reading.target = model
        why = "a head's repository: it names its model"
        if not speculators:
            why = "a head's repository: the catalogue's model for it; its own configuration may name another"
        self.note(name, f"{model} with {name} as its draft", why, "moved")

    def _catalogue_id(self, name: str, kind: str) -> str | None:
        """The catalogue id of a model; None, with a note on the most similar models, if it has none."""
        model_id = catalogue_id(self.catalog, name)
        if "$" in name:
            self.note(name, name, "a variable that the paste does not set: write the model out", "kept")
        elif model_id is None and (model_id := guessed_catalogue_id(self.catalog, name)):
            why = "taken for the catalogue's model of this name; change it if it is another"
            self.note(name, model_id, why, "chosen")
        elif model_id is None:
            similar = nearest_models(self.catalog, name, kind, self.engine["formats"])
            hint = f"; nearest: {', '.join(similar)}" if similar else ""
            self.note(name, name, f"the catalogue has no such model{hint}", "kept")
        return model_id

    def _wishes(self, speculation: Speculation, draft: str, draft_name: str, profiles: list[str]) -> SpeculationWishes:
        """Return the profile's `speculation:`; set a chosen token count and a moved draft in the engine's words."""
        tokens = speculation.tokens
        method = speculation.method
        if tokens is None:
            tokens, why = choose_tokens(self.catalog, self.engine, method, profiles)
            self.note("(no number of tokens)", f"num_speculative_tokens: {tokens}", why, "chosen")
        entry = self.engine["methods"].get(method)
        names = entry["names"] if entry else {}
        for key, value in list(speculation.words.items()):
            if draft_name and isinstance(value, str) and value.rstrip("/") == speculation.draft:
                speculation.words[key] = draft_name
        if speculation.tokens is None and "num_speculative_tokens" in names:
            self._set_tokens(speculation, tokens)
        for key in speculation.unknown:
            self.reading.left_out.append(f"{key} of the speculation")
            self.note(key, key, "passed on unchanged: it is not in the catalogue", "kept")
        spec: SpeculationWishes = {"method": method, "draft": draft, "num_speculative_tokens": tokens}
        if not draft:
            del spec["draft"]
        if speculation.also:
            spec["also"] = speculation.also
        self._refuse_lossy({**speculation.words, **speculation.options})
        if speculation.options:
            spec["options"] = {key: with_numbers(value) for key, value in speculation.options.items()}
        return spec

    def _set_tokens(self, speculation: Speculation, tokens: int) -> None:
        """Set the number of draft tokens after the method and the model, and the settings that depend on it."""
        entry = self.engine["methods"][speculation.method]
        names = entry["names"]
        leading: Settings = {}
        for key in ("method", "model"):
            value = speculation.words.pop(names[key], None) if key in names else None
            if value is not None:
                leading[names[key]] = value
        leading[names["num_speculative_tokens"]] = tokens
        if "follows" in entry:
            leading.update(entry.get("always", {}))
            for name, difference in entry["follows"].items():
                leading[name] = tokens + difference
        speculation.words = {**leading, **speculation.words}

    def _refuse_lossy(self, settings: Settings) -> None:
        """Raise DrafthouseError for a setting that lets answers differ from the target's."""
        for key, value in settings.items():
            if why := lossy_word(self.engine, key, value):
                raise one_problem("lossy-verification", f"{value!r}: {why}", LOSSLESS, f"remove it: {key}")

    def _choose_version(self, method: str) -> None:
        """Choose an older engine version if the current one does not have the method, and note it."""
        entry, name = self.engine["methods"].get(method), self.engine["name"]
        if entry is None:
            self.note(f"method {method}", method, f"this method of {name} is not in the catalogue", "kept")
        elif not supports(self.version, entry):
            older = having(releases(self.engine), entry)
            why = f"{name} {self.version} does not have it: {entry.get('reason', 'another version has it')}"
            became = ""
            if older:
                self.version = older[-1]
                became = f"engine_version: {self.version}"
            self.note(f"method {method}", became, why, "removed", f"after {entry.get('until', '-')}")

    def _context(self, wanted: ProfilePlan, hardware: str, profiles: list[str]) -> None:
        """If the context does not fit, set a shorter one, or only note it if the command sets the context."""
        option = self.engine["context_option"]
        chosen = choose_context(self.catalog, wanted, hardware, profiles)
        if chosen is None:
            return
        tokens, why = chosen
        flag_name = self.engine["options"][option].get("flag", option)
        if option in self.reading.serve:
            self.note(f"{flag_name} {self.reading.serve[option]}", f"{tokens} or less", why, "kept")
        elif tokens > 0:
            self.reading.serve[option] = tokens
            self.reading.rest.append([flag_name, str(tokens)])
            self.note(f"(no {flag_name})", f"{flag_name} {tokens}", why, "chosen")

    def _apply_requirements(self, method: str) -> None:
        """Remove the options from the profile that the method sets itself, and set the method's environment."""
        entry = self.engine["methods"].get(method)
        required = entry.get("requires") if entry else None
        if not required:
            return
        for key, value in (required.get("serve") or {}).items():
            if self.reading.serve.get(key) == value:
                del self.reading.serve[key]
                word = self.engine["options"][key].get("yaml", key)
                self.note(f"{word}: {value}", f"requires: of {method}", required["reason"], "moved")
        if self.speculation is None:  # the command is the baseline, which does not run the method
            return
        for name, value in (required.get("environment") or {}).items():
            setting = f"{name}={shell_quoted(str(value))}"
            self.reading.environment.append(setting)
            # A variable that is obsolete for other methods may be required here (V0 for MLP speculators).
            for change in list(self.reading.changes):
                if change.what.startswith(f"{name}="):
                    self.reading.changes.remove(change)
                    self.note(change.what, setting, f"set with the method {method}: {required['reason']}", "moved")

    def _profile(
        self, hardware: str, target: str, spec: SpeculationWishes, extra: list[str], environment: dict[str, str]
    ) -> Profile:
        reading = self.reading
        models = self.catalog.models
        target_name = models[target]["name"] if target in models else target
        draft = spec.get("draft", "")
        draft_name = models[draft]["name"] if draft in models else draft
        method_text = spec["method"]
        if draft_name:
            method_text = f"{draft_name} as its draft ({method_text})"
        profile: Profile = {
            "title": f"{target_name} with {method_text} on {self.catalog.hardware[hardware]['name']}",
            "hardware": hardware,
            "engine": reading.engine_id,
            "engine_version": self.version,
            "target": target,
            "speculation": spec,
            "serve": {**reading.serve, "extra": extra} if extra else dict(reading.serve),
            "environment": environment,
            "temperature": float(reading.temperature or 0),
            "experiment": {"suites": ["mixed"]},
        }
        if self.version == self.engine["default_version"]:
            del profile["engine_version"]
        if not profile["serve"]:
            del profile["serve"]
        if not environment:
            del profile["environment"]
        if not reading.temperature:
            del profile["temperature"]
        return profile

    def _command(self) -> list[Flag]:
        """The current command: program and model, the flags of both arms, the configuration file, speculation."""
        reading = self.reading
        launch = self.engine["launch"]
        form = self.engine["speculation"]["form"]
        command: list[Flag] = [list(launch["command"])]
        model_flag = reading.target_flag or launch.get("target")
        if model_flag:
            command.append([model_flag, reading.target])
        else:
            command[0].append(reading.target)
        command += reading.rest
        if reading.config_name:
            command.append([launch["config"]["flag"], reading.config_name])
        if self.speculation and form == "json":
            command.append([self.engine["speculation"]["flag"], compact_json(with_numbers(self.speculation.words))])
        elif self.speculation and form == "flags":
            command += map(flag, self.speculation.words.keys(), self.speculation.words.values())
        return command

    def _files(self) -> dict[str, str]:
        """The text of the engine's YAML file with the speculation in it, by its name; empty for no file."""
        if not self.reading.config_name:
            return {}
        settings = dict(self.reading.config)
        if self.speculation:
            key = self.engine["speculation"]["key"]
            for name, value in self.speculation.words.items():
                settings[f"{key}.{name}"] = value
        return {self.reading.config_name: yaml.safe_dump(nested(settings), sort_keys=False)}
