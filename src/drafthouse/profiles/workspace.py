"""From a profile's name and an inventory to the resolved profile with rendered files: read, resolve, render.

Scripts and Ansible's action plugins use this module. It runs on the controller, from the clone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..core import places
from ..core.documents import short
from ..core.errors import DrafthouseError, Problem, did_you_mean, nearest, one_problem
from ..core.format import listing
from ..core.pins import Pins, hub_key, image_of, is_commit, pins_file, read_pins
from ..core.removed import removed
from ..core.schema import Anything, Findings, Map, Table, check, check_text
from ..prompts.checks import gate_of, with_kind_fields
from ..prompts.fill import fill
from ..prompts.loader import load_suite
from ..prompts.suites import NEEDS, prompt_hashes
from .catalog import Catalog, load_catalog
from .own_entries import shown_path
from .render import arm_files, extra_files
from .resolver import resolve
from .schemas import SITE

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry
    from drafthouse.profiles.profile_types import Site, Unchecked
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.prompts.suite_types import Kind, Suite

ROOT = places.ROOT
WORK = places.WORK
#: The inventory's variable that names the user's own folders of profiles.
_FOLDERS_VARIABLE = "drafthouse_profiles_dir"
_CORRECT_NAME = "correct it, or take it out (docs/inventories.md lists them)"
#: A line of a YAML or INI file that sets that variable.
_MENTIONS_FOLDERS = re.compile(rf"(?m)^\s*{_FOLDERS_VARIABLE}\s*[:=]")
#: The defaults of a site: the engine runs as a process below the user's home, and the host is not changed.
DEFAULTS: dict[str, object] = {
    "manage_host": False,
    "runtime": "process",
    "home": "~/drafthouse",
    "host": "127.0.0.1",
    "port": 8000,
}
#: Variables `drafthouse_*` that are neither a key of a site nor a role's setting.
_OTHER_VARIABLES = (
    # Set in an inventory, for plays.
    *("profile", "overrides", "engine_version", "hosts", "first", "environment", "box_kind", "recognise_vm"),
    # Set by the inventory plugin of rentals.
    *("is_vm", "api_address", "api_port", "deadline", "label", "lease", "instance", "vast_url", "vast_key_env"),
    # Facts of a run.
    *("box", "run", "front_entry"),
)


def site_from(variables: Unchecked, root: Path = WORK) -> Site:
    """The site in an inventory's variables (``drafthouse_<key>``), with `DEFAULTS` filled in and absolute paths.

    A relative path is below ``root``: the clone, or for a wheel the current directory. It makes sense only if the box
    is this machine. The values are not checked here: the resolver does that. Raises DrafthouseError for removed
    variables, and for unknown names that begin with `drafthouse_`.
    """
    if problems := list(_name_problems(variables)):
        raise DrafthouseError(problems)
    site: dict[str, object] = {}
    for key in SITE.fields:
        value = variables.get(f"drafthouse_{key}")
        if value is None or key == "runtime_asked":  # the command line alone sets runtime_asked
            continue
        if key in ("home", "models_dir") and isinstance(value, str) and not value.startswith("~/"):
            value = str(root / value)  # an absolute path replaces the root
        elif key == "profiles_dir":
            value = _folder_list(value, root)
        elif key in ("port", "gateway_port", "hosts_per_replica", "replica_port"):
            value = _whole_number(value)
        elif key in ("gateway", "manage_host", "offline"):
            # On a command line (-e) a switch is a text. Any other value stays, for the site's check.
            value = {"true": True, "false": False}.get(str(value).lower(), value)
        elif key == "gpus" and not (value := _gpu_list(value)):
            continue
        site[key] = value
    # Older inventories have drafthouse_box_kind instead; a rental's host is managed by its provider.
    if kind := variables.get("drafthouse_box_kind"):
        site.setdefault("manage_host", {"workstation": True, "rental": False}.get(str(kind), kind))
    site = {**DEFAULTS, **site}
    site.setdefault("models_dir", f"{site['home']}/models")
    return cast("Site", site)


def _name_problems(variables: Unchecked) -> Iterator[Problem]:
    """Yield the problems of removed variables, and of unknown names that begin with `drafthouse_`."""
    known = {f"drafthouse_{name}" for name in {*SITE.fields, *_OTHER_VARIABLES, *role_settings()}}
    for name in variables:
        if problem := removed("variable", name, "inventory"):
            yield problem
        elif name.startswith("drafthouse_") and name not in known:
            do = did_you_mean(name, known)
            if nearest(name, known) is None:
                do = _CORRECT_NAME
            yield Problem("unknown-key", f"'{name}', which means nothing", "a variable of ours", do, name)


@cache
def role_settings(root: Path = ROOT) -> dict[str, str]:
    """The role of each role's setting that an inventory may set as `drafthouse_<name>`, by the setting's name.

    These are the roles' defaults that no playbook and no other role sets; both are read from the files, as text. An
    installed collection has none.
    """
    tasks = [*root.glob("site.yml"), *root.glob("playbooks/tasks/*.yml"), *root.glob("roles/*/tasks/*.yml")]
    set_by_tasks: set[str] = set()
    for file in tasks:
        set_by_tasks.update(re.findall(r"(?m)^ +(\w+):", file.read_text("utf-8")))
    roles: dict[str, str] = {}
    for file in sorted(root.glob("roles/*/defaults/main.yml")):
        names = re.findall(r"(?m)^(\w+):", file.read_text("utf-8"))
        roles |= dict.fromkeys(set(names) - set_by_tasks, file.parts[-3])
    return roles


def _folder_list(value: object, root: Path) -> object:
    """A folder or a list of folders as a list of absolute paths; any other value unchanged, for the site's check."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(folder, str) for folder in value):
        return value
    return [str(root / Path(folder).expanduser()) for folder in value]


def _gpu_list(value: object) -> object:
    """GPU indices or UUIDs as a list of texts, also from `0,1` as on a command line; [] for ''."""
    if value == "":
        return []
    if isinstance(value, (str, int)):
        return [word.strip() for word in str(value).split(",")]
    if isinstance(value, (list, tuple)):
        return list(map(str, value))
    return value


def _whole_number(value: object) -> object:
    """An integer for a text like '8000' from a command line; any other value unchanged, for the site's check."""
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value


def resolved_profile(
    name: str, site: Unchecked, overrides: Unchecked | None = None, root: Path = ROOT
) -> ResolvedProfile:
    """The resolved profile with its suites, rendered files and pins. Raises DrafthouseError with all problems.

    ``site``: an inventory's settings. ``overrides``: values that replace the profile's for one run; None for none.
    """
    catalog = load_catalog(root, own_folders(site))
    with _naming_file(catalog.file(name)):
        suites = _suites_of(_named_suites(catalog, name, overrides), root)
    # All shipped suites can be suggested; only the suites that the profile names are read.
    kinds_by_suite: dict[str, Sequence[str]] = dict.fromkeys(_shipped_suites(root), ())
    for suite, data in suites.items():
        kinds_by_suite[suite] = list(data["kinds"])
    resolved = resolve(catalog, name, site, kinds_by_suite, overrides)
    engine = catalog.engines[resolved["engine"]["id"]]
    context = request_context(resolved, engine)
    resolved["suites"] = {}
    with _naming_file(catalog.file(name)):
        for suite in resolved["experiment"]["suites"]:
            answerable = _answerable(suites[suite], resolved, engine)
            resolved["suites"][suite] = {**fill(trimmed(answerable, resolved), context), "name": suite}
    resolved["prompts"] = prompt_hashes(resolved["suites"].values())
    templates = root / "templates"
    for arm in resolved["arms"].values():
        arm["files"] = arm_files(templates, resolved, arm)
    resolved["extras"] = extra_files(templates, resolved)
    _add_pins(resolved, read_pins(pins_file()))
    return resolved


def own_folders(site: Unchecked) -> list[str]:
    """The user's folders in a site's `drafthouse_profiles_dir`. Raises DrafthouseError if that is not a list."""
    folders = site.get("profiles_dir", [])
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        needed = "a folder, or a list of folders"
        raise one_problem("wrong-type", short(repr(folders)), needed, "correct it", _FOLDERS_VARIABLE)
    return folders


def catalog_for(inventory: str | None = None, root: Path = ROOT) -> Catalog:
    """The catalogue and all profiles, with the user's folders that ``inventory`` names.

    None for it: with those that any inventory below `inventory/` names.
    """
    if inventory is not None:
        return load_catalog(root, _folders_named_in(inventory_path(inventory, root)))
    return load_catalog(root, every_own_folder(root))


def folders_by_inventory(root: Path = ROOT) -> dict[str, list[str]]:
    """The user's folders by inventory, for the inventories below `inventory/` that name any."""
    by_inventory: dict[str, list[str]] = {}
    for path in sorted((root / "inventory").glob("*")):
        if folders := _folders_named_in(path):
            by_inventory[path.name] = folders
    return by_inventory


def every_own_folder(root: Path = ROOT) -> list[str]:
    """The user's folders of all inventories below `inventory/`, for commands without an inventory."""
    return [folder for folders in folders_by_inventory(root).values() for folder in folders]


def _folders_named_in(inventory: Path) -> list[str]:
    """The user's folders that an inventory names.

    Ansible, which takes half a second to load, reads the inventory only if one of its files mentions the variable.
    """
    from .inventory_variables import variables_on  # noqa: PLC0415 (only where a file names a folder)

    files = [path for path in (inventory, *inventory.rglob("*")) if path.is_file()]
    if not any(_MENTIONS_FOLDERS.search(path.read_text("utf-8", "replace")) for path in files):
        return []
    variables = variables_on(inventory)
    return own_folders(site_from({_FOLDERS_VARIABLE: variables.get(_FOLDERS_VARIABLE)}))


def _add_pins(resolved: ResolvedProfile, pins: Pins) -> None:
    """Set ``pinned``, the commit of each item from the hub, and ``image_digest``, and add warnings.

    The pins are those of the first use. None: the catalogue itself has a commit or digest, or there is no pin yet.
    """
    for item in resolved["weights"]:
        if item["source"] != "hub":
            continue
        details = item["details"]
        key = hub_key(details["repo"], details["revision"])
        item["pinned"] = pins.hub.get(key)
        if is_commit(details["revision"]):
            continue
        source = f"{details['repo']} at {details['revision']}"
        warning = f"unpinned: {source}; the first run pins its commit (pins.json)"
        if item["pinned"]:
            warning = f"pinned: {source} is {item['pinned']} since {pins.on.get(key, 'its first use')} (pins.json)"
        resolved["warnings"].append(warning)
    resolved["image_digest"] = pins.images.get(image_of(resolved) or "")


def _shipped_suites(root: Path) -> set[str]:
    """The names of the suites in `benchmarks/`."""
    return {path.stem for path in (root / "benchmarks").glob("*.yml")}


def load_suites(more: Iterable[str], root: Path = ROOT) -> dict[str, Suite]:
    """Every suite of `benchmarks/` by name, and the suite files among ``more`` by their paths.

    A word of ``more`` is a path if it has a suffix, such as `.yml`; other words are names of suites, read anyway.
    """
    names = _shipped_suites(root).union(name for name in more if Path(name).suffix)
    return {name: load_suite(name, root / "benchmarks") for name in sorted(names)}


@contextmanager
def _naming_file(file: str) -> Iterator[None]:
    """Add the profile's ``file`` to the place of each problem with a suite that the profile names."""
    try:
        yield
    except DrafthouseError as error:
        prefix = f"{file}: experiment.suites: "
        raise DrafthouseError([replace(problem, where=prefix + problem.where) for problem in error.problems]) from error


def _suites_of(names: Iterable[str], root: Path) -> dict[str, Suite]:
    """The suites in ``names`` that exist; not filled with text, as the context is not known yet."""
    shipped = _shipped_suites(root)
    suites: dict[str, Suite] = {}
    for name in names:
        if name in shipped or Path(name).suffix:
            suites[name] = load_suite(name, root / "benchmarks", filled=False)
    return suites


def request_context(resolved: ResolvedProfile, engine: EngineEntry) -> int:
    """The most tokens of one request, prompt and answer together; ``engine`` is the catalogue's entry."""
    fit = resolved["arms"]["baseline"]["fit"]
    if not engine["context_is_shared"]:
        return fit["context"]
    return fit["context"] // max(1, fit["sequences"])


def _answerable(suite: Suite, resolved: ResolvedProfile, engine: EngineEntry) -> Suite:
    """``suite`` without the kinds of prompts that the profile's server cannot answer; a warning names each.

    That is known if the engine has an option for it that the profile does not set. Otherwise the prompts are sent: a
    server that cannot answer them refuses, and the gate reports that.
    """
    flags = [flag[0] for flag in resolved["arms"]["baseline"]["flags"]]
    kinds: dict[str, Kind] = {}
    for name, kind in suite["kinds"].items():
        missing = []
        for need in kind.get("needs", []):
            option = engine["options"].get(NEEDS[need])
            if option and "flag" in option and option["flag"] not in flags:
                missing.append(option["flag"])
        # A declared kind is always sent, because the verdict is about it.
        if missing and name not in resolved["experiment"]["kinds"]:
            resolved["warnings"].append(f"suite {suite['name']}: {name} is not sent: no {listing(missing)}")
        else:
            kinds[name] = kind
    return {**suite, "kinds": kinds}


def trimmed(suite: Suite, resolved: ResolvedProfile) -> Suite:
    """``suite`` limited to the experiment's numbers of prompts and output tokens.

    The declared kinds, which the verdict is about, have their own number of prompts. Kinds with a gate keep their
    output length, because an answer that is cut off cannot be judged.
    """
    experiment = resolved["experiment"]
    counts = experiment["prompts_per_kind"]
    most_tokens = experiment["max_output_tokens"]
    declared = experiment["kinds"] or list(suite["kinds"])
    kinds: dict[str, Kind] = {}
    for name, kind in suite["kinds"].items():
        output_tokens = kind["output_tokens"]
        if most_tokens and not _has_gate(kind):
            output_tokens = min(output_tokens, most_tokens)
        count = counts.get("others")  # None: all prompts of the kind
        if name in declared:
            count = counts.get("declared")
        kinds[name] = {**kind, "output_tokens": output_tokens, "prompts": kind["prompts"][:count]}
        # An experiment sends only the suite's own prompts; `more` prompts are for drafthouse bench.
        kinds[name].pop("more", None)
    return {**suite, "kinds": kinds}


def _has_gate(kind: Kind) -> bool:
    """True if the answers to some prompts of a kind are judged."""
    return any(gate_of(with_kind_fields(kind, prompt)) for prompt in kind["prompts"])


def _named_suites(catalog: Catalog, name: str, overrides: Unchecked | None) -> list[str]:
    """The suites that the overrides or else the profile name; both may have any shape, as nothing is checked yet."""
    layers: list[Unchecked] = [overrides or {}, catalog.profiles.get(name, {})]
    for layer in layers:
        experiment = layer.get("experiment")
        if isinstance(experiment, Mapping) and isinstance(experiment.get("suites"), list):
            return [suite for suite in experiment["suites"] if isinstance(suite, str)]
    return []


def inventory_path(name: str, root: Path = ROOT) -> Path:
    """The path of an inventory: a name below inventory/, or a path. Raises DrafthouseError if it does not exist.

    Ansible's list of hosts (`host,`) is no path and stays as it is.
    """
    if "," in name:
        return Path(name)
    path = root / "inventory" / name
    user_path = Path(name).expanduser()
    # In a wheel inventory/ is part of the package, so a path in the user's current directory takes precedence.
    if user_path.exists() and (places.INSTALLED or not path.exists()):
        path = user_path
    if not path.exists():
        known = sorted(folder.name for folder in (root / "inventory").iterdir() if folder.is_dir())
        needed = f"a path, or one of: {', '.join(known)}"
        raise one_problem("no-such-inventory", f"no inventory '{name}'", needed, did_you_mean(path.name, known))
    return path.resolve()


def site_of_inventory(inventory: str, root: Path = ROOT) -> Site:
    """The site in group_vars/all.yml of an inventory, for tables and tests with the shipped inventories.

    `inventory_variables.site_on` reads the site of any inventory.
    """
    from ..core.yaml_documents import read_yaml  # noqa: PLC0415 (the box has no PyYAML; this runs on the controller)

    path = inventory_path(inventory, root) / "group_vars" / "all.yml"
    where = shown_path(root, path)
    variables = read_yaml(path, "the site's variables: a YAML mapping", "correct it there", where=where)
    if variables is None:
        variables = {}
    return checked_site(variables, where, WORK if root == ROOT else root)


def checked_site(variables: object, file: str, root: Path = WORK) -> Site:
    """The checked site of the variables in ``file``. Raises DrafthouseError that names file and variables."""
    findings = Findings(file)
    if check(variables, Table(Anything()), findings):
        assert isinstance(variables, Mapping)
        site = site_from(variables, root)
        shape = Map({f"drafthouse_{key}": field for key, field in SITE.fields.items()})
        named = {f"drafthouse_{key}": value for key, value in site.items()}
        check(named, shape, findings)
        check_text(named, findings)
    if findings.problems:
        raise DrafthouseError(findings.problems)
    return site
