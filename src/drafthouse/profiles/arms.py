"""Build the arms, the servers that are compared: command, flags, engine's YAML, environment and container of each.

`baseline` and `speculative` differ in the speculation settings only: what the method requires of the engine is in
both. `stock` leaves these requirements out: it is the engine with its own defaults.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.shell import Flag, compact_json, flag
from ..core.versions import spelled, supports
from ..engines.registry import engine_of
from .several_hosts import lead_command, place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drafthouse.engines.base import HostPlace
    from drafthouse.engines.entry_types import (
        CatalogEngine,
        CatalogMethod,
        Launch,
        LauncherFlag,
        Method,
        MethodOption,
        Option,
        OptionChoice,
        Options,
    )
    from drafthouse.profiles.catalog_types import CatalogModel, ModelEntry
    from drafthouse.profiles.profile_types import Site, Together
    from drafthouse.profiles.resolved_types import ArmContainer, BuiltArm, EngineYaml, Hardware

ARMS = ("baseline", "speculative")
STOCK = "stock"


@dataclass(frozen=True)
class Parts:
    """The checked parts of a profile from which its arms are built."""

    name: str  # of the profile
    site: Site
    hardware: Hardware
    engine: CatalogEngine
    version: str  # of the engine
    target: CatalogModel
    draft: CatalogModel | None  # None for a method without a separate draft
    method: CatalogMethod
    method_options: Options  # by the catalogue's keys
    also: str  # the lookup that runs beside the method; '' for none
    tokens: int  # K
    serve: Options  # server options by the catalogue's keys
    extra: list[Flag]  # `serve.extra`
    environment: dict[str, str]  # the profile's variables
    image: str | None  # None: the engine has no image

    def model_path(self, model: ModelEntry) -> str:
        """The path of a model on the box: a folder, or its single file."""
        if "path" in model["source"]:
            return model["source"]["path"]
        folder = f"{self.site['models_dir']}/{model['folder']}"
        if "file" in model:
            return f"{folder}/{model['file']}"
        return folder

    @property
    def served_name(self) -> str:
        """The model's name in requests; the last part of its path for an engine without a flag for the name."""
        if "name" in self.engine["launch"]:
            return self.target["served_name"]
        return self.model_path(self.target).rsplit("/", 1)[-1]

    @property
    def key_file(self) -> str:
        """The path of the file with the API key on the box."""
        return f"{self.site['home']}/secrets/api_key"

    @property
    def place(self) -> HostPlace | None:
        """The host's place among the hosts that serve one model; None if this host serves it alone."""
        devices = int(self.serve.get(self.engine.get("devices_option") or "") or 1)
        copies = int(self.serve.get(self.engine.get("copies_option") or "") or 1)
        return place_of(self.site, devices, copies)

    @property
    def opened(self) -> bool:
        """True if clients reach the engine itself: the firewall admits some, and no gateway is in front."""
        return bool(self.site.get("allow_cidrs") and not self.site.get("gateway"))

    @property
    def folder(self) -> str:
        """The folder of this profile's rendered files on the box, with a subfolder for each arm."""
        return f"{self.site['home']}/serve/{self.name}"

    def served(self, arm: str) -> Options:
        """The server options of an arm: the profile's `serve` and, except in stock, what the method requires."""
        required = self.method.get("requires")
        if not required or arm == STOCK:
            return self.serve
        return {**self.serve, **required.get("serve", {})}

    def speculation(self) -> Options:
        """The method's settings, draft and K included, by the engine's own names."""
        method = self.method
        draft = ""
        if self.draft:
            draft = self.model_path(self.draft)
        settings = words_of(method["id"], method, self.version, draft, self.tokens)
        # The engine takes the names of both methods in one value, joined.
        if self.also:
            lookup = self.engine["methods"][self.also].get("value", self.also)
            settings[method["names"]["method"]] += self.engine["speculation"]["joins"] + lookup
        for key, value in self.method_options.items():
            option = method["options"][key]
            name = spelled(self.version, option["name"], option.get("spelled", ()))
            settings[name] = _spelled_value(self.version, option, value)
        return settings


def words_of(method_id: str, method: Method, version: str, draft: str, tokens: int) -> Options:
    """A method's settings for its draft ('' for none) and K (``tokens``), by their names in this engine version.

    Only settings that the method has in its entry: not each takes its own name, a draft or K. `always` are further ones
    with fixed values, `follows` those whose value is K and an offset.
    """
    spellings = method.get("spelled", {})
    values: Options = {"method": spelled(version, method.get("value", method_id), spellings.get("value", ()))}
    if draft:
        values["model"] = draft
    values["num_speculative_tokens"] = tokens
    settings: Options = {}
    for key, value in values.items():
        if key in method["names"] and (name := spelled(version, method["names"][key], spellings.get(key, ()))):
            settings[name] = value
    settings |= method.get("always", {})
    return settings | {name: tokens + offset for name, offset in method.get("follows", {}).items()}


def build_arm(parts: Parts, arm: str) -> BuiltArm:
    """An arm as plain data, before its files are rendered."""
    launch = parts.engine["launch"]
    required = parts.method.get("requires")
    flags, speculation = _flags(parts, arm)
    # The later of two entries of one name wins: the profile's value over the catalogue's.
    environment = {
        **launch.get("environment", {}),
        **launch.get("environment_by_kind", {}).get(parts.hardware["kind"], {}),
        **_gpu_environment(parts),
        **parts.environment,
        **_option_environment(parts, arm),
    }
    if required and arm != STOCK:
        environment |= required.get("environment", {})
    environment |= _visible_gpus(parts)
    if parts.place:
        environment |= engine_of(parts.engine["id"]).place_environment(parts.place)
    command = list(launch["command"])
    if program := own_program(parts.site):
        command = [program]
    built: BuiltArm = {
        "command": command,
        "flags": [*flags, *speculation],
        "speculation_flags": speculation,
        "config": _config(parts, arm),
        "environment": environment,
        "container": _container(parts, arm),
    }
    if parts.place:
        built["together"] = _together(parts, parts.place, arm)
    return built


def _together(parts: Parts, place: HostPlace, arm: str) -> Together:
    """What keeps the hosts of a replica on the same arm: a hash of what all must share, and two commands.

    The hash has no paths, which may differ by host.
    """
    speculation: list[object] | None = None
    if arm == "speculative":
        speculation = [parts.method["id"], parts.method_options, parts.tokens, parts.draft and parts.draft["id"]]
    served = [parts.engine["id"], parts.version, parts.target["id"], parts.served(arm), parts.extra, parts.environment]
    links = [parts.site.get("replica_port"), parts.site.get("executor"), parts.site.get("ray_address")]
    text = compact_json([*served, *links, speculation])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    keeper: list[str] = []
    if place.rank == 0:
        keeper = lead_command(parts.site)
    return {"digest": digest, "keeper": keeper, "words": engine_of(parts.engine["id"]).place_words(place)}


def own_program(site: Site) -> str | None:
    """The engine program that the site provides; None if there is none, and for containers, whose image has it."""
    if site["runtime"] != "process":
        return None
    return site.get("engine_program")


def takes_key(launch: Launch) -> bool:
    """True if the engine can be given an API key: in a file, in a variable, or inside its process."""
    return "key_file" in launch or "key_environment" in launch or "key_inside" in launch


def _gpu_environment(parts: Parts) -> dict[str, str]:
    """Variables that the engine needs on this GPU or for this quantization; every arm has them, also stock."""
    capability = parts.hardware.get("compute_capability")
    quantization = parts.target.get("quantization")
    environment: dict[str, str] = {}
    for rule in parts.engine["launch"].get("environment_by_gpu", ()):
        # A rule without a list applies to all.
        capabilities = rule.get("compute_capability")
        quantizations = rule.get("quantization")
        is_gpu = capabilities is None or capability in capabilities
        if is_gpu and (quantizations is None or quantization in quantizations):
            environment |= rule["environment"]
    return environment


def _visible_gpus(parts: Parts) -> dict[str, str]:
    """Variables that limit a process to the site's GPUs; {} if it names none, or for hardware without NVIDIA's.

    {} in the docker runtime too: Docker gives a container only these GPUs, numbered from 0.
    """
    chosen = parts.site.get("gpus")
    if not chosen or parts.site["runtime"] != "process" or parts.hardware["kind"] != "gpu":
        return {}
    # By default CUDA numbers GPUs by speed; the site's indices are those of nvidia-smi, by PCI bus.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(chosen)}


def _launcher_flags(parts: Parts, entries: Mapping[str, LauncherFlag]) -> list[Flag]:
    """The flags of ``entries`` (by name) that the engine's version has."""
    flags: list[Flag] = []
    for name, entry in entries.items():
        if supports(parts.version, entry):
            flags.append(flag(name, entry.get("value", True)))
    return flags


def _flags(parts: Parts, arm: str) -> tuple[list[Flag], list[Flag]]:
    """The arm's flags in two lists: without those of speculation, and those of speculation ([] if it has none).

    First the model and its name, then the server options, `serve.extra`, flags that are always given, the API key's
    file, those of a host of several, and the address, which followers of a replica do not have.
    """
    engine = parts.engine
    launch = engine["launch"]
    path = parts.model_path(parts.target)
    flags: list[Flag] = [[launch["target"], path] if "target" in launch else [path]]
    if "name" in launch:
        flags.append([launch["name"], parts.served_name])
    for key, value in parts.served(arm).items():
        option = engine["options"][key]
        if "flag" in option:
            name = spelled(parts.version, option["flag"], option.get("spelled", ()))
            flags.append(flag(name, _spelled_value(parts.version, option, value)))
    flags += map(list, parts.extra)
    flags += _launcher_flags(parts, launch.get("always", {}))
    if "key_file" in launch:
        flags.append([launch["key_file"], parts.key_file])
    place = parts.place
    if place:
        flags += engine_of(parts.engine["id"]).place_flags(place)
    if not place or place.rank == 0:
        flags += [[launch["host"], _listen_address(parts)], [launch["port"], str(parts.site["port"])]]
    form = engine["speculation"]["form"]
    if form == "yaml" or arm != "speculative":  # the engine's YAML has them (`_config`), or the arm has none
        return flags, []
    settings = parts.speculation()
    speculation_flags = [flag(name, value) for name, value in settings.items()]
    if form == "json":
        speculation_flags = [[engine["speculation"]["flag"], compact_json(settings)]]
    return flags, speculation_flags + _launcher_flags(parts, engine["speculation"].get("always", {}))


def _listen_address(parts: Parts) -> str:
    """The server's address: all interfaces if the firewall admits clients to it, else the site's `host`."""
    if parts.opened and parts.site["runtime"] == "process":
        return "0.0.0.0"  # noqa: S104
    return parts.site["host"]


def _option_environment(parts: Parts, arm: str) -> dict[str, str]:
    """The options that the engine takes as variables; a true switch is "1", a false one is left out."""
    environment: dict[str, str] = {}
    for key, value in parts.served(arm).items():
        name = parts.engine["options"][key].get("environment")
        if name and value is True:
            environment[name] = "1"
        elif name and value is not False:
            environment[name] = str(value)
    return environment


def _spelled_value(version: str, option: Option | MethodOption, value: Any) -> Any:
    """An option's value as this engine version spells it (for example, names of tool parsers change)."""
    choices: dict[str, OptionChoice] = option.get("choices", {})
    if not isinstance(value, str) or value not in choices:
        return value
    return spelled(version, value, choices[value].get("spelled", ()))


def _config(parts: Parts, arm: str) -> EngineYaml | None:
    """The engine's YAML configuration; None for an engine that reads none.

    First what is always set, then the server options, nested by the dots in their names, then speculation.
    """
    config = parts.engine["launch"].get("config")
    if config is None:
        return None
    always = config.get("always", {})
    data: Options = {}
    for key, entry in always.items():
        if supports(parts.version, entry):
            data[key] = entry["value"]
    notes = []
    for key, value in parts.served(arm).items():
        option = parts.engine["options"][key]
        if "yaml" not in option:
            continue
        *parents, last = option["yaml"].split(".")
        level = data
        for parent in parents:
            level = level.setdefault(parent, {})
        level[last] = _spelled_value(parts.version, option, value)
        refused = option.get("refused_on", {}).get(parts.hardware.get("compute_capability") or "")
        if refused:
            notes.append(f"{option['yaml']} {value}: {refused['reason']}.")
    required = parts.method.get("requires")
    if arm != STOCK and required and (served := required.get("serve")):
        keys = ", ".join(parts.engine["options"][key].get("yaml", key) for key in served)
        notes.append(f"{keys}: needed by {parts.method['id']}, so in both arms: {required['reason']}.")
    if arm == "speculative" and parts.engine["speculation"]["form"] == "yaml":
        data[parts.engine["speculation"]["key"]] = parts.speculation()
    return {"flag": config["flag"], "file": config["files"][arm], "data": data, "notes": notes}


def _container(parts: Parts, arm: str) -> ArmContainer | None:
    """The container that runs this arm's serve.sh in the engine's image; None without an image."""
    if parts.image is None:
        return None
    wishes = parts.engine.get("container", {})
    folder = f"{parts.folder}/{arm}"
    site = parts.site
    mounts = [f"{folder}:{folder}:ro", f"{site['models_dir']}:{site['models_dir']}:ro"]
    cache = None
    if "cache" in wishes:
        cache = f"{site['home']}/cache/{parts.engine['id']}-{parts.version}"
        mounts.append(f"{cache}:{wishes['cache']}:rw")
    if takes_key(parts.engine["launch"]):
        mounts.append(f"{parts.key_file}:{parts.key_file}:ro")
    # Published at the site's address only, or at all addresses if the firewall admits clients.
    published = [site["host"]]
    if parts.opened:
        published = ["0.0.0.0", "[::]"]  # noqa: S104
    container: ArmContainer = {
        "image": parts.image,
        "entrypoint": ["/bin/bash", f"{folder}/serve.sh"],
        # Inside the container the server listens on all addresses: engines take the last of two --host.
        "command": [parts.engine["launch"]["host"], "0.0.0.0"],  # noqa: S104
        "published": published,
        "port": site["port"],
        "gpus": parts.hardware["kind"] == "gpu",
        "environment": dict(wishes.get("environment", {})),
        "ipc": wishes.get("ipc"),
        "ulimits": dict(wishes.get("ulimits", {})),
        "cache": cache,
        "mounts": mounts,
    }
    # In the process runtime `_visible_gpus` selects the GPUs instead.
    if container["gpus"] and parts.site["runtime"] == "docker" and (chosen := parts.site.get("gpus")):
        container["device_ids"] = chosen
    return container
