"""Make a profile for a target model: choose method, draft, draft tokens per step and context, with reasons. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from ..core.errors import DrafthouseError, did_you_mean, one_problem
from ..profiles.draft_compat import usual_tokens
from ..profiles.expected_speed import expected_words
from ..profiles.heads import builtin_head, method_for_head
from ..profiles.model_names import find_model
from ..profiles.resolver import resolve
from .fits import drafts_for, published, split_over
from .local_entries import yaml_file

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import DraftKind, EngineEntry
    from drafthouse.profiles.catalog import Catalog
    from drafthouse.profiles.catalog_types import ModelEntry
    from drafthouse.profiles.profile_types import Expectation, Profile, Speculation, Unchecked
    from drafthouse.profiles.resolved_types import ResolvedProfile

#: Contexts in tokens, tried from the longest; the first one that fits is used.
CONTEXTS = (32768, 16384, 8192, 4096, 2048)


@dataclass(frozen=True)
class Wish:
    """What the user asked for, by names of the catalogue; None: to be chosen."""

    target: str
    hardware: str
    engine: str
    method: str | None = None
    draft: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class NewProfile:
    """A profile with its name, and a sentence of reason for each chosen value."""

    name: str
    profile: Profile
    why: tuple[str, ...]

    def text(self) -> str:
        """The text of the profile's file."""
        origin = "By `drafthouse new`. Change what you like: a run measures it again."
        return yaml_file([origin, *self.why], dict(self.profile))


def new_profile(wish: Wish, catalog: Catalog, site: Unchecked, suites: Mapping[str, Sequence[str]]) -> NewProfile:
    """The first choice of method, draft and context that resolves; an existing profile that matches goes first.

    ``site``: the inventory's settings; ``suites``: kinds by suite. Raises DrafthouseError with the last one's problems.
    """
    engine = catalog.engines[wish.engine]
    if shipped := _shipped(wish, catalog):
        new = _copy(shipped, wish, catalog)
        with suppress(DrafthouseError):  # the user's own entry may have changed the model
            _resolved(new, catalog, site, suites)
            return new
    refused: DrafthouseError | None = None
    model_context = catalog.models[wish.target]["context"]
    contexts = [size for size in CONTEXTS if size <= model_context] or [model_context]
    for method, draft, reason in _choices(wish, catalog, engine):
        for context in contexts:
            new = _profile(replace(wish, method=method, draft=draft), catalog, engine, context, reason)
            try:
                resolved = _resolved(new, catalog, site, suites)
            except DrafthouseError as error:
                refused = _problems_of_unwritten(error, new.name)
                # A shorter context helps against too little memory only.
                if not any(problem.code == "gpu-memory-too-small" for problem in error.problems):
                    break
                continue
            return _with_best_tokens(new, resolved, lambda other: _resolved(other, catalog, site, suites))
    assert refused  # there is at least one choice and one context
    raise refused


def _resolved(
    new: NewProfile, catalog: Catalog, site: Unchecked, suites: Mapping[str, Sequence[str]]
) -> ResolvedProfile:
    return resolve(replace(catalog, profiles={new.name: new.profile}, broken={}), new.name, site, suites)


def _with_best_tokens(
    new: NewProfile, resolved: ResolvedProfile, resolves: Callable[[NewProfile], ResolvedProfile]
) -> NewProfile:
    """The profile with the number of draft tokens that is expected to gain most, if it resolves with that."""
    best = resolved["expectation"]["best_tokens"]
    if best is None:
        return new
    speculation: Speculation = {**new.profile["speculation"], "num_speculative_tokens": best}
    profile: Profile = {**new.profile, "speculation": speculation}
    try:
        expected = resolves(replace(new, profile=profile))["expectation"]
    except DrafthouseError:
        return new
    why = f"num_speculative_tokens: {best}, expected to gain most: {expected_words(expected)}"
    return replace(new, profile=profile, why=(new.why[0], why, *new.why[2:]))  # the second is on the draft tokens


def _shipped(wish: Wish, catalog: Catalog) -> str | None:
    """The name of the existing profile that matches the wish, with the highest acceptance rate; None without one."""
    best, highest = None, -1.0
    for name, profile in catalog.profiles.items():
        if name in catalog.broken or (profile["hardware"], profile["engine"]) != (wish.hardware, wish.engine):
            continue
        speculation = profile["speculation"]
        matches = find_model(profile["target"], catalog.models) == wish.target
        matches = matches and wish.method in (None, speculation["method"])
        matches = matches and wish.draft in (None, find_model(speculation.get("draft", ""), catalog.models))
        acceptance_rate = profile.get("expect", {}).get("acceptance", 0.0)
        if matches and acceptance_rate > highest:
            best, highest = name, acceptance_rate
    return best


def _copy(shipped: str, wish: Wish, catalog: Catalog) -> NewProfile:
    """A copy of the profile ``shipped`` under another name."""
    profile = catalog.profiles[shipped]
    method = profile["speculation"]["method"]
    name = wish.name or _name(replace(wish, method=method))
    copied: Profile = {**profile, "title": f"{profile['title']} (from {shipped})", "verified": []}
    return NewProfile(
        name, copied, (f"{shipped} is for this model on this hardware: its values, and its reasons there",)
    )


def _problems_of_unwritten(error: DrafthouseError, name: str) -> DrafthouseError:
    """The error with "(not written)" instead of the profile's file, which does not exist."""
    file = f"profiles/{name}.yml"
    shown = f"{name} (not written)"
    return DrafthouseError([replace(problem, where=problem.where.replace(file, shown)) for problem in error.problems])


def _choices(wish: Wish, catalog: Catalog, engine: EngineEntry) -> Iterator[tuple[str, str | None, str]]:
    """Yield (method, draft, reason), best evidence first; draft None: the method needs none."""
    methods = engine["methods"]
    if wish.method is not None and wish.method not in methods:
        needed, do = f"a method of {engine['name']}", did_you_mean(wish.method, methods)
        raise one_problem("method-unsupported", f"--method {wish.method}", needed, do)
    has_draft = False
    for kind, draft, why in drafts_for(catalog, wish.target):
        name = _method_for(engine, catalog.models[draft], kind)
        if name is None or wish.method not in (None, name) or wish.draft not in (None, draft):
            continue
        has_draft = True
        if kind == "builtin":
            yield name, None, why
        else:
            yield name, draft, why
    if wish.draft and not has_draft:
        do = f"drafthouse drafts {wish.target} shows those that can"
        needed = f"a draft for '{wish.target}' that {engine['name']} can use"
        raise one_problem("draft-of-another-target", f"--draft {wish.draft}", needed, do)
    lookups = [key for key, entry in methods.items() if entry["draft"] == "lookup" and wish.method in (None, key)]
    if not wish.draft:
        for name in lookups:
            yield name, None, "a lookup in the text: no draft is needed"
    if not (has_draft or lookups):  # resolving it reports what is missing
        yield wish.method or next(iter(methods)), None, "the catalogue has no draft for it"


def _method_for(engine: EngineEntry, draft: ModelEntry, kind: DraftKind) -> str | None:
    """The engine's method for a draft, None if it has none; for a built-in head ``draft`` is the target."""
    if kind == "builtin":
        return method_for_head(engine, draft["builtin_head"]["kind"], kind)
    if kind == "head":
        return method_for_head(engine, str(draft.get("head_method")), kind)
    if draft.get("head_method") in engine["methods"]:  # a draft model that was trained for a method
        return draft["head_method"]
    for name, method in engine["methods"].items():
        if method["draft"] == kind:
            return name
    return None


def _profile(wish: Wish, catalog: Catalog, engine: EngineEntry, context: int, reason: str) -> NewProfile:
    target = catalog.models[wish.target]
    hardware = catalog.hardware[wish.hardware]
    method = engine["methods"][str(wish.method)]
    speculation: dict[str, str | int] = {"method": str(wish.method)}
    drafted_by = str(wish.method)
    if wish.draft:
        speculation["draft"] = wish.draft
        drafted_by += f" with {wish.draft}"
        tokens = usual_tokens(method, catalog.models[wish.draft], builtin=None)
    else:
        tokens = usual_tokens(method, draft=None, builtin=builtin_head(target, str(wish.method), method))
    speculation["num_speculative_tokens"] = tokens
    serve = {engine["context_option"]: context}
    option = engine.get("devices_option")
    if option and hardware["devices"] > 1:
        serve[option] = split_over(target, engine, hardware)
    name = wish.name or _name(wish)
    profile = {
        "title": f"{target['name']} with {wish.method} in {engine['name']} on {hardware['name']}",
        "hardware": wish.hardware,
        "engine": wish.engine,
        "target": wish.target,
        "speculation": speculation,
        "serve": serve,
    }
    if expect := _published_with(wish, catalog):
        profile["expect"] = expect
    profile["experiment"] = {"suites": ["mixed", "gates"], "kinds": ["chat", "code"], "once": ["gates"], "rounds": 2}
    profile["verified"] = []
    why = (
        f"method: {drafted_by}: {reason}",
        f"num_speculative_tokens: {tokens}; `make tune PROFILE={name}` finds the best number on your box",
        f"{engine['context_option']}: the longest of {', '.join(map(str, CONTEXTS))} that fits both arms",
    )
    return NewProfile(name, cast("Profile", profile), why)


def _published_with(wish: Wish, catalog: Catalog) -> Expectation | None:
    """The highest published acceptance of the target with the wished draft, or with the method if it needs none."""
    expectations: list[Expectation] = []
    for profile in published(catalog, wish.target):
        speculation = profile["speculation"]
        matches = find_model(speculation.get("draft", ""), catalog.models) == wish.draft
        if matches and (wish.draft or speculation["method"] == wish.method):
            expectations.append(profile["expect"])
    return max(expectations, key=lambda expect: expect["acceptance"], default=None)


def _name(wish: Wish) -> str:
    method = re.sub(r"[^a-z0-9]+", "", str(wish.method).lower())
    return f"{wish.hardware}-{wish.target}-{method}"
