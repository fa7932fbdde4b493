"""The arguments with which scripts name a resolved profile, and the way to it without Ansible."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ..core.documents import BadDocument, checked_text, short
from ..core.errors import DrafthouseError, one_problem
from ..core.plain_text import printable
from ..core.yaml_documents import yaml_of
from ..profiles.catalog import House, load_house
from ..profiles.inventory_variables import site_on
from ..profiles.model_names import lacks_entry
from ..profiles.overrides import changed
from ..profiles.resolver import no_such_profile
from ..profiles.workspace import ROOT, folders_by_inventory, house_for, resolved_profile
from .parser import Parser, parser_of

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile


def arguments(doc: str | None, verb: str) -> Parser:
    """A parser with the arguments that name a profile, a site and overrides."""
    parser = parser_of(doc, verb)
    parser.add_argument("profile", help="profile name (listed by drafthouse profiles)")
    parser.add_argument(
        "--inventory",
        help="inventory that defines the site: a name, or a path (default: the hardware's)",
    )
    parser.add_argument("--host", default="", help="host of the inventory (default: its first)")
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
    """The resolved profile that the arguments name."""
    inventory = given.inventory or inventory_of(given.profile)
    have_entries(given.profile, given.set, inventory)
    site, of_inventory = site_on(inventory, given.host)
    if given.runtime:
        site["runtime"], site["runtime_asked"] = given.runtime, True
    return resolved_profile(given.profile, site, overrides(given.set) or of_inventory)


def have_entries(profile: str, settings: list[str], inventory: str | None = None) -> None:
    """Add the entries that a profile's models lack; what is wrong with the profile itself, resolving it says."""
    house = house_for(inventory)
    if profile in house.profiles and profile not in house.broken:
        wanted: Any = changed(house.profiles[profile], overrides(settings))
        speculation = wanted.get("speculation")
        draft = None
        if isinstance(speculation, dict):
            draft = speculation.get("draft")
        add_entries(wanted.get("target"), draft, house)


def add_entries(target: object, draft: object, house: House) -> None:
    """Add the entries that these two lack, to ``house`` too, and say so on standard error."""
    if lacks_entry(target, house) or lacks_entry(draft, house):
        # What reads repositories takes half a second to import, which every other profile is spared.
        from ..models.first_use import add_missing  # noqa: PLC0415
        from ..weights.hub_habits import usual_token  # noqa: PLC0415

        add_missing(target, draft, house, ROOT, lambda line: print(line, file=sys.stderr), token=usual_token())


def inventory_of(profile: str, named: str | None = None) -> str:
    """The inventory ``named``, else the one that a profile's hardware is for; 'workstation' where it is not known.

    A profile that only the own folders of an inventory have is for that inventory. Raises DrafthouseError for a
    profile that is broken or not there.
    """
    house = house_for(named) if named else load_house(ROOT)
    if profile not in house.profiles and not named:
        for inventory in folders_by_inventory():
            house = house_for(inventory)
            if profile in house.profiles:
                named = inventory
                break
    if profile in house.broken:
        raise DrafthouseError(house.broken[profile])
    if profile not in house.profiles:
        raise DrafthouseError(no_such_profile(house, profile))
    if named:
        return named
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
