"""Commands in files: services of docker compose, containers of Kubernetes, models of llama-swap, Quadlets, presets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.documents import BadDocument
from ..core.errors import one_problem
from ..core.secret_shapes import without_shapes
from ..core.yaml_documents import yaml_of
from ..engines.registry import DIALECTS, ENGINES
from .expansions import Value, filled
from .repairs import mended, shown
from .shell import words_of
from .values import setting_words

_FENCE = re.compile(r"^([ \t]*)```[ \t]*(?:ya?ml)\b[^\n]*\n(?P<body>.*?)^\1```", re.MULTILINE | re.DOTALL)
#: A file that begins in the middle of a paste: its first line, and what a line of it looks like.
_BEGINS = re.compile(r"^(?:services|apiVersion|macros|models|version|x-[\w-]+):", re.MULTILINE)
_YAML_LINES = re.compile(r"(?:(?:[ \t]+[^\n]*|[\w.-]+:(?:[ \t][^\n]*)?|-[ \t-][^\n]*|#[^\n]*|---[^\n]*|)(?:\n|\Z))*")
_SECTION = re.compile(r"^[ \t]*\[(?P<name>[^\]\n\"',]+)\][ \t]*$", re.MULTILINE)
_ENTRY_LINE = re.compile(r"^[ \t]*(?P<key>[A-Za-z][\w-]*)[ \t]*=[ \t]*(?P<value>(?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_DOCUMENT = re.compile(r"^---[^\n]*\n|^\.\.\.[ \t]*\n", re.MULTILINE)
#: What a holder of a command says of itself under these keys: the program, its arguments, and both.
_ENTRY, _ARGUMENTS, _WHOLE = "entrypoint", "args", "cmd"
#: Keys that are read; the others of a service or a container are named, and are not for a profile.
_READ = {"command", _ENTRY, _ARGUMENTS, _WHOLE, "image", "environment", "env", "name"}
_HOLDS = re.compile(
    rf"(?:^[ \t-]*|[{{,][ \t]*)(?:command|image|run|modelURL|engine_kwargs|{_ENTRY}|{_ARGUMENTS}|{_WHOLE}):",
    re.MULTILINE,
)
_MODEL_KEYS = {"model", "m", "hf", "hf-repo", "hfr", "model-url", "LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO"}
_CHARTED = next(engine for engine in ENGINES if engine.chart_command)
_PRESETS_OF = next(engine.presets_of for engine in ENGINES if engine.presets_of)
_FLAG_VARIABLES = tuple(engine.flag_variables for engine in DIALECTS.values() if engine.flag_variables)
_NAME_IN_BRACKETS = re.compile(r"\$\(([A-Za-z_]\w*)\)")


@dataclass
class Holder:
    """What starts a command in a file; its texts as they stand there, with their variables.

    ``settings`` are its other keys, as flags of a container; ``kubernetes``: variables are `$(NAME)`, of its own.
    """

    line: int
    command: Any = ""
    entrypoint: Any = ""
    arguments: Any = ""
    image: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    settings: list[tuple[str, str]] = field(default_factory=list)
    kubernetes: bool = False

    def filled(self, value_of: Callable[[str], Value | None]) -> tuple[list[str], list[str]]:
        """Fill in the variables; return the words of the entrypoint and those behind it."""

        def text_of(text: str) -> str:
            if self.kubernetes:
                known = self.environment
                return _NAME_IN_BRACKETS.sub(lambda name: known.get(name[1], name[0]), text)
            return filled(text.replace("$$", "\0"), value_of).replace("\0", "$")

        def words(value: Any) -> list[str]:
            if isinstance(value, str):
                return list(map(shown, words_of(mended(text_of(value)))))
            found: list[str] = []
            for item in value:
                if not isinstance(item, (dict, list)):
                    found.append(text_of(str(item)))
            return found

        self.image = text_of(self.image)
        passes = 2 if self.kubernetes else 1  # there a variable may name another one
        for _ in range(passes):
            self.environment = {name: text_of(value) for name, value in self.environment.items()}
        return words(self.entrypoint), [*words(self.command), *words(self.arguments)]


def holders_of(text: str) -> tuple[list[Holder], str]:
    """What starts a command in the files of a text, and the text without those files, lines kept.

    The text is such a file as a whole, or has it between fences of Markdown, or below other lines. What cannot be read
    is left as it is.
    """
    places = [(part.start("body"), part.end("body")) for part in _FENCE.finditer(text)]
    if not places:
        place = 0
        while begin := _BEGINS.search(text, place):
            lines = _YAML_LINES.match(text, begin.start())
            place = begin.end()
            if lines:
                place = max(place, lines.end())
            places.append((begin.start(), place))
    found: list[Holder] = []
    rest = text
    for begin_at, end in [*places, (0, len(text))]:
        body, above = rest[begin_at:end], text.count("\n", 0, begin_at)
        holders = list(_holders(body, above)) or list(_in_sections(body, above))
        if holders:
            found += holders
            rest = rest[:begin_at] + re.sub(r"[^\n]", " ", body) + rest[end:]
    return found, rest


def _in_sections(text: str, above: int) -> Iterator[Holder]:
    """Yield the commands of a Quadlet, and those of llama.cpp's presets: a section is one, a key a flag."""
    marks = list(_SECTION.finditer(text))
    common: dict[str, str] = {}
    for place, mark in enumerate(marks, 1):
        end = marks[place].start() if place < len(marks) else len(text)
        pairs: list[tuple[str, str]] = []
        for entry in _ENTRY_LINE.finditer(text, mark.end(), end):
            pairs.append((entry["key"], re.sub(r"\\\n[ \t]*", " ", entry["value"]).strip()))
        keys = dict(pairs)
        line = above + text.count("\n", 0, mark.start()) + 1
        if mark["name"] == "Container" and "Image" in keys:
            yield _quadlet(pairs, line)
        elif mark["name"] == "*":
            common = keys
        elif _MODEL_KEYS & {*keys, *common} and not {"ExecStart", "Image", "command", "cmd"} & keys.keys():
            yield _preset({**common, **keys}, line)


def _quadlet(pairs: list[tuple[str, str]], line: int) -> Holder:
    """The container of a podman Quadlet's section, by its keys in order: `Environment` may be there several times."""
    keys = dict(pairs)
    holder = Holder(line, keys.get("Exec", ""), keys.get("Entrypoint", ""), image=keys["Image"])
    for key, value in pairs:
        if key == "Environment":
            for word in words_of(value):
                name, _, text = word.partition("=")
                holder.environment[name] = text
        if key not in ("Image", "Exec", "Entrypoint"):
            holder.settings.append((f"--{key}", _short(value)))
    return holder


def _preset(keys: Mapping[str, str], line: int) -> Holder:
    """The command of a preset's section: a key is a flag, one in capitals a variable."""
    words = [_PRESETS_OF]
    holder = Holder(line, words)
    for key, value in keys.items():
        bare = value.strip("\"'") if value[:1] == value[-1:] else value
        if key.isupper():
            holder.environment[key] = bare
        elif key not in ("load-on-startup", "stop-timeout"):
            words += _as_flag(key, bare)
    return holder


def _as_flag(key: str, value: str) -> list[str]:
    """A key of a preset and its value as words of a command."""
    flag = f"-{key}" if len(key) <= 3 else f"--{key}"
    if value.lower() in ("true", "") or (value.lower() == "on" and key == "jinja"):
        return [flag]
    if value.lower() == "false":
        return [f"--no-{key}"]
    return [flag, value]


def _holders(text: str, above: int) -> Iterator[Holder]:
    if not _HOLDS.search(text):
        return
    starts = [0, *(match.end() for match in _DOCUMENT.finditer(text))]
    for begin, end in zip(starts, [*starts[1:], len(text)], strict=True):
        body = _DOCUMENT.sub("", text[begin:end])
        try:
            data = yaml_of(_dedented(body))
        except BadDocument:
            continue
        macros = _mapping(_mapping(data).get("macros"))
        for holder in _walk(data, {str(name): str(text) for name, text in macros.items()}):
            word = str(_last(holder.entrypoint) or _last(holder.command) or _last(holder.arguments) or holder.image)
            place = text.find(word.strip().split("\n")[0][:20], begin)
            holder.line = above + text.count("\n", 0, max(place, begin)) + 1
            yield holder


def _mapping(value: Any) -> dict[Any, Any]:
    """A mapping of a document; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def _last(value: Any) -> Any:
    return value[-1] if isinstance(value, list) and value else value


def _dedented(text: str) -> str:
    """A piece of YAML that was cut out of a deeper one at the left margin."""
    lines = text.split("\n")
    depths: list[int] = []
    for line in lines:
        if line.strip():
            depths.append(len(line) - len(line.lstrip(" ")))
    depth = min(depths, default=0)
    return "\n".join(line[depth:] for line in lines)


def _walk(data: Any, macros: Mapping[str, str]) -> Iterator[Holder]:
    """Yield every holder in a document, in order."""
    if isinstance(data, list):
        for item in data:
            yield from _walk(item, macros)
    if not isinstance(data, dict):
        return
    holder = _of_a_chart(data) or _holder(data, macros)
    if holder is not None:
        yield holder
        return
    for value in data.values():
        yield from _walk(value, macros)


def _holder(data: Any, macros: Mapping[str, str]) -> Holder | None:
    """The holder that a mapping is; None where it starts nothing. Raises DrafthouseError for `extends`."""
    image = ""
    if isinstance(data.get("image"), str):
        image = str(data["image"])
    commands: dict[str, str | list[Any]] = {}
    for key in ("command", _ENTRY, _ARGUMENTS, _WHOLE):
        if isinstance(data.get(key), (str, list)):
            commands[key] = data[key]
    environment = dict(_variables(data.get("environment"))) | dict(_variables(data.get("env")))
    if not any(commands.values()) and not (image and any(name.startswith(_FLAG_VARIABLES) for name in environment)):
        return None
    if "extends" in data:
        raise one_problem(
            "no-serve-command",
            f"a service that extends another one ({_short(data['extends'])})",
            "the whole service",
            "paste what this prints: docker compose config",
        )
    kubernetes = _ARGUMENTS in data or (isinstance(data.get("env"), list) and "name" in data)
    command = _in_macros(commands.get("command", commands.get(_WHOLE, "")), macros)
    holder = Holder(0, command, commands.get(_ENTRY, ""), "", image, environment, kubernetes=kubernetes)
    if kubernetes:  # its `command` is the entrypoint
        holder.entrypoint, holder.command, holder.arguments = command, "", commands.get(_ARGUMENTS, "")
    for key, value in data.items():
        if key not in _READ:
            holder.settings.append((f"--{key}", _short(value)))
    return holder


def _of_a_chart(data: Mapping[str, Any]) -> Holder | None:
    """The holder that a mapping of a tool is which writes the command itself; None where it is none of those."""
    if isinstance(data.get("run"), str):  # SkyPilot
        return Holder(0, ["bash", "-c", data["run"]], environment=dict(_variables(data.get("envs"))))
    if "modelURL" in data:  # vLLM's production stack
        named = {_snake(key): value for key, value in _mapping(data.get("vllmConfig")).items()}
        more = named.pop("extra_args", None)
        words = [*_CHARTED.chart_command, str(data["modelURL"]), *setting_words(named)]
        if isinstance(more, list):
            words += more
        return Holder(0, words)
    if {"engine_kwargs", "model_loading_config"} <= data.keys():  # Ray Serve
        settings = dict(_CHARTED.settings_of_call(dict(data)))
        return Holder(0, [*_CHARTED.chart_command, str(settings.pop("model", "")), *setting_words(settings)])
    if "modelFormat" in data and isinstance(data.get(_ARGUMENTS), list):  # KServe
        words = list(_CHARTED.chart_command)
        for argument in data[_ARGUMENTS]:
            word = str(argument).replace("--model_id", "--model")
            if not word.startswith("--model_name"):
                words.append(word)
        return Holder(0, words)
    return None


def _snake(key: str) -> str:
    """A chart's key as an engine's setting: ``maxModelLen`` is ``max_model_len``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()


def _in_macros(value: Any, macros: Mapping[str, str]) -> Any:
    """Put llama-swap's macros into a text."""
    if not isinstance(value, str) or not macros:
        return value
    for _ in range(3):  # one may name another
        value = re.sub(r"\$\{([\w-]+)\}", lambda match: macros.get(match[1], match[0]), value)
    return value


def _variables(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the variables of a mapping, of a list of NAME=value, or of one of Kubernetes' name and value.

    One without a value is handed on from where the container is started: nothing is known of it here.
    """
    for name, content in _mapping(value).items():
        if content is not None:
            yield str(name), str(content)
    if not isinstance(value, list):
        return
    for item in value:
        if isinstance(item, str):
            name, equals, content = item.partition("=")
            if equals:
                yield name, content
        elif isinstance(item, dict) and "name" in item:
            yield str(item["name"]), str(item.get("value", f"${{{item['name']}}}"))


def _short(value: Any) -> str:
    """A value in a few words, without a secret: of what is cut off nobody could tell that it is one."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    text = without_shapes(str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
