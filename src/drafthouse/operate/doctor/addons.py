"""The doctor's look at what watches over the server, where the inventory asks for it: monitoring, watchdog. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.format import count
from .check import Check, fail, not_here, of_problem, ok, warn

if TYPE_CHECKING:
    from .types import DoctorFacts, MonitoringFacts, Wants, WatchdogFacts


WATCHERS = ("monitoring", "watchdog")
# It writes down what it knows every 20 s (`run.SAVE_S`) and after each look, which may be a minute apart.
_SILENT_S = 180.0


def watchers_checks(wants: Wants, facts: DoctorFacts, served: bool) -> list[Check]:
    """Return a check for each; ``served``: an arm of the profile runs, without which Prometheus has nothing to read."""
    return [
        _monitoring(wants, facts["monitoring"], served),
        _watchdog(wants, facts["watchdog"], facts["clock"]["time"]),
    ]


def _monitoring(wants: Wants, found: MonitoringFacts, served: bool) -> Check:
    name, needed = "monitoring", "a Prometheus that reads everything it is for, and evaluates its rules"
    if not wants["monitoring"]["prometheus"]:
        return not_here(name, "drafthouse_monitoring is not set")
    if found["problem"] and not served:
        return not_here(name, "this profile is not served: there is nothing to read")
    if found["problem"]:
        return of_problem(name, found["problem"])
    jobs = ", ".join(wants["monitoring"]["jobs"])
    return ok(name, f"{jobs} are read, {count(found['rules'], 'rule')} evaluated", needed)


def _watchdog(wants: Wants, found: WatchdogFacts, now: float) -> Check:
    name, needed = "watchdog", "one that runs, and has looked within the last minutes"
    if not wants["watchdog"]:
        return not_here(name, "drafthouse_watchdog is not set")
    do = "make logs ONLY=watchdog shows its last words; run playbooks/watchdog.yml"
    if not found["runs"]:
        return fail(name, "it does not run", needed, do)
    if found["written"] is None:
        return warn(name, "it runs, and has not looked yet", needed, "ask again in a minute; make logs ONLY=watchdog")
    if now - found["written"] > _SILENT_S:
        return fail(name, f"it runs, and last looked {now - found['written']:,.0f} s ago", needed, do)
    return ok(name, f"it runs, mode {wants['watchdog']}", needed)
