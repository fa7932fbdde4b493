"""The checks of what stands around the engine: the gateway and its certificate, monitoring, watchdog. Pure."""

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

# Let's Encrypt's certificates live 90 days and are renewed with 30 left: with fewer than these something is wrong.
_CERTIFICATE_WARNS_DAYS = 14.0
_DAY_S = 86400.0
# It writes down what it knows every 20 s (`run.SAVE_S`) and after each look, which may be a minute apart.
_SILENT_S = 180.0
_NO_GATEWAY = "drafthouse_gateway is not set"


@undisturbed
def gateway(resolved: Run, facts: DoctorFacts) -> Finding:
    """Whether the gateway lets the key through, and nothing else."""
    wished, found = resolved["gateway"], facts["gateway"]
    if not wished:
        return not_here(_NO_GATEWAY)
    if found["problem"]:
        return of_problem(found["problem"])
    needed = "TLS, 401 without the key, 200 with it, 404 for every other path"
    if found["paths"] and (open_paths := found["paths"]["open"]):
        do = "run site.yml --tags gateway, which rewrites its files"
        return fail(f"without a key it lets through {', '.join(route['path'] for route in open_paths)}", needed, do)
    return ok(f"port {wished['port']} answers correctly", needed)


@undisturbed
def certificate(resolved: Run, facts: DoctorFacts) -> Finding:
    """How long the gateway's certificate holds."""
    wished, found = resolved["gateway"], facts["gateway"]
    if not wished:
        return not_here(_NO_GATEWAY)
    needed = f"a certificate valid for {_CERTIFICATE_WARNS_DAYS:.0f} days or more"
    if found["not_after"] is None:
        do = "run site.yml --tags gateway, which renews it; see also the check 'clock'"
        return fail(found["tls_error"] or "no certificate was presented", needed, do)
    days = (found["not_after"] - facts["clock"]["time"]) / _DAY_S
    if days >= _CERTIFICATE_WARNS_DAYS:
        return ok(f"it ends in {days:,.0f} days", needed)
    do = "run site.yml --tags gateway"
    if wished["name"]:
        do = f"check that {wished['name']} still resolves to this box and that the CA reaches port 80 or 443"
    return warn(f"it ends in {days:.1f} days", needed, do)


@undisturbed
def monitoring(resolved: Run, facts: DoctorFacts) -> Finding:
    """Whether Prometheus reads everything; without a server of the profile there is nothing to read."""
    wished, found = monitoring_of(resolved), facts["monitoring"]
    if not wished["prometheus"]:
        return not_here("drafthouse_monitoring is not set")
    if found["problem"] and not served_arm(resolved, facts["served"]):
        return not_here("this profile is not being served, so there is nothing to read")
    if found["problem"]:
        return of_problem(found["problem"])
    read = f"{', '.join(wished['jobs'])} read, {count(found['rules'], 'rule')} evaluated"
    return ok(read, "a Prometheus that reads all its targets and evaluates its rules")


@undisturbed
def watchdog(resolved: Run, facts: DoctorFacts) -> Finding:
    """Whether the watchdog runs, and looks."""
    if "watchdog" not in resolved["site"]:
        return not_here("drafthouse_watchdog is not set")
    found, now = facts["watchdog"], facts["clock"]["time"]
    needed = "a running watchdog that checked within the last minutes"
    do = "make logs ONLY=watchdog shows its last lines; run site.yml --tags watchdog"
    if not found["runs"]:
        return fail("it does not run", needed, do)
    if found["written"] is None:
        return warn(
            "it runs, but has not checked yet", needed, "run make doctor again in a minute; make logs ONLY=watchdog"
        )
    if now - found["written"] > _SILENT_S:
        return fail(f"it runs, and last checked {now - found['written']:,.0f} s ago", needed, do)
    return ok(f"it runs, mode {(resolved['site']['watchdog'] or {}).get('mode', REPORT)}", needed)
