"""Which offers become the boxes of a fleet: the cheapest machines, in one country and within one sum if asked.

Pure. A fleet of one is the usual case. Two boxes of a fleet never share a machine: they would share its fate, and their
experiments run side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from ...core.errors import DrafthouseError, one_problem
from ...core.format import count
from ...profiles.resolved_types import ResolvedProfile
from .offers import Choice, Limits, country_of, offers_table


@dataclass(frozen=True)
class Fleet:
    """How many boxes, and what holds for them together; prices in $ an hour."""

    boxes: int = 1
    max_total: float = math.inf
    one_country: bool = False
    all_or_nothing: bool = False


def planned(found: Sequence[Choice], fleet: Fleet) -> list[Choice]:
    """The offers of which the first ``fleet.boxes`` are rented, and the others may take their places.

    ``found``: what fits, the cheapest first. Raises DrafthouseError where it is not enough for the whole fleet.
    """
    pools = [_one_a_machine(found)]
    if fleet.one_country:
        pools = _by_country(pools[0])
    enough = [pool for pool in pools if len(pool) >= fleet.boxes]
    if not enough:
        most = max(map(len, pools), default=0)
        where = " in one country" if fleet.one_country else ""
        do = "leave --region out, or try again later"
        if most:
            do = f"BOXES={most}, or allow more: MAX_PRICE=, --unverified, --reliability"
        raise one_problem(
            "too-few-machines",
            f"{count(len(found), 'suitable offer')}, on {count(most, 'machine')}{where}",
            f"{fleet.boxes} machines{where}: one for each box of the fleet",
            do,
            "vast.ai",
        )
    pool = min(enough, key=lambda pool: total_of(pool[: fleet.boxes]))
    total = total_of(pool[: fleet.boxes])
    if total > fleet.max_total:
        within = sum(total_of(pool[: place + 1]) <= fleet.max_total for place in range(fleet.boxes))
        do = f"MAX_TOTAL={total + 0.005:.2f}"
        if within:
            do += f", or BOXES={within}"
        raise one_problem(
            "rental-total-exceeded",
            f"the cheapest {fleet.boxes} boxes cost ${total:.3f} an hour",
            f"at most ${fleet.max_total:g} an hour for all",
            do,
            "vast.ai",
        )
    return pool


def total_of(boxes: Sequence[Choice]) -> float:
    """What they cost together; $ an hour."""
    return math.fsum(one.price.hour for one in boxes)


def summary(pool: Sequence[Choice], resolved: ResolvedProfile, limits: Limits, fleet: Fleet) -> str:
    """The table of offers with what stands behind its figures; ``pool`` is `planned`'s."""
    rental, chosen = resolved["rental"], pool[: fleet.boxes]
    prices = [choice.price for choice in chosen]
    parts = [math.fsum(map(attrgetter(part), prices)) * limits.hours for part in ("box", "disk", "traffic")]
    which, hour = str(chosen[0].number), ""
    if fleet.boxes > 1:
        which, hour = f"the first {fleet.boxes}", f"${total_of(chosen):.3f} an hour, "
    return "\n".join(
        [
            offers_table(pool, fleet.boxes),
            f"disk {rental['disk_gb']} GB (from the plan), download {rental['download_gb']:g} GB, driver"
            f" {rental['driver'] or 'any'} or newer, image {rental['image']}",
            f"estimated for {limits.hours:g} h on {which}: {hour}${math.fsum(parts):.2f}"
            f" (box ${parts[0]:.2f}, disk ${parts[1]:.2f}, traffic ${parts[2]:.2f}); {caps(limits, fleet)}",
        ]
    )


def caps(limits: Limits, fleet: Fleet) -> str:
    """The ceilings in words."""
    ceilings = []
    if math.isfinite(limits.max_price):
        ceilings.append(f"cap ${limits.max_price:g} an hour" + (" a box" if fleet.boxes > 1 else ""))
    if math.isfinite(fleet.max_total):
        ceilings.append(f"cap ${fleet.max_total:g} an hour for all")
    return ", ".join(ceilings) or "no cap was given"


def question(pool: Sequence[Choice], limits: Limits, fleet: Fleet) -> str:
    """What is asked before money is spent."""
    chosen = pool[: fleet.boxes]
    hour, total = total_of(chosen), math.fsum(one.price.total for one in chosen)
    boxes = ", ".join(str(one.number) for one in chosen)
    if fleet.boxes > 1:
        boxes = f"{fleet.boxes} boxes ({boxes})"
    return f"rent {boxes} for {limits.hours:g} h, ${hour:.3f} an hour, ${total:.2f}?"


def _one_a_machine(found: Sequence[Choice]) -> list[Choice]:
    """The cheapest offer of each machine; a machine without a number is one of its own."""
    kept: dict[object, Choice] = {}
    for one in found:
        machine = one.offer.get("machine_id")
        kept.setdefault(one.number if machine is None else str(machine), one)
    return list(kept.values())


def _by_country(found: Sequence[Choice]) -> list[list[Choice]]:
    """Offers by the country of their machine; without those whose country is not told."""
    pools: dict[str, list[Choice]] = {}
    for choice in found:
        country = country_of(choice.offer)
        if country:
            pools.setdefault(country, []).append(choice)
    return list(pools.values())


def incomplete(fleet: Fleet, ran: Sequence[str], why: Sequence[str]) -> DrafthouseError:
    """What to say where fewer boxes run than were asked for; ``ran``: each with its price, in words."""
    missing = fleet.boxes - len(ran)
    reasons = f" ({'; '.join(why)})" if why else ""
    if fleet.all_or_nothing:
        found = f"{len(ran)} of {fleet.boxes} boxes ran{reasons}; all were destroyed, as --all-or-nothing asks"
        do = "run it again later (other machines may be on offer), or without --all-or-nothing"
    else:
        found = f"{len(ran)} of {fleet.boxes} boxes run and bill: {', '.join(ran)}{reasons}"
        do = f"rent the rest (BOXES={missing}), go on with these, or make destroy"
    return one_problem("rental-incomplete", found, f"{fleet.boxes} running boxes", do, "vast.ai")
