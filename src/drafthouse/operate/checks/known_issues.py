"""The checks of known issues: what a profile would run into, and what stands in the engine's log. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.format import count
from ...profiles.known_issues import REFUSED, effect_of
from .finding import Finding, fail, ok, warn
from .server import undisturbed

if TYPE_CHECKING:
    from drafthouse.operate.checks.finding import Answer
    from drafthouse.operate.doctor.types import DoctorFacts
    from drafthouse.profiles.known_issue_schema import MatchedIssue
    from drafthouse.profiles.resolved_types import Run


def not_run_into(resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """What a profile would run into: wrong answers and crashes that it does not accept by name."""
    findings = []
    for issue in resolved["known_issues"]:
        if issue["effect"] not in REFUSED or issue["accepted"]:
            continue
        do = (
            f"{issue['do']} ({issue['threads'][0]}); or state in the profile why it does not apply: "
            f"accept_known_issues: {{{issue['id']}: reason}}"
        )
        found = f"{issue['id']}: {issue['what']}; {effect_of(issue)}"
        findings.append(fail(found, "a profile that avoids it or accepts it by name", do))
    return findings


@undisturbed
def in_log(resolved: Run, facts: DoctorFacts) -> Answer:
    """Which known issue shows in the engine's log; nothing where none that the profile matches has a sign."""
    signed = [issue for issue in resolved["known_issues"] if issue["signature"]]
    if not signed:
        return None
    findings = []
    for issue in signed:
        sign = facts["log_signs"].get(issue["id"])
        if sign is not None:
            findings.append(_in_log(issue, sign))
    return findings or ok(f"none of {count(len(signed), 'known issue')} of this profile appears in the engine's log")


def _in_log(issue: MatchedIssue, sign: str) -> Finding:
    found = f"{issue['id']}: {issue['what']}; the log contains {sign!r}"
    needed, do = "a log without signs of known issues", f"{issue['do']} ({issue['threads'][0]})"
    if issue["effect"] in REFUSED:
        return fail(found, needed, do)
    return warn(found, needed, do)
