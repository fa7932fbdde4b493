"""What an inventory says of the watchdog: `drafthouse_watchdog`. Times in seconds; it travels to the box."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Site

REPORT, RESTART = "report", "restart"
#: Seconds between two looks; how long what runs may take to end; until the next try; until a wish is dropped.
EVERY_S, DRAIN_S, AGAIN_S, PATIENCE_S = 5.0, 120.0, 300.0, 7200.0


def hold_s(site: Site, ready_timeout_s: float) -> int:
    """How long the gateway has to hold requests while the watchdog changes the server; 0: it never does.

    Two starts: that of the other arm, and where it does not answer, that of the one that comes back.
    """
    settings = site.get("watchdog")
    if not settings or settings.get("mode", REPORT) == REPORT:
        return 0
    return round(float(settings.get("drain_s", DRAIN_S)) + 2 * ready_timeout_s + 60)
