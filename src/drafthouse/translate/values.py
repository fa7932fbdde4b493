"""Convert values of flags and settings: to the catalogue's types, to words of a command, flat or nested."""

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
from ..profiles.token_counts import tokens_in

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Settings

_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def typed_value(given: Given, kind: str) -> Any:
    """A flag's value as the catalogue's type ``kind``. Raises DrafthouseError if it has another type."""
    value = given.value
    text = str(value).strip()
    if kind == "bool":
        if isinstance(value, bool):
            return value
        if text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        raise _wrong_type(given, "true or false")
    if isinstance(value, list):
        raise _wrong_type(given, "one value")
    if value is True:
        raise _wrong_type(given, "a value behind it")
    if kind == "tokens" and text.isalpha() and tokens_in(text) is None:  # a word like `auto`
        return text
    if kind in ("int", "tokens"):
        return _integer(given, text)
    if kind == "float":
        try:
            number = float(text)
        except ValueError:
            number = math.inf  # refused below, like "nan" and "inf"
        if not math.isfinite(number):
            raise _wrong_type(given, "a number")
        return number
    return text


def _integer(given: Given, text: str) -> int:
    size = tokens_in(text)
    if size is not None:
        return size
    if re.fullmatch(r"-[0-9]{1,18}", text):
        return int(text)
    raise _wrong_type(given, "a whole number")


def _wrong_type(given: Given, needed: str) -> DrafthouseError:
    found = "nothing" if given.value is True else repr(given.value)
    return one_problem("wrong-type", found, needed, "correct the value", given.spelled)


def flag_words(given: Given) -> Flag:
    """A flag and its values as words, under its current long name."""
    if isinstance(given.value, list):
        return [given.flag, *map(str, given.value)]
    return flag(given.flag, given.value)


def shell_quoted(value: str) -> str:
    """The value of a variable, quoted for a shell."""
    return shlex.quote(value)


def file_words(key: str, value: Any) -> list[str]:
    """An entry of vLLM's `--config` file as words; nested settings become JSON, as in vLLM."""
    name = f"--{key.lstrip('-').replace('_', '-')}"
    if isinstance(value, bool):
        return [name] if value else [f"--no-{name[2:]}"]
    if isinstance(value, Mapping):
        return [name, compact_json(dict(value))]
    if isinstance(value, list):
        return [name, *map(str, value)]
    return [name, str(value)]


def setting_words(settings: Settings) -> list[str]:
    """The settings of a Python call or a Helm chart as words; a setting with the value None is left out."""
    words: list[str] = []
    for key, value in settings.items():
        if value is not None:
            words += file_words(str(key), value)
    return words


def read_yaml(text: str, name: str) -> Settings:
    """The settings of an engine's YAML file ``name``. Raises DrafthouseError with line and column."""
    # Shell expansions are not YAML, such as [${SIZES%, }] and $(( N > 4 ? N : 4 )): make plain words of them.
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


def flattened(data: Settings, prefix: str = "") -> Settings:
    """Nested settings as one level with dotted keys; lists and empty tables are not changed."""
    result: Settings = {}
    for key, value in data.items():
        if isinstance(value, dict) and value:
            result.update(flattened(value, f"{prefix}{key}."))
        else:
            result[f"{prefix}{key}"] = value
    return result


def nested(settings: Settings) -> Settings:
    """Settings with dotted keys as nested settings: the inverse of `flattened`."""
    result: Settings = {}
    for key, value in settings.items():
        *parents, last = key.split(".")
        table = result
        for parent in parents:
            if not isinstance(table.get(parent), dict):
                table[parent] = {}
            table = table[parent]
        table[last] = value
    return result


def with_numbers(value: Any) -> Any:
    """The value with texts that are numbers converted to numbers, in mappings at any depth."""
    if isinstance(value, Mapping):
        return {key: with_numbers(item) for key, item in value.items()}
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"-?\d*\.\d+", value):
        return float(value)
    return value
