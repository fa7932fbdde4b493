"""The arguments with which scripts name a resolved profile, and the way to it without Ansible."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..core.documents import BadDocument, checked_text, short
from ..core.errors import DrafthouseError, Problem, did_you_mean
from ..core.plain_text import printable
from ..core.yaml_documents import yaml_of
from ..profiles.catalog import load_house
from ..profiles.workspace import ROOT, resolved_profile, site_of_inventory
from .parser import Parser, parser_of

if TYPE_CHECKING:
    from ..profiles.resolved_types import ResolvedProfile


def arguments(doc: str | None, verb: str) -> Parser:
    """Return a parser with the arguments that name a profile, a site and overrides."""
    parser = parser_of(doc, verb)
    parser.add_argument("profile", help="profile name (listed by drafthouse profiles)")
    parser.add_argument(
        "--inventory", help="inventory that defines the site: local, workstation, vastai (default: the hardware's)"
    )
    parser.add_argument("--runtime", choices=("docker", "process"), help="runtime (default: the inventory's)")
    set_option(parser)
    return parser


def set_option(parser: Parser) -> None:
    """Add the option that `overrides` reads."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="override one value of the profile, for example speculation.num_speculative_tokens=5 (repeatable)",
    )


def resolved(given: argparse.Namespace) -> ResolvedProfile:
    """Return the resolved profile that the arguments name."""
    inventory = given.inventory or inventory_of(given.profile)
    site = site_of_inventory(inventory)
    if given.runtime:
        site["runtime"], site["runtime_asked"] = given.runtime, True
    return resolved_profile(given.profile, site, overrides(given.set))


def inventory_of(profile: str) -> str:
    """Return the inventory that a profile's hardware is for; 'workstation' where that cannot be told."""
    house = load_house(ROOT)
    if profile in house.broken:
        raise DrafthouseError(house.broken[profile])
    if profile not in house.profiles:
        do = did_you_mean(profile, house.profiles)
        raise DrafthouseError(
            Problem("no-such-profile", f"no profile '{profile}'", "one that drafthouse profiles lists", do)
        )
    hardware = house.hardware.get(house.profiles[profile]["hardware"])
    return hardware["inventory"] if hardware else "workstation"


def overrides(settings: list[str]) -> dict[str, Any]:
    """Turn ``a.b=1`` into ``{"a": {"b": 1}}``; values are read as YAML."""
    result: dict[str, Any] = {}
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not path:
            raise DrafthouseError(
                Problem(
                    "invalid-option",
                    f"--set {setting}",
                    "PATH=VALUE",
                    "write it as speculation.num_speculative_tokens=5",
                )
            )
        place = result
        *parents, last = path.split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                found = f"a value for '{parent}', and another inside it"
                raise DrafthouseError(
                    Problem("conflicting-options", found, "one of the two", "remove one --set", f"--set {short(path)}")
                )
        try:
            checked_text(path)
            place[last] = yaml_of(value)
        except BadDocument as error:
            problem = error.problem(
                f"--set {short(printable(path))}", "a value, as YAML has it", "correct it, or quote it"
            )
            raise DrafthouseError(problem) from None
    return result
