"""What an inventory says of the watchdog: `drafthouse_watchdog`. Times in seconds; it travels to the box."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.schema import Map, Value

if TYPE_CHECKING:
    from .profile_types import Site

REPORT, SCHEDULE, RESTART = MODES = ("report", "schedule", "restart")
#: Seconds between two looks; how long what runs may take to end; until the next try; until a wish is dropped.
EVERY_S, DRAIN_S, AGAIN_S, PATIENCE_S = 5.0, 120.0, 300.0, 7200.0
#: The settings; those from ``look_s`` on are the fields of `decision.Rules`, which has their defaults.
SETTINGS = Map(
    {
        "mode": Value(str, choices=MODES),
        "every_s": Value(float, low=1, high=60),
        "drain_s": Value(float, low=0, high=3600),
        "look_s": Value(float, low=10, high=86_400),
        "patience_s": Value(float, low=0, high=86_400),
        "dwell_s": Value(float, low=10),
        "least_drafted": Value(int, low=1),
        # The two ranges only touch: with the bars the wrong way round nothing would stand still between them.
        "off_below": Value(float, low=0.1, high=1.03),
        "on_above": Value(float, low=1.03, high=10),
        "trial_after_s": Value(float, low=10),
        "trial_at_most_s": Value(float, low=10),
    }
)


def hold_s(site: Site, ready_timeout_s: float) -> int:
    """Return how long the gateway has to hold requests while the watchdog changes the server; 0: it never does.

    Two starts: that of the other arm, and where it does not answer, that of the one that comes back.
    """
    settings = site.get("watchdog")
    if not settings or settings.get("mode", REPORT) == REPORT:
        return 0
    return round(float(settings.get("drain_s", DRAIN_S)) + 2 * ready_timeout_s + 60)
