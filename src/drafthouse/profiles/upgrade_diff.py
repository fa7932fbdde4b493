"""An upgrade of an engine: what changes between the two versions, and which of them to keep.

No function here reads a file or calls a program. The catalogue (which version has which option, and its spelling) shows
what could matter to a profile. The two rendered profiles show what does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.table import table
from ..core.versions import spelled, supports
from .started import settings_of

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, Method, Spelling, Versioned
    from drafthouse.profiles.profile_types import Profile, Speculation
    from drafthouse.profiles.resolved_types import ResolvedEngine, ResolvedProfile

#: Which version to keep.
NEW, OLD = "new", "old"
#: What stands in a table for something that a version does not have.
NOTHING = "-"
# A result that is worse by more than this fraction is a regression.
THRESHOLD = 0.05


@dataclass(frozen=True)
class Change:
    """A difference between the versions."""

    what: str  # name of the option, method or setting
    old: str  # its spelling or value in the old version; NOTHING if that does not have it
    new: str  # the same of the new version
    used: bool = True  # by the profile
    why: str = ""  # the catalogue's reason; '' if it has none


@dataclass(frozen=True)
class Entry:
    """An option, choice, method or setting in the catalogue: the versions that have it, and how they spell it."""

    what: str  # its name, for the table
    bounds: Versioned  # the versions that have it
    word: str  # its spelling where ``spellings`` has no other
    spellings: Sequence[Spelling] = ()  # other spellings, by versions
    used: bool = False  # by the profile
    reason: str = ""  # why some versions lack it; '' if the catalogue does not say

    def at(self, version: str) -> str:
        """The spelling in ``version``; NOTHING if that version does not have it."""
        if not supports(version, self.bounds):
            return NOTHING
        return spelled(version, self.word, self.spellings) or NOTHING


# --- in the catalogue ---------------------------------------------------------------------------


def catalogue_changes(engine: EngineEntry, profile: Profile, old: str, new: str) -> list[Change]:
    """The differences between two versions in the engine's entry; those that ``profile`` uses come first."""
    changes = []
    for entry in _entries(engine, profile):
        before = entry.at(old)
        after = entry.at(new)
        if before != after:
            changes.append(Change(entry.what, before, after, entry.used, entry.reason))
    return sorted(changes, key=lambda change: not change.used)


def _entries(engine: EngineEntry, profile: Profile) -> Iterator[Entry]:
    """Yield all that an engine's entry limits to versions: options, choices, methods and settings always given."""
    serve = profile.get("serve") or {}
    speculation = profile["speculation"]
    for key, option in engine["options"].items():
        default_name = option.get("flag") or option.get("yaml") or option.get("environment") or key
        yield Entry(key, option, str(default_name), option.get("spelled", ()), used=key in serve)
        for value, choice in (option.get("choices") or {}).items():
            is_chosen = serve.get(key) == value
            yield Entry(f"{key}: {value}", choice, str(value), choice.get("spelled", ()), used=is_chosen)
    for name, method in engine["methods"].items():
        yield from _method_entries(name, method, speculation)
    always = engine["launch"].get("config", {}).get("always", {})
    for key, entry in always.items():
        yield Entry(f"always {key}", entry, f"{key}: {json.dumps(entry['value'])}", used=True)


def _method_entries(name: str, method: Method, speculation: Speculation) -> Iterator[Entry]:
    """Yield a method, the names of its draft and K, and its options; the profile may use another method."""
    is_used = name == speculation["method"]
    spelled_names = method.get("spelled") or {}
    reason = method.get("reason", "")
    word = method.get("value", name)
    yield Entry(f"method {name}", method, word, spelled_names.get("value", ()), used=is_used, reason=reason)
    for key, default_name in method["names"].items():
        spellings = spelled_names.get(key, ())
        yield Entry(f"{name}: {key}", method, default_name, spellings, used=is_used, reason=reason)
    for key, setting in (method.get("options") or {}).items():
        yield Entry(
            f"{name}: {key}",
            _bounds(setting, method),
            setting["name"],
            setting.get("spelled", ()),
            used=is_used and key in (speculation.get("options") or {}),
            reason=setting.get("reason", ""),
        )


def _bounds(entry: Versioned, above: Versioned) -> Versioned:
    """The version bounds of an entry; those that it lacks are of the entry ``above`` it."""
    bounds: Versioned = {}
    if since := entry.get("since") or above.get("since"):
        bounds["since"] = since
    if until := entry.get("until") or above.get("until"):
        bounds["until"] = until
    if gap := entry.get("except") or above.get("except"):
        bounds["except"] = gap
    return bounds


# --- as rendered --------------------------------------------------------------------------------


def rendered_changes(old: ResolvedProfile, new: ResolvedProfile) -> list[Change]:
    """The differences between two resolved profiles on the box: engine, then commands, environment, configuration.

    A change of only some arms names the first of them. Arms that only one of the profiles has are left out.
    """
    # A change that both arms have is listed once.
    arms_by_change: dict[tuple[str, str, str], list[str]] = {}
    for arm in new["arms"]:
        if arm in old["arms"]:
            for change in _differences(settings_of(old["arms"][arm]), settings_of(new["arms"][arm])):
                arms_by_change.setdefault(change, []).append(arm)
    changes = []
    for setting, before, after in _differences(_engine_parts(old["engine"]), _engine_parts(new["engine"])):
        changes.append(Change(setting, before, after))
    for (setting, before, after), arms in arms_by_change.items():
        name = f"{arms[0]}: {setting}"
        if len(arms) > 1:
            name = setting
        changes.append(Change(name, before, after))
    return changes


def _engine_parts(engine: ResolvedEngine) -> dict[str, str]:
    """The parts of an engine that an upgrade may change: version, plugin, image and packages."""
    packages = NOTHING
    if install := engine["install"]:
        packages = ", ".join(install["python_packages"]) or NOTHING
    return {
        "version": engine["version"],
        "plugin": engine["plugin"] or NOTHING,
        "image": engine["image"] or NOTHING,
        "packages": packages,
    }


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield name, old value and new value (NOTHING if missing) of each difference."""
    for name in dict.fromkeys([*old, *new]):  # each name once, the old ones first
        before = old.get(name, NOTHING)
        after = new.get(name, NOTHING)
        if before != after:
            yield name, before, after


def changes_text(engine: str, old: str, new: str, rendered: Sequence[Change], catalogue: Sequence[Change]) -> str:
    """The changes on the box and those in the catalogue as two tables; ``old`` and ``new`` are versions."""
    head = ["what", old, new]
    parts = [f"{engine} {old} -> {new}"]
    for title, changes, empty in (
        ("What changes on the box", rendered, "nothing but the version"),
        (
            "Differences between the versions (* in use by this profile)",
            catalogue,
            "none known to the catalogue",
        ),
    ):
        rows = []
        for change in changes:
            mark = ""
            if change.used and changes is catalogue:
                mark = "* "
            rows.append([f"{mark}{change.what}", change.old, _with_why(change)])
        parts.append(f"{title}\n{table(head, rows) if rows else empty}")
    return "\n\n".join(parts)


def _with_why(change: Change) -> str:
    """The new value, with the catalogue's reason in parentheses if there is one."""
    return f"{change.new} ({change.why})" if change.why else change.new


# --- which version to keep --------------------------------------------------------------------------


@dataclass(frozen=True)
class Decision:
    """The version to keep, and why."""

    keep: str  # NEW or OLD
    why: tuple[str, ...]  # reasons, as text for people
    judged: bool = True  # False if the measurements cannot tell which is better


def decide(comparison: Mapping[str, Any], subject: str = "version") -> Decision:
    """The version to keep, from the comparison of a report of the old version (A) and one of the new (B).

    The old version is kept, in this order: if the two cannot be compared; if the new one is clearly worse; if a result
    of the old one cannot be judged in the new one; if nothing has enough prompts to be judged. Otherwise the new
    version is kept, also without a measurable difference. ``subject``: the word for "version" in the reasons.
    """
    for reasons, summary, judged in (
        (comparison["against"], "the two cannot be compared", False),
        (comparison["regressions"], f"the new {subject} is worse", True),
        (comparison["unjudged"], f"a result of the old {subject} cannot be judged in the new one", False),
    ):
        if reasons:
            return Decision(OLD, tuple(f"{summary}: {reason}" for reason in reasons), judged)
    if not comparison["judged"]:
        return Decision(OLD, ("no kind of work has enough prompts in both reports to be judged",), judged=False)
    better = [row for row in comparison["rows"] if row["declared"] and row["word"] == "faster"]
    reason = f"faster in {len(better)} of {comparison['judged']} measures" if better else "no measurable difference"
    return Decision(NEW, (reason,))
