"""Values of flags and settings: read, made flat or nested, and written again as a person would type them."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.documents import BadDocument
from ..core.errors import DrafthouseError, one_problem
from ..core.shell import Flag, compact_json, flag
from ..core.yaml_documents import yaml_of
from ..engines.pasted import Given
from ..profiles.token_counts import counted

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Settings

_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def typed(given: Given, kind: str) -> Any:
    """A flag's value as the catalogue's type; raises DrafthouseError where it is none."""
    value = given.value
    text = str(value).strip()
    if kind == "bool":
        if isinstance(value, bool):
            return value
        if text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        raise _wrong(given, "true or false")
    if isinstance(value, list):
        raise _wrong(given, "one value")
    if value is True:
        raise _wrong(given, "a value behind it")
    if kind == "tokens" and text.isalpha() and counted(text) is None:
        return text
    if kind in ("int", "tokens"):
        return _integer(given, text)
    if kind == "float":
        try:
            number = float(text)
        except ValueError:
            number = math.inf
        if not math.isfinite(number):
            raise _wrong(given, "a number")
        return number
    return text


def _integer(given: Given, text: str) -> int:
    size = counted(text)
    if size is not None:
        return size
    if re.fullmatch(r"-[0-9]{1,18}", text):
        return int(text)
    raise _wrong(given, "a whole number")


def _wrong(given: Given, needed: str) -> DrafthouseError:
    found = "nothing" if given.value is True else repr(given.value)
    return one_problem("wrong-type", found, needed, "correct the value", given.spelled)


def printed(given: Given) -> Flag:
    """A flag as words, under its long name of today."""
    if isinstance(given.value, list):
        return [given.flag, *map(str, given.value)]
    return flag(given.flag, given.value)


def quoted(value: str) -> str:
    """The value of a variable as a shell takes it."""
    return shlex.quote(value)


def file_words(key: str, value: Any) -> list[str]:
    """An entry of vLLM's --config file as words: nested settings become JSON, as vLLM does it."""
    name = f"--{key.lstrip('-').replace('_', '-')}"
    if isinstance(value, bool):
        return [name] if value else [f"--no-{name[2:]}"]
    if isinstance(value, Mapping):
        return [name, compact_json(dict(value))]
    if isinstance(value, list):
        return [name, *map(str, value)]
    return [name, str(value)]


def setting_words(settings: Settings) -> list[str]:
    """The settings of a call or a chart as words; None leaves one to the engine."""
    words: list[str] = []
    for key, value in settings.items():
        if value is not None:
            words += file_words(str(key), value)
    return words


def read_yaml(text: str, name: str) -> Settings:
    """The settings of an engine's YAML file; raises DrafthouseError with line and column."""
    # What a shell would have put in is a word to YAML, whatever it is made of: [${SIZES%, }], $(( N > 4 ? N : 4 )).
    text = re.sub(r"\$\{(\w+)[^{}]*\}", r"$\1", text)
    text = re.sub(r"(?<=: )(\$\([^'\n]*\))[ \t]*$", r"'\1'", text, flags=re.MULTILINE)
    try:
        data = yaml_of(text)
    except BadDocument as error:
        place = f" ({error.place})" if error.place else ""
        raise one_problem(
            "file-malformed", f"not YAML{place}: {error.why}", "keys with values", "correct that line", name
        ) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        found = f"YAML that is one {type(data).__name__}"
        raise one_problem("file-malformed", found, "keys with values", "write it as `key: value`", name)
    return {str(key): value for key, value in data.items()}


def flat(data: Settings, prefix: str = "") -> Settings:
    """Nested settings as one level with dotted keys; lists and empty tables stay as they are."""
    result: Settings = {}
    for key, value in data.items():
        if isinstance(value, dict) and value:
            result.update(flat(value, f"{prefix}{key}."))
        else:
            result[f"{prefix}{key}"] = value
    return result


def nested(settings: Settings) -> Settings:
    """The contrary of `flat`."""
    result: Settings = {}
    for key, value in settings.items():
        *parents, last = key.split(".")
        place = result
        for parent in parents:
            if not isinstance(place.get(parent), dict):
                place[parent] = {}
            place = place[parent]
        place[last] = value
    return result


def plain(value: Any) -> Any:
    """Numbers that were typed as text as numbers, at any depth."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"-?\d*\.\d+", value):
        return float(value)
    return value
