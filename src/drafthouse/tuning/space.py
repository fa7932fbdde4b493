"""What may be tried for a profile: methods and drafts of the catalogue for its target, K, and what it marks as tunable.

Every candidate is resolved like any profile, so that one that a version refuses or that does not fit the memory is
left out here, with the resolver's own reason, and never started.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..core.errors import DrafthouseError, did_you_mean
from ..core.schema import Findings
from ..profiles.catalog import House
from ..profiles.draft_compat import may_draft, most_tokens
from ..profiles.heads import builtin_head, draft_kind, head_kind, made_for
from ..profiles.overrides import changed, laid_over
from ..profiles.resolver import resolve
from .types import Family, at_path

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import DraftKind, Method
    from drafthouse.profiles.profile_types import Tunable, Unchecked
    from drafthouse.profiles.resolved_types import ResolvedProfile

#: The largest K that is tried where nothing else limits it: beyond it, drafting costs more than it can bring back.
MOST_TOKENS: Final[Mapping[DraftKind, int]] = {"lookup": 32, "model": 16, "head": 8, "builtin": 8}
# The K to begin with where the profile's own says nothing about such a method.
_FIRST_TOKENS: Final[Mapping[DraftKind, int]] = {"lookup": 8, "model": 4, "head": 3, "builtin": 3}


@dataclass(frozen=True)
class Reach:
    """The parts of a search space that the catalogue decides; see `types.Space`."""

    families: tuple[Family, ...]
    options: tuple[tuple[str, tuple[Any, ...]], ...]
    left_out: tuple[tuple[str, str], ...]


def reach(
    house: House,
    name: str,
    site: Unchecked,
    suites: Mapping[str, Sequence[str]],
    overrides: Unchecked | None = None,
) -> Reach:
    """All that may be tried for profile ``name``; arguments as for `resolve`.

    Raises DrafthouseError when the profile itself does not resolve, or its `tunable` names what there is not.
    """
    resolved = resolve(house, name, site, suites, overrides)
    return _Reach(house, name, site, suites, overrides or {}, resolved).run()


@dataclass
class _Reach:
    """One look at what may be tried."""

    house: House
    name: str
    site: Unchecked
    suites: Mapping[str, Sequence[str]]
    base: Unchecked
    resolved: ResolvedProfile

    def run(self) -> Reach:
        self.profile = changed(self.house.profiles[self.name], self.base)
        self.engine = self.house.engines[self.profile["engine"]]
        self.spec = self.profile["speculation"]
        self.tunable: Tunable = self.profile.get("tunable", {})
        self._check_tunable()
        families: list[Family] = []
        left_out: list[tuple[str, str]] = []
        for method, draft in self._pairs():
            family, why = self._family(method, draft)
            if family:
                families.append(family)
            else:
                left_out.append((_label(method, draft), why))
        return Reach(tuple(families), self._options(), tuple(left_out))

    # --- methods and drafts -----------------------------------------------------------------------

    def _pairs(self) -> list[tuple[str, str | None]]:
        """Method and draft of every family: the profile's own, then those that fetch nothing, then the rest."""
        own = self._own()
        wanted = self.tunable.get("methods")
        others: list[tuple[str, str | None]] = []
        for method, entry in self.engine["methods"].items():
            if wanted is not None and method not in wanted:
                continue
            for draft in self._drafts(method, entry):
                if (method, draft) != own:
                    others.append((method, draft))
        others.sort(key=lambda pair: (pair[1] is not None, pair[0] != own[0]))
        return [own, *others]

    def _own(self) -> tuple[str, str | None]:
        """The profile's own pair, in the catalogue's words: a profile may name a repository."""
        draft = self.resolved["draft"]
        return self.spec["method"], draft["id"] if draft else None

    def _drafts(self, method: str, entry: Method) -> list[str | None]:
        """The catalogue's drafts of a method for this target; None is a lookup, or a head inside the target."""
        target, kind = self.resolved["target"], entry["draft"]
        if kind == "lookup":
            return [None]
        found: list[str | None] = []
        if builtin_head(target, method, entry):
            found.append(None)
        if kind == "builtin" and not entry.get("or_head"):
            return found
        wanted, heads = self.tunable.get("drafts"), head_kind(method, entry)
        for key, model in self.house.models.items():
            if wanted is not None and key not in wanted:
                continue
            if may_draft(model, target) if kind == "model" else made_for(model, target["id"], heads):
                found.append(key)
        return found

    def _family(self, method: str, draft: str | None) -> tuple[Family | None, str]:
        """A family with every K that resolves; else None, and why the first one does not."""
        own = (method, draft) == self._own()
        overrides = self.base
        if not own:
            # A null takes the key away: the profile's own draft and options are another method's.
            overrides = laid_over(self.base, {"speculation": {"method": method, "draft": draft, "options": None}})
        tokens, first = self._tokens(method, draft, own)
        right, why = [], ""
        for number in tokens:
            problem = self._wrong(laid_over(overrides, {"speculation": {"num_speculative_tokens": number}}))
            if problem:
                why = why or problem
            else:
                right.append(number)
        if not right:
            return None, why
        first = min(right, key=lambda number: (abs(number - first), number))
        # The profile's acceptance is that of its own draft.
        peak = self.resolved["expectation"]["best_tokens"] if own else None
        return Family(_label(method, draft), tuple(right), first, overrides, peak), ""

    def _tokens(self, method: str, draft: str | None, own: bool) -> tuple[list[int], int]:
        """The K that may be tried, ascending, and the one to begin with."""
        entry = self.engine["methods"][method]
        model = self.house.models[draft] if draft else None
        kind = draft_kind(entry, model)
        builtin = None if draft else builtin_head(self.resolved["target"], method, entry)
        most = most_tokens(model, builtin)
        mine = int(self.spec["num_speculative_tokens"])
        alike = self.resolved["method"]["kind"] == kind
        first = _FIRST_TOKENS[kind]
        if own or alike:
            first = mine
        if most is not None and entry.get("all_heads"):
            return [most], most
        allowed = set(self.tunable.get("num_speculative_tokens") or range(1, MOST_TOKENS[kind] + 1))
        if own:
            allowed.add(mine)
        return sorted(number for number in allowed if most is None or number <= most), first

    def _wrong(self, overrides: Unchecked) -> str:
        """What keeps a candidate from being resolved, in one line; empty when nothing does."""
        try:
            resolve(self.house, self.name, self.site, self.suites, overrides)
        except DrafthouseError as error:
            problem = error.problems[0]
            return f"{problem.found} (needed: {problem.needed})"
        return ""

    # --- what the profile marks -------------------------------------------------------------------

    def _check_tunable(self) -> None:
        """Raise DrafthouseError with everything in `tunable` that names nothing, or a value that does not resolve."""
        findings = Findings(self.house.file(self.name))
        own = self.engine["methods"][self.spec["method"]]
        tunable = self.tunable
        named: list[tuple[str, str, Collection[str]]] = []
        for key in tunable.get("serve", {}):
            named.append((f"serve.{key}", key, self.engine["options"]))
        for key in tunable.get("options", {}):
            named.append((f"options.{key}", key, own.get("options", {})))
        for place, key in enumerate(tunable.get("methods", [])):
            named.append((f"methods[{place}]", key, self.engine["methods"]))
        for place, key in enumerate(tunable.get("drafts", [])):
            named.append((f"drafts[{place}]", key, self.house.models))
        for path, key, known in named:
            if key not in known:
                findings.add(
                    "unknown-value",
                    f"tunable.{path}",
                    f"'{key}'",
                    f"one of: {', '.join(sorted(known))}",
                    did_you_mean(key, known),
                )
        if not findings.problems:
            for path, values in self._options():
                for value in values:
                    problem = self._wrong(laid_over(self.base, at_path(path, value)))
                    if problem:
                        findings.add(
                            "tunable-value-refused",
                            f"tunable: {path}",
                            problem,
                            "a value that the profile accepts",
                            "correct it",
                        )
        if findings.problems:
            raise DrafthouseError(findings.problems)

    def _options(self) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        """The tunable options with the values that are not the profile's own."""
        places = [
            ("serve", self.tunable.get("serve", {}), self.profile.get("serve", {})),
            ("speculation.options", self.tunable.get("options", {}), self.spec.get("options", {})),
        ]
        found = []
        for path, tunable, own in places:
            for key, values in tunable.items():
                others = tuple(value for value in values if value != own.get(key))
                if others:
                    found.append((f"{path}.{key}", others))
        return tuple(found)


def _label(method: str, draft: str | None) -> str:
    return f"{method} {draft}" if draft else method
