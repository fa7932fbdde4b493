"""Checks of the add-ons around the engine: TLS gateway and its certificate, monitoring, watchdog.

The functions are pure. Each check is skipped for an add-on that the site does not use, and during a measurement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.format import count
from ...profiles.watchdog_settings import REPORT
from ..doctor.expected import monitoring_of
from .finding import Finding, fail, not_here, of_problem, ok, warn
from .server import served_arm, undisturbed

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import DoctorFacts
    from drafthouse.profiles.resolved_types import Run

# A certificate with fewer days left is a warning: Let's Encrypt's are valid for 90 days and renewed 30 days before the
# end, so renewal has failed by now.
_CERTIFICATE_WARNS_DAYS = 14.0
_DAY_S = 86400.0
# A state that is older has stopped changing: the watchdog saves it every 20 s (`run.SAVE_S`) and after each check, and
# checks may be 60 s apart.
_SILENT_S = 180.0
_NO_GATEWAY = "drafthouse_gateway is not set"


@undisturbed
def gateway(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that the gateway accepts requests with the API key and no others."""
    settings = resolved["gateway"]
    answers = facts["gateway"]
    if not settings:
        return not_here(_NO_GATEWAY)
    if answers["problem"]:
        return of_problem(answers["problem"])
    needed = "TLS, 401 without the key, 200 with it, 404 for every other path"
    if answers["paths"] and (open_paths := answers["paths"]["open"]):
        do = "run site.yml --tags gateway, which rewrites its files"
        return fail(f"without a key it lets through {', '.join(route['path'] for route in open_paths)}", needed, do)
    return ok(f"port {settings['port']} answers correctly", needed)


@undisturbed
def certificate(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that the gateway's certificate does not expire soon: a failure without one, a warning shortly before."""
    settings = resolved["gateway"]
    answers = facts["gateway"]
    if not settings:
        return not_here(_NO_GATEWAY)
    needed = f"a certificate valid for {_CERTIFICATE_WARNS_DAYS:.0f} days or more"
    if answers["not_after"] is None:
        do = "run site.yml --tags gateway, which renews it; see also the check 'clock'"
        return fail(answers["tls_error"] or "no certificate was presented", needed, do)
    days_left = (answers["not_after"] - facts["clock"]["time"]) / _DAY_S
    if days_left >= _CERTIFICATE_WARNS_DAYS:
        return ok(f"it ends in {days_left:,.0f} days", needed)
    do = "run site.yml --tags gateway"
    if settings["name"]:
        do = f"check that {settings['name']} still resolves to this box and that the CA reaches port 80 or 443"
    return warn(f"it ends in {days_left:.1f} days", needed, do)


@undisturbed
def monitoring(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that Prometheus scrapes all its targets; skipped on a problem while the profile is not served."""
    expected = monitoring_of(resolved)
    answers = facts["monitoring"]
    if not expected["prometheus"]:
        return not_here("drafthouse_monitoring is not set")
    if answers["problem"] and not served_arm(resolved, facts["served"]):
        return not_here("this profile is not being served, so there is nothing to read")
    if answers["problem"]:
        return of_problem(answers["problem"])
    summary = f"{', '.join(expected['jobs'])} read, {count(answers['rules'], 'rule')} evaluated"
    return ok(summary, "a Prometheus that reads all its targets and evaluates its rules")


@undisturbed
def watchdog(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that the watchdog runs and saved its state within the last minutes."""
    if "watchdog" not in resolved["site"]:
        return not_here("drafthouse_watchdog is not set")
    state = facts["watchdog"]
    now_s = facts["clock"]["time"]  # the box's own clock, which also stamped the state
    needed = "a running watchdog that checked within the last minutes"
    do = "make logs ONLY=watchdog shows its last lines; run site.yml --tags watchdog"
    if not state["runs"]:
        return fail("it does not run", needed, do)
    if state["written"] is None:
        return warn(
            "it runs, but has not checked yet", needed, "run make doctor again in a minute; make logs ONLY=watchdog"
        )
    if now_s - state["written"] > _SILENT_S:
        return fail(f"it runs, and last checked {now_s - state['written']:,.0f} s ago", needed, do)
    return ok(f"it runs, mode {(resolved['site']['watchdog'] or {}).get('mode', REPORT)}", needed)
