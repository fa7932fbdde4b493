"""List what the tuner may try for a profile: methods, drafts, draft lengths (K) and tunable options.

A family is a method with its draft; its candidates differ in K. The kinds of draft are a lookup in the text, a separate
model, a head (a draft model that reads the target's hidden states), and a head that is built into the target. Each
candidate is resolved like a profile before it is listed. A candidate that the engine version refuses, or that does not
fit in memory, is left out with the resolver's reason and never started.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..core.errors import DrafthouseError, did_you_mean
from ..core.schema import Findings
from ..profiles.catalog import Catalog
from ..profiles.draft_compat import may_draft, most_tokens
from ..profiles.heads import builtin_head, draft_kind, head_kind, made_for
from ..profiles.overrides import laid_over, with_overrides
from ..profiles.resolver import resolve
from .types import Family, at_path

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import DraftKind, Method
    from drafthouse.profiles.profile_types import Tunable, Unchecked
    from drafthouse.profiles.resolved_types import ResolvedProfile

#: Largest K to try where neither profile nor draft limits it. Drafting more costs more than it can gain.
MOST_TOKENS: Final[Mapping[DraftKind, int]] = {"lookup": 32, "model": 16, "head": 8, "builtin": 8}
# First K of a method whose kind of draft differs from the profile's, so that the profile's K is no guide.
_FIRST_TOKENS: Final[Mapping[DraftKind, int]] = {"lookup": 8, "model": 4, "head": 3, "builtin": 3}


@dataclass(frozen=True)
class CatalogueSpace:
    """The parts of a `types.Space` that follow from profile and catalogue; the fields mean the same."""

    families: tuple[Family, ...]
    options: tuple[tuple[str, tuple[Any, ...]], ...]
    left_out: tuple[tuple[str, str], ...]
    load: int


def catalogue_space(
    catalog: Catalog,
    name: str,
    site: Unchecked,
    suites: Mapping[str, Sequence[str]],
    overrides: Unchecked | None = None,
) -> CatalogueSpace:
    """Return what may be tried for profile ``name``, from the catalogue ``catalog``; arguments as for `resolve`.

    Raises DrafthouseError if the profile does not resolve or its key `tunable` is wrong.
    """
    resolved = resolve(catalog, name, site, suites, overrides)
    builder = _SpaceBuilder(
        catalog=catalog, name=name, site=site, suites=suites, base=overrides or {}, resolved=resolved
    )
    return builder.build()


@dataclass
class _SpaceBuilder:
    """Builds the `CatalogueSpace` of a profile."""

    catalog: Catalog  # the catalogue
    name: str  # the profile's name
    site: Unchecked  # as for `resolve`
    suites: Mapping[str, Sequence[str]]  # as for `resolve`
    base: Unchecked  # the user's changes to the profile
    resolved: ResolvedProfile  # the profile with these changes

    def build(self) -> CatalogueSpace:
        """The space. Raises DrafthouseError if the key `tunable` is wrong."""
        self.profile = with_overrides(self.catalog.profiles[self.name], self.base)
        self.engine = self.catalog.engines[self.profile["engine"]]
        self.spec = self.profile["speculation"]
        self.tunable: Tunable = self.profile.get("tunable", {})
        self._check_tunable()
        families: list[Family] = []
        left_out: list[tuple[str, str]] = []
        for method, draft in self._methods_and_drafts():
            family, reason = self._family(method, draft)
            if family:
                families.append(family)
            else:
                left_out.append((_label(method, draft), reason))
        return CatalogueSpace(
            tuple(families), self._tunable_options(), tuple(left_out), int(self.tunable.get("load", 0))
        )

    # --- methods and drafts -----------------------------------------------------------------------

    def _methods_and_drafts(self) -> list[tuple[str, str | None]]:
        """Method and draft of each family: the profile's, then those without a draft to fetch, then the others."""
        original = self._original_pair()
        allowed_methods = self.tunable.get("methods")
        pairs: list[tuple[str, str | None]] = []
        for method, entry in self.engine["methods"].items():
            if allowed_methods is not None and method not in allowed_methods:
                continue
            for draft in self._drafts_of(method, entry):
                if (method, draft) != original:
                    pairs.append((method, draft))
        pairs.sort(key=lambda pair: (pair[1] is not None, pair[0] != original[0]))
        return [original, *pairs]

    def _original_pair(self) -> tuple[str, str | None]:
        """The profile's method and the catalogue id of its draft (a profile may name a repository)."""
        draft = self.resolved["draft"]
        return self.spec["method"], draft["id"] if draft else None

    def _drafts_of(self, method: str, entry: Method) -> list[str | None]:
        """Catalogue ids of the drafts of a method for this target; None: a lookup or a head in the target."""
        target = self.resolved["target"]
        kind = entry["draft"]
        if kind == "lookup":
            return [None]
        drafts: list[str | None] = []
        if builtin_head(target, method, entry):
            drafts.append(None)
        if kind == "builtin" and not entry.get("or_head"):
            return drafts
        allowed_drafts = self.tunable.get("drafts")
        kind_of_head = head_kind(method, entry)
        for key, model in self.catalog.models.items():
            if allowed_drafts is not None and key not in allowed_drafts:
                continue
            if may_draft(model, target) if kind == "model" else made_for(model, target["id"], kind_of_head):
                drafts.append(key)
        return drafts

    def _family(self, method: str, draft: str | None) -> tuple[Family | None, str]:
        """The family with all K that resolve, and ""; or None and the reason why the smallest K is refused."""
        is_original = (method, draft) == self._original_pair()
        overrides = self.base
        if not is_original:
            # None removes a key: the options of the profile's method do not fit another method.
            overrides = laid_over(self.base, {"speculation": {"method": method, "draft": draft, "options": None}})
        tokens, first = self._tokens_to_try(method, draft, is_original=is_original)
        accepted = []  # the K that resolve
        reason = ""  # of the smallest K that does not
        for k in tokens:
            refusal = self._refusal(laid_over(overrides, {"speculation": {"num_speculative_tokens": k}}))
            if refusal:
                reason = reason or refusal
            else:
                accepted.append(k)
        if not accepted:
            return None, reason
        first = min(accepted, key=lambda k: (abs(k - first), k))  # the nearest that resolves
        # The expected best K follows from an acceptance rate that the profile assumes for its draft only.
        peak = self.resolved["expectation"]["best_tokens"] if is_original else None
        family = Family(_label(method, draft), tokens=tuple(accepted), first=first, overrides=overrides, peak=peak)
        return family, ""

    def _tokens_to_try(self, method: str, draft: str | None, *, is_original: bool) -> tuple[list[int], int]:
        """The K that may be tried, ascending, and the K to try first, which need not be one of them.

        The first is the profile's K for the profile's own family and for the same kind of draft. A method that uses all
        heads of its draft has one K.
        """
        entry = self.engine["methods"][method]
        model = self.catalog.models[draft] if draft else None
        kind = draft_kind(entry, model)
        builtin = None if draft else builtin_head(self.resolved["target"], method, entry)
        largest_k = most_tokens(model, builtin)
        original_k = int(self.spec["num_speculative_tokens"])
        same_kind = self.resolved["method"]["kind"] == kind
        first = _FIRST_TOKENS[kind]
        if is_original or same_kind:
            first = original_k
        if largest_k is not None and entry.get("all_heads"):
            return [largest_k], largest_k
        allowed = set(self.tunable.get("num_speculative_tokens") or range(1, MOST_TOKENS[kind] + 1))
        if is_original:
            allowed.add(original_k)  # it is measured whatever `tunable` allows
        return sorted(k for k in allowed if largest_k is None or k <= largest_k), first

    def _refusal(self, overrides: Unchecked) -> str:
        """The first reason why the resolver refuses the profile with ``overrides``; "" if it resolves."""
        try:
            resolve(self.catalog, self.name, self.site, self.suites, overrides)
        except DrafthouseError as error:
            problem = error.problems[0]
            return f"{problem.found} (needed: {problem.needed})"
        return ""

    # --- the profile's key `tunable` -------------------------------------------------------------------

    def _check_tunable(self) -> None:
        """Raise DrafthouseError for all unknown names in `tunable`, or else for all values that do not resolve."""
        findings = Findings(self.catalog.file(self.name))
        method = self.engine["methods"][self.spec["method"]]
        tunable = self.tunable
        references: list[tuple[str, str, Collection[str]]] = []
        for key in tunable.get("serve", {}):
            references.append((f"serve.{key}", key, self.engine["options"]))
        for key in tunable.get("options", {}):
            references.append((f"options.{key}", key, method.get("options", {})))
        for index, key in enumerate(tunable.get("methods", [])):
            references.append((f"methods[{index}]", key, self.engine["methods"]))
        for index, key in enumerate(tunable.get("drafts", [])):
            references.append((f"drafts[{index}]", key, self.catalog.models))
        for path, key, valid_keys in references:
            if key not in valid_keys:
                findings.add(
                    "unknown-value",
                    f"tunable.{path}",
                    f"'{key}'",
                    f"one of: {', '.join(sorted(valid_keys))}",
                    did_you_mean(key, valid_keys),
                )
        concurrency = int(self.resolved["experiment"]["concurrency"])
        if 0 < tunable.get("load", 0) <= concurrency:
            findings.add(
                "unknown-value",
                "tunable.load",
                f"{tunable['load']} concurrent requests",
                f"more than the {concurrency} of experiment.concurrency, at which every candidate is measured",
                "raise it, or remove it",
            )
        if not findings.problems:
            for path, values in self._tunable_options():
                for value in values:
                    refusal = self._refusal(laid_over(self.base, at_path(path, value)))
                    if refusal:
                        findings.add(
                            "tunable-value-refused",
                            f"tunable: {path}",
                            refusal,
                            "a value that the profile accepts",
                            "correct it",
                        )
        if findings.problems:
            raise DrafthouseError(findings.problems)

    def _tunable_options(self) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        """Path and values to try of each tunable option, without the value that the profile already has."""
        sections = [
            ("serve", self.tunable.get("serve", {}), self.profile.get("serve", {})),
            ("speculation.options", self.tunable.get("options", {}), self.spec.get("options", {})),
        ]
        options = []
        for path, values_by_key, current in sections:
            for key, values in values_by_key.items():
                new_values = tuple(value for value in values if value != current.get(key))
                if new_values:
                    options.append((f"{path}.{key}", new_values))
        return tuple(options)


def _label(method: str, draft: str | None) -> str:
    """The id of a family: its method, and its draft if it has one."""
    return f"{method} {draft}" if draft else method
