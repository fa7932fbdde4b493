"""Docker's `daemon.json`: ours merged into the user's. Pure: text and wishes in, text or problems out.

The file belongs to the user of the box. Three kinds of keys meet in it:

- the user's own, which are never overwritten, moved or dropped;
- what we need: where the user's file says something else, that is a problem, and nothing is written;
- what we would like (log rotation): where the user's file says something else, the user's stays.

A small record beside the file remembers which values are ours. Without it the second wish of the same
person would look like an attack on the user's first one, and nothing could ever be taken out again.

Source of how Docker reads the file: moby, daemon/config/config.go (an empty file is allowed, a UTF-8 byte
order mark too; unknown keys, and keys that are also flags of dockerd, keep the engine from starting).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from ...core.errors import DrafthouseError, Problem, one_problem

if TYPE_CHECKING:
    from drafthouse.core.documents import Json

Keys = tuple[str, ...]
DAEMON_JSON = "/etc/docker/daemon.json"

_BOM = "\ufeff"
_ROTATION = ("max-size", "max-file")
# Log drivers that know max-size and max-file; another one would keep every container from starting.
_ROTATING_DRIVERS = ("json-file", "local")
# An older name of a key, which says the same.
_OLDER_NAMES: Mapping[Keys, Keys] = {("data-root",): ("graph",)}
_PATHS: frozenset[Keys] = frozenset({("data-root",), ("exec-root",)})
# What `nvidia-ctk runtime configure` may add; anything else that it changes is not taken over.
NVIDIA_KEYS: tuple[Keys, ...] = (("runtimes", "nvidia"), ("features", "cdi"))
_NVIDIA_RUNTIMES = ("nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy")


@dataclass(frozen=True)
class Record:
    """What in the file is ours: values by where they stand, and the objects that were made to hold them."""

    values: Mapping[Keys, Json] = field(default_factory=dict)
    made: frozenset[Keys] = frozenset()

    def as_data(self) -> dict[str, Json]:
        """Return the record as plain data, for JSON."""
        return {
            "values": [{"at": list(keys), "value": value} for keys, value in sorted(self.values.items())],
            "made": sorted(list(keys) for keys in self.made),
        }

    @staticmethod
    def of(data: Any) -> Record:
        """Return the record that ``as_data`` gave; an empty one of data that is none."""
        try:
            values = {tuple(map(str, entry["at"])): entry["value"] for entry in data["values"]}
            return Record(values, frozenset(tuple(map(str, keys)) for keys in data["made"]))
        except (KeyError, TypeError):
            return Record()


@dataclass(frozen=True)
class Merged:
    """The settings after the merge, what in them is ours, and which wishes gave way to the user's own."""

    settings: dict[str, Json]
    record: Record
    left: tuple[str, ...] = ()


def parse(text: str, where: str = DAEMON_JSON) -> dict[str, Json]:
    """Return the settings in ``text``; DrafthouseError names the line and the column of what is wrong.

    Stricter than Docker in one thing: a key that stands twice is an error, because which of the two counts
    is nowhere promised, and a merge would silently drop one. Values are never repeated in messages: a
    proxy's password may stand in the file.
    """
    body = text.removeprefix(_BOM)
    if not body.strip():
        return {}
    try:
        settings = json.loads(body, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise DrafthouseError(_not_json(f"{error.msg}, line {error.lineno} column {error.colno}", where)) from error
    except _TwiceError as error:
        raise one_problem(
            "duplicate-name",
            f"the key '{error.key}' twice in one object",
            "each key once: which of the two Docker uses is undefined",
            f"remove one of them from {where} (it was not changed)",
            where,
        ) from error
    except (ValueError, RecursionError) as error:  # NaN and its like, numbers and depths beyond all measure
        raise DrafthouseError(_not_json(str(error), where)) from error
    if not isinstance(settings, dict):
        raise DrafthouseError(_not_json(f"{_kind(settings)} instead of an object, line 1 column 1", where))
    return settings


def decode(raw: bytes, where: str = DAEMON_JSON) -> str:
    """Return the file's bytes as text; DrafthouseError names the line and the column of a byte that is not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        raise DrafthouseError(_not_json(f"a byte that is not UTF-8, line {line} column {column}", where)) from error


def merge(
    current: Mapping[str, Json],
    needs: Mapping[str, Json],
    likes: Mapping[str, Json] | None = None,
    record: Record | None = None,
    kept: tuple[Keys, ...] = NVIDIA_KEYS,
    where: str = DAEMON_JSON,
) -> Merged:
    """Merge ``needs`` and ``likes`` into the user's ``current`` settings.

    ``record`` says which values a former run wrote; those may be changed and taken out again, except what
    stands below ``kept``. DrafthouseError collects every need that the user's own settings contradict.
    """
    before = record or Record()
    settings = _copied(current)
    ours = {keys: value for keys, value in before.values.items() if same(_get(settings, keys), value)}
    made = {keys for keys in before.made if isinstance(_get(settings, keys), dict)}
    wanted = dict(_leaves(needs))
    liked = {keys: value for keys, value in _leaves(likes or {}) if not _touches(keys, wanted)}
    for keys in [keys for keys in ours if keys not in wanted and keys not in liked and not _below(keys, kept)]:
        _remove(settings, keys, made)
        del ours[keys]
    problems: list[Problem] = []
    left: list[str] = []
    for keys, value in [*wanted.items(), *liked.items()]:
        contradiction = _contradiction(settings, keys, value, ours)
        if contradiction is None:
            if _put(settings, keys, value, made):
                ours[keys] = value
        elif keys in wanted:
            problems.append(_contradicts(contradiction, keys, value, where))
        else:
            left.append(".".join(keys))
    if problems:
        raise DrafthouseError(problems)
    return Merged(settings, Record(ours, frozenset(made)), tuple(left))


def rotation(
    current: Mapping[str, Json], record: Record, max_size: str, max_file: int, driver: str = ""
) -> dict[str, Json]:
    """Return the like that rotates containers' logs; {} where the user's log settings speak for themselves.

    ``driver`` is the log driver that the engine uses when the file names none. The two options belong
    together, so one of the user's own keeps both of ours out.
    """
    named = current.get("log-driver") or driver or _ROTATING_DRIVERS[0]
    if named not in _ROTATING_DRIVERS:
        return {}
    options = current.get("log-opts", {})
    if not isinstance(options, dict):
        return {}
    if any(key in options and ("log-opts", key) not in record.values for key in _ROTATION):
        return {}
    return {"log-opts": {"max-size": max_size, "max-file": str(max_file)}}


def nvidia_needs(merged: Mapping[str, Json], configured: Mapping[str, Json]) -> dict[str, Json]:
    """Return what nvidia-ctk added to ``merged`` to get ``configured``, as needs of ours.

    Only its own keys are taken over: it writes the whole file anew and would sort it and round large
    numbers. A user's own entry for NVIDIA's runtime stays as it is: older packages wrote it in other words.
    """
    needs: dict[str, Json] = {}
    for keys in NVIDIA_KEYS:
        value, has = _get(configured, keys), _get(merged, keys)
        if value is _ABSENT or same(has, value) or (keys == NVIDIA_KEYS[0] and _is_nvidia_runtime(has)):
            continue
        _put(needs, keys, value, set())
    return needs


def render(settings: Mapping[str, Json], text: str = "") -> str:
    """Return ``settings`` as text, in the manner of the ``text`` that stood there; unchanged if it says the same."""
    try:
        if text.strip() and same(parse(text), settings):
            return text
    except DrafthouseError:
        pass
    indent = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    style: str | int = "\t" if indent and "\t" in indent[1] else len(indent[1]) if indent else 2
    head = _BOM if text.startswith(_BOM) else ""
    made = json.dumps(settings, indent=style, ensure_ascii=False)
    if any("\ud800" <= letter <= "\udfff" for letter in made):  # half of a pair: it can only be written escaped
        made = json.dumps(settings, indent=style)
    return head + made + "\n"


def shown(text: str) -> str:
    """Return ``text`` fit for a log: without the password of a proxy's or mirror's address."""
    return re.sub(r"(//)[^/@\s\"]+@", r"\1***@", text)


def same(one: object, other: object) -> bool:
    """Tell whether two values are the same JSON. Python's own == takes 1 for true."""
    if one is _ABSENT or other is _ABSENT:
        return one is other
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


# --- inside -----------------------------------------------------------------------------------------


class _Absent:
    """Stands for a key that is not there; null is a value."""


_ABSENT = _Absent()


class _TwiceError(Exception):
    """A key stands twice in one object."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made: dict[str, Json] = {}
    for key, value in pairs:
        if key in made:
            raise _TwiceError(key)
        made[key] = value
    return made


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word}, which is not a JSON number")


def _finite(word: str) -> float:
    number = float(word)
    if math.isinf(number):
        raise ValueError(f"the number {word}, which is too large")
    return number


def _not_json(what: str, where: str) -> Problem:
    return Problem(
        "file-malformed",
        f"text that is not JSON: {what}",
        "one JSON object that Docker can read",
        f"fix {where} (it was not changed), or move it away and run again",
        where,
    )


def _contradicts(found: Keys, keys: Keys, value: Json, where: str) -> Problem:
    name, wanted = ".".join(found), json.dumps(value)
    return Problem(
        "docker-settings-conflict",
        f"your own '{name}'",
        f"{'.'.join(keys)} = {wanted}" if keys[:-1] else f"'{keys[0]}': {wanted}",
        f"take '{name}' out of {where} if nothing else needs it, or drop the setting (it was not changed)",
        where,
    )


def _kind(value: object) -> str:
    names = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null")


def _leaves(data: Mapping[str, Json], above: Keys = ()) -> Iterator[tuple[Keys, Json]]:
    """Yield every value that is not an object with something in it, and where it stands."""
    for key, value in data.items():
        if isinstance(value, Mapping) and value and (*above, key) not in NVIDIA_KEYS:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _touches(keys: Keys, others: Mapping[Keys, Json]) -> bool:
    """Tell whether ``keys`` is, holds or stands below one of ``others``."""
    return any(keys[: len(other)] == other or other[: len(keys)] == keys for other in others)


def _below(keys: Keys, tops: tuple[Keys, ...]) -> bool:
    return any(keys[: len(top)] == top for top in tops)


def _get(data: Any, keys: Keys) -> Any:
    for key in keys:
        if not isinstance(data, Mapping) or key not in data:
            return _ABSENT
        data = data[key]
    return data


def _contradiction(settings: Mapping[str, Json], keys: Keys, value: Json, ours: Mapping[Keys, Json]) -> Keys | None:
    """Return where the user's own settings say something other than ``value`` at ``keys``."""
    for length in range(1, len(keys)):
        holder = _get(settings, keys[:length])
        if holder is not _ABSENT and not isinstance(holder, Mapping):
            return keys[:length]
    older = _OLDER_NAMES.get(keys)
    if older and not _says(_get(settings, older), value, keys):
        return older
    has = _get(settings, keys)
    return None if keys in ours or _says(has, value, keys) else keys


def _says(has: Json | _Absent, value: Json, keys: Keys) -> bool:
    """Tell whether ``has`` is absent or means the same as ``value``."""
    if has is _ABSENT or same(has, value):
        return True
    if keys in _PATHS and isinstance(has, str) and isinstance(value, str):
        return os.path.normpath(has) == os.path.normpath(value)
    return value == {} and isinstance(has, Mapping)


def _put(settings: dict[str, Json], keys: Keys, value: Json, made: set[Keys]) -> bool:
    """Set ``value``; False where the same stands there already, in whatever words."""
    has = _get(settings, keys)
    if has is not _ABSENT and _says(has, value, keys):
        return False
    older = _OLDER_NAMES.get(keys)
    if older and _get(settings, older) is not _ABSENT:
        return False
    for length in range(1, len(keys)):
        holder = _get(settings, keys[: length - 1])
        if keys[length - 1] not in holder:
            holder[keys[length - 1]] = {}
            made.add(keys[:length])
    _get(settings, keys[:-1])[keys[-1]] = _copied(value) if isinstance(value, Mapping) else value
    return True


def _remove(settings: dict[str, Json], keys: Keys, made: set[Keys]) -> None:
    """Take out what is ours, and then the objects that we made if nothing is left in them."""
    del _get(settings, keys[:-1])[keys[-1]]
    for length in range(len(keys) - 1, 0, -1):
        if keys[:length] not in made or _get(settings, keys[:length]):
            return
        del _get(settings, keys[: length - 1])[keys[length - 1]]
        made.discard(keys[:length])


def _is_nvidia_runtime(entry: Json) -> bool:
    path = entry.get("path") if isinstance(entry, Mapping) else None
    return isinstance(path, str) and os.path.basename(path) in _NVIDIA_RUNTIMES  # noqa: PTH119 - a text, no file


def _copied(data: Mapping[str, Json]) -> dict[str, Json]:
    """Return a copy whose objects can be changed; lists are never changed here."""
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in data.items()}
