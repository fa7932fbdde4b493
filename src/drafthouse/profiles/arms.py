"""What an arm is: its command, its flags, its engine's YAML, its environment and its container.

`baseline` and `speculative` differ in the speculation settings alone. What a method requires of the engine is
in both; `stock` leaves it out, and is the engine as an article or its own defaults start it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.shell import Flag, compact_json, flag
from ..core.versions import known, spelled
from ..engines.registry import engine_of
from .several_hosts import lead_command, place_of

if TYPE_CHECKING:
    from drafthouse.engines.base import HostPlace
    from drafthouse.engines.entry_types import (
        CatalogEngine,
        CatalogMethod,
        Launch,
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
    """The checked parts of a profile, from which its arms are made."""

    name: str
    site: Site
    hardware: Hardware
    engine: CatalogEngine
    version: str
    target: CatalogModel
    draft: CatalogModel | None
    method: CatalogMethod
    method_options: Options
    tokens: int
    serve: Options
    extra: list[Flag]
    environment: dict[str, str]
    image: str | None

    def model_path(self, model: ModelEntry) -> str:
        """Where a model lies on the box: a folder, or the one file."""
        if "path" in model["source"]:
            return model["source"]["path"]
        folder = f"{self.site['models_dir']}/{model['folder']}"
        if "file" in model:
            return f"{folder}/{model['file']}"
        return folder

    @property
    def served_name(self) -> str:
        """The model's name in requests; an engine without a flag for it goes by the folder."""
        if "name" in self.engine["launch"]:
            return self.target["served_name"]
        return self.model_path(self.target).rsplit("/", 1)[-1]

    @property
    def key_file(self) -> str:
        """Where the API key lies on the box."""
        return f"{self.site['home']}/secrets/api_key"

    @property
    def place(self) -> HostPlace | None:
        """The host's place where several serve one model."""
        devices = int(self.serve.get(self.engine.get("devices_option") or "") or 1)
        copies = int(self.serve.get(self.engine.get("copies_option") or "") or 1)
        return place_of(self.site, devices, copies)

    @property
    def opened(self) -> bool:
        """Whether the engine itself is for those that the firewall lets in; a gateway stands in front otherwise."""
        return bool(self.site.get("allow_cidrs") and not self.site.get("gateway"))

    @property
    def folder(self) -> str:
        """The folder on the box of this profile's rendered files, one folder an arm below it."""
        return f"{self.site['home']}/serve/{self.name}"

    def served(self, arm: str) -> Options:
        """The ``serve`` options of an arm: the profile's, and what the method requires."""
        required = self.method.get("requires")
        if not required or arm == STOCK:
            return self.serve
        return {**self.serve, **required.get("serve", {})}

    def speculation(self) -> Options:
        """The settings of the method in the engine's own words."""
        method, draft = self.method, ""
        if self.draft:
            draft = self.model_path(self.draft)
        words = words_of(method["id"], method, self.version, draft, self.tokens)
        for key, value in self.method_options.items():
            option = method["options"][key]
            word = spelled(self.version, option["name"], option.get("spelled", ()))
            words[word] = _spelled_value(self.version, option, value)
        return words


def words_of(method_id: str, method: Method, version: str, draft: str, tokens: int) -> Options:
    """What a method is told of its draft ('' for none) and of K, in the words of its engine's version."""
    spellings = method.get("spelled", {})
    neutral: Options = {"method": spelled(version, method.get("value", method_id), spellings.get("value", ()))}
    if draft:
        neutral["model"] = draft
    neutral["num_speculative_tokens"] = tokens
    words: Options = {}
    for key, value in neutral.items():
        if key in method["names"] and (word := spelled(version, method["names"][key], spellings.get(key, ()))):
            words[word] = value
    words |= method.get("always", {})
    return words | {word: tokens + more for word, more in method.get("follows", {}).items()}


def build_arm(parts: Parts, arm: str) -> BuiltArm:
    """One arm as plain data."""
    launch, required = parts.engine["launch"], parts.method.get("requires")
    flags, speculation = _flags(parts, arm)
    environment = {
        **launch.get("environment", {}),
        **launch.get("environment_by_kind", {}).get(parts.hardware["kind"], {}),
        **_for_gpu(parts),
        **parts.environment,
        **_switches(parts, arm),
    }
    if required and arm != STOCK:
        environment |= required.get("environment", {})
    environment |= _visible(parts)
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
    """What keeps the hosts of a replica together; the hash is the same on all, wherever its files lie there."""
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
    """The site's own server of the engine: only a process runs one, an image has its own."""
    if site["runtime"] != "process":
        return None
    return site.get("engine_program")


def takes_key(launch: Launch) -> bool:
    """Whether an engine can be given an API key: by a file, a variable or its configuration."""
    return "key_file" in launch or "key_environment" in launch or "key_inside" in launch


def _for_gpu(parts: Parts) -> dict[str, str]:
    """What the engine needs on this GPU with these weights; in every arm, also as its own defaults start it."""
    capability, quantization = parts.hardware.get("compute_capability"), parts.target.get("quantization")
    found: dict[str, str] = {}
    for row in parts.engine["launch"].get("environment_by_gpu", ()):
        gpus, weights = row.get("compute_capability"), row.get("quantization")
        if (gpus is None or capability in gpus) and (weights is None or quantization in weights):
            found |= row["environment"]
    return found


def _visible(parts: Parts) -> dict[str, str]:
    """What shows a process the chosen GPUs alone; a container is given no others, and counts them from 0."""
    chosen = parts.site.get("gpus")
    if not chosen or parts.site["runtime"] != "process" or parts.hardware["kind"] != "gpu":
        return {}
    # CUDA's own order is by speed; an index is meant as nvidia-smi counts.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(chosen)}


def _flags(parts: Parts, arm: str) -> tuple[list[Flag], list[Flag]]:
    """The flags that all arms have, and those of speculation."""
    launch, engine = parts.engine["launch"], parts.engine
    path = parts.model_path(parts.target)
    flags: list[Flag] = [[launch["target"], path] if "target" in launch else [path]]
    if "name" in launch:
        flags.append([launch["name"], parts.served_name])
    for key, value in parts.served(arm).items():
        option = engine["options"][key]
        if "flag" in option:
            name = spelled(parts.version, option["flag"], option.get("spelled", ()))
            flags.append(flag(name, _spelled_value(parts.version, option, value)))
    flags += [list(words) for words in (*parts.extra, *launch.get("always", []))]
    if "key_file" in launch:
        flags.append([launch["key_file"], parts.key_file])
    place = parts.place
    if place:
        flags += engine_of(parts.engine["id"]).place_flags(place)
    if not place or place.rank == 0:
        flags += [[launch["host"], _listen(parts)], [launch["port"], str(parts.site["port"])]]
    form = engine["speculation"]["form"]
    if form == "yaml" or arm != "speculative":
        return flags, []
    words = parts.speculation()
    if form == "json":
        return flags, [[engine["speculation"]["flag"], compact_json(words)]]
    return flags, [flag(name, value) for name, value in words.items()]


def _listen(parts: Parts) -> str:
    """The address to listen on: every one where the firewall lets somebody in, else the site's own."""
    if parts.opened and parts.site["runtime"] == "process":
        return "0.0.0.0"  # noqa: S104
    return parts.site["host"]


def _switches(parts: Parts, arm: str) -> dict[str, str]:
    """The options that are environment variables; a switch is 1, or not there."""
    found: dict[str, str] = {}
    for key, value in parts.served(arm).items():
        name = parts.engine["options"][key].get("environment")
        if name and value is True:
            found[name] = "1"
        elif name and value is not False:
            found[name] = str(value)
    return found


def _spelled_value(version: str, option: Option | MethodOption, value: Any) -> Any:
    """An option's value as this version spells it (parser names change)."""
    choices: dict[str, OptionChoice] = option.get("choices", {})
    if not isinstance(value, str) or value not in choices:
        return value
    return spelled(version, value, choices[value].get("spelled", ()))


def _config(parts: Parts, arm: str) -> EngineYaml | None:
    """The engine's YAML; None where it reads none."""
    config = parts.engine["launch"].get("config")
    if config is None:
        return None
    always = config.get("always", {})
    data: Options = {}
    for key, entry in always.items():
        if known(parts.version, entry):
            data[key] = entry["value"]
    notes = []
    for key, value in parts.served(arm).items():
        option = parts.engine["options"][key]
        if "yaml" not in option:
            continue
        *parents, last = option["yaml"].split(".")
        place = data
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = _spelled_value(parts.version, option, value)
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
    """The container that runs this arm's serve script in the engine's image; None without an image."""
    if parts.image is None:
        return None
    wanted = parts.engine.get("container", {})
    folder = f"{parts.folder}/{arm}"
    site = parts.site
    mounts = [f"{folder}:{folder}:ro", f"{site['models_dir']}:{site['models_dir']}:ro"]
    cache = None
    if "cache" in wanted:
        cache = f"{site['home']}/cache/{parts.engine['id']}-{parts.version}"
        mounts.append(f"{cache}:{wanted['cache']}:rw")
    if takes_key(parts.engine["launch"]):
        mounts.append(f"{parts.key_file}:{parts.key_file}:ro")
    # Outside on the site's address alone, or where the firewall lets the allowed ones in, on all of them.
    published = [site["host"]]
    if parts.opened:
        published = ["0.0.0.0", "[::]"]  # noqa: S104
    container: ArmContainer = {
        "image": parts.image,
        "entrypoint": ["/bin/bash", f"{folder}/serve.sh"],
        # Inside, the server must listen on the container's own address: the last --host is the one that counts.
        "command": [parts.engine["launch"]["host"], "0.0.0.0"],  # noqa: S104
        "published": published,
        "port": site["port"],
        "gpus": parts.hardware["kind"] == "gpu",
        "environment": dict(wanted.get("environment", {})),
        "ipc": wanted.get("ipc"),
        "ulimits": dict(wanted.get("ulimits", {})),
        "cache": cache,
        "mounts": mounts,
    }
    # A script that a process runs names them itself, as the machine counts them.
    if container["gpus"] and parts.site["runtime"] == "docker" and (chosen := parts.site.get("gpus")):
        container["device_ids"] = chosen
    return container
