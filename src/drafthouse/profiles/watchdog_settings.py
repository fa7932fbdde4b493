"""Settings of a site's watchdog (`drafthouse_watchdog`), which checks if speculation still pays on live traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Site

#: What the watchdog does if speculation does not pay: only say so, or restart the engine without it.
REPORT, RESTART = "report", "restart"
EVERY_S = 5.0  # seconds between two samples
DRAIN_S = 120.0  # seconds for running requests to end
AGAIN_S = 300.0  # seconds until a change that found no idle moment is tried again; doubled each time
PATIENCE_S = 7200.0  # seconds without an idle moment after which a change is dropped


def hold_s(site: Site, ready_timeout_s: float) -> int:
    """Seconds for which the gateway must hold requests while the watchdog changes the server; 0 if it never does.

    There may be two starts: of the other arm and, if that does not answer, of the previous arm. 60 s are a margin.
    """
    settings = site.get("watchdog")
    if not settings or settings.get("mode", REPORT) == REPORT:
        return 0
    return round(float(settings.get("drain_s", DRAIN_S)) + 2 * ready_timeout_s + 60)
