"""The nearest command of another engine: what a pasted one says, in that engine's words, and what has none there.

Pure. It goes by the catalogue: a setting is the other engine's where its entry has the same role for it (context,
sequences, share, devices) or the same key with the same type, and a method where it drafts with the same kind of thing.
What is left is named, and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import yaml

from ..core.shell import Flag, compact_json, flag
from ..core.versions import known, spelled
from ..profiles.arms import words_of
from ..profiles.draft_compat import most_tokens
from ..profiles.heads import draft_kind, head_kind, made_for
from ..profiles.model_check import loads
from .nearest_profile import nearest_models
from .values import nested

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import DraftKind, EngineEntry, Method, MethodOption, Option, Options
    from drafthouse.profiles.catalog import House
    from drafthouse.profiles.profile_types import Profile, Speculation

_Role = Literal["context_option", "sequences_option", "share_option", "devices_option"]
_ROLES: Final[tuple[_Role, ...]] = ("context_option", "sequences_option", "share_option", "devices_option")


@dataclass
class Another:
    """A command of another engine; ``missing`` is what has no equivalent there, and why."""

    engine: str
    engine_name: str
    version: str
    command: list[Flag] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    missing: list[tuple[str, str]] = field(default_factory=list)


def in_words_of(
    engine_id: str, profile: Profile, house: House, *, baseline: bool, left_out: Sequence[str] = ()
) -> Another:
    """Return the command of another engine that serves as ``profile`` does, at the version that the catalogue pins.

    ``baseline``: without speculation, which the profile has all the same. ``left_out``: what the command has and the
    profile does not, and so this one neither.
    """
    found = _Other(engine_id, profile, house).made(baseline)
    found.missing += [(words, "not in the profile that this is made from") for words in left_out]
    return found


class _Other:
    def __init__(self, engine_id: str, profile: Profile, house: House) -> None:
        self.house, self.profile, self.target = house, profile, profile["target"]
        self.theirs: EngineEntry = house.engines[profile["engine"]]
        self.ours: EngineEntry = house.engines[engine_id]
        self.version = self.ours["default_version"]
        self.found = Another(engine_id, self.ours["name"], self.version)
        self.config: Options = {}

    def made(self, baseline: bool) -> Another:
        launch, found = self.ours["launch"], self.found
        model = self._model(self.target, "model", "the target")
        words = list(launch["command"])
        found.command = [words, [launch["target"], model]] if "target" in launch else [[*words, model]]
        speculation: Options = {} if baseline else self._speculation()
        self._serve()
        found.command += [list(one) for one in launch.get("always", [])]
        self._written(speculation)
        for name, value in (self.profile.get("environment") or {}).items():
            self._lacks(f"{name}={value}", "a variable of the other engine")
        return found

    def _lacks(self, what: str, why: str) -> None:
        self.found.missing.append((what, why))

    def _model(self, key: str, kind: str, role: str) -> str:
        """Return how a model is named; say so where the engine cannot load it."""
        model, engine = self.house.models.get(key), self.ours["name"]
        if model is None:
            self._lacks(key, f"{role} is not in the catalogue: not checked whether {engine} loads it")
            return key
        hub = model["source"].get("hub")
        name = hub["repo"] if hub else model["name"]
        if not loads(self.ours, model):
            what = f"in the format {model['format']}"
            if model["format"] in self.ours["formats"]:
                what = f"in the layout of {model.get('layout')}"
            method = model.get("head_method")
            models = self.house.models
            close = [one for one in models if method and made_for(models[one], self.target, method)]
            close = close or nearest_models(self.house, name, kind, self.ours["formats"])
            named = ", ".join(one for one in close if loads(self.ours, models[one]))
            hint = f"; the catalogue has: {named}" if named else ""
            self._lacks(name, f"{role} is {what}, which {engine} does not load{hint}")
        return name

    # --- settings of the server ---------------------------------------------------------------------------

    def _serve(self) -> None:
        roles = {self.theirs[role]: self.ours.get(role) for role in _ROLES if role in self.theirs}
        for key, value in (self.profile.get("serve") or {}).items():
            if key == "extra":
                for words in _flags(value if isinstance(value, list) else []):
                    self._lacks(words, "passed to the other engine unchanged")
                continue
            own = roles.get(key, key)
            option, before = self.ours["options"].get(own or ""), self.theirs["options"][key]
            word = " ".join(flag(before["flag"], value)) if "flag" in before else _said(before.get("yaml", key), value)
            if option is None or (key not in roles and option["type"] != before["type"]):
                self._lacks(word, "no such setting")
            elif str(value) in before.get("means", {}) or not self._has(option, value):
                self._lacks(word, f"{own} takes other values there")
            else:
                self._put(option, value)
                self._check_role(key, word, own)

    def _check_role(self, key: str, word: str, own: str | None) -> None:
        """Say where a setting that was taken over does not mean the same."""
        theirs, ours = self.theirs, self.ours
        if key == theirs.get("share_option") and theirs["reserves"] != ours["reserves"]:
            self._lacks(word, f"taken as {own}, which is a share of a different amount")
        if key == theirs["context_option"] and theirs["context_is_shared"] != ours["context_is_shared"]:
            self._lacks(word, f"taken as {own}: one of the engines divides it among the sequences")

    def _has(self, option: Option | MethodOption, value: object) -> bool:
        """Tell whether the version knows the option, and its word: each engine has its own names of parsers."""
        choices = option.get("choices", {})
        named = option.get("flag") if "flag" in option else ""
        words = isinstance(value, str) and (bool(choices) or str(named).endswith("-parser"))
        return known(self.version, option) and (not words or value in choices)

    def _put(self, option: Option, value: object) -> None:
        if "flag" in option:
            self.found.command.append(flag(spelled(self.version, option["flag"], option.get("spelled", ())), value))
        elif "yaml" in option:
            self.config[option["yaml"]] = value
        elif "environment" in option:
            self.found.environment.append(f"{option['environment']}={1 if value is True else value}")

    # --- speculation --------------------------------------------------------------------------------------

    def _speculation(self) -> Options:
        spec = self.profile["speculation"]
        before = self.theirs["methods"].get(spec["method"])
        draft = self.house.models.get(spec.get("draft", ""))
        kind = draft_kind(before, draft) if before else None
        key = self._method(spec["method"], before, kind)
        if key is None or before is None:
            self._without(spec, before)
            return {}
        method, tokens = self.ours["methods"][key], spec["num_speculative_tokens"]
        most = most_tokens(draft, None)
        if most is not None and tokens > most:
            self._lacks(f"K={tokens}", f"the draft proposes at most {most}")
        name = self._model(spec["draft"], draft["kind"] if draft else "model", "the draft") if "draft" in spec else ""
        words = words_of(key, method, self.version, name, tokens)
        options, had = method.get("options", {}), before.get("options", {})
        for own, value in (spec.get("options") or {}).items():
            option = options.get(own)
            if option and option["type"] == had[own]["type"] and self._has(option, value):
                words[spelled(self.version, option["name"], option.get("spelled", ()))] = value
            else:
                self._lacks(_said(had[own]["name"] if own in had else own, value), f"no such setting of {key}")
        required = method.get("requires")
        if required:
            self.found.environment += [f"{one}={value}" for one, value in required.get("environment", {}).items()]
            for one, value in required.get("serve", {}).items():
                self._put(self.ours["options"][one], value)
        return words

    def _without(self, spec: Speculation, before: Method | None) -> None:
        """Name a speculation that has no equivalent, with all that was said of it."""
        self._lacks(f"speculation by {spec['method']}", "no method there uses such a draft: this command has none")
        had = before.get("options", {}) if before else {}
        said = [_said(had[key]["name"] if key in had else key, value) for key, value in spec.get("options", {}).items()]
        if draft := spec.get("draft", ""):
            said.append(self.house.models[draft]["name"] if draft in self.house.models else draft)
        for words in said:
            self._lacks(words, "of that speculation")

    def _method(self, own: str, before: Method | None, kind: DraftKind | None) -> str | None:
        """Return the method that drafts with the same: a lookup of the same name or any, else the same kind of head."""
        if before is None or kind is None:
            return None
        fitting = []
        for key, method in self.ours["methods"].items():
            able = method["draft"] == kind or (kind == "head" and method.get("or_head", False))
            same = kind in ("lookup", "model") or head_kind(key, method) == head_kind(own, before)
            if able and same and known(self.version, method):
                fitting.append(key)
        return next((key for key in fitting if key == own), next(iter(fitting), None))

    # --- what comes out -----------------------------------------------------------------------------------

    def _written(self, words: Options) -> None:
        """Put the speculation, and what stands in a file, where the engine reads it."""
        form, found = self.ours["speculation"], self.found
        if words and form["form"] == "json":
            found.command.append([form["flag"], compact_json(words)])
        elif words and form["form"] == "flags":
            found.command += [flag(name, value) for name, value in words.items()]
        elif words:
            self.config |= {f"{form['key']}.{name}": value for name, value in words.items()}
        config = self.ours["launch"].get("config")
        if config and self.config:
            name = config["files"]["speculative" if words else "baseline"]
            found.command.append([config["flag"], name])
            found.files[name] = yaml.safe_dump(nested(self.config), sort_keys=False)


def _said(name: str, value: object) -> str:
    """Return a setting as one reads it; a switch that is on stands alone."""
    return name if value is True else f"{name} {value}"


def _flags(words: list[str]) -> Iterator[str]:
    """Yield the flags of a list of words, each with its values."""
    held: list[str] = []
    for word in map(str, words):
        if word.startswith("-") and held:
            yield " ".join(held)
            held = []
        held.append(word)
    if held:
        yield " ".join(held)
