"""From one version of an engine to another: what changes in the flags, and which of the two is kept. Pure.

What changes comes out of the catalogue (which version knows what, and how it spells it) and out of the two rendered
commands: the first says what could matter to a profile, the second what does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.table import table
from ..core.versions import known, spelled
from .started import settings_of

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, Spelling, Versioned
    from drafthouse.profiles.profile_types import Profile
    from drafthouse.profiles.resolved_types import ResolvedEngine, ResolvedProfile

NEW, OLD = "new", "old"
NOTHING = "-"
# Worse by more than this fraction is a regression.
THRESHOLD = 0.05


@dataclass(frozen=True)
class Change:
    """One thing that the versions have differently: in the words of the old and of the new one; NOTHING where none.

    ``used`` tells whether the profile says anything of it. ``why`` is the catalogue's reason, where it has one.
    """

    what: str
    old: str
    new: str
    used: bool = True
    why: str = ""


@dataclass(frozen=True)
class Entry:
    """A word of an engine in the catalogue: what it stands for, and since and until when which spelling holds."""

    what: str
    bounds: Versioned
    word: str
    spellings: Sequence[Spelling] = ()
    used: bool = False
    reason: str = ""

    def at(self, version: str) -> str:
        """The version's word for it; NOTHING where it has none."""
        if not known(version, self.bounds):
            return NOTHING
        return spelled(version, self.word, self.spellings) or NOTHING


# --- by the catalogue ---------------------------------------------------------------------------


def catalogue_changes(engine: EngineEntry, profile: Profile, old: str, new: str) -> list[Change]:
    """What an engine's entry says of two of its versions, what ``profile`` uses first."""
    found = []
    for entry in _entries(engine, profile):
        before, after = entry.at(old), entry.at(new)
        if before != after:
            found.append(Change(entry.what, before, after, entry.used, entry.reason))
    return sorted(found, key=lambda change: not change.used)


def _entries(engine: EngineEntry, profile: Profile) -> Iterator[Entry]:
    serve, speculation = profile.get("serve") or {}, profile["speculation"]
    for key, option in engine["options"].items():
        word = option.get("flag") or option.get("yaml") or option.get("environment") or key
        yield Entry(key, option, str(word), option.get("spelled", ()), key in serve)
        for value, choice in (option.get("choices") or {}).items():
            used = serve.get(key) == value
            yield Entry(f"{key}: {value}", choice, str(value), choice.get("spelled", ()), used)
    for name, method in engine["methods"].items():
        used, words = name == speculation["method"], method.get("spelled") or {}
        reason = method.get("reason", "")
        yield Entry(f"method {name}", method, method.get("value", name), words.get("value", ()), used, reason)
        for key, word in method["names"].items():
            yield Entry(f"{name}: {key}", method, word, words.get(key, ()), used, reason)
        for key, own in (method.get("options") or {}).items():
            told = used and key in (speculation.get("options") or {})
            spellings, reason = own.get("spelled", ()), own.get("reason", "")
            yield Entry(f"{name}: {key}", _bounds(own, method), own["name"], spellings, told, reason)
    always = engine["launch"].get("config", {}).get("always", {})
    for key, entry in always.items():
        yield Entry(f"always {key}", entry, f"{key}: {json.dumps(entry['value'])}", (), used=True)


def _bounds(own: Versioned, above: Versioned) -> Versioned:
    """The bounds of an entry, where it says nothing those of the entry above it."""
    bounds: Versioned = {}
    if since := own.get("since") or above.get("since"):
        bounds["since"] = since
    if until := own.get("until") or above.get("until"):
        bounds["until"] = until
    if gap := own.get("except") or above.get("except"):
        bounds["except"] = gap
    return bounds


# --- as rendered --------------------------------------------------------------------------------


def rendered_changes(old: ResolvedProfile, new: ResolvedProfile) -> list[Change]:
    """What differs between two resolved profiles on the box: commands, environment, configuration, engine."""
    # What both arms have differently is one change.
    arms_by_change: dict[tuple[str, str, str], list[str]] = {}
    for arm in new["arms"]:
        if arm in old["arms"]:
            for change in _differences(settings_of(old["arms"][arm]), settings_of(new["arms"][arm])):
                arms_by_change.setdefault(change, []).append(arm)
    changes = []
    for what, before, after in _differences(_engine_words(old["engine"]), _engine_words(new["engine"])):
        changes.append(Change(what, before, after))
    for (what, before, after), arms in arms_by_change.items():
        name = f"{arms[0]}: {what}"
        if len(arms) > 1:
            name = what
        changes.append(Change(name, before, after))
    return changes


def _engine_words(engine: ResolvedEngine) -> dict[str, str]:
    """What of an engine an upgrade may change, in words: version, plugin, image and packages."""
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
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name, NOTHING), new.get(name, NOTHING)
        if before != after:
            yield name, before, after


def changes_text(engine: str, old: str, new: str, rendered: Sequence[Change], catalogue: Sequence[Change]) -> str:
    """Both as tables."""
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


# --- which one is kept --------------------------------------------------------------------------


@dataclass(frozen=True)
class Decision:
    """Which version is kept, NEW or OLD, and why, a sentence each; ``judged`` is False where nobody can say."""

    keep: str
    why: tuple[str, ...]
    judged: bool = True


def decide(found: Mapping[str, Any], what: str = "version") -> Decision:
    """Which version to keep after a comparison of old (A) and new (B), made with a threshold.

    ``what`` is the word for it.

    The new one, unless it is clearly worse, or something that the old one shows cannot be judged in it: an upgrade
    that nobody can vouch for is none. Without a difference that can be told the new one stays.
    """
    for reasons, told, judged in (
        (found["against"], "the two cannot be compared", False),
        (found["regressions"], f"the new {what} is worse", True),
        (found["unjudged"], f"a result of the old {what} cannot be judged in the new one", False),
    ):
        if reasons:
            return Decision(OLD, tuple(f"{told}: {reason}" for reason in reasons), judged)
    if not found["judged"]:
        return Decision(OLD, ("no kind of work has enough prompts in both reports to be judged",), judged=False)
    better = [row for row in found["rows"] if row["declared"] and row["word"] == "faster"]
    said = f"faster in {len(better)} of {found['judged']} measures" if better else "no measurable difference"
    return Decision(NEW, (said,))
