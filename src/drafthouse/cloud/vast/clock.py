"""How long a rental may still live: by the provider's own clock, and by a monotonic one between its answers.

Every answer of vast.ai says what time it is there (`Date`, RFC 9110, 6.6.1), and an instance since when it is rented
(`start_date`). Time that passes after an answer is counted by this machine's monotonic clock. So this machine's wall
clock, wrong or set while a run goes on, neither lengthens nor shortens a rental; it is read only where no answer says
the time. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ...core.procfs import Clocks, clocks

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.cloud.vast.ledger import RentalFacts
    from drafthouse.cloud.vast.rows import Instance


class Heard(NamedTuple):
    """What a clock said (unix seconds), and when: by this machine's clock ``up``, in its start ``boot``."""

    time: float
    up: float
    boot: str

    def at(self, now: Clocks) -> float | None:
        """What that clock says now; None after a restart of this machine."""
        passed = now.up - self.up
        if self.boot != now.boot or passed < 0:
            return None
        return self.time + passed


def heard(headers: Mapping[str, str], now: Clocks) -> Heard | None:
    """What an answer's headers say of the time, always in GMT; None where they say nothing that can be read."""
    date = next((value for name, value in headers.items() if name.lower() == "date"), "")
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError, TypeError):
        return None
    return Heard(moment.replace(tzinfo=timezone.utc).timestamp(), now.up, now.boot)


class Lease(TypedDict):
    """Until when a box may live (``ends``), by what a clock said, and when; ``sure``: it is the provider's."""

    ends: float
    time: float
    up: float
    boot: str
    sure: NotRequired[bool]


class ProviderClock:
    """The provider's clock as its last answer set it; this machine's wall clock until there is one."""

    def __init__(self, read: Callable[[], Clocks] = clocks) -> None:
        self._read = read
        self._last: Heard | None = None

    def hear(self, headers: Mapping[str, str]) -> None:
        """Take the time of an answer that has just come."""
        self._last = heard(headers, self._read()) or self._last

    def now(self) -> float:
        """The provider's time, unix seconds."""
        return self.anchor().time

    def anchor(self) -> Heard:
        """What the clock says at this moment, for whoever counts on from it later."""
        now = self._read()
        moment = self._last.at(now) if self._last else None
        if moment is None:
            moment = now.wall
        return Heard(moment, now.up, now.boot)


def ends_at(row: Instance, deadline: float | None, facts: RentalFacts, begun: float | None) -> float | None:
    """The moment at which an instance is due, by the provider's clock: so long after its start as it was rented for.

    For how long stands in the ledger as ``hours`` (of ``facts``). Older lines have none: their deadline and the line
    that announced it (``begun``) came from one clock, so that the difference is right even where that clock was not.
    ``deadline``, the label's, is what is left where either is not known. Unix seconds.
    """
    hours, start, life = facts.get("hours"), row.get("start_date"), None
    if isinstance(hours, (int, float)):
        life = float(hours) * 3600
    elif deadline is not None and begun is not None:
        life = deadline - begun
    if life is None or not isinstance(start, (int, float)):
        return deadline
    return float(start) + life


def lease_of(ends: float, clock: Heard) -> Lease:
    """The moment until which a box may live, with the clock that it is counted by: plain data for `left_of`."""
    return {"ends": round(ends, 1), "time": clock.time, "up": clock.up, "boot": clock.boot}


def left_of(lease: Lease, now: Clocks) -> float:
    """The seconds that are left; by the wall clock where this machine has been restarted since."""
    moment = Heard(lease["time"], lease["up"], lease["boot"]).at(now)
    if moment is None:
        moment = now.wall
    return float(lease["ends"]) - moment
