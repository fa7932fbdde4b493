"""Which offer of vast.ai to rent for a profile: the search, the price with everything in it, and the choice.

Pure. What a box must be stands in the resolved profile (`rental`, see profiles/rental_spec.py); here it becomes a query
in the words of vast.ai's search, and every offer that comes back is held against the same wishes once more: a search
that ignores a filter must not rent the wrong box, and a price that is missing is not a price of nothing.

The price of an hour, the only one that is compared with the cap:

    the box     dph_base, $ an hour of the GPUs
  + its disk    storage_cost ($ per GB and month) x GB rented / 720 hours: a month of 30 days is the dearer reading
  + traffic     inet_down_cost ($ per GB) x GB that the plan downloads / hours of the run
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

    #: A search in the words of the API: `{"num_gpus": {"eq": 2}}`.
    Query = dict[str, str | int | Mapping[str, bool | float | Sequence[str]] | Sequence[Sequence[str]]]

HOURS_OF_A_MONTH = 720
# A search answers with no more than this, whatever is asked for.
MOST_OFFERS = 64
HEAD = ("offer", "GPU", "where", "$/h all in", "box", "disk", "traffic", "total $", "Mbit/s", "reliable", "driver")
_SHOWN = 10
# "Sweden, SE": a search names a machine's place by its end.
_COUNTRY = re.compile(r"\b[A-Z]{2}$")
_PRICES = ("dph_total", "storage_cost", "inet_down_cost")


@dataclass(frozen=True)
class Limits:
    """What a person allows and asks for beyond the profile. Prices in $, ``download_mbps`` in Mbit/s."""

    max_price: float
    hours: float
    download_mbps: float = 500.0
    reliability: float = 0.98
    direct_ports: int = 2
    verified: bool = True
    countries: tuple[str, ...] = ()
    """Two letters each, as offers end with; empty: anywhere."""


@dataclass(frozen=True)
class Price:
    """What an hour costs, by part, and the whole run; $."""

    box: float
    disk: float
    traffic: float
    hours: float

    @property
    def hour(self) -> float:
        """What an hour costs with everything in it."""
        return self.box + self.disk + self.traffic

    @property
    def total(self) -> float:
        """What the run costs to its deadline."""
        return self.hour * self.hours


@dataclass(frozen=True)
class Choice:
    """An offer that fits, with its price."""

    offer: Offer
    price: Price

    @property
    def number(self) -> int:
        """The offer's number, which the request to rent it carries."""
        return int(self.offer["id"])


def query_of(resolved: ResolvedProfile, limits: Limits) -> Query:
    """The search for offers that satisfy ``resolved``; DrafthouseError where nobody rents out such hardware."""
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
    """The two letters of the country where a machine is, '' where that is not told."""
    found = _COUNTRY.search(str(offer.get("geolocation") or ""))
    if not found:
        return ""
    return found.group()


def driver_number(version: str) -> int:
    """A driver's version as the search compares it: 580.95.05 is 580095005. 0 for what is none."""
    numbers = [0, 0, 0]
    for place, part in enumerate(version.split(".")[:3]):
        if part.isdigit():
            numbers[place] = int(part)
    major, minor, patch = numbers
    return (major * 1000 + minor) * 1000 + patch


def priced(offer: Priced, rental: Rental, hours: float) -> Price:
    """The price of an hour on ``offer`` (or of an instance: both have these fields) with everything in it.

    Where the answer has no price of the bare box, its total counts as one: the disk is then counted twice rather
    than not at all.
    """
    disk = _number(offer, "storage_cost") * rental["disk_gb"] / HOURS_OF_A_MONTH
    base = total = _number(offer, "dph_total")
    if offer.get("dph_base") is not None:
        base = _number(offer, "dph_base")
    traffic = _number(offer, "inet_down_cost") * rental["download_gb"] / hours
    return Price(max(base, total - disk), disk, traffic, hours)


def figures_of(instance: Priced, offer: Priced) -> Priced:
    """The prices that an instance shows; those that it does not (yet) are the offer's, which had all of them."""

    def shown(key: str) -> object:
        return instance.get(key) if _is_figure(instance.get(key)) else offer.get(key)

    return {
        "dph_total": shown("dph_total"),
        "dph_base": shown("dph_base"),
        "storage_cost": shown("storage_cost"),
        "inet_down_cost": shown("inet_down_cost"),
    }


def unfit(offer: Offer, resolved: ResolvedProfile, limits: Limits) -> list[str]:
    """Why ``offer`` does not do; empty where it does. A figure that is missing counts as one that fails."""
    rental = resolved["rental"]
    least = {
        "gpu_ram": rental["memory_mib"] * MEMORY_TOLERANCE,
        "compute_cap": rental["compute_cap"],
        "disk_space": rental["disk_gb"],
        "inet_down": limits.download_mbps,
        "direct_port_count": limits.direct_ports,
        "duration": limits.hours * 3600,
    }
    if rental["cuda"]:
        least["cuda_max_good"] = float(rental["cuda"])
    why: list[str] = []
    for key, value in least.items():
        if _number(offer, key) < value:
            why.append(f"{key} {offer.get(key)}, not {value:g}")
    driver, country = offer.get("driver_version"), offer.get("geolocation") or "an unknown place"
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
    why += [fault for fault, applies in faults.items() if applies]
    price = priced(offer, rental, limits.hours)
    unpriced = [key for key in _PRICES if not _is_figure(offer.get(key)) or _number(offer, key) < 0]
    if unpriced:
        why.append(f"no {', '.join(unpriced)}")
    elif not 0 < price.hour <= limits.max_price:
        why.append(f"${price.hour:.3f} an hour, more than {limits.max_price:g}")
    return why


def choices(offers: Iterable[Offer], resolved: ResolvedProfile, limits: Limits) -> list[Choice]:
    """The offers that fit, the cheapest first; at one price the more reliable, then the faster line."""
    fitting = []
    for offer in offers:
        if not unfit(offer, resolved, limits):
            fitting.append(Choice(offer, priced(offer, resolved["rental"], limits.hours)))
    return sorted(
        fitting,
        key=lambda one: (
            one.price.hour,
            -_reliability(one.offer),
            -_number(one.offer, "inet_down"),
            one.number,
        ),
    )


def none_fits(offers: Sequence[Offer], resolved: ResolvedProfile, limits: Limits) -> DrafthouseError:
    """What to say where no offer fits: the cheapest price there is, or what each offer lacks."""
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
        reasons, price = unfit(offer, resolved, limits), priced(offer, rental, limits.hours).hour
        lacks.update(reasons)
        if len(reasons) == 1 and price > limits.max_price:
            too_dear.append(price)
    if too_dear:
        found = f"{count(len(offers), 'offer')}; the cheapest that fits costs ${min(too_dear):.3f} an hour"
        do = f"MAX_PRICE={min(too_dear) + 0.005:.2f}, or try again later"
    else:
        found = f"{count(len(offers), 'offer')}, none of which fits: {'; '.join(sorted(lacks)[:4])}"
        do = "try again later, or another profile"
    return one_problem("no-offer-fits", found, needed, do, "vast.ai")


def offers_table(found: Sequence[Choice], boxes: int = 1) -> str:
    """The offers that fit as a table, prices by part; the first ``boxes`` are those that are rented."""
    shown = max(_SHOWN, boxes)
    text = table(HEAD, [_row(one) for one in found[:shown]], WHOLE)
    if len(found) > shown:
        text += f"\nand {len(found) - shown} more"
    return text


def _row(one: Choice) -> list[str]:
    offer, price = one.offer, one.price
    gpu = f"{offer.get('num_gpus')} x {offer.get('gpu_name')}"
    money = [f"{value:.3f}" for value in (price.hour, price.box, price.disk, price.traffic)]
    return [
        str(one.number),
        gpu,
        str(offer.get("geolocation") or ""),
        *money,
        f"{price.total:.2f}",
        f"{_number(offer, 'inet_down'):.0f}",
        f"{_reliability(offer) * 100:.1f}%",
        str(offer.get("driver_version") or ""),
    ]


def _reliability(offer: Offer) -> float:
    """The share of time that a machine was up, 0 to 1; answers spell the key in two ways."""
    return max(_number(offer, "reliability"), _number(offer, "reliability2"))


def _is_verified(offer: Offer) -> bool:
    return offer.get("verified") is True or offer.get("verification") == "verified"


def _number(offer: Priced, key: str) -> float:
    """A figure of an answer; 0 where it is missing or none, which every least value is above."""
    value = offer.get(key)
    if not _is_figure(value):
        return 0.0
    return float(value)  # type: ignore[arg-type]  # _is_figure has looked


def _is_figure(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
