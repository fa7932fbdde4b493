"""The settings with which an arm is started, by the engine's names: flags, environment variables, configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..core.shell import shell_words

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Options
    from drafthouse.profiles.resolved_types import BuiltArm


def settings_of(arm: BuiltArm) -> dict[str, str]:
    """An arm's settings by name.

    A name is a flag as it is written, ``<flag> <key>`` for a key of a flag's JSON, ``environment <name>`` for a
    variable, or ``<file> <key>`` for a key of the engine's YAML. Besides, ``command`` has the words before the flags,
    and ``model`` a word that is no flag, the model's path. The value of a switch is ``on``; values in JSON and YAML are
    written as JSON.
    """
    settings: dict[str, str] = {"command": shell_words(arm["command"])}
    for words in arm["flags"]:
        name, equals, value = str(words[0]).partition("=")
        values = [value] if equals else list(map(str, words[1:]))
        if not name.startswith("-"):
            settings["model"] = str(words[0])
        elif (keys := _json_object(values)) is not None:
            for key, inner in keys.items():
                settings[f"{name} {key}"] = json.dumps(inner)
        else:
            settings[name] = shell_words(values) or "on"
    for name, setting in arm["environment"].items():
        settings[f"environment {name}"] = str(setting)
    if config := arm["config"]:
        for name, setting in _flattened(config["data"]):
            settings[f"{config['file']} {name}"] = setting
    return settings


def _json_object(values: list[str]) -> Options | None:
    """The JSON object of a flag's value; None for another value, such as a template, which also begins with {."""
    if not (values and values[0].startswith("{")):
        return None
    try:
        return dict(json.loads(values[0]))
    except (ValueError, RecursionError):
        return None


def _flattened(data: Options, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted key, below ``above``, and the JSON value of each plain value."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", json.dumps(value)
