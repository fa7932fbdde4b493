"""Settings of a site's watchdog (`drafthouse_watchdog`), which checks if speculation still pays on live traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Site

REPORT, RESTART = "report", "restart"
#: Seconds: between two samples; for running requests to end; until a change is tried again; until it is dropped.
EVERY_S, DRAIN_S, AGAIN_S, PATIENCE_S = 5.0, 120.0, 300.0, 7200.0


def hold_s(site: Site, ready_timeout_s: float) -> int:
    """Seconds for which the gateway must hold requests while the watchdog changes the server; 0 if it never does.

    There may be two starts: of the other arm and, if that does not answer, of the previous arm. 60 s are a margin.
    """
    settings = site.get("watchdog")
    if not settings or settings.get("mode", REPORT) == REPORT:
        return 0
    return round(float(settings.get("drain_s", DRAIN_S)) + 2 * ready_timeout_s + 60)
