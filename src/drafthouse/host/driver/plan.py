"""Types for choosing an NVIDIA driver: the role's wishes, the GPUs of a machine, and the plan from `policy.py`.

`recognise` looks up a machine's GPUs (PCI devices, from `facts.py`) in the table `profiles/catalog/gpus.yml`.
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
    """Package repository: URL, URL of the signing key, and its fingerprint; {} means the distribution's archive."""

    url: str
    key: str
    fingerprint: str


class PlanFacts(TypedDict):
    """`Plan` as plain data, for Ansible, with the same keys; the action plugin adds the last two."""

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
    hold: NotRequired[list[str]]  # packages to hold at their version
    ours: NotRequired[bool]  # Drafthouse installed the driver, or will


@dataclass(frozen=True)
class Wishes:
    """The settings of the driver role, named like its variables."""

    branch: int = 580  # the lowest accepted driver branch, and the one to install if the present driver is older
    source: str = "nvidia"  # nvidia | distribution
    open: str = "auto"  # open kernel modules: auto | true | false
    compute_only: bool = False
    reboot: str = "never"  # never | when_needed
    secure_boot: str = "refuse"  # refuse | warn
    force: bool = False  # continue although processes use a GPU, and replace packages on hold
    repository_url: str = ""
    repository_key: str = ""
    repository_fingerprint: str = ""

    @classmethod
    def of(cls, variables: Mapping[str, Any]) -> Wishes:
        """The wishes in a role's variables; names that are no wish are ignored."""
        settings = {name: variables[name] for name in cls.__dataclass_fields__ if name in variables}
        return cls(**settings)


@dataclass(frozen=True)
class Card:
    """A GPU at a PCI address."""

    address: str
    name: str
    generation: str = ""  # '' if the table lacks the GPU; the fields below then have their defaults
    open: str = ""  # its support of the open kernel modules: required | recommended | impossible
    cuda13: bool = True  # CUDA 13 supports it
    first_branch: int = 0  # the oldest driver branch that supports it; 0: no limit
    last_branch: int = 0  # the newest one; 0: no limit

    def __str__(self) -> str:
        return f"{self.name} ({self.generation or 'unknown generation'}) at {self.address}"


@dataclass
class Plan:
    """What to do about the driver, and why."""

    action: str  # leave | install | reboot
    why: str
    cards: list[str]  # the machine's GPUs, as text
    branch: int  # of the driver to install, or the lowest that is accepted
    open: bool = False  # install the open kernel modules
    repository: PackageRepository = field(default_factory=PackageRepository)
    needs: list[str] = field(default_factory=list)  # packages for building the modules: kernel headers
    pinning: list[str] = field(default_factory=list)  # packages to install before `driver`: they pin the branch
    driver: list[str] = field(default_factory=list)  # packages of the driver
    optional: list[str] = field(default_factory=list)  # packages of the driver to install if they exist
    unhold: list[str] = field(default_factory=list)  # packages on hold that must change
    reboot: bool = False  # the new driver works only after a reboot
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> PlanFacts:
        """The plan as plain data."""
        return cast("PlanFacts", asdict(self))


def branch_of(version: str) -> int:
    """The branch of a driver's or package's version (`1:580.95.05-1ubuntu1`: 580); 0 if it has none."""
    match = re.match(r"(?:\d+:)?(\d+)\.", version)
    return int(match[1]) if match else 0


def recognise(devices: Iterable[PciDevice], gpus: Gpus) -> list[Card]:
    """The GPUs behind PCI devices; ``gpus`` is the table."""
    return [_card(device, gpus) for device in devices]


def _card(device: PciDevice, gpus: Gpus) -> Card:
    """The GPU behind a PCI device, looked up by its device id, else by the range of ids that contains it.

    A card's own first branch counts, else that of its generation.
    """
    device_id = device["id"].lower()
    entry = gpus["cards"].get(device_id)
    if entry:
        name = entry["name"]
        generation = entry["generation"]
        first_branch = entry.get("first_branch") or 0
    else:
        name = device["name"] or f"10de:{device_id}"
        generation = _generation_in_ranges(device_id, gpus["ranges"])
        first_branch = 0
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


def _generation_in_ranges(device_id: str, ranges: Iterable[GpuRange]) -> str:
    """The generation whose range of device ids (hex digits) contains the id; '' if none does."""
    id_number = int(device_id, 16)
    for id_range in ranges:
        if int(id_range["first"], 16) <= id_number <= int(id_range["last"], 16):
            return id_range["generation"]
    return ""
