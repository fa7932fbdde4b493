"""Read `profiles/` and `profiles/catalog/` and check their shape (not yet whether they fit together).

The result is plain data. Reading and checking are apart from resolving, so that `resolve` stays pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .gguf_recipes import RECIPE_VERSIONS
from .problems import HouseError, Problem, did_you_mean
from .shape import Anything, Findings, List, Map, Shape, Table, Value, check

Data = dict[str, Any]

_TEXT, _NEEDED_TEXT = Value(str), Value(str, required=True)
_COUNT, _NEEDED_COUNT = Value(int, low=1), Value(int, required=True, low=1)
_SHARE = Value(float, low=0, high=1)

HARDWARE = Table(
    Map(
        {
            "name": _NEEDED_TEXT,
            "kind": Value(str, required=True, choices=("cpu", "gpu")),
            "inventory": Value(str, required=True, choices=("local", "workstation", "vastai")),
            "devices": _NEEDED_COUNT,
            "gpu_names": List(_TEXT),
            "vast_names": List(_TEXT),
            "memory_mib": _NEEDED_COUNT,
            "bandwidth_gb_s": Value(float, required=True, low=0.1),
            "compute_capability": _TEXT,
        }
    )
)

_SOURCE = Map(
    {
        "path": _TEXT,
        "package": Map({"name": _NEEDED_TEXT, "version": _NEEDED_TEXT, "file": _NEEDED_TEXT, "sha256": _NEEDED_TEXT}),
        "derived": Map(
            {
                "from": _NEEDED_TEXT,
                "recipe": Value(
                    str,
                    required=True,
                    choices=tuple(RECIPE_VERSIONS),
                ),
                "parameters": Anything(),
            }
        ),
        "hub": Map(
            {
                "repo": _NEEDED_TEXT,
                "revision": _NEEDED_TEXT,
                "allow": List(_TEXT),
                "ignore": List(_TEXT),
            }
        ),
    },
    required=True,
    one_of=True,
)

MODELS = Table(
    Map(
        {
            "name": _NEEDED_TEXT,
            "served_name": _TEXT,
            "kind": Value(str, required=True, choices=("model", "head")),
            "head_for": _TEXT,
            "works_on": List(_TEXT),
            "head_method": _TEXT,
            "max_speculative_tokens": _COUNT,
            "since": Table(_TEXT),
            "format": Value(str, required=True, choices=("gguf", "safetensors")),
            "folder": _NEEDED_TEXT,
            "file": _TEXT,
            "license": _NEEDED_TEXT,
            "gated": Value(bool),
            "synthetic": _TEXT,
            "source": _SOURCE,
            "weight_bytes": _NEEDED_COUNT,
            "read_bytes": _COUNT,
            "parameters": _NEEDED_COUNT,
            "layers": _NEEDED_COUNT,
            "hidden": _NEEDED_COUNT,
            "heads": _NEEDED_COUNT,
            "kv_heads": _NEEDED_COUNT,
            "head_dim": _NEEDED_COUNT,
            "vocab": _NEEDED_COUNT,
            "context": _NEEDED_COUNT,
            "tokenizer": _NEEDED_TEXT,
            "temperature": Value(float, low=0, high=2),
        }
    )
)

_SINCE_UNTIL: dict[str, Shape] = {
    "since": _TEXT,
    "until": _TEXT,
    "except": Map({"since": _NEEDED_TEXT, "until": _NEEDED_TEXT}),
}
# Another spelling in some versions; '' where the version has no such word and needs none.
_SPELLED = List(Map({"as": _NEEDED_TEXT, **_SINCE_UNTIL}))
_OPTION_TYPE = Value(str, required=True, choices=("int", "float", "str", "bool", "schedule"))
_CHOICES = Table(Map({"spelled": _SPELLED, **_SINCE_UNTIL}))
_INSTALL = Map(
    {
        "python_packages": List(_TEXT, required=True),
        "no_deps_packages": List(_TEXT),
        "launcher": _TEXT,
        "lock": _TEXT,
        "tools": List(_TEXT),
        "torch_backend": _TEXT,
        "prerelease": Value(bool),
        "unpinned": Value(bool),
        "extra_index_url": _TEXT,
        "metadata_stub": Map({"name": _NEEDED_TEXT, "version": _NEEDED_TEXT}),
        "system_libraries": Table(_NEEDED_TEXT),
    }
)
_REQUIRES = Map({"serve": Anything(), "environment": Table(_TEXT), "reason": _NEEDED_TEXT})
_METHOD = Map(
    {
        "draft": Value(str, required=True, choices=("model", "head", "lookup")),
        "value": _TEXT,
        **_SINCE_UNTIL,
        "reason": _TEXT,
        "match": Map({"tokenizer": Value(bool), "vocab_difference": Value(int, low=0)}),
        "all_heads": Value(bool),
        "requires": _REQUIRES,
        "source_packages": List(_TEXT),
        "build_packages": List(_TEXT),
        "names": Table(_TEXT, required=True),
        "spelled": Table(_SPELLED),
        "options": Table(
            Map({"name": _NEEDED_TEXT, "type": _OPTION_TYPE, "spelled": _SPELLED, **_SINCE_UNTIL, "reason": _TEXT})
        ),
    }
)
_OPTION = Map(
    {
        "flag": _TEXT,
        "yaml": _TEXT,
        "environment": _TEXT,
        "type": _OPTION_TYPE,
        "warning": _TEXT,
        "choices": _CHOICES,
        "spelled": _SPELLED,
        "server_only": Value(bool),
        "refused_on": Table(Map({"values": List(_TEXT, required=True), "reason": _NEEDED_TEXT})),
        **_SINCE_UNTIL,
    }
)
_IMAGE = Map({"name": _NEEDED_TEXT, "tag": _NEEDED_TEXT, "digest": _TEXT})
_ENGINE = Map(
    {
        "name": _NEEDED_TEXT,
        "family": _TEXT,
        "template": _NEEDED_TEXT,
        "offline_template": _TEXT,
        "formats": List(_TEXT, required=True),
        "health": _NEEDED_TEXT,
        "ready_timeout_s": _NEEDED_COUNT,
        "metrics": Map(
            {
                "dialect": Value(str, required=True, choices=("vllm", "llamacpp", "trtllm")),
                "path": _TEXT,
                "key": Value(bool, required=True),
            },
            required=True,
        ),
        "overhead_mib": _NEEDED_COUNT,
        "kv_bytes_per_value": _NEEDED_COUNT,
        "reserves": Value(str, required=True, choices=("needed", "share", "share_of_free")),
        "default_version": _NEEDED_TEXT,
        "releases": List(_TEXT),
        "versions": Table(
            Map(
                {
                    "reason": _NEEDED_TEXT,
                    "pinned": _NEEDED_TEXT,
                    "install": Table(_INSTALL),
                    "image": _IMAGE,
                }
            ),
            required=True,
        ),
        "install": Table(_INSTALL, required=True),
        "image": _IMAGE,
        "rental_image": _TEXT,
        "cuda": List(Map({"cuda": _NEEDED_TEXT, "driver": _NEEDED_TEXT, **_SINCE_UNTIL})),
        "shared_memory_mib": _COUNT,
        "nightly": Map({"reason": _NEEDED_TEXT, "install": Table(_INSTALL, required=True), "image": _IMAGE}),
        "plugin": Map({"package": _NEEDED_TEXT, "versions": Table(_TEXT, required=True), "reason": _NEEDED_TEXT}),
        "container": Map(
            {
                "ipc": _TEXT,
                "environment": Table(_TEXT),
                "ulimits": Table(Value(int)),
                "cache": _TEXT,
            }
        ),
        "launch": Map(
            {
                "command": List(_TEXT, required=True),
                "target": _TEXT,
                "name": _TEXT,
                "host": _NEEDED_TEXT,
                "port": _NEEDED_TEXT,
                "key_file": _TEXT,
                "key_environment": _TEXT,
                "config": Map(
                    {
                        "flag": _NEEDED_TEXT,
                        "files": Table(_TEXT, required=True),
                        "schema": Value(str, choices=("trtllm",)),
                        "always": Table(Map({"value": Anything(required=True), **_SINCE_UNTIL})),
                    }
                ),
                "always": List(List(_TEXT)),
                "environment": Table(_TEXT),
                "environment_by_kind": Table(Table(_TEXT)),
            },
            required=True,
        ),
        "options": Table(_OPTION, required=True),
        "context_option": _NEEDED_TEXT,
        "sequences_option": _NEEDED_TEXT,
        "sequences_default": _COUNT,
        "context_is_shared": Value(bool, required=True),
        "share_option": _TEXT,
        "share_default": _SHARE,
        "devices_option": _TEXT,
        "speculation": Map(
            {
                "form": Value(str, required=True, choices=("flags", "json", "yaml")),
                "flag": _TEXT,
                "key": _TEXT,
            },
            required=True,
        ),
        "methods": Table(_METHOD, required=True),
    }
)
ENGINES = Table(_ENGINE)

# How far a load ladder goes (one of levels, to, rates), how long a step may take, and how sharp is sharp enough.
_LADDER = Map(
    {
        "levels": List(_COUNT),
        "to": _COUNT,
        "rates": List(Value(float)),
        "seconds": Value(float, low=1),
        "narrow": Value(float, low=0.001, high=1),
        "kinds": List(_TEXT),
        "limits": Map({"ttft_ms": Value(float, low=0.1), "tpot_ms": Value(float, low=0.1)}),
        "rounds": _COUNT,
    }
)

# What `make tune` may change: options with the values to try; and, to narrow it, methods, drafts and K.
_TUNABLE = Map(
    {
        "serve": Table(List(Anything())),
        "options": Table(List(Anything())),
        "methods": List(_TEXT),
        "drafts": List(_TEXT),
        "num_speculative_tokens": List(_COUNT),
    }
)

PROFILE = Map(
    {
        "title": _NEEDED_TEXT,
        "article": _TEXT,
        "hardware": _NEEDED_TEXT,
        "engine": _NEEDED_TEXT,
        "engine_version": _TEXT,
        "plugin_version": _TEXT,
        "channel": Value(str, choices=("stable", "nightly")),
        "runtimes": List(Value(str, choices=("docker", "process"))),
        "target": _NEEDED_TEXT,
        "speculation": Map(
            {
                "method": _NEEDED_TEXT,
                "draft": _TEXT,
                "num_speculative_tokens": Value(int, required=True, low=1),
                "options": Anything(),
            },
            required=True,
        ),
        "serve": Anything(),
        "temperature": Value(float, low=0, high=2),
        "expect": Map({"acceptance": Value(float, required=True, low=0, high=1), "source": _NEEDED_TEXT}),
        "experiment": Map(
            {
                "suites": List(_TEXT, required=True),
                "kinds": List(_TEXT),
                "once": List(_TEXT),
                "prompts_per_kind": Map({"declared": _COUNT, "others": _COUNT}),
                "max_output_tokens": Value(int, low=8),
                "stock": Value(bool),
                "concurrency": _COUNT,
                "rounds": Value(int, low=2),
                "schedule": Value(str, choices=("auto", "interleaved", "alternated")),
                "ladder": _LADDER,
            },
            required=True,
        ),
        "verified": List(_TEXT),
        "tunable": _TUNABLE,
        # What the tuner left in a profile it wrote: where the values come from, and what they brought.
        "tuned": Anything(),
    }
)

GPUS = Map(
    {
        "generations": Table(
            Map(
                {
                    "open": Value(str, required=True, choices=("required", "recommended", "impossible")),
                    "cuda13": Value(bool, required=True),
                    "first_branch": _COUNT,
                    "last_branch": _COUNT,
                }
            ),
            required=True,
        ),
        "cards": Table(Map({"name": _NEEDED_TEXT, "generation": _NEEDED_TEXT, "first_branch": _COUNT}), required=True),
        "ranges": List(Map({"first": _NEEDED_TEXT, "last": _NEEDED_TEXT, "generation": _NEEDED_TEXT}), required=True),
    }
)


@dataclass
class House:
    """All that is written down: the catalogue's three tables and every profile, as plain data."""

    hardware: Data
    models: Data
    engines: Data
    profiles: Data
    # What was wrong in a profile's own file; only using that profile is an error.
    broken: dict[str, list[Problem]] = field(default_factory=dict)


def profile_names(root: Path) -> list[str]:
    """Return the names of all profiles of the clone at ``root``, in order."""
    return sorted(path.stem for path in (root / "profiles").glob("*.yml"))


def load_house(root: Path) -> House:
    """Read and check the catalogue and the profiles of the clone at ``root``.

    Raises HouseError with every problem of the catalogue. A profile with problems is kept in
    ``broken``: it must not stop another one.
    """
    problems: list[Problem] = []
    tables: dict[str, Data] = {}
    for name, shape in (("hardware", HARDWARE), ("models", MODELS), ("engines", ENGINES)):
        tables[name], found = _read(root, f"profiles/catalog/{name}.yml", shape)
        problems += found
    if problems:
        raise HouseError(problems)
    house = House(tables["hardware"], tables["models"], tables["engines"], {})
    for name in profile_names(root):
        profile, found = _read(root, f"profiles/{name}.yml", PROFILE)
        if found:
            house.broken[name] = found
        house.profiles[name] = profile
    return house


def load_gpus(root: Path) -> Data:
    """Read and check the table of GPUs of the clone at ``root``; HouseError holds every problem of it."""
    relative = "profiles/catalog/gpus.yml"
    gpus, problems = _read(root, relative, GPUS)
    if not problems:
        findings = Findings(relative)
        named = [(f"cards.{name}", entry) for name, entry in gpus["cards"].items()]
        named += [(f"ranges[{number}]", entry) for number, entry in enumerate(gpus["ranges"])]
        for path, entry in named:
            if entry["generation"] not in gpus["generations"]:
                found = f"the unknown generation '{entry['generation']}'"
                findings.add(path, found, "one of generations", did_you_mean(entry["generation"], gpus["generations"]))
        problems = findings.problems
    if problems:
        raise HouseError(problems)
    return gpus


def _read(root: Path, relative: str, shape: Shape) -> tuple[Data, list[Problem]]:
    findings = Findings(relative)
    try:
        data = yaml.load((root / relative).read_text("utf-8"), Loader=_Loader)  # noqa: S506 (a safe loader, below)
    except FileNotFoundError:
        findings.add("", "no such file", "the catalogue's file", "restore it: git checkout -- profiles")
        return {}, findings.problems
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = getattr(error, "problem", None) or str(error)
        findings.add(place, f"text that is not YAML ({reason})", "a YAML mapping", "correct that line")
        return {}, findings.problems
    if shape is ENGINES and isinstance(data, dict):
        data = {name: _like(entry, data) for name, entry in data.items()}
    check(data, shape, findings)
    return (data if isinstance(data, dict) else {}), findings.problems


def _like(entry: Any, engines: Data) -> Any:
    """Return an engine's entry with what it does not say itself taken from the one it is ``like``."""
    if not isinstance(entry, dict) or entry.get("like") not in engines:
        return entry
    merged = {**engines[entry["like"]], **entry, "family": entry["like"]}
    # Null takes away what the other one has.
    return {key: value for key, value in merged.items() if key != "like" and value is not None}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # chosen at run time
    """The safe loader, which also refuses a key that is written twice (YAML would keep the last)."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Look at a mapping as it was written, once, before merge keys are put into it; raise on a repeated key."""
        looked_at: set[int] = self.__dict__.setdefault("_looked_at", set())
        if id(node) not in looked_at:
            looked_at.add(id(node))
            seen: set[str] = set()
            for key_node, _ in node.value:
                key = str(key_node.value)  # a key may be a list, which YAML allows
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key '{key}' is written twice", key_node.start_mark
                    )
                seen.add(key)
        super().flatten_mapping(node)
