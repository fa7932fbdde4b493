"""Paste a command from a blog, get a profile: the command of today, and what became of each of its flags.

Pure: text, catalogue and table of old flags in, translations out; files that a command names are read through
the function it is given. Nothing that was pasted is dropped without a word: what is not known is passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import yaml

from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.shell import Flag, compact_json, flag
from ..core.versions import having, known, releases
from ..engines.pasted import Change, Speculation
from ..profiles.catalog import House
from ..profiles.engine_options import LOSSLESS, lossy_word
from ..profiles.heads import method_for_head
from .extras import sort_extras
from .flags import OldFlags
from .nearest_profile import (
    Wanted,
    a_speculation,
    called,
    called_like,
    choose_context,
    choose_hardware,
    differences,
    nearest_models,
    profiles_like,
    repository,
    slug,
    usual_tokens,
)
from .reader import Reading
from .sources import commands_of
from .values import nested, plain, quoted

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogEngine, Settings
    from drafthouse.profiles.profile_types import Profile
    from drafthouse.profiles.profile_types import Speculation as SpeculationWishes


_SPECULATES = re.compile(r"--(?:speculative|spec-type|model-draft|draft-max)[\w-]*")


@dataclass
class Translation:
    """One command, translated."""

    name: str  # under which its profile may be saved
    engine: str
    engine_name: str
    version: str
    profile: Profile
    command: list[Flag]  # the program and the model, then one flag an entry
    environment: list[str]  # NAME=value in front of it, as a shell takes it
    files: dict[str, str]  # what it reads, name to text
    changes: list[Change]
    same: list[str]  # profiles of the house with the same engine, target, method and draft
    near: list[str]  # those with another draft or method, or of the nearest target
    differs: list[str]  # in what it differs from the first of the same
    baseline: bool  # the command does not speculate
    left_out: list[str]  # of the command, and not of the profile
    asked: list[str]  # what may speculate and was not pasted: until it is, no baseline is printed
    missing: list[str]  # models that the catalogue does not have: without them the profile does not resolve


def translate(
    text: str, house: House, flags: OldFlags, read: Callable[[str], str | None]
) -> tuple[list[Translation], list[str], list[Problem]]:
    """Translate every serve command of ``text``.

    ``flags`` is what `load_flags` read; ``read`` returns the text of a file that a command names, or None. Also
    returned are what is no whole command (flags alone, a program that is named without a model), and why further
    commands were not translated. Raises DrafthouseError where none could be, with every problem.
    """
    commands, paste = commands_of(text)

    def file_of(name: str) -> str | None:
        for known_as in (name, name.removeprefix("./"), name.rsplit("/", 1)[-1]):
            if known_as in paste.files:
                return paste.files[known_as]
        return read(name)

    found: list[Translation] = []
    problems = list(paste.problems)
    for words in commands:
        try:
            found.append(_Result(Reading(words, house, flags, file_of)).translation())
        except DrafthouseError as error:
            for problem in error.problems:
                where = f"line {words.line}, {words.program}: {problem.where}".removesuffix(": ")
                problems.append(replace(problem, where=where))
    problems = list(dict.fromkeys(problems))
    if not found:
        raise DrafthouseError(problems)
    mentions: list[str] = []
    refused: list[Problem] = []
    for problem in problems:
        if problem.code == "no-model":
            mentions.append(f"{problem.where} (no model)")
        else:
            refused.append(problem)
    if all(one.baseline and not one.asked for one in found):
        mentions += _not_reached(text)
    return found, [*paste.loose, *mentions], refused


def _not_reached(text: str) -> list[str]:
    """Where a paste speculates of which no command does: in a branch that its values do not take, or in a sentence."""
    found: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        match = _SPECULATES.search(line)
        if match and not line.lstrip().startswith(("#", "//")):
            found.append(f"line {number}: {match[0]} (not reached)")
    return found


class _Result:
    """From a command that was read to its profile and its command of today."""

    def __init__(self, reading: Reading) -> None:
        self.read = reading
        self.house, self.engine, self.note = reading.house, reading.engine, reading.note
        self.speculation = reading.speculation
        self.version = reading.version

    def translation(self) -> Translation:
        self._head_as_model()
        read, speculation = self.read, self.speculation
        target = self._known(read.target, "model")
        method = speculation.method if speculation else ""
        self._drop_builtin_draft()
        draft_name, draft = self._draft()
        wanted = Wanted(read.engine_id, self.engine, target, draft, method, read.serve)
        same, near = profiles_like(self.house, wanted, read.target)
        like: list[str] = []
        if target:
            like = [*same, *near]
        if speculation is None:
            spec, why = a_speculation(self.house, wanted, like)
            self.note("(no speculation)", f"method: {spec['method']}", f"{why}; a profile compares both", "chosen")
            same = like[:1]
            near = near[len(same) :]
        else:
            spec = self._spoken(speculation, draft or draft_name, draft_name, like)
            self._version_for(method)
        drafts_with = spec.get("draft") if spec.get("draft") in self.house.models else None
        wanted = Wanted(read.engine_id, self.engine, target, drafts_with, spec["method"], read.serve)
        hardware, why = choose_hardware(self.house, wanted, like)
        self.note("(no hardware)", f"hardware: {hardware}", why, "chosen")
        self._context(wanted, hardware, like)
        self._requires(spec["method"])
        engine: CatalogEngine = {"id": read.engine_id, **self.engine}
        extra, environment = sort_extras(read, self.house, engine, self.version, spec["method"])
        profile = self._profile(hardware, target or read.target, spec, extra, environment)
        name = f"{hardware}-{slug(target or read.target)}-{slug(spec['method'])}"
        if name in self.house.profiles:
            name += "-pasted"
        models = (profile["target"], spec.get("draft"))
        return Translation(
            name=name,
            engine=read.engine_id,
            engine_name=self.engine["name"],
            version=self.version,
            profile=profile,
            command=self._command(),
            environment=read.environment,
            files=self._files(),
            changes=read.changes,
            same=same,
            near=near,
            differs=differences(profile, self.house.profiles[same[0]]) if same else [],
            baseline=speculation is None and not read.asked,
            left_out=read.left_out,
            asked=read.asked,
            missing=[model for model in models if model and model not in self.house.models],
        )

    def _drop_builtin_draft(self) -> None:
        """Take out the draft where the head is inside the target, which some commands then name again."""
        speculation = self.speculation
        if speculation is None or speculation.draft != self.read.target:
            return
        entry = self.engine["methods"].get(speculation.method)
        if entry and entry["draft"] == "builtin":
            self.note(f"model: {self.read.target}", "", "the head is inside the target", "moved")
            speculation.words = {key: value for key, value in speculation.words.items() if value != speculation.draft}
            speculation.draft = ""

    def _draft(self) -> tuple[str, str | None]:
        """The draft's repository of today, and its id in the catalogue; '' and None for a method without a draft."""
        if self.speculation is None or not self.speculation.draft:
            return "", None
        name = self.read.moved_repository(self.speculation.draft)
        entry = self.engine["methods"].get(self.speculation.method)
        if entry and (entry["draft"] == "head" or entry.get("or_head")):
            return name, self._known(name, "head")
        return name, self._known(name, "model")

    def _head_as_model(self) -> None:
        """Write out what an engine does that is given a head's own repository as its model: the model, and the draft.

        Its `speculators_config` names both; of a head without one the catalogue knows the model.
        """
        name = self.read.target
        head = self.house.models.get(called(self.house, name) or "")
        if head is None and "-speculator." in name and not self.speculation:
            why = "by its name a head's repository: run drafthouse model add, then translate again"
            self.note(name, name, why, "kept")
        method = method_for_head(self.engine, head.get("head_method", ""), "head") if head else None
        if self.speculation or head is None or method is None:
            return
        entry, own = self.engine["methods"][method], head.get("speculators")
        names = entry["names"]
        behind = self.house.models.get(head.get("head_for", ""))
        model, tokens = "", None
        if own:
            model, tokens = own["target"], own["tokens"]
        elif behind:
            model = repository(behind)
        if not model or not {"method", "model"} <= names.keys():
            return
        words: Settings = {names["method"]: entry.get("value", method), names["model"]: name, **entry.get("always", {})}
        if own:
            words[names["num_speculative_tokens"]] = tokens
        self.speculation = Speculation(method, name, tokens, words)
        self.read.target = model
        why = "a head's repository: it names its model"
        if not own:
            why = "a head's repository: the catalogue's model for it; its own configuration may name another"
        self.note(name, f"{model} with {name} as its draft", why, "moved")

    def _known(self, name: str, kind: str) -> str | None:
        """The catalogue's id of a model; say so where it has none, and name the nearest."""
        found = called(self.house, name)
        if "$" in name:
            self.note(name, name, "a variable that the paste does not set: write the model out", "kept")
        elif found is None and (found := called_like(self.house, name)):
            why = "taken for the catalogue's model of this name; change it if it is another"
            self.note(name, found, why, "chosen")
        elif found is None:
            close = nearest_models(self.house, name, kind, self.engine["formats"])
            hint = f"; nearest: {', '.join(close)}" if close else ""
            self.note(name, name, f"the catalogue has no such model{hint}", "kept")
        return found

    def _spoken(self, speculation: Speculation, draft: str, draft_name: str, profiles: list[str]) -> SpeculationWishes:
        """Return `speculation:` of the profile, and put what was chosen or renamed into the engine's words."""
        tokens, method = speculation.tokens, speculation.method
        if tokens is None:
            tokens, why = usual_tokens(self.house, self.engine, method, profiles)
            self.note("(no number of tokens)", f"num_speculative_tokens: {tokens}", why, "chosen")
        entry = self.engine["methods"].get(method)
        names = entry["names"] if entry else {}
        for key, value in list(speculation.words.items()):
            if draft_name and isinstance(value, str) and value.rstrip("/") == speculation.draft:
                speculation.words[key] = draft_name
        if speculation.tokens is None and "num_speculative_tokens" in names:
            self._set_tokens(speculation, tokens)
        for key in speculation.unknown:
            self.read.left_out.append(f"{key} of the speculation")
            self.note(key, key, "passed on unchanged: it is not in the catalogue", "kept")
        spec: SpeculationWishes = {"method": method, "draft": draft, "num_speculative_tokens": tokens}
        if not draft:
            del spec["draft"]
        self._refuse_lossy({**speculation.words, **speculation.options})
        if speculation.options:
            spec["options"] = {key: plain(value) for key, value in speculation.options.items()}
        return spec

    def _set_tokens(self, speculation: Speculation, tokens: int) -> None:
        """Write the number of tokens, and what goes with it in the arms, behind the method and the model."""
        entry = self.engine["methods"][speculation.method]
        names = entry["names"]
        first: Settings = {}
        for key in ("method", "model"):
            value = speculation.words.pop(names[key], None) if key in names else None
            if value is not None:
                first[names[key]] = value
        first[names["num_speculative_tokens"]] = tokens
        if "follows" in entry:
            first.update(entry.get("always", {}))
            for name, more in entry["follows"].items():
                first[name] = tokens + more
        speculation.words = {**first, **speculation.words}

    def _refuse_lossy(self, said: Settings) -> None:
        """Raise DrafthouseError for a word that is lossy with any method: not each of them lists it."""
        for method in self.engine["methods"].values():
            for key, value in said.items():
                if why := lossy_word(method.get("options", {}).get(key), value):
                    raise one_problem("lossy-verification", f"{value!r}: {why}", LOSSLESS, f"remove it: {key}")

    def _version_for(self, method: str) -> None:
        """Take an older version where today's does not have the method, and say so."""
        entry, name = self.engine["methods"].get(method), self.engine["name"]
        if entry is None:
            self.note(f"method {method}", method, f"this method of {name} is not in the catalogue", "kept")
        elif not known(self.version, entry):
            older = having(releases(self.engine), entry)
            why = f"{name} {self.version} does not have it: {entry.get('reason', 'another version has it')}"
            became = ""
            if older:
                self.version = older[-1]
                became = f"engine_version: {self.version}"
            self.note(f"method {method}", became, why, "removed", f"after {entry.get('until', '-')}")

    def _context(self, wanted: Wanted, hardware: str, like: list[str]) -> None:
        """Shorten a context that was not asked for and does not fit; say so of one that was."""
        option = self.engine["context_option"]
        chosen = choose_context(self.house, wanted, hardware, like)
        if chosen is None:
            return
        tokens, why = chosen
        flag_name = self.engine["options"][option].get("flag", option)
        if option in self.read.serve:
            self.note(f"{flag_name} {self.read.serve[option]}", f"{tokens} or less", why, "kept")
        elif tokens > 0:
            self.read.serve[option] = tokens
            self.read.rest.append([flag_name, str(tokens)])
            self.note(f"(no {flag_name})", f"{flag_name} {tokens}", why, "chosen")

    def _requires(self, method: str) -> None:
        """Leave out of the profile what the catalogue sets with the method; set its environment."""
        entry = self.engine["methods"].get(method)
        required = entry.get("requires") if entry else None
        if not required:
            return
        for key, value in (required.get("serve") or {}).items():
            if self.read.serve.get(key) == value:
                del self.read.serve[key]
                word = self.engine["options"][key].get("yaml", key)
                self.note(f"{word}: {value}", f"requires: of {method}", required["reason"], "moved")
        for name, value in (required.get("environment") or {}).items() if self.speculation else ():
            setting = f"{name}={quoted(str(value))}"
            self.read.environment.append(setting)
            # What another method lost may be just what this one needs (V0 for MLP speculators).
            for change in list(self.read.changes):
                if change.what.startswith(f"{name}="):
                    self.read.changes.remove(change)
                    self.note(change.what, setting, f"set with the method {method}: {required['reason']}", "moved")

    def _profile(
        self, hardware: str, target: str, spec: SpeculationWishes, extra: list[str], environment: dict[str, str]
    ) -> Profile:
        read, models = self.read, self.house.models
        named = models[target]["name"] if target in models else target
        draft = spec.get("draft", "")
        drafted = models[draft]["name"] if draft in models else draft
        how = spec["method"]
        if drafted:
            how = f"{drafted} as its draft ({how})"
        profile: Profile = {
            "title": f"{named} with {how} on {self.house.hardware[hardware]['name']}",
            "hardware": hardware,
            "engine": read.engine_id,
            "engine_version": self.version,
            "target": target,
            "speculation": spec,
            "serve": {**read.serve, "extra": extra} if extra else dict(read.serve),
            "environment": environment,
            "temperature": float(read.temperature or 0),
            "experiment": {"suites": ["mixed"]},
        }
        if self.version == self.engine["default_version"]:
            del profile["engine_version"]
        if not profile["serve"]:
            del profile["serve"]
        if not environment:
            del profile["environment"]
        if not read.temperature:
            del profile["temperature"]
        return profile

    def _command(self) -> list[Flag]:
        read, launch, form = self.read, self.engine["launch"], self.engine["speculation"]["form"]
        command: list[Flag] = [list(launch["command"])]
        model_flag = read.target_flag or launch.get("target")
        if model_flag:
            command.append([model_flag, read.target])
        else:
            command[0].append(read.target)
        command += read.rest
        if read.config_name:
            command.append([launch["config"]["flag"], read.config_name])
        if self.speculation and form == "json":
            command.append([self.engine["speculation"]["flag"], compact_json(plain(self.speculation.words))])
        elif self.speculation and form == "flags":
            command += map(flag, self.speculation.words.keys(), self.speculation.words.values())
        return command

    def _files(self) -> dict[str, str]:
        if not self.read.config_name:
            return {}
        settings = dict(self.read.config)
        if self.speculation:
            key = self.engine["speculation"]["key"]
            for name, value in self.speculation.words.items():
                settings[f"{key}.{name}"] = value
        return {self.read.config_name: yaml.safe_dump(nested(settings), sort_keys=False)}
