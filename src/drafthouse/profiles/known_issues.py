"""Which known issues of an engine a profile runs into, and what is said of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.errors import did_you_mean
from ..core.schema import Findings
from ..core.versions import known, releases
from .heads import draft_kind
from .model_names import names_of
from .started import settings_of

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry
    from drafthouse.profiles.arms import Parts
    from drafthouse.profiles.catalog_types import CatalogModel
    from drafthouse.profiles.known_issue_schema import (
        Bounds,
        HardwareNamed,
        KnownIssue,
        KnownIssues,
        MatchedIssue,
        ModelNamed,
        Setting,
    )
    from drafthouse.profiles.resolved_types import BuiltArm, Hardware, ResolvedProfile

FILE = "profiles/catalog/known-issues.yml"
#: What nobody should find out by being hit: preflight refuses it unless the profile accepts it by name.
REFUSED = ("wrong", "crash")
_EFFECTS = {
    "wrong": "wrong answers",
    "crash": "a crash",
    "hang": "a hang",
    "oom": "out of memory",
    "slow": "slow",
    "refused": "refused or ignored",
}


@dataclass(frozen=True)
class Setup:
    """What a profile runs: ``engines`` are its engine and that one's family, ``settings`` the started server's."""

    engines: Sequence[str]
    version: str
    method: str
    draft_kind: str
    tokens: int
    target: CatalogModel
    draft: CatalogModel | None
    hardware: Hardware
    settings: Mapping[str, str]


def setup_of(parts: Parts, arm: BuiltArm) -> Setup:
    """What the known issues of a profile are looked up for; ``arm`` is its speculative one."""
    engine = parts.engine
    return Setup(
        engines=(engine["id"], engine.get("family", engine["id"])),
        version=parts.version,
        method=parts.method["id"],
        draft_kind=draft_kind(parts.method, parts.draft),
        tokens=parts.tokens,
        target=parts.target,
        draft=parts.draft,
        hardware=parts.hardware,
        settings=settings_of(arm),
    )


def matching(issues: Mapping[str, KnownIssue], setup: Setup, accepted: Mapping[str, str]) -> list[MatchedIssue]:
    """The issues that a setup runs into; ``accepted`` are those that a profile lives with, and why."""
    return [
        {
            "id": name,
            "what": issue["what"],
            "effect": issue["effect"],
            "silent": issue["silent"],
            "uncertain": issue.get("uncertain"),
            "signature": issue.get("signature"),
            "do": issue["do"],
            "threads": issue["threads"],
            "checked": issue["checked"],
            "accepted": accepted.get(name),
        }
        for name, issue in issues.items()
        if matches(issue, setup)
    ]


def matches(issue: KnownIssue, setup: Setup) -> bool:
    """Tell whether a setup has all that an issue shows with."""
    when = issue["when"]
    drafts = when.get("draft", {})
    return (
        issue["engine"] in setup.engines
        and known(setup.version, issue)
        and setup.method in when.get("methods", [setup.method])
        and setup.draft_kind in drafts.get("kinds", [setup.draft_kind])
        and _is_model(drafts, setup.draft)
        and _is_model(when.get("target", {}), setup.target)
        and _within(setup.tokens, when.get("tokens", {}))
        and _is_hardware(when.get("hardware", {}), setup.hardware)
        and all(_is_set(wanted, setup.settings.get(name)) for name, wanted in when.get("settings", {}).items())
    )


def _is_model(wanted: ModelNamed, model: CatalogModel | None) -> bool:
    if "traits" not in wanted and "named" not in wanted:
        return True
    if model is None:
        return False
    if "traits" in wanted and not set(wanted["traits"]) & set(model.get("traits", ())):
        return False
    return "named" not in wanted or any(re.search(wanted["named"], name) for name in names_of(model))


def _is_hardware(wanted: HardwareNamed, hardware: Hardware) -> bool:
    capability = hardware.get("compute_capability", "")
    return (
        hardware["kind"] in wanted.get("kinds", [hardware["kind"]])
        and capability in wanted.get("capabilities", [capability])
        and ("named" not in wanted or re.search(wanted["named"], hardware["name"]) is not None)
        and _within(hardware["devices"], wanted.get("devices", {}))
        and _within(hardware["memory_mib"], wanted.get("memory_mib", {}))
    )


def _is_set(wanted: Setting, given: str | None) -> bool:
    if "given" in wanted and wanted["given"] != (given is not None):
        return False
    value = wanted.get("default")
    if given is not None:
        value = given.strip('"')
    if "is" in wanted and value not in wanted["is"]:
        return False
    if "not" in wanted and value in wanted["not"]:
        return False
    if "above" not in wanted and "below" not in wanted:
        return True
    return value is not None and re.fullmatch(r"-?\d+(\.\d+)?", value) is not None and _within(float(value), wanted)


def _within(value: float, bounds: Bounds) -> bool:
    return ("above" not in bounds or value > bounds["above"]) and ("below" not in bounds or value < bounds["below"])


# --- the file, and what a profile accepts of it --------------------------------------------------------


def check_issues(file: KnownIssues, engines: Mapping[str, EngineEntry]) -> Findings:
    """What is wrong with the rows beside their shape: words that the catalogue lacks, bad expressions."""
    findings, to_come = Findings(FILE), file["to_come"]
    for name, issue in file["issues"].items():
        path, here = f"issues.{name}", engines.get(issue["engine"])
        for key, expression in _expressions(issue):
            try:
                re.compile(expression)
            except re.error as error:
                findings.add(
                    "wrong-format", f"{path}.{key}", f"{expression!r}: {error}", "a regular expression", "mend it"
                )
        if here is None:
            _look(findings, f"{path}.engine", issue["engine"], [*engines, *to_come["engines"]])
            continue
        for method in issue["when"].get("methods", []):
            _look(findings, f"{path}.when.methods", method, [*_methods(issue["engine"], engines), *to_come["methods"]])
        for word, version in (("since", issue.get("since")), ("until", issue.get("until"))):
            if version is not None:
                _look(findings, f"{path}.{word}", version, releases(here))
    return findings


def _methods(engine: str, engines: Mapping[str, EngineEntry]) -> list[str]:
    """The methods of an engine and of those that are like it."""
    methods: set[str] = set()
    for name, entry in engines.items():
        if engine in (name, entry.get("family")):
            methods.update(entry["methods"])
    return sorted(methods)


def _expressions(issue: KnownIssue) -> Iterator[tuple[str, str]]:
    if "signature" in issue:
        yield "signature", issue["signature"]
    when = issue["when"]
    parts: dict[str, ModelNamed | HardwareNamed] = {
        "draft": when.get("draft", {}),
        "target": when.get("target", {}),
        "hardware": when.get("hardware", {}),
    }
    yield from ((f"when.{part}.named", wanted["named"]) for part, wanted in parts.items() if "named" in wanted)


def _look(findings: Findings, path: str, word: str, words: Sequence[str]) -> None:
    if word not in words:
        needed = f"one of: {', '.join(words)}"
        findings.add("unknown-value", path, f"{word!r}, which does not exist", needed, did_you_mean(word, words))


def check_accepted(findings: Findings, accepted: Mapping[str, str], issues: Mapping[str, KnownIssue]) -> None:
    """Add to the findings of a profile what it accepts and nobody knows."""
    for name in accepted:
        _look(findings, f"accept_known_issues.{name}", name, sorted(issues))


# --- in words ------------------------------------------------------------------------------------------


def effect_of(issue: MatchedIssue) -> str:
    """What an issue does to its user, in a few words."""
    words = _EFFECTS[issue["effect"]]
    if issue["silent"]:
        words += ", silently"
    if issue["uncertain"]:
        words += f" (not certain: {issue['uncertain']})"
    return words


def issue_lines(issue: MatchedIssue) -> list[str]:
    """An issue for a person, a line each: what it is, what to do, who said so and when."""
    lines = [f"{issue['id']}: {issue['what']}; {effect_of(issue)}", f"do: {issue['do']}"]
    if issue["accepted"]:
        lines.append(f"accepted by the profile: {issue['accepted']}")
    return [*lines, f"{', '.join(issue['threads'])} (checked {issue['checked']})"]


def issue_changes(old: ResolvedProfile, new: ResolvedProfile) -> list[str]:
    """Which known issues come and go from one version of an engine to another, a line each."""
    before = {issue["id"] for issue in old["known_issues"]}
    after = {issue["id"] for issue in new["known_issues"]}
    lines = []
    for issue in old["known_issues"]:
        if issue["id"] not in after:
            lines.append(f"known issue gone: {issue['id']}: {issue['what']}")
    for issue in new["known_issues"]:
        if issue["id"] not in before:
            lines.append(f"known issue comes: {issue['id']}: {issue['what']}; {effect_of(issue)}")
            lines.append(f"  do: {issue['do']}")
    return lines
