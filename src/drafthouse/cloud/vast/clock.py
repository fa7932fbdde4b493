"""Compute how many seconds a rental has left, by the provider's clock instead of this machine's wall clock.

Every answer of vast.ai has the time there in its `Date` header (RFC 9110, 6.6.1), and every instance has its start time
(`start_date`). The time since the last answer is counted by this machine's monotonic clock. A wall clock that is wrong
or is set during a run therefore does not change a rental; it is used only if no answer gives the time.
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


class ClockReading(NamedTuple):
    """A time, and when it was read by this machine's monotonic clock."""

    time: float  # unix seconds
    up: float  # seconds from this machine's start to the reading
    boot: str  # id of that start

    def at(self, now: Clocks) -> float | None:
        """Time on that clock now, unix seconds; None if this machine has restarted since the reading."""
        elapsed = now.up - self.up
        if self.boot != now.boot or elapsed < 0:
            return None
        return self.time + elapsed


def clock_reading(headers: Mapping[str, str], now: Clocks) -> ClockReading | None:
    """Reading from the `Date` header of an answer, which is in GMT; None if the header is missing or malformed."""
    date = next((value for name, value in headers.items() if name.lower() == "date"), "")
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError, TypeError):
        return None
    return ClockReading(moment.replace(tzinfo=timezone.utc).timestamp(), now.up, now.boot)


class Lease(TypedDict):
    """End of a rental, and a reading of the clock by which it counts."""

    ends: float  # unix seconds
    time: float  # this and the next two: the `ClockReading`
    up: float
    boot: str
    sure: NotRequired[bool]  # True: it is the provider's clock; missing or False: this machine's


class ProviderClock:
    """The provider's clock, set by its last answer; this machine's wall clock before the first answer."""

    def __init__(self, read: Callable[[], Clocks] = clocks) -> None:
        self._read = read
        self._last: ClockReading | None = None

    def update(self, headers: Mapping[str, str]) -> None:
        """Set the clock from the headers of an answer that has just arrived; without a `Date` it stays as it is."""
        self._last = clock_reading(headers, self._read()) or self._last

    def now(self) -> float:
        """Current time of the provider, unix seconds."""
        return self.anchor().time

    def anchor(self) -> ClockReading:
        """Reading of the clock now, from which a later time can be computed."""
        now = self._read()
        moment = self._last.at(now) if self._last else None
        if moment is None:
            moment = now.wall
        return ClockReading(moment, now.up, now.boot)


def ends_at(instance: Instance, deadline: float | None, facts: RentalFacts, announced_at: float | None) -> float | None:
    """End of a rental by the provider's clock, unix seconds: the start of the instance plus the rented time.

    The rented time is ``hours`` of the ledger's ``facts``. Ledger lines of earlier versions lack it: then it is
    ``deadline`` (of the label) minus ``announced_at`` (time of the ledger line). Both came from one clock, so that the
    difference is right even if that clock was wrong. Returns ``deadline`` if a time is unknown.
    """
    hours = facts.get("hours")
    start = instance.get("start_date")
    rented_s = None
    if isinstance(hours, (int, float)):
        rented_s = float(hours) * 3600
    elif deadline is not None and announced_at is not None:
        rented_s = deadline - announced_at
    if rented_s is None or not isinstance(start, (int, float)):
        return deadline
    return float(start) + rented_s


def lease_of(ends: float, clock: ClockReading) -> Lease:
    """Lease that ends at ``ends`` (unix seconds) on the clock of the reading, for `left_of`."""
    return {"ends": round(ends, 1), "time": clock.time, "up": clock.up, "boot": clock.boot}


def left_of(lease: Lease, now: Clocks) -> float:
    """Seconds left of a lease, below 0 once it is over.

    They are counted by the wall clock if this machine has restarted since the reading.
    """
    moment = ClockReading(lease["time"], lease["up"], lease["boot"]).at(now)
    if moment is None:
        moment = now.wall
    return float(lease["ends"]) - moment
