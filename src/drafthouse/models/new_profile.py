"""A profile for a model that somebody names: method, draft, K and context are chosen, and each says why. Pure."""

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
    from drafthouse.profiles.catalog import House
    from drafthouse.profiles.catalog_types import ModelEntry
    from drafthouse.profiles.profile_types import Expectation, Profile, Speculation, Unchecked
    from drafthouse.profiles.resolved_types import ResolvedProfile

#: Contexts that are tried, the longest that fits is taken; a longer one is seldom needed and takes memory from nobody.
CONTEXTS = (32768, 16384, 8192, 4096, 2048)


@dataclass(frozen=True)
class Wish:
    """What a person asked for: names of the catalogue, None where it is to be chosen."""

    target: str
    hardware: str
    engine: str
    method: str | None = None
    draft: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class NewProfile:
    """A profile that resolves, its name, and why each value that nobody asked for is as it is."""

    name: str
    profile: Profile
    why: tuple[str, ...]

    def text(self) -> str:
        """The profile's file."""
        by = "By `drafthouse new`. Change what you like: a run measures it again."
        return yaml_file([by, *self.why], dict(self.profile))


def new_profile(wish: Wish, house: House, site: Unchecked, suites: Mapping[str, Sequence[str]]) -> NewProfile:
    """The first choice that resolves on ``site``. Raises DrafthouseError with the last one's problems."""
    engine = house.engines[wish.engine]
    if shipped := _shipped(wish, house):
        made = _copy(shipped, wish, house)
        with suppress(DrafthouseError):  # an entry of the user's own may have changed the model
            _resolved(made, house, site, suites)
            return made
    refused: DrafthouseError | None = None
    own = house.models[wish.target]["context"]
    contexts = [size for size in CONTEXTS if size <= own] or [own]
    for method, draft, reason in _choices(wish, house, engine):
        for context in contexts:
            made = _profile(replace(wish, method=method, draft=draft), house, engine, context, reason)
            try:
                resolved = _resolved(made, house, site, suites)
            except DrafthouseError as error:
                refused = _of_no_file(error, made.name)
                if not any(problem.code == "gpu-memory-too-small" for problem in error.problems):
                    break
                continue
            return _with_best_tokens(made, resolved, lambda other: _resolved(other, house, site, suites))
    assert refused  # there is a choice, and a context, for every wish
    raise refused


def _resolved(made: NewProfile, house: House, site: Unchecked, suites: Mapping[str, Sequence[str]]) -> ResolvedProfile:
    return resolve(replace(house, profiles={made.name: made.profile}, broken={}), made.name, site, suites)


def _with_best_tokens(
    made: NewProfile, resolved: ResolvedProfile, resolves: Callable[[NewProfile], ResolvedProfile]
) -> NewProfile:
    """The profile with the number of drafted tokens that its expectation says gains most, where that resolves too."""
    best = resolved["expectation"]["best_tokens"]
    if best is None:
        return made
    speculation: Speculation = {**made.profile["speculation"], "num_speculative_tokens": best}
    profile: Profile = {**made.profile, "speculation": speculation}
    try:
        expected = resolves(replace(made, profile=profile))["expectation"]
    except DrafthouseError:
        return made
    why = f"num_speculative_tokens: {best}, expected to gain most: {expected_words(expected)}"
    return replace(made, profile=profile, why=(made.why[0], why, *made.why[2:]))


def _shipped(wish: Wish, house: House) -> str | None:
    """The profile that is there for the same model, card and engine, and for the method and draft where one is named.

    Of several the one whose acceptance somebody published, with the highest.
    """
    best, highest = None, -1.0
    for name, profile in house.profiles.items():
        if name in house.broken or (profile["hardware"], profile["engine"]) != (wish.hardware, wish.engine):
            continue
        speculation = profile["speculation"]
        alike = find_model(profile["target"], house.models) == wish.target
        alike = alike and wish.method in (None, speculation["method"])
        alike = alike and wish.draft in (None, find_model(speculation.get("draft", ""), house.models))
        acceptance = profile.get("expect", {}).get("acceptance", 0.0)
        if alike and acceptance > highest:
            best, highest = name, acceptance
    return best


def _copy(shipped: str, wish: Wish, house: House) -> NewProfile:
    """A profile with the values of one that is there."""
    profile = house.profiles[shipped]
    method = profile["speculation"]["method"]
    name = wish.name or _name(replace(wish, method=method))
    copied: Profile = {**profile, "title": f"{profile['title']} (from {shipped})", "verified": []}
    return NewProfile(
        name, copied, (f"{shipped} is for this model on this hardware: its values, and its reasons there",)
    )


def _of_no_file(error: DrafthouseError, name: str) -> DrafthouseError:
    """The problems of a profile that is not written: no file is there to look at."""
    file, said = f"profiles/{name}.yml", f"{name} (not written)"
    return DrafthouseError([replace(one, where=one.where.replace(file, said)) for one in error.problems])


def _choices(wish: Wish, house: House, engine: EngineEntry) -> Iterator[tuple[str, str | None, str]]:
    """Yield methods with their drafts, best evidence first, and why each."""
    methods = engine["methods"]
    if wish.method is not None and wish.method not in methods:
        needed, do = f"a method of {engine['name']}", did_you_mean(wish.method, methods)
        raise one_problem("method-unsupported", f"--method {wish.method}", needed, do)
    found = False
    for kind, draft, why in drafts_for(house, wish.target):
        name = _method_for(engine, house.models[draft], kind)
        if name is None or wish.method not in (None, name) or wish.draft not in (None, draft):
            continue
        found = True
        if kind == "builtin":
            yield name, None, why
        else:
            yield name, draft, why
    if wish.draft and not found:
        do = f"drafthouse drafts {wish.target} shows those that can"
        needed = f"a draft for '{wish.target}' that {engine['name']} can use"
        raise one_problem("draft-of-another-target", f"--draft {wish.draft}", needed, do)
    lookups = [key for key, one in methods.items() if one["draft"] == "lookup" and wish.method in (None, key)]
    if not wish.draft:
        for name in lookups:
            yield name, None, "a lookup in the text: no draft is needed"
    if not (found or lookups):  # the plan says what it lacks
        yield wish.method or next(iter(methods)), None, "the catalogue has no draft for it"


def _method_for(engine: EngineEntry, draft: ModelEntry, kind: DraftKind) -> str | None:
    """The engine's method that drafts with this; ``draft`` is the target itself for the head inside it."""
    if kind == "builtin":
        return method_for_head(engine, draft["builtin_head"]["kind"], kind)
    if kind == "head":
        return method_for_head(engine, str(draft.get("head_method")), kind)
    for name, method in engine["methods"].items():
        if method["draft"] == kind:
            return name
    return None


def _profile(wish: Wish, house: House, engine: EngineEntry, context: int, reason: str) -> NewProfile:
    target, hardware = house.models[wish.target], house.hardware[wish.hardware]
    method = engine["methods"][str(wish.method)]
    speculation: dict[str, str | int] = {"method": str(wish.method)}
    drafted_by = str(wish.method)
    if wish.draft:
        speculation["draft"] = wish.draft
        drafted_by += f" with {wish.draft}"
        tokens = usual_tokens(method, house.models[wish.draft], None)
    else:
        tokens = usual_tokens(method, None, builtin_head(target, str(wish.method), method))
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
    if expect := _published_with(wish, house):
        profile["expect"] = expect
    profile["experiment"] = {"suites": ["mixed", "gates"], "kinds": ["chat", "code"], "once": ["gates"], "rounds": 2}
    profile["verified"] = []
    why = (
        f"method: {drafted_by}: {reason}",
        f"num_speculative_tokens: {tokens}; `make tune PROFILE={name}` finds the best number on your box",
        f"{engine['context_option']}: the longest of {', '.join(map(str, CONTEXTS))} that fits both arms",
    )
    return NewProfile(name, cast("Profile", profile), why)


def _published_with(wish: Wish, house: House) -> Expectation | None:
    """The highest acceptance that somebody published for this target with this draft, or this method without one."""
    found: list[Expectation] = []
    for profile in published(house, wish.target):
        speculation = profile["speculation"]
        alike = find_model(speculation.get("draft", ""), house.models) == wish.draft
        if alike and (wish.draft or speculation["method"] == wish.method):
            found.append(profile["expect"])
    return max(found, key=lambda one: one["acceptance"], default=None)


def _name(wish: Wish) -> str:
    method = re.sub(r"[^a-z0-9]+", "", str(wish.method).lower())
    return f"{wish.hardware}-{wish.target}-{method}"
