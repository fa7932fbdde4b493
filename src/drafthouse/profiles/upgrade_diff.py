"""An upgrade of an engine: what changes between the two versions, and which of them to keep. Pure.

The catalogue (which version has which option, and its spelling) shows what could matter to a profile. The two rendered
profiles show what does.
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
    from drafthouse.engines.entry_types import EngineEntry, Spelling, Versioned
    from drafthouse.profiles.profile_types import Profile
    from drafthouse.profiles.resolved_types import ResolvedEngine, ResolvedProfile

NEW, OLD = "new", "old"
NOTHING = "-"
# A result that is worse by more than this fraction is a regression.
THRESHOLD = 0.05


@dataclass(frozen=True)
class Change:
    """A difference between the versions; ``old`` or ``new`` is NOTHING if that version does not have it.

    ``used``: True if the profile uses it. ``why``: the catalogue's reason, '' if it has none.
    """

    what: str
    old: str
    new: str
    used: bool = True
    why: str = ""


@dataclass(frozen=True)
class Entry:
    """An option, choice, method or setting in the catalogue: the versions that have it, and how they spell it."""

    what: str
    bounds: Versioned
    word: str
    spellings: Sequence[Spelling] = ()
    used: bool = False
    reason: str = ""

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
        before, after = entry.at(old), entry.at(new)
        if before != after:
            changes.append(Change(entry.what, before, after, entry.used, entry.reason))
    return sorted(changes, key=lambda change: not change.used)


def _entries(engine: EngineEntry, profile: Profile) -> Iterator[Entry]:
    """Yield all that an engine's entry limits to versions; ``used`` if the profile has it."""
    serve, speculation = profile.get("serve") or {}, profile["speculation"]
    for key, option in engine["options"].items():
        default_name = option.get("flag") or option.get("yaml") or option.get("environment") or key
        yield Entry(key, option, str(default_name), option.get("spelled", ()), key in serve)
        for value, choice in (option.get("choices") or {}).items():
            used = serve.get(key) == value
            yield Entry(f"{key}: {value}", choice, str(value), choice.get("spelled", ()), used)
    for name, method in engine["methods"].items():
        used, spelled_names = name == speculation["method"], method.get("spelled") or {}
        reason = method.get("reason", "")
        yield Entry(f"method {name}", method, method.get("value", name), spelled_names.get("value", ()), used, reason)
        for key, default_name in method["names"].items():
            yield Entry(f"{name}: {key}", method, default_name, spelled_names.get(key, ()), used, reason)
        for key, setting in (method.get("options") or {}).items():
            is_set = used and key in (speculation.get("options") or {})
            spellings, reason = setting.get("spelled", ()), setting.get("reason", "")
            yield Entry(f"{name}: {key}", _bounds(setting, method), setting["name"], spellings, is_set, reason)
    always = engine["launch"].get("config", {}).get("always", {})
    for key, entry in always.items():
        yield Entry(f"always {key}", entry, f"{key}: {json.dumps(entry['value'])}", (), used=True)


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
    """The differences between two resolved profiles on the box: engine, commands, environment, configuration."""
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
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name, NOTHING), new.get(name, NOTHING)
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
    return f"{change.new} ({change.why})" if change.why else change.new


# --- which version to keep --------------------------------------------------------------------------


@dataclass(frozen=True)
class Decision:
    """The version to keep (NEW or OLD) and the reasons; ``judged`` is False if the measurements cannot tell."""

    keep: str
    why: tuple[str, ...]
    judged: bool = True


def decide(comparison: Mapping[str, Any], subject: str = "version") -> Decision:
    """Decide which version to keep, from the comparison of a report of the old version (A) and one of the new (B).

    The new version is kept unless it is clearly worse, or a result of the old version cannot be judged in the new one.
    Without a measurable difference it is kept, too. ``subject``: the word for "version" in the reasons.
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
