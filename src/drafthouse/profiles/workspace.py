"""The way from a profile's name to what is put on a box: read, resolve, render. For scripts and actions.

Everything here runs on the controller, from the clone.
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
from ..prompts.checks import asked_of, gate_of
from ..prompts.fill import fill
from ..prompts.loader import load_suite
from ..prompts.suites import NEEDS, prompt_hashes
from .catalog import House, load_house
from .own_entries import shown_path
from .render import arm_files, extra_files
from .resolver import resolve
from .schemas import SITE

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry
    from drafthouse.profiles.profile_types import Site, Unchecked
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.prompts.suite_types import Kind, Suite

ROOT, WORK = places.ROOT, places.WORK
_FOLDERS = "drafthouse_profiles_dir"
_NAMES = "correct it, or take it out (docs/inventories.md lists them)"
_NAMES_FOLDERS = re.compile(rf"(?m)^\s*{_FOLDERS}\s*[:=]")
#: A site of which nothing is said: the engine as a process below the user's home, and nothing of the host changed.
DEFAULTS: dict[str, object] = {
    "manage_host": False,
    "runtime": "process",
    "home": "~/drafthouse",
    "host": "127.0.0.1",
    "port": 8000,
}
#: What of `drafthouse_*` is no key of a site and no role's setting: of plays, of a rental, and facts of a run.
_BESIDE_THE_SITE = (
    # An inventory's.
    *("profile", "overrides", "engine_version", "hosts", "first", "environment", "box_kind", "recognise_vm"),
    # A rental's, which its plugin finds out.
    *("is_vm", "api_address", "api_port", "deadline", "label", "lease", "instance", "vast_url", "vast_key_env"),
    # Facts of a run.
    *("box", "run", "front_entry"),
)


def site_from(variables: Unchecked, root: Path = WORK) -> Site:
    """Pick the site out of an inventory's variables (``drafthouse_<key>``), with relative paths made whole.

    What they leave out is as in `DEFAULTS`. A relative path means: below the clone, or for a wheel below the folder of
    the command. It makes sense only where the box is this machine. Whoever resolves a profile for the site checks it.
    Raises DrafthouseError for removed variables, and for names of ours that do not exist.
    """
    if wrong := list(_wrong_names(variables)):
        raise DrafthouseError(wrong)
    site: dict[str, object] = {}
    for key in SITE.fields:
        value = variables.get(f"drafthouse_{key}")
        if value is None or key == "runtime_asked":
            continue
        if key in ("home", "models_dir") and isinstance(value, str) and not value.startswith("~/"):
            value = str(root / value)  # an absolute path replaces the root
        elif key == "profiles_dir":
            value = _folders(value, root)
        elif key in ("port", "gateway_port", "hosts_per_replica", "replica_port"):
            value = _whole_number(value)
        elif key in ("gateway", "manage_host", "offline"):
            value = {"true": True, "false": False}.get(str(value).lower(), value)
        elif key == "gpus" and not (value := _words(value)):
            continue
        site[key] = value
    # What inventories said before: a rental's host is its provider's to manage.
    if kind := variables.get("drafthouse_box_kind"):
        site.setdefault("manage_host", {"workstation": True, "rental": False}.get(str(kind), kind))
    site = {**DEFAULTS, **site}
    site.setdefault("models_dir", f"{site['home']}/models")
    return cast("Site", site)


def _wrong_names(variables: Unchecked) -> Iterator[Problem]:
    """The problems of names that begin with `drafthouse_` and mean nothing, or nothing any more."""
    known = {f"drafthouse_{name}" for name in {*SITE.fields, *_BESIDE_THE_SITE, *role_settings()}}
    for name in variables:
        if problem := removed("variable", name, "inventory"):
            yield problem
        elif name.startswith("drafthouse_") and name not in known:
            do = did_you_mean(name, known)
            if nearest(name, known) is None:
                do = _NAMES
            yield Problem("unknown-key", f"'{name}', which means nothing", "a variable of ours", do, name)


@cache
def role_settings(root: Path = ROOT) -> dict[str, str]:
    """The settings of roles that an inventory may set as `drafthouse_<name>`, with their roles.

    That are those with a default which no playbook and no other role sets.
    """
    # A collection has neither.
    tasks = [*root.glob("site.yml"), *root.glob("playbooks/tasks/*.yml"), *root.glob("roles/*/tasks/*.yml")]
    given: set[str] = set()
    for file in tasks:
        given.update(re.findall(r"(?m)^ +(\w+):", file.read_text("utf-8")))
    found: dict[str, str] = {}
    for file in sorted(root.glob("roles/*/defaults/main.yml")):
        names = re.findall(r"(?m)^(\w+):", file.read_text("utf-8"))
        found |= dict.fromkeys(set(names) - given, file.parts[-3])
    return found


def _folders(value: object, root: Path) -> object:
    """Make a folder a list of one, and relative folders whole; leave what is none to who checks the site."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(folder, str) for folder in value):
        return value
    return [str(root / Path(folder).expanduser()) for folder in value]


def _words(value: object) -> object:
    """Make indices texts, as UUIDs are; and a list of `0,1`, as the command line gives it."""
    if value == "":
        return []
    if isinstance(value, (str, int)):
        return [word.strip() for word in str(value).split(",")]
    if isinstance(value, (list, tuple)):
        return list(map(str, value))
    return value


def _whole_number(value: object) -> object:
    """Make '8000', as the command line gives it, a number; leave what is none to the resolver."""
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value


def resolved_profile(
    name: str, site: Unchecked, overrides: Unchecked | None = None, root: Path = ROOT
) -> ResolvedProfile:
    """The resolved profile with the rendered files of both arms; DrafthouseError holds all problems."""
    house = load_house(root, own_folders(site))
    with _asked_by(house.file(name)):
        suites = _suites_of(_named_suites(house, name, overrides), root)
    kinds: dict[str, Sequence[str]] = dict.fromkeys(_shipped_suites(root), ())
    for suite, data in suites.items():
        kinds[suite] = list(data["kinds"])
    resolved = resolve(house, name, site, kinds, overrides)
    engine = house.engines[resolved["engine"]["id"]]
    context = request_context(resolved, engine)
    resolved["suites"] = {}
    with _asked_by(house.file(name)):
        for suite in resolved["experiment"]["suites"]:
            asked = _answerable(suites[suite], resolved, engine)
            resolved["suites"][suite] = {**fill(trimmed(asked, resolved), context), "name": suite}
    resolved["prompts"] = prompt_hashes(resolved["suites"].values())
    templates = root / "templates"
    for arm in resolved["arms"].values():
        arm["files"] = arm_files(templates, resolved, arm)
    resolved["extras"] = extra_files(templates, resolved)
    _say_pinned(resolved, read_pins(pins_file()))
    return resolved


def own_folders(site: Unchecked) -> list[str]:
    """The folders that a site's `drafthouse_profiles_dir` names. Raises DrafthouseError where that is no list."""
    folders = site.get("profiles_dir", [])
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        needed = "a folder, or a list of folders"
        raise one_problem("wrong-type", short(repr(folders)), needed, "correct it", _FOLDERS)
    return folders


def house_for(inventory: str | None = None, root: Path = ROOT) -> House:
    """The catalogue and profiles for a command, with the own folders of its inventory.

    Without an inventory with those of every inventory below `inventory/`.
    """
    if inventory is not None:
        return load_house(root, _named_in(inventory_path(inventory, root)))
    return load_house(root, every_own_folder(root))


def folders_by_inventory(root: Path = ROOT) -> dict[str, list[str]]:
    """The own folders of each inventory below `inventory/` that names any."""
    found: dict[str, list[str]] = {}
    for path in sorted((root / "inventory").glob("*")):
        if folders := _named_in(path):
            found[path.name] = folders
    return found


def every_own_folder(root: Path = ROOT) -> list[str]:
    """The own folders that inventories below `inventory/` name, for what is done without one of them."""
    return [folder for folders in folders_by_inventory(root).values() for folder in folders]


def _named_in(inventory: Path) -> list[str]:
    """The own folders that the files of an inventory name; Ansible reads them only where one does."""
    from .inventory_variables import variables_on  # noqa: PLC0415 (only where a file names a folder)

    files = [path for path in (inventory, *inventory.rglob("*")) if path.is_file()]
    if not any(_NAMES_FOLDERS.search(path.read_text("utf-8", "replace")) for path in files):
        return []
    variables = variables_on(inventory)
    return own_folders(site_from({_FOLDERS: variables.get(_FOLDERS)}))


def _say_pinned(resolved: ResolvedProfile, pins: Pins) -> None:
    """Write down what of a resolved profile is pinned: ``pinned`` of each item of the hub, and of the image.

    None where the catalogue names a commit or digest itself, or nothing was pinned yet. The plan says which it is.
    """
    for item in resolved["weights"]:
        if item["source"] != "hub":
            continue
        details = item["details"]
        key = hub_key(details["repo"], details["revision"])
        item["pinned"] = pins.hub.get(key)
        if is_commit(details["revision"]):
            continue
        what = f"{details['repo']} at {details['revision']}"
        warning = f"unpinned: {what}; the first run pins its commit (pins.json)"
        if item["pinned"]:
            warning = f"pinned: {what} is {item['pinned']} since {pins.on.get(key, 'its first use')} (pins.json)"
        resolved["warnings"].append(warning)
    resolved["image_digest"] = pins.images.get(image_of(resolved) or "")


def _shipped_suites(root: Path) -> set[str]:
    """The names of the suites of `benchmarks/`."""
    return {path.stem for path in (root / "benchmarks").glob("*.yml")}


def load_suites(more: Iterable[str], root: Path = ROOT) -> dict[str, Suite]:
    """Every suite of `benchmarks/` by name, and the files in ``more`` under the paths they have there."""
    names = _shipped_suites(root).union(name for name in more if Path(name).suffix)
    return {name: load_suite(name, root / "benchmarks") for name in sorted(names)}


@contextmanager
def _asked_by(file: str) -> Iterator[None]:
    """Have what is wrong with a suite name the profile's file, which asks for it."""
    try:
        yield
    except DrafthouseError as error:
        asks = f"{file}: experiment.suites: "
        raise DrafthouseError([replace(one, where=asks + one.where) for one in error.problems]) from error


def _suites_of(names: Iterable[str], root: Path) -> dict[str, Suite]:
    """The suites that a profile names, those that exist; how long their texts may be is not known yet."""
    shipped = _shipped_suites(root)
    found: dict[str, Suite] = {}
    for name in names:
        if name in shipped or Path(name).suffix:
            found[name] = load_suite(name, root / "benchmarks", filled=False)
    return found


def request_context(resolved: ResolvedProfile, engine: EngineEntry) -> int:
    """How many tokens one request may have, answer included; ``engine`` is the catalogue's entry."""
    fit = resolved["arms"]["baseline"]["fit"]
    if not engine["context_is_shared"]:
        return fit["context"]
    return fit["context"] // max(1, fit["sequences"])


def _answerable(suite: Suite, resolved: ResolvedProfile, engine: EngineEntry) -> Suite:
    """Return ``suite`` without the kinds that the profile's server cannot answer, and say so in the warnings.

    That is known of an engine with an option for it, which the profile does not set. Others are asked: a server that
    cannot do it refuses, and the gate says that.
    """
    given = [flag[0] for flag in resolved["arms"]["baseline"]["flags"]]
    kinds: dict[str, Kind] = {}
    for name, kind in suite["kinds"].items():
        lacking = []
        for need in kind.get("needs", []):
            option = engine["options"].get(NEEDS[need])
            if option and "flag" in option and option["flag"] not in given:
                lacking.append(option["flag"])
        if lacking and name not in resolved["experiment"]["kinds"]:
            resolved["warnings"].append(f"suite {suite['name']}: {name} is not sent: no {listing(lacking)}")
        else:
            kinds[name] = kind
    return {**suite, "kinds": kinds}


def trimmed(suite: Suite, resolved: ResolvedProfile) -> Suite:
    """``suite`` with as many prompts and output tokens as the experiment wants at most.

    The kinds that the verdict is about may be given more prompts than the others. What a gate looks at keeps its
    output length: an answer that is cut off cannot be judged.
    """
    experiment = resolved["experiment"]
    counts, tokens = experiment["prompts_per_kind"], experiment["max_output_tokens"]
    declared = experiment["kinds"] or list(suite["kinds"])
    kinds: dict[str, Kind] = {}
    for name, kind in suite["kinds"].items():
        output_tokens, count = kind["output_tokens"], counts.get("others")
        if tokens and not _has_gate(kind):
            output_tokens = min(output_tokens, tokens)
        if name in declared:
            count = counts.get("declared")
        kinds[name] = {**kind, "output_tokens": output_tokens, "prompts": kind["prompts"][:count]}
        # More prompts than a suite has are a matter of drafthouse bench: an experiment asks the suite's own.
        kinds[name].pop("more", None)
    return {**suite, "kinds": kinds}


def _has_gate(kind: Kind) -> bool:
    return any(gate_of(asked_of(kind, prompt)) for prompt in kind["prompts"])


def _named_suites(house: House, name: str, overrides: Unchecked | None) -> list[str]:
    """The suites that a profile or its overrides name, before anything else about it is checked."""
    layers: list[Unchecked] = [overrides or {}, house.profiles.get(name, {})]
    for layer in layers:
        experiment = layer.get("experiment")
        if isinstance(experiment, Mapping) and isinstance(experiment.get("suites"), list):
            return [suite for suite in experiment["suites"] if isinstance(suite, str)]
    return []


def inventory_path(name: str, root: Path = ROOT) -> Path:
    """Where an inventory is: a name below inventory/, a path, or Ansible's `host,`. Raises DrafthouseError."""
    if "," in name:
        return Path(name)
    found, own = root / "inventory" / name, Path(name).expanduser()
    # Of an installed wheel the names are its own, and what lies in the user's folder goes before them.
    if own.exists() and (places.INSTALLED or not found.exists()):
        found = own
    if not found.exists():
        known = sorted(path.name for path in (root / "inventory").iterdir() if path.is_dir())
        needed, do = f"a path, or one of: {', '.join(known)}", did_you_mean(found.name, known)
        raise one_problem("no-such-inventory", f"no inventory '{name}'", needed, do)
    return found.resolve()


def site_of_inventory(inventory: str, root: Path = ROOT) -> Site:
    """The site of the group_vars/all.yml of an inventory below `inventory/`: a shipped one's, for tables and tests.

    Of anybody's inventory `inventory_variables.site_on` knows the site.
    """
    from ..core.yaml_documents import read_yaml  # noqa: PLC0415 (the box has no PyYAML; this runs on the controller)

    path = inventory_path(inventory, root) / "group_vars" / "all.yml"
    where = shown_path(root, path)
    variables = read_yaml(path, "the site's variables: a YAML mapping", "correct it there", where=where)
    if variables is None:
        variables = {}
    return checked_site(variables, where, WORK if root == ROOT else root)


def checked_site(variables: object, file: str, root: Path = WORK) -> Site:
    """The site that the variables of one ``file`` make.

    DrafthouseError names file and variable of all problems.
    """
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
