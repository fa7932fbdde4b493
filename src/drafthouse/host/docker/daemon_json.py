"""Merge Drafthouse's settings into the user's `daemon.json` of Docker. Pure functions: nothing is read or written.

The file belongs to the machine's user, whose settings are never overwritten, moved or dropped. Drafthouse adds two
kinds of settings. A need must hold: if the user's setting contradicts it, that is an error and nothing is written.
A like (log rotation, the cgroup driver) gives way to the user's setting.

A record beside the file holds the part that Drafthouse wrote, for example `{"log-opts": {"max-size": "50m"}}`.
Without it a changed need would contradict the earlier one, and nothing could be removed later.

How Docker reads the file: moby, daemon/config/config.go. An empty file and a UTF-8 byte order mark are allowed.
dockerd does not start with unknown keys, or with keys that are also among its command-line flags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeAlias

from ...core.documents import BadDocument, json_of, text_of
from ...core.errors import DrafthouseError, Problem

if TYPE_CHECKING:
    from drafthouse.core.documents import Json

Settings: TypeAlias = "Mapping[str, Json]"
Keys: TypeAlias = "tuple[str, ...]"  # the path to a nested value: ("log-opts", "max-size")
DAEMON_JSON = "/etc/docker/daemon.json"

# Log drivers that support max-size and max-file. With any other driver these options stop containers from starting.
_ROTATING_DRIVERS = ("json-file", "local")
_ROTATION_OPTIONS = ("max-size", "max-file")
# Keys to take from the output of `nvidia-ctk runtime configure`; its other changes are ignored.
_NVIDIA_KEYS = (("runtimes", "nvidia"), ("features", "cdi"))
_NVIDIA_RUNTIMES = ("nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy")


@dataclass(frozen=True)
class Merged:
    """Result of `merge`."""

    settings: Settings  # the user's and ours
    ours: Settings  # the part that Drafthouse adds
    left: tuple[str, ...] = ()  # dotted keys of the likes that gave way to the user's settings


def parse(raw: bytes, where: str = DAEMON_JSON) -> dict[str, Json]:
    """The settings in a file's bytes. Raises DrafthouseError with the line and column of an error.

    Messages never contain values, because the file may hold a proxy's password.
    """
    try:
        text = text_of(raw)
        settings = json_of(text) if text.strip() else {}
        if not isinstance(settings, dict):
            raise BadDocument("text that is JSON, but no object", "line 1, column 1")
    except BadDocument as error:
        needed = "one JSON object that Docker can read"
        do = "fix the file (it was not changed), or move it away, and run again"
        raise DrafthouseError(error.problem(where, needed, do)) from error
    return settings


def merge(current: Settings, needs: Settings, likes: Settings, ours: Settings, where: str = DAEMON_JSON) -> Merged:
    """Add `needs` and `likes` to the user's settings: `current` without `ours`, which an earlier run wrote.

    `where` is the file's path for messages. Raises DrafthouseError with every need that the user's settings contradict.
    """
    users = without(current, ours)
    contradicted: list[Keys] = []
    settings = _with_wishes(users, needs, contradicted)
    if contradicted:
        raise DrafthouseError([_contradiction(keys, needs, where) for keys in contradicted])
    left: list[Keys] = []
    settings = _with_wishes(settings, likes, left)
    return Merged(settings, without(settings, users), tuple(map(".".join, left)))


def without(settings: Settings, other: Settings) -> dict[str, Json]:
    """`settings` without the values that `other` has too, and without objects that this leaves empty."""
    remaining: dict[str, Json] = {}
    for key, value in settings.items():
        other_value = other.get(key)
        if key not in other or not (same_json(value, other_value) or _both_objects(value, other_value)):
            remaining[key] = value
        elif isinstance(value, Mapping) and isinstance(other_value, Mapping):
            remainder = without(value, other_value)
            if remainder:
                remaining[key] = remainder
    return remaining


def rotation(users: Settings, max_size: str, max_file: int, driver: str = "") -> dict[str, Json]:
    """The like that rotates container logs; {} if the user has set one of its options, or a driver that cannot rotate.

    `max_size` is a file's size as Docker writes it (50m), `max_file` the number of files. `driver` is the log driver
    that the engine uses if the file names none ("": Docker's default). The two options belong together, so neither is
    added if the user has set one of them.
    """
    options = users.get("log-opts", {})
    if (users.get("log-driver") or driver or _ROTATING_DRIVERS[0]) not in _ROTATING_DRIVERS:
        return {}
    if not isinstance(options, Mapping) or any(key in options for key in _ROTATION_OPTIONS):
        return {}
    return {"log-opts": {"max-size": max_size, "max-file": str(max_file)}}


def nvidia_part(configured: Settings, users: Settings) -> dict[str, Json]:
    """NVIDIA's keys (`_NVIDIA_KEYS`) in the settings that nvidia-ctk made.

    nvidia-ctk rewrites and sorts the file, so its other output is ignored. If the user has an entry for NVIDIA's
    runtime, it stays: older packages wrote it differently.
    """
    part: dict[str, Json] = {}
    for group, name in _NVIDIA_KEYS:
        runtime_path = _value_at(users, (group, name, "path"))
        group_settings = configured.get(group)
        if isinstance(runtime_path, str) and PurePath(runtime_path).name in _NVIDIA_RUNTIMES:
            continue
        if isinstance(group_settings, Mapping) and name in group_settings:
            part[group] = {name: group_settings[name]}
    return part


def render(settings: Settings, text: str = "") -> str:
    """`settings` as JSON, indented like the old `text`; `text` itself if its settings are the same."""
    if text.strip() and same_json(json_of(text), settings):
        return text
    indent = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return json.dumps(settings, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def redacted(text: str) -> str:
    """`text` for a log: user names and passwords in URLs are replaced by `***`."""
    return re.sub(r"(//)[^/@\s\"]+@", r"\1***@", text)


def same_json(first: object, second: object) -> bool:
    """True if both values are the same JSON. Python's == would treat 1 and true as equal."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def _both_objects(first: object, second: object) -> bool:
    """True if both are JSON objects, whose keys are compared one by one."""
    return isinstance(first, Mapping) and isinstance(second, Mapping)


def _with_wishes(users: Settings, wishes: Settings, contradicted: list[Keys], parents: Keys = ()) -> dict[str, Json]:
    """`users` with `wishes` added. On a contradiction the user's value stays and its keys go to `contradicted`."""
    joined = dict(users)
    for key, value in wishes.items():
        user_value = users.get(key)
        if key not in users:
            joined[key] = value
        elif isinstance(user_value, Mapping) and isinstance(value, Mapping):
            joined[key] = _with_wishes(user_value, value, contradicted, (*parents, key))
        elif not same_json(user_value, value):
            contradicted.append((*parents, key))
    return joined


def _value_at(settings: Settings, keys: Keys) -> Json:
    """The value at the path of nested `keys`; None if a key is missing."""
    value: Json = settings
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _contradiction(keys: Keys, needs: Settings, where: str) -> Problem:
    """The problem that the user's value at ``keys`` contradicts a need; the user's value itself is not shown."""
    name = ".".join(keys)
    found = f"your own '{name}'"
    needed = f"'{name}': {json.dumps(_value_at(needs, keys))}"
    do = f"take '{name}' out of {where} if nothing else needs it, or drop the setting (it was not changed)"
    return Problem("docker-settings-conflict", found, needed, do, where)
