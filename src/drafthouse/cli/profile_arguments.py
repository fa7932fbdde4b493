"""The arguments with which scripts name a resolved profile, and the way to it without Ansible."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ..core.documents import BadDocument, checked_text, short
from ..core.errors import DrafthouseError, did_you_mean, one_problem
from ..core.plain_text import printable
from ..core.yaml_documents import yaml_of
from ..profiles.catalog import House, load_house
from ..profiles.model_names import lacks_entry
from ..profiles.overrides import changed
from ..profiles.workspace import ROOT, resolved_profile, site_of_inventory
from .parser import Parser, parser_of

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile


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
    have_entries(given.profile, given.set)
    inventory = given.inventory or inventory_of(given.profile)
    site = site_of_inventory(inventory)
    if given.runtime:
        site["runtime"], site["runtime_asked"] = given.runtime, True
    return resolved_profile(given.profile, site, overrides(given.set))


def have_entries(profile: str, settings: list[str]) -> None:
    """Add the entries that a profile's models lack; what is wrong with the profile itself, resolving it says."""
    house = load_house(ROOT)
    if profile in house.profiles and profile not in house.broken:
        wanted: Any = changed(house.profiles[profile], overrides(settings))
        speculation = wanted.get("speculation")
        add_entries(wanted.get("target"), speculation.get("draft") if isinstance(speculation, dict) else None, house)


def add_entries(target: object, draft: object, house: House) -> None:
    """Add the entries that these two lack, to ``house`` too, and say so on standard error."""
    if lacks_entry(target, house) or lacks_entry(draft, house):
        # What reads repositories takes half a second to import, which every other profile is spared.
        from ..models.first_use import add_missing  # noqa: PLC0415
        from ..weights.hub_habits import usual_token  # noqa: PLC0415

        add_missing(target, draft, house, ROOT, lambda line: print(line, file=sys.stderr), token=usual_token())


def inventory_of(profile: str) -> str:
    """Return the inventory that a profile's hardware is for; 'workstation' where that cannot be told."""
    house = load_house(ROOT)
    if profile in house.broken:
        raise DrafthouseError(house.broken[profile])
    if profile not in house.profiles:
        do = did_you_mean(profile, house.profiles)
        raise one_problem("no-such-profile", f"no profile '{profile}'", "a profile listed by drafthouse profiles", do)
    hardware = house.hardware.get(house.profiles[profile]["hardware"])
    return hardware["inventory"] if hardware else "workstation"


def overrides(settings: list[str]) -> dict[str, Any]:
    """Turn ``a.b=1`` into ``{"a": {"b": 1}}``; values are read as YAML."""
    result: dict[str, Any] = {}
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not path:
            raise one_problem(
                "invalid-option", f"--set {setting}", "PATH=VALUE", "write it as speculation.num_speculative_tokens=5"
            )
        place = result
        *parents, last = path.split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                found = f"a value for '{parent}', and another inside it"
                raise one_problem(
                    "conflicting-options", found, "one of the two", "remove one --set", f"--set {short(path)}"
                )
        try:
            checked_text(path)
            place[last] = yaml_of(value)
        except BadDocument as error:
            problem = error.problem(f"--set {short(printable(path))}", "a YAML value", "correct it, or quote it")
            raise DrafthouseError(problem) from None
    return result
