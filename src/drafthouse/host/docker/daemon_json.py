"""Docker's `daemon.json`: ours merged into the user's. Pure: text and wishes in, text or problems out.

The file belongs to the user of the box. Three kinds of keys meet in it: the user's own, which are never overwritten,
moved or dropped; what we need, where the user's own file saying something else is a problem and nothing is written; and
what we would like (log rotation, the cgroup driver), where the user's own stays.

A record beside the file holds the part of it that is ours, `{"log-opts": {"max-size": "50m"}}`. Without it a second
wish of the same person would contradict the first, and nothing could ever be taken out again.

Source of how Docker reads the file: moby, daemon/config/config.go (an empty file is allowed, a UTF-8 byte order mark
too; unknown keys, and keys that are also flags of dockerd, keep the engine from starting).
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
Keys: TypeAlias = "tuple[str, ...]"
DAEMON_JSON = "/etc/docker/daemon.json"

# Log drivers that know max-size and max-file; another one would keep every container from starting.
_ROTATING_DRIVERS = ("json-file", "local")
_ROTATION = ("max-size", "max-file")
# What `nvidia-ctk runtime configure` may add; anything else that it changes is not taken over.
_NVIDIA_KEYS = (("runtimes", "nvidia"), ("features", "cdi"))
_NVIDIA_RUNTIMES = ("nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy")


@dataclass(frozen=True)
class Merged:
    """The settings after the merge, the part of them that is ours, and the likes that gave way to the user's own."""

    settings: Settings
    ours: Settings
    left: tuple[str, ...] = ()


def parse(raw: bytes, where: str = DAEMON_JSON) -> dict[str, Json]:
    """The settings in a file's bytes. Raises DrafthouseError with line and column of what is wrong.

    Values are never repeated in messages: a proxy's password may stand in the file.
    """
    try:
        text = text_of(raw)
        settings = json_of(text) if text.strip() else {}
        if not isinstance(settings, dict):
            raise BadDocument("text that is JSON, but no object", "line 1, column 1")
    except BadDocument as error:
        needed, do = "one JSON object that Docker can read", "fix the file (it was not changed), or move it away"
        raise DrafthouseError(error.problem(where, needed, f"{do}, and run again")) from error
    return settings


def merge(current: Settings, needs: Settings, likes: Settings, ours: Settings, where: str = DAEMON_JSON) -> Merged:
    """Add `needs` and `likes` to the user's own settings: `current` without `ours`, the part that a former run wrote.

    Raises DrafthouseError with every need that the user's own settings contradict.
    """
    users = without(current, ours)
    contradicted: list[Keys] = []
    settings = _joined(users, needs, contradicted)
    if contradicted:
        raise DrafthouseError([_contradiction(keys, needs, where) for keys in contradicted])
    left: list[Keys] = []
    settings = _joined(settings, likes, left)
    return Merged(settings, without(settings, users), tuple(map(".".join, left)))


def without(settings: Settings, other: Settings) -> dict[str, Json]:
    """`settings` without the values that stand in `other` too, and without the objects that this empties."""
    rest: dict[str, Json] = {}
    for key, value in settings.items():
        theirs = other.get(key)
        if key not in other or not (same(value, theirs) or _both_objects(value, theirs)):
            rest[key] = value
        elif isinstance(value, Mapping) and isinstance(theirs, Mapping):
            inside = without(value, theirs)
            if inside:
                rest[key] = inside
    return rest


def rotation(users: Settings, max_size: str, max_file: int, driver: str = "") -> dict[str, Json]:
    """The like that rotates containers' logs; {} where the user's own log settings speak for themselves.

    `driver` is the log driver that the engine uses when the file names none. The two options belong together, so one of
    the user's own keeps both of ours out.
    """
    options = users.get("log-opts", {})
    if (users.get("log-driver") or driver or _ROTATING_DRIVERS[0]) not in _ROTATING_DRIVERS:
        return {}
    if not isinstance(options, Mapping) or any(key in options for key in _ROTATION):
        return {}
    return {"log-opts": {"max-size": max_size, "max-file": str(max_file)}}


def nvidia_part(configured: Settings, users: Settings) -> dict[str, Json]:
    """NVIDIA's own keys among the settings that nvidia-ctk made.

    It writes the whole file anew and would sort it, so nothing else is taken over. A user's own entry for NVIDIA's
    runtime stays as it is: older packages wrote it in other words.
    """
    part: dict[str, Json] = {}
    for group, name in _NVIDIA_KEYS:
        path, there = _value_at(users, (group, name, "path")), configured.get(group)
        if isinstance(path, str) and PurePath(path).name in _NVIDIA_RUNTIMES:
            continue
        if isinstance(there, Mapping) and name in there:
            part[group] = {name: there[name]}
    return part


def render(settings: Settings, text: str = "") -> str:
    """`settings` as text, indented as the `text` that stood there; that very text if it says the same."""
    if text.strip() and same(json_of(text), settings):
        return text
    indent = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return json.dumps(settings, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def shown(text: str) -> str:
    """`text` fit for a log: without the password of a proxy's or mirror's address."""
    return re.sub(r"(//)[^/@\s\"]+@", r"\1***@", text)


def same(one: object, other: object) -> bool:
    """Whether two values are the same JSON. Python's own == takes 1 for true."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _both_objects(one: object, other: object) -> bool:
    return isinstance(one, Mapping) and isinstance(other, Mapping)


def _joined(users: Settings, wishes: Settings, contradicted: list[Keys], above: Keys = ()) -> dict[str, Json]:
    """`users` with `wishes` added; where they contradict each other, the user's, and its place in `contradicted`."""
    made = dict(users)
    for key, value in wishes.items():
        theirs = users.get(key)
        if key not in users:
            made[key] = value
        elif isinstance(theirs, Mapping) and isinstance(value, Mapping):
            made[key] = _joined(theirs, value, contradicted, (*above, key))
        elif not same(theirs, value):
            contradicted.append((*above, key))
    return made


def _value_at(settings: Settings, keys: Keys) -> Json:
    """The value that the keys lead to, an object at each step; None where one of them is missing."""
    value: Json = settings
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _contradiction(keys: Keys, needs: Settings, where: str) -> Problem:
    name = ".".join(keys)
    return Problem(
        "docker-settings-conflict",
        f"your own '{name}'",
        f"'{name}': {json.dumps(_value_at(needs, keys))}",
        f"take '{name}' out of {where} if nothing else needs it, or drop the setting (it was not changed)",
        where,
    )
