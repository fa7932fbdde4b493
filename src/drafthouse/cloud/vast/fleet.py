"""Choose the offers for a fleet of boxes: the cheapest machines, optionally in one country and below a total price.

Pure functions. A fleet usually has one box. Two boxes of a fleet are never on the same machine: they would fail
together, and their measurements would disturb each other.
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
    """Number of boxes and the conditions for all of them together."""

    boxes: int = 1
    max_total: float = math.inf  # $ per hour
    one_country: bool = False  # all in the same one
    all_or_nothing: bool = False  # destroy those that run if not all do


def plan_fleet(fitting: Sequence[Choice], fleet: Fleet) -> list[Choice]:
    """Offers on different machines, the cheapest first; the first ``fleet.boxes`` are to be rented, others are spares.

    ``fitting`` has the suitable offers, the cheapest first. With ``one_country`` all are in the country in which the
    boxes cost least. Raises DrafthouseError if there are too few machines, or if they cost more than ``max_total``.
    """
    candidate_lists = [_cheapest_per_machine(fitting)]
    if fleet.one_country:
        candidate_lists = _by_country(candidate_lists[0])
    sufficient = [candidates for candidates in candidate_lists if len(candidates) >= fleet.boxes]
    if not sufficient:
        max_boxes = max(map(len, candidate_lists), default=0)
        where = " in one country" if fleet.one_country else ""
        do = "leave --region out, or try again later"
        if max_boxes:
            do = f"BOXES={max_boxes}, or allow more: MAX_PRICE=, --unverified, --reliability"
        raise one_problem(
            "too-few-machines",
            f"{count(len(fitting), 'suitable offer')}, on {count(max_boxes, 'machine')}{where}",
            f"{fleet.boxes} machines{where}: one for each box of the fleet",
            do,
            "vast.ai",
        )
    candidates = min(sufficient, key=lambda candidates: total_price(candidates[: fleet.boxes]))
    total = total_price(candidates[: fleet.boxes])
    if total > fleet.max_total:
        affordable_boxes = 0
        while total_price(candidates[: affordable_boxes + 1]) <= fleet.max_total:
            affordable_boxes += 1
        do = f"MAX_TOTAL={total + 0.005:.2f}"
        if affordable_boxes:
            do += f", or BOXES={affordable_boxes}"
        raise one_problem(
            "rental-total-exceeded",
            f"the cheapest {fleet.boxes} boxes cost ${total:.3f} an hour",
            f"at most ${fleet.max_total:g} an hour for all",
            do,
            "vast.ai",
        )
    return candidates


def total_price(boxes: Sequence[Choice]) -> float:
    """Total price in $ per hour."""
    return math.fsum(choice.price.hour for choice in boxes)


def summary(candidates: Sequence[Choice], resolved: ResolvedProfile, limits: Limits, fleet: Fleet) -> str:
    """Table of the offers from `plan_fleet`, and the assumptions of the estimated cost."""
    rental = resolved["rental"]
    chosen = candidates[: fleet.boxes]
    prices = [choice.price for choice in chosen]
    parts = [math.fsum(map(attrgetter(part), prices)) * limits.hours for part in ("box", "disk", "traffic")]
    box, disk, traffic = parts  # $ for all boxes until the deadline
    offers = str(chosen[0].number)
    hourly = ""
    if fleet.boxes > 1:
        offers = f"the first {fleet.boxes}"
        hourly = f"${total_price(chosen):.3f} an hour, "
    return "\n".join(
        [
            offers_table(candidates, fleet.boxes),
            f"disk {rental['disk_gb']} GB (from the plan), download {rental['download_gb']:g} GB, driver"
            f" {rental['driver'] or 'any'} or newer, image {rental['image']}",
            f"estimated for {limits.hours:g} h on {offers}: {hourly}${math.fsum(parts):.2f}"
            f" (box ${box:.2f}, disk ${disk:.2f}, traffic ${traffic:.2f}); {caps_text(limits, fleet)}",
        ]
    )


def caps_text(limits: Limits, fleet: Fleet) -> str:
    """Price caps as text."""
    caps = []
    if math.isfinite(limits.max_price):
        caps.append(f"cap ${limits.max_price:g} an hour" + (" a box" if fleet.boxes > 1 else ""))
    if math.isfinite(fleet.max_total):
        caps.append(f"cap ${fleet.max_total:g} an hour for all")
    return ", ".join(caps) or "no cap was given"


def confirmation(candidates: Sequence[Choice], limits: Limits, fleet: Fleet) -> str:
    """Question that the user must confirm before anything is rented."""
    chosen = candidates[: fleet.boxes]
    hourly = total_price(chosen)
    total = math.fsum(choice.price.total for choice in chosen)
    boxes = ", ".join(str(choice.number) for choice in chosen)
    if fleet.boxes > 1:
        boxes = f"{fleet.boxes} boxes ({boxes})"
    return f"rent {boxes} for {limits.hours:g} h, ${hourly:.3f} an hour, ${total:.2f}?"


def _cheapest_per_machine(fitting: Sequence[Choice]) -> list[Choice]:
    """The cheapest offer of each machine; offers without a machine id count as separate machines."""
    by_machine: dict[object, Choice] = {}
    for choice in fitting:
        machine = choice.offer.get("machine_id")
        by_machine.setdefault(choice.number if machine is None else str(machine), choice)
    return list(by_machine.values())


def _by_country(fitting: Sequence[Choice]) -> list[list[Choice]]:
    """A list of offers for each country; offers without a known country are left out."""
    by_country: dict[str, list[Choice]] = {}
    for choice in fitting:
        country = country_of(choice.offer)
        if country:
            by_country.setdefault(country, []).append(choice)
    return list(by_country.values())


def incomplete_fleet(fleet: Fleet, ran: Sequence[str], why: Sequence[str]) -> DrafthouseError:
    """Error if fewer boxes run than requested; ``ran`` describes each with its price, ``why`` has the reasons."""
    missing = fleet.boxes - len(ran)
    reasons = f" ({'; '.join(why)})" if why else ""
    if fleet.all_or_nothing:
        found = f"{len(ran)} of {fleet.boxes} boxes ran{reasons}; all were destroyed, as --all-or-nothing asks"
        do = "run it again later (other machines may be on offer), or without --all-or-nothing"
    else:
        found = f"{len(ran)} of {fleet.boxes} boxes run and bill: {', '.join(ran)}{reasons}"
        do = f"rent the rest (BOXES={missing}), go on with these, or make destroy"
    return one_problem("rental-incomplete", found, f"{fleet.boxes} running boxes", do, "vast.ai")
