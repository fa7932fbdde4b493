"""Known issues (reported bugs) of engines: which of them affect a profile, and their texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.errors import did_you_mean
from ..core.schema import Findings
from ..core.versions import releases, supports
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
#: Effects for which preflight refuses a profile, unless the profile accepts the issue by name.
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
    """The facts of a profile on which issues depend."""

    engines: Sequence[str]  # names of its engine and of the engine that it is like; an issue of either may affect it
    version: str  # of the engine
    method: str
    draft_kind: str
    tokens: int  # K
    target: CatalogModel
    draft: CatalogModel | None  # None for a method without a separate draft
    hardware: Hardware
    settings: Mapping[str, str]  # by the names of `started.settings_of`


def setup_of(parts: Parts, arm: BuiltArm) -> Setup:
    """The setup of a profile, for which its known issues are looked up; ``arm`` is the speculative arm."""
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


def matching_issues(issues: Mapping[str, KnownIssue], setup: Setup, accepted: Mapping[str, str]) -> list[MatchedIssue]:
    """The issues that affect a setup; ``accepted``: by issue, the reason why the profile accepts it."""
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
    """True if a setup meets all conditions of an issue; a condition that the issue leaves out is met."""
    when = issue["when"]
    draft_rule = when.get("draft", {})
    return (
        issue["engine"] in setup.engines
        and supports(setup.version, issue)
        and setup.method in when.get("methods", [setup.method])
        and setup.draft_kind in draft_rule.get("kinds", [setup.draft_kind])
        and _model_matches(draft_rule, setup.draft)
        and _model_matches(when.get("target", {}), setup.target)
        and _within(setup.tokens, when.get("tokens", {}))
        and _hardware_matches(when.get("hardware", {}), setup.hardware)
        and all(_setting_matches(rule, setup.settings.get(name)) for name, rule in when.get("settings", {}).items())
    )


def _model_matches(rule: ModelNamed, model: CatalogModel | None) -> bool:
    """True if a model has one of the rule's traits and one of its names fits; no model fits only an empty rule."""
    if "traits" not in rule and "named" not in rule:
        return True
    if model is None:
        return False
    if "traits" in rule and not set(rule["traits"]) & set(model.get("traits", ())):
        return False
    return "named" not in rule or any(re.search(rule["named"], name) for name in names_of(model))


def _hardware_matches(rule: HardwareNamed, hardware: Hardware) -> bool:
    """True if the hardware meets all conditions of a rule."""
    capability = hardware.get("compute_capability", "")
    return (
        hardware["kind"] in rule.get("kinds", [hardware["kind"]])
        and capability in rule.get("capabilities", [capability])
        and ("named" not in rule or re.search(rule["named"], hardware["name"]) is not None)
        and _within(hardware["devices"], rule.get("devices", {}))
        and _within(hardware["memory_mib"], rule.get("memory_mib", {}))
    )


def _setting_matches(rule: Setting, given: str | None) -> bool:
    """True if a setting meets all conditions of a rule; ``given``: its value, None if it is not set.

    The conditions on a value are about the given one, or else about the rule's default. Bounds are met by numbers only.
    """
    if "given" in rule and rule["given"] != (given is not None):
        return False
    value = rule.get("default")
    # A text in a flag's JSON or in the YAML is in quotes there (`settings_of`); the rules have none.
    if given is not None:
        value = given.strip('"')
    if "is" in rule and value not in rule["is"]:
        return False
    if "not" in rule and value in rule["not"]:
        return False
    if "above" not in rule and "below" not in rule:
        return True
    return value is not None and re.fullmatch(r"-?\d+(\.\d+)?", value) is not None and _within(float(value), rule)


def _within(value: float, bounds: Bounds) -> bool:
    """True if a number is between the bounds, exclusive; a missing bound is no limit."""
    return ("above" not in bounds or value > bounds["above"]) and ("below" not in bounds or value < bounds["below"])


# --- the file, and what a profile accepts of it --------------------------------------------------------


def check_issues(file: KnownIssues, engines: Mapping[str, EngineEntry]) -> Findings:
    """The problems of the file's issues beyond their shape: names that the catalogue lacks, bad expressions."""
    findings = Findings(FILE)
    to_come = file["to_come"]
    for name, issue in file["issues"].items():
        path = f"issues.{name}"
        engine = engines.get(issue["engine"])
        for key, expression in _expressions(issue):
            try:
                re.compile(expression)
            except re.error as error:
                findings.add(
                    "wrong-format", f"{path}.{key}", f"{expression!r}: {error}", "a regular expression", "mend it"
                )
        if engine is None:
            _check(findings, f"{path}.engine", issue["engine"], [*engines, *to_come["engines"]])
            continue
        for method in issue["when"].get("methods", []):
            _check(findings, f"{path}.when.methods", method, [*_methods(issue["engine"], engines), *to_come["methods"]])
        for bound, version in (("since", issue.get("since")), ("until", issue.get("until"))):
            if version is not None:
                _check(findings, f"{path}.{bound}", version, releases(engine))
    return findings


def _methods(engine: str, engines: Mapping[str, EngineEntry]) -> list[str]:
    """The methods of ``engine`` and of the engines that are like it."""
    methods: set[str] = set()
    for name, entry in engines.items():
        if engine in (name, entry.get("family")):
            methods.update(entry["methods"])
    return sorted(methods)


def _expressions(issue: KnownIssue) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each regular expression of an issue."""
    if "signature" in issue:
        yield "signature", issue["signature"]
    when = issue["when"]
    rules: dict[str, ModelNamed | HardwareNamed] = {
        "draft": when.get("draft", {}),
        "target": when.get("target", {}),
        "hardware": when.get("hardware", {}),
    }
    yield from ((f"when.{part}.named", rule["named"]) for part, rule in rules.items() if "named" in rule)


def _check(findings: Findings, path: str, word: str, names: Sequence[str]) -> None:
    """Add a problem if ``word``, the value at ``path``, is not among ``names``."""
    if word not in names:
        needed = f"one of: {', '.join(names)}"
        findings.add("unknown-value", path, f"{word!r}, which does not exist", needed, did_you_mean(word, names))


def check_accepted(findings: Findings, accepted: Mapping[str, str], issues: Mapping[str, KnownIssue]) -> None:
    """Add a problem for each issue that a profile accepts and that does not exist."""
    for name in accepted:
        _check(findings, f"accept_known_issues.{name}", name, sorted(issues))


# --- in words ------------------------------------------------------------------------------------------


def effect_of(issue: MatchedIssue) -> str:
    """The effect of an issue, in a few words."""
    text = _EFFECTS[issue["effect"]]
    if issue["silent"]:
        text += ", silently"
    if issue["uncertain"]:
        text += f" (not certain: {issue['uncertain']})"
    return text


def issue_lines(issue: MatchedIssue) -> list[str]:
    """An issue as lines of text: what it is, what to do, the accepted reason, and its sources with their date."""
    lines = [f"{issue['id']}: {issue['what']}; {effect_of(issue)}", f"do: {issue['do']}"]
    if issue["accepted"]:
        lines.append(f"accepted by the profile: {issue['accepted']}")
    return [*lines, f"{', '.join(issue['threads'])} (checked {issue['checked']})"]


def issue_changes(old: ResolvedProfile, new: ResolvedProfile) -> list[str]:
    """The known issues that disappear and appear between two resolved profiles, as lines of text."""
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
