"""Checks of known engine issues: those that the profile matches, and those whose sign is in the engine's log.

The functions are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.format import count
from ...profiles.known_issues import REFUSED, effect_of
from .finding import Finding, fail, ok, warn
from .server import undisturbed

if TYPE_CHECKING:
    from drafthouse.operate.checks.finding import CheckResult
    from drafthouse.operate.doctor.types import DoctorFacts
    from drafthouse.profiles.known_issue_schema import MatchedIssue
    from drafthouse.profiles.resolved_types import Run


def not_run_into(resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """A failure for each known issue with a refused effect (`REFUSED`) that the profile matches and does not accept.

    A profile accepts an issue by its id, with a reason, in the key ``accept_known_issues``.
    """
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
def in_log(resolved: Run, facts: DoctorFacts) -> CheckResult:
    """Check that the engine's log has no sign of a known issue that the profile matches.

    None if no such issue has a signature (a regular expression for the log); one finding for each sign in the log, or a
    single ``ok`` without any.
    """
    with_sign = [issue for issue in resolved["known_issues"] if issue["signature"]]
    if not with_sign:
        return None
    findings = []
    for issue in with_sign:
        log_text = facts["log_signs"].get(issue["id"])
        if log_text is not None:
            findings.append(_sign_in_log(issue, log_text))
    return findings or ok(f"none of {count(len(with_sign), 'known issue')} of this profile appears in the engine's log")


def _sign_in_log(issue: MatchedIssue, log_text: str) -> Finding:
    """The finding that the log has a sign of the issue: a failure for a refused effect, else a warning."""
    found = f"{issue['id']}: {issue['what']}; the log contains {log_text!r}"
    needed = "a log without signs of known issues"
    do = f"{issue['do']} ({issue['threads'][0]})"
    if issue["effect"] in REFUSED:
        return fail(found, needed, do)
    return warn(found, needed, do)
