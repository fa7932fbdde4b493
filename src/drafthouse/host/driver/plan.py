"""The types of the choice of an NVIDIA driver: the role's wishes, the cards of a box, the plan that `policy.py` makes.

Cards are recognised here, from the facts of the box (`facts.py`) by the table of GPUs (`profiles/catalog/gpus.yml`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict, cast

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.host.driver.facts import PciDevice
    from drafthouse.profiles.catalog_types import GpuRange, Gpus


class PackageRepository(TypedDict, total=False):
    """Where packages come from, and the key they are signed with; empty for the distribution's own archive."""

    url: str
    key: str
    fingerprint: str


class PlanFacts(TypedDict):
    """`Plan` as plain data.

    ``hold`` are packages to hold at their version; ``ours``: a run of ours installs the driver, or has installed it.
    """

    action: str
    why: str
    cards: list[str]
    branch: int
    open: bool
    repository: PackageRepository
    needs: list[str]
    pinning: list[str]
    driver: list[str]
    optional: list[str]
    unhold: list[str]
    reboot: bool
    warnings: list[str]
    hold: NotRequired[list[str]]
    ours: NotRequired[bool]


@dataclass(frozen=True)
class Wishes:
    """What the role was asked for; the words are those of its variables.

    ``branch`` is the lowest that is accepted, and the one that is installed where none is good enough. ``force``
    goes on although processes use the GPU, and replaces packages on hold.
    """

    branch: int = 580
    source: str = "nvidia"  # nvidia | distribution
    open: str = "auto"  # auto | true | false
    compute_only: bool = False
    reboot: str = "never"  # never | when_needed
    secure_boot: str = "refuse"  # refuse | warn
    force: bool = False
    repository_url: str = ""
    repository_key: str = ""
    repository_fingerprint: str = ""

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> Wishes:
        """The wishes of a role's variables, as Ansible hands them over."""
        known = {name: words[name] for name in cls.__dataclass_fields__ if name in words}
        return cls(**known)


@dataclass(frozen=True)
class Card:
    """One GPU as far as it is known: ``generation`` is empty where no table has it."""

    address: str
    name: str
    generation: str = ""
    open: str = ""
    cuda13: bool = True
    first_branch: int = 0
    last_branch: int = 0

    def __str__(self) -> str:
        return f"{self.name} ({self.generation or 'unknown generation'}) at {self.address}"


@dataclass
class Plan:
    """What is to be done; plain data after `as_dict`.

    ``action`` is leave, install or reboot. ``needs`` are packages without which nothing starts (headers),
    ``pinning`` comes before ``driver``, ``optional`` is taken where it exists. ``reboot`` says that the new driver
    will work after a reboot only. ``unhold``: packages that an earlier run of ours holds, and that must go or change.
    """

    action: str
    why: str
    cards: list[str]
    branch: int
    open: bool = False
    repository: PackageRepository = field(default_factory=PackageRepository)
    needs: list[str] = field(default_factory=list)
    pinning: list[str] = field(default_factory=list)
    driver: list[str] = field(default_factory=list)
    optional: list[str] = field(default_factory=list)
    unhold: list[str] = field(default_factory=list)
    reboot: bool = False
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> PlanFacts:
        """Plain data."""
        return cast("PlanFacts", asdict(self))


def branch_of(version: str) -> int:
    """The driver branch in a version of a driver or a package (`1:580.95.05-1ubuntu1`: 580); 0 for none."""
    found = re.match(r"(?:\d+:)?(\d+)\.", version)
    return int(found[1]) if found else 0


def recognise(devices: Iterable[PciDevice], gpus: Gpus) -> list[Card]:
    """The cards behind PCI devices."""
    return [_card(device, gpus) for device in devices]


def _card(device: PciDevice, gpus: Gpus) -> Card:
    """The card behind a PCI device: by its own id, else by the range of ids that holds it."""
    number = device["id"].lower()
    known = gpus["cards"].get(number)
    if known:
        name, generation, first_branch = known["name"], known["generation"], known.get("first_branch") or 0
    else:
        name, first_branch = device["name"] or f"10de:{number}", 0
        generation = _generation_in_ranges(number, gpus["ranges"])
    card = Card(device["address"], name, generation, first_branch=first_branch)
    facts = gpus["generations"].get(generation)
    if not facts:
        return card
    return replace(
        card,
        open=facts["open"],
        cuda13=facts["cuda13"],
        first_branch=first_branch or facts.get("first_branch") or 0,
        last_branch=facts.get("last_branch") or 0,
    )


def _generation_in_ranges(number: str, ranges: Iterable[GpuRange]) -> str:
    value = int(number, 16)
    for entry in ranges:
        if int(entry["first"], 16) <= value <= int(entry["last"], 16):
            return entry["generation"]
    return ""
