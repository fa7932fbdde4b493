"""The command-line arguments that name a profile, and how verbs resolve it without Ansible."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ..core.documents import BadDocument, checked_text, short
from ..core.errors import DrafthouseError, one_problem
from ..core.plain_text import printable
from ..core.yaml_documents import yaml_of
from ..profiles.catalog import Catalog, load_catalog
from ..profiles.inventory_variables import site_on
from ..profiles.model_names import lacks_entry
from ..profiles.overrides import with_overrides
from ..profiles.resolver import no_such_profile
from ..profiles.workspace import ROOT, catalog_for, folders_by_inventory, resolved_profile
from .parser import Parser, parser_of

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile


def arguments(doc: str | None, verb: str) -> Parser:
    """A parser with the arguments that name a profile, its site (inventory, host, runtime) and overrides."""
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
    """Add --set, whose values `overrides` reads."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="override one value of the profile, for example speculation.num_speculative_tokens=5 (repeatable)",
    )


def resolved(args: argparse.Namespace) -> ResolvedProfile:
    """The resolved profile that the arguments name; with --set, the overrides of the inventory do not count."""
    inventory = args.inventory or inventory_of(args.profile)
    add_missing_entries(args.profile, args.set, inventory)
    site, inventory_overrides = site_on(inventory, args.host)
    if args.runtime:
        site["runtime"] = args.runtime
        site["runtime_asked"] = True  # it is not replaced where the profile lacks it
    return resolved_profile(args.profile, site, overrides(args.set) or inventory_overrides)


def add_missing_entries(profile: str, settings: list[str], inventory: str | None = None) -> None:
    """Add a catalogue entry for each model of a profile that has none; errors of the profile are found later."""
    catalog = catalog_for(inventory)
    if profile in catalog.profiles and profile not in catalog.broken:
        overridden: Any = with_overrides(catalog.profiles[profile], overrides(settings))
        speculation = overridden.get("speculation")
        draft = None
        if isinstance(speculation, dict):
            draft = speculation.get("draft")
        add_entries(overridden.get("target"), draft, catalog)


def add_entries(target: object, draft: object, catalog: Catalog) -> None:
    """Add missing catalogue entries of target and draft, on disk and in ``catalog``; report it on standard error."""
    if lacks_entry(target, catalog) or lacks_entry(draft, catalog):
        # Importing the code that reads repositories takes half a second, so only these profiles import it.
        from ..models.first_use import add_missing  # noqa: PLC0415
        from ..weights.hub_habits import usual_token  # noqa: PLC0415

        add_missing(target, draft, catalog, ROOT, lambda line: print(line, file=sys.stderr), token=usual_token())


def inventory_of(profile: str, named: str | None = None) -> str:
    """The inventory for a profile: the first of these that there is.

    1. ``named``;
    2. the inventory in whose own profile folders the profile is, if it is nowhere else;
    3. the one of its hardware;
    4. 'workstation', for hardware that the catalogue lacks.

    Raises DrafthouseError for a broken or unknown profile.
    """
    catalog = catalog_for(named) if named else load_catalog(ROOT)
    if profile not in catalog.profiles and not named:
        for inventory in folders_by_inventory():
            catalog = catalog_for(inventory)
            if profile in catalog.profiles:
                named = inventory
                break
    if profile in catalog.broken:
        raise DrafthouseError(catalog.broken[profile])
    if profile not in catalog.profiles:
        raise DrafthouseError(no_such_profile(catalog, profile))
    if named:
        return named
    hardware = catalog.hardware.get(catalog.profiles[profile]["hardware"])
    return hardware["inventory"] if hardware else "workstation"


def overrides(settings: list[str]) -> dict[str, Any]:
    """The nested mapping of --set options: ``a.b=1`` becomes ``{"a": {"b": 1}}``. Values are read as YAML."""
    result: dict[str, Any] = {}
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not path:
            raise one_problem(
                "invalid-option", f"--set {setting}", "PATH=VALUE", "write it as speculation.num_speculative_tokens=5"
            )
        mapping = result
        *parents, last = path.split(".")
        for parent in parents:
            mapping = mapping.setdefault(parent, {})
            if not isinstance(mapping, dict):
                found = f"a value for '{parent}', and another inside it"
                raise one_problem(
                    "conflicting-options", found, "one of the two", "remove one --set", f"--set {short(path)}"
                )
        try:
            checked_text(path)
            mapping[last] = yaml_of(value)
        except BadDocument as error:
            problem = error.problem(f"--set {short(printable(path))}", "a YAML value", "correct it, or quote it")
            raise DrafthouseError(problem) from None
    return result
