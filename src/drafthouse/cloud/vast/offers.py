"""Choose an offer of vast.ai for a profile: build the search query, compute the full price, and rank the offers.

Pure functions. The resolved profile has the requirements (`rental`, see profiles/rental_spec.py). Every offer in the
answer is checked against them again, in case the search ignores a filter. An offer with a missing price is rejected.

The hourly price, which is compared with the cap, has three parts:

    the box     dph_base, in $ per hour for the GPUs
  + its disk    storage_cost ($ per GB and month) x GB rented / 720 hours; a month of 30 days gives the higher price
  + traffic     inet_down_cost ($ per GB) x GB to download / hours of the rental
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.errors import DrafthouseError, one_problem
from ...core.format import count
from ...core.table import WHOLE, table
from ...profiles.rental_spec import MEMORY_TOLERANCE
from ...profiles.resolved_types import Rental, ResolvedProfile

if TYPE_CHECKING:
    from drafthouse.cloud.vast.rows import Offer, Priced

    #: A search query of the API, such as `{"num_gpus": {"eq": 2}}`.
    Query = dict[str, str | int | Mapping[str, bool | float | Sequence[str]] | Sequence[Sequence[str]]]

HOURS_PER_MONTH = 720
# Offers of one search; the API never returns more.
MOST_OFFERS = 64
HEAD = ("offer", "GPU", "where", "$/h all in", "box", "disk", "traffic", "total $", "Mbit/s", "reliable", "driver")
_SHOWN_ROWS = 10
# The country code at the end of a location such as "Sweden, SE".
_COUNTRY_CODE = re.compile(r"\b[A-Z]{2}$")
_REQUIRED_PRICES = ("dph_total", "storage_cost", "inet_down_cost")


@dataclass(frozen=True)
class Limits:
    """The user's limits for an offer."""

    max_price: float  # $ per hour
    hours: float  # of the rental
    download_mbps: float = 500.0  # Mbit/s at least
    reliability: float = 0.98  # at least, as a fraction of the time
    direct_ports: int = 2  # at least
    verified: bool = True  # only machines that vast.ai has verified
    countries: tuple[str, ...] = ()  # codes of two letters; empty for any country


@dataclass(frozen=True)
class Price:
    """Price of a rental; the head of this file explains the parts."""

    box: float  # $ per hour, as the next two
    disk: float
    traffic: float  # for the downloads, spread over the rental
    hours: float  # of the rental

    @property
    def hour(self) -> float:
        """Full price of an hour in $."""
        return self.box + self.disk + self.traffic

    @property
    def total(self) -> float:
        """Full price until the deadline in $."""
        return self.hour * self.hours


@dataclass(frozen=True)
class Choice:
    """A suitable offer and its price."""

    offer: Offer
    price: Price

    @property
    def number(self) -> int:
        """Number of the offer, which the create request names."""
        return int(self.offer["id"])


def query_of(resolved: ResolvedProfile, limits: Limits) -> Query:
    """Query for offers that satisfy the profile. Raises DrafthouseError if vast.ai has no name for its hardware."""
    rental = resolved["rental"]
    if not rental["vast_names"]:
        raise one_problem(
            "hardware-not-rentable",
            f"'{resolved['hardware']['id']}' ({resolved['hardware']['name']}), which has no vast.ai name",
            "hardware that has `vast_names` in profiles/catalog/hardware.yml",
            "choose a profile for a GPU on offer there, or add the name that vast.ai's search uses",
            f"profiles/{resolved['profile']}.yml: hardware",
        )
    query: Query = {
        "type": "on-demand",
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "external": {"eq": False},
        "gpu_name": {"in": list(rental["vast_names"])},
        "num_gpus": {"eq": rental["devices"]},
        "gpu_ram": {"gte": int(rental["memory_mib"] * MEMORY_TOLERANCE)},
        "compute_cap": {"gte": rental["compute_cap"]},
        "cpu_arch": {"in": ["amd64"]},
        "disk_space": {"gte": rental["disk_gb"]},
        "inet_down": {"gte": limits.download_mbps},
        "direct_port_count": {"gte": limits.direct_ports},
        "reliability": {"gte": limits.reliability},
        "duration": {"gte": limits.hours * 3600},
        "allocated_storage": rental["disk_gb"],
        "order": [["dph_total", "asc"]],
        "limit": MOST_OFFERS,
    }
    if limits.verified:
        query["verified"] = {"eq": True}
    if limits.countries:
        query["geolocation"] = {"in": list(limits.countries)}
    if rental["cuda"]:
        query["cuda_max_good"] = {"gte": float(rental["cuda"])}
        query["driver_version"] = {"gte": driver_number(rental["driver"])}
    return query


def country_of(offer: Offer) -> str:
    """Country code of a machine, '' if it is unknown."""
    match = _COUNTRY_CODE.search(str(offer.get("geolocation") or ""))
    if not match:
        return ""
    return match.group()


def driver_number(version: str) -> int:
    """Driver version as an integer, as the search compares it: 580095005 for 580.95.05; 0 for no version."""
    parts = [0, 0, 0]
    for index, part in enumerate(version.split(".")[:3]):
        if part.isdigit():
            parts[index] = int(part)
    major, minor, patch = parts
    return (major * 1000 + minor) * 1000 + patch


def full_price(offer: Priced, rental: Rental, hours: float) -> Price:
    """Full price of an offer, or of an instance, which has the same fields; ``hours`` is the length of the rental.

    If there is no price of the box alone (dph_base), the total is used instead. The disk may then be counted twice, but
    never left out.
    """
    disk = _figure(offer, "storage_cost") * rental["disk_gb"] / HOURS_PER_MONTH
    base = total = _figure(offer, "dph_total")
    if offer.get("dph_base") is not None:
        base = _figure(offer, "dph_base")
    traffic = _figure(offer, "inet_down_cost") * rental["download_gb"] / hours
    return Price(max(base, total - disk), disk, traffic, hours)


def prices_of_instance(instance: Priced, offer: Priced) -> Priced:
    """Price fields of an instance; a field that it lacks is taken from its offer, which had all of them."""

    def price_field(key: str) -> object:
        return instance.get(key) if _is_figure(instance.get(key)) else offer.get(key)

    return {
        "dph_total": price_field("dph_total"),
        "dph_base": price_field("dph_base"),
        "storage_cost": price_field("storage_cost"),
        "inet_down_cost": price_field("inet_down_cost"),
    }


def reasons_against(offer: Offer, resolved: ResolvedProfile, limits: Limits) -> list[str]:
    """Reasons why an offer is not suitable; [] if it is. A missing figure counts as too low."""
    rental = resolved["rental"]
    minimums = {
        "gpu_ram": rental["memory_mib"] * MEMORY_TOLERANCE,
        "compute_cap": rental["compute_cap"],
        "disk_space": rental["disk_gb"],
        "inet_down": limits.download_mbps,
        "direct_port_count": limits.direct_ports,
        "duration": limits.hours * 3600,
    }
    if rental["cuda"]:
        minimums["cuda_max_good"] = float(rental["cuda"])
    reasons: list[str] = []
    for key, value in minimums.items():
        if _figure(offer, key) < value:
            reasons.append(f"{key} {offer.get(key)}, not {value:g}")
    driver = offer.get("driver_version")
    country = offer.get("geolocation") or "an unknown place"
    faults = {
        f"reliability below {limits.reliability:g}": _reliability(offer) < limits.reliability,
        f"driver {driver}, not {rental['driver']}": bool(rental["driver"])
        and driver_number(str(driver or "")) < driver_number(rental["driver"]),
        f"a {offer.get('gpu_name')}": str(offer.get("gpu_name", "")).replace("_", " ") not in rental["vast_names"],
        f"{offer.get('num_gpus')} GPUs": offer.get("num_gpus") != rental["devices"],
        f"a {offer.get('cpu_arch')} processor": offer.get("cpu_arch") not in ("amd64", None),
        "no number": not isinstance(offer.get("id"), int),
        "taken": offer.get("rentable") is False or offer.get("rented") is True,
        "another marketplace's": offer.get("external") is True,
        f"in {country}": bool(limits.countries) and country_of(offer) not in limits.countries,
        "not verified": limits.verified and not _is_verified(offer),
    }
    reasons += [fault for fault, applies in faults.items() if applies]
    price = full_price(offer, rental, limits.hours)
    # A missing price would make the offer look cheaper than it is.
    unpriced = [key for key in _REQUIRED_PRICES if not _is_figure(offer.get(key)) or _figure(offer, key) < 0]
    if unpriced:
        reasons.append(f"no {', '.join(unpriced)}")
    elif not 0 < price.hour <= limits.max_price:
        reasons.append(f"${price.hour:.3f} an hour, more than {limits.max_price:g}")
    return reasons


def suitable_offers(offers: Iterable[Offer], resolved: ResolvedProfile, limits: Limits) -> list[Choice]:
    """Suitable offers, the cheapest first; for the same price by reliability, then by download speed."""
    fitting = []
    for offer in offers:
        if not reasons_against(offer, resolved, limits):
            fitting.append(Choice(offer, full_price(offer, resolved["rental"], limits.hours)))
    return sorted(
        fitting,
        key=lambda choice: (
            choice.price.hour,
            -_reliability(choice.offer),
            -_figure(choice.offer, "inet_down"),
            choice.number,
        ),
    )


def no_offer_fits(offers: Sequence[Offer], resolved: ResolvedProfile, limits: Limits) -> DrafthouseError:
    """Error if no offer is suitable.

    It names the price of the cheapest offer that fits but for its price; without one, what the offers lack; without
    any offer, that there is none.
    """
    rental = resolved["rental"]
    needed = (
        f"{rental['devices']} x {' or '.join(rental['vast_names'])}, {rental['disk_gb']} GB of disk, driver"
        f" {rental['driver'] or 'of any version'}, for at most ${limits.max_price:g} an hour with disk and traffic"
    )
    if limits.countries:
        needed += f", in {' or '.join(limits.countries)}"
    if not offers:
        do = "try again later, or allow more: --download-mbps, --reliability, --unverified, another profile"
        return one_problem("no-offer-fits", "no offer at all", needed, do, "vast.ai")
    too_dear: list[float] = []
    lacks: set[str] = set()
    for offer in offers:
        reasons = reasons_against(offer, resolved, limits)
        price = full_price(offer, rental, limits.hours).hour
        lacks.update(reasons)
        # The price is the only reason, so a higher cap would accept the offer.
        if len(reasons) == 1 and price > limits.max_price:
            too_dear.append(price)
    if too_dear:
        found = f"{count(len(offers), 'offer')}; the cheapest that fits costs ${min(too_dear):.3f} an hour"
        do = f"MAX_PRICE={min(too_dear) + 0.005:.2f}, or try again later"
    else:
        found = f"{count(len(offers), 'offer')}, none of which fits: {'; '.join(sorted(lacks)[:4])}"
        do = "try again later, or another profile"
    return one_problem("no-offer-fits", found, needed, do, "vast.ai")


def offers_table(fitting: Sequence[Choice], boxes: int = 1) -> str:
    """Table of suitable offers with the parts of their prices; the first ``boxes`` of them are to be rented."""
    shown = max(_SHOWN_ROWS, boxes)
    text = table(HEAD, [_row(choice) for choice in fitting[:shown]], WHOLE)
    if len(fitting) > shown:
        text += f"\nand {len(fitting) - shown} more"
    return text


def _row(choice: Choice) -> list[str]:
    """Row of `offers_table`, with the columns HEAD."""
    offer = choice.offer
    price = choice.price
    gpu = f"{offer.get('num_gpus')} x {offer.get('gpu_name')}"
    money = [f"{value:.3f}" for value in (price.hour, price.box, price.disk, price.traffic)]
    return [
        str(choice.number),
        gpu,
        str(offer.get("geolocation") or ""),
        *money,
        f"{price.total:.2f}",
        f"{_figure(offer, 'inet_down'):.0f}",
        f"{_reliability(offer) * 100:.1f}%",
        str(offer.get("driver_version") or ""),
    ]


def _reliability(offer: Offer) -> float:
    """Fraction of time that a machine was up, 0 to 1; answers have it under one of two keys."""
    return max(_figure(offer, "reliability"), _figure(offer, "reliability2"))


def _is_verified(offer: Offer) -> bool:
    return offer.get("verified") is True or offer.get("verification") == "verified"


def _figure(offer: Priced, key: str) -> float:
    """Number in a field of an answer; 0, which is below every minimum, if it is missing or not a number."""
    value = offer.get(key)
    if not _is_figure(value):
        return 0.0
    return float(value)  # type: ignore[arg-type]  # checked by _is_figure


def _is_figure(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
