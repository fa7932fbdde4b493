"""Find commands in pasted files (compose, Kubernetes, Quadlets, ...); a "holder" is a part that starts a command."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..core.documents import BadDocument
from ..core.errors import one_problem
from ..core.secret_shapes import without_shapes
from ..core.yaml_documents import yaml_of
from ..engines.registry import DIALECTS, ENGINES
from .expansions import Value, expanded
from .repairs import repair, restored
from .shell import words_of
from .values import setting_words

_FENCE = re.compile(
    r"^([ \t]*)```[ \t]*(?:ya?ml|ini|toml|[Dd]ocker(?:file)?)\b[^\n]*\n(?P<body>.*?)^\1```", re.MULTILINE | re.DOTALL
)
#: The first line of a YAML file inside a paste, maybe glued to its fence, and the lines that continue it.
_FIRST_YAML_LINE = re.compile(r"(?:^|(?<=^```))(?:services|apiVersion|macros|models|version|x-[\w-]+):", re.MULTILINE)
_YAML_LINES = re.compile(r"(?:(?:[ \t]+[^\n]*|[\w.-]+:(?:[ \t][^\n]*)?|-[ \t-][^\n]*|#[^\n]*|---[^\n]*|)(?:\n|\Z))*")
_SECTION = re.compile(r"^[ \t]*\[(?P<name>[^\]\n\"',]+)\][ \t]*$", re.MULTILINE)
_ENTRY_LINE = re.compile(r"^[ \t]*(?P<key>[A-Za-z][\w-]*)[ \t]*=[ \t]*(?P<value>(?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_DOCKERFILE = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n|ARG[ \t][^\n]*\n)*FROM[ \t]")
_INSTRUCTION = re.compile(r"^(?P<name>FROM|ENV|CMD|ENTRYPOINT)[ \t]+(?P<value>(?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_DOCUMENT = re.compile(r"^---[^\n]*\n|^\.\.\.[ \t]*\n", re.MULTILINE)
#: Keys of a holder: the program, its arguments, and program with arguments.
_ENTRY, _ARGUMENTS, _WHOLE = "entrypoint", "args", "cmd"
#: Keys of a service or container that are translated; the others are only listed for the user.
_TRANSLATED_KEYS = {"command", _ENTRY, _ARGUMENTS, _WHOLE, "image", "environment", "env", "name"}
_MAY_HOLD = re.compile(
    rf"(?:^[ \t-]*|[{{,][ \t]*)(?:command|image|run|modelURL|engine_kwargs|{_ENTRY}|{_ARGUMENTS}|{_WHOLE}):",
    re.MULTILINE,
)
_MODEL_KEYS = {"model", "m", "hf", "hf-repo", "hfr", "model-url", "LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO"}
_CHART_ENGINE = next(engine for engine in ENGINES if engine.chart_command)  # of Helm charts, Ray Serve, KServe
_PRESETS_PROGRAM = next(engine.presets_of for engine in ENGINES if engine.presets_of)
_FLAG_VARIABLES = tuple(engine.flag_variables for engine in DIALECTS.values() if engine.flag_variables)
_NAME_IN_BRACKETS = re.compile(r"\$\(([A-Za-z_]\w*)\)")


@dataclass
class Holder:
    """A service, container or section that starts a command: entrypoint, command and arguments, one behind the other.

    Each of the three is a text or a list of words, in which variables are not expanded yet.
    """

    line: int  # in the paste, from 1
    command: Any = ""
    entrypoint: Any = ""
    arguments: Any = ""
    image: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    settings: list[tuple[str, str]] = field(default_factory=list)  # its other keys, as flags of `docker run`
    kubernetes: bool = False  # variables are `$(NAME)` from ``environment``

    def expanded(self, value_of: Callable[[str], Value | None]) -> tuple[list[str], list[str]]:
        """Expand the variables; return the words of the entrypoint, and the words after it."""

        def text_of(text: str) -> str:
            if self.kubernetes:
                environment = self.environment
                return _NAME_IN_BRACKETS.sub(lambda match: environment.get(match[1], match[0]), text)
            return expanded(text.replace("$$", "\0"), value_of).replace("\0", "$")

        def words(value: Any) -> list[str]:
            if isinstance(value, str):
                code = re.sub(r"^[ \t]*#.*\n?", "", value, flags=re.MULTILINE)  # llama-swap removes these lines
                return list(map(restored, words_of(repair(text_of(code)))))
            texts: list[str] = []
            for item in value:
                if not isinstance(item, (dict, list)):
                    texts.append(text_of(str(item)))
            return texts

        self.image = text_of(self.image)
        passes = 2 if self.kubernetes else 1  # in Kubernetes a variable may contain another one
        for _ in range(passes):
            self.environment = {name: text_of(value) for name, value in self.environment.items()}
        return words(self.entrypoint), [*words(self.command), *words(self.arguments)]


def holders_of(text: str) -> tuple[list[Holder], str]:
    """The holders in the files of a pasted text, and the text with these files blanked (line numbers stay).

    A file is the whole text, a fenced block of Markdown, or begins with a known key. Other text is not changed.
    """
    spans = [(part.start("body"), part.end("body")) for part in _FENCE.finditer(text)]
    if not spans:
        start = 0
        while first_line := _FIRST_YAML_LINE.search(text, start):
            lines = _YAML_LINES.match(text, first_line.start())
            start = first_line.end()
            if lines:
                start = max(start, lines.end())
            spans.append((first_line.start(), start))
    all_holders: list[Holder] = []
    rest = text
    for begin, end in [*spans, (0, len(text))]:
        body = rest[begin:end]
        lines_above = text.count("\n", 0, begin)
        holders: list[Holder] = []
        for reader in (_holders_in_yaml, _holders_in_sections, _holders_in_dockerfile):
            holders = holders or list(reader(body, lines_above))
        if holders:
            all_holders += holders
            rest = rest[:begin] + re.sub(r"[^\n]", " ", body) + rest[end:]
    return all_holders, rest


def _holders_in_sections(text: str, lines_above: int) -> Iterator[Holder]:
    """Yield the holders of a Quadlet and of llama.cpp's presets; a preset's `[*]` section is for all presets."""
    marks = list(_SECTION.finditer(text))
    common_keys: dict[str, str] = {}
    for number, mark in enumerate(marks, 1):
        end = marks[number].start() if number < len(marks) else len(text)
        pairs: list[tuple[str, str]] = []
        for entry in _ENTRY_LINE.finditer(text, mark.end(), end):
            pairs.append((entry["key"], re.sub(r"\\\n[ \t]*", " ", entry["value"]).strip()))
        keys = dict(pairs)
        line = lines_above + text.count("\n", 0, mark.start()) + 1
        if mark["name"] == "Container" and "Image" in keys:
            yield _quadlet(pairs, line)
        elif mark["name"] == "*":
            common_keys = keys
        # A preset names a model and no program.
        elif _MODEL_KEYS & {*keys, *common_keys} and not {"ExecStart", "Image", "command", "cmd"} & keys.keys():
            yield _preset({**common_keys, **keys}, line)


def _holders_in_dockerfile(text: str, lines_above: int) -> Iterator[Holder]:
    """Yield the holder of a Dockerfile: what its last stage starts; the image below may have the entrypoint."""
    if not _DOCKERFILE.match(text):
        return
    holder = Holder(0)
    for part in _INSTRUCTION.finditer(text):
        value: Any = re.sub(r"\\\n", " ", part["value"]).strip()
        if part["name"] == "FROM":
            holder = Holder(0, image=re.sub(r"^--\S+[ \t]+|[ \t]+(?:as|AS)[ \t].*", "", value))
            continue
        if part["name"] == "ENV":
            holder.environment |= dict(_variables(words_of(value)))
            continue
        holder.line = lines_above + text.count("\n", 0, part.start()) + 1
        words = ["sh", "-c", value]
        if value.startswith("["):
            with suppress(BadDocument):
                words = yaml_of(value)
        if part["name"] == "CMD":
            holder.command = words
        else:
            holder.entrypoint = words
    if holder.line or any(name.startswith(_FLAG_VARIABLES) for name in holder.environment):
        yield holder


def _quadlet(pairs: list[tuple[str, str]], line: int) -> Holder:
    """The holder of a podman Quadlet's `[Container]` section; `Environment` may occur several times."""
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
    """The holder of a preset's section: a key is a flag, or a variable if it is in upper case."""
    words = [_PRESETS_PROGRAM]
    holder = Holder(line, words)
    for key, commented_value in keys.items():
        value = re.split(r"[ \t]*[;#]", commented_value)[0]  # as in common/preset.cpp, which knows no quotes
        unquoted = value.strip("\"'") if value[:1] == value[-1:] else value  # only quotes that form a pair
        if key.isupper():
            holder.environment[key] = unquoted
        elif key not in ("load-on-startup", "stop-timeout"):
            words += _as_flag(key, unquoted)
    return holder


def _as_flag(key: str, value: str) -> list[str]:
    """A preset's key and value as words of a command."""
    flag = f"-{key}" if len(key) <= 3 else f"--{key}"
    # For other keys `on` is a value (`flash-attn = on`).
    if value.lower() in ("true", "") or (value.lower() == "on" and key == "jinja"):
        return [flag]
    if value.lower() == "false":
        return [f"--no-{key}"]
    return [flag, value]


def _holders_in_yaml(text: str, lines_above: int) -> Iterator[Holder]:
    """Yield the holders of the YAML documents in ``text``; ``lines_above`` it are other lines of the paste."""
    if not _MAY_HOLD.search(text):
        return
    starts = [0, *(match.end() for match in _DOCUMENT.finditer(text))]
    for begin, end in zip(starts, [*starts[1:], len(text)], strict=True):
        document = _DOCUMENT.sub("", text[begin:end])
        try:
            data = yaml_of(_dedented(document))
        except BadDocument:
            continue
        for holder in _walk(data, {}):
            # Parsed YAML has no line numbers, so the line is searched by the last word of the command.
            word = str(_last(holder.entrypoint) or _last(holder.command) or _last(holder.arguments) or holder.image)
            place = text.find(word.strip().split("\n")[0][:20], begin)
            holder.line = lines_above + text.count("\n", 0, max(place, begin)) + 1
            yield holder


def _mapping(value: Any) -> dict[Any, Any]:
    """``value`` if it is a mapping, else an empty mapping."""
    return value if isinstance(value, dict) else {}


def _last(value: Any) -> Any:
    return value[-1] if isinstance(value, list) and value else value


def _dedented(text: str) -> str:
    """The text moved to the left margin: it may be cut out of a deeper level of a file."""
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
    macros = {**macros, **{str(name): str(text) for name, text in _mapping(data.get("macros")).items()}}
    holder = _chart_holder(data) or _holder(data, macros)
    if holder is not None:
        yield holder
        return
    for value in data.values():
        yield from _walk(value, macros)


def _holder(data: Any, macros: Mapping[str, str]) -> Holder | None:
    """The holder that a mapping describes; None if it starts no command. Raises DrafthouseError for `extends`."""
    image = ""
    if isinstance(data.get("image"), str):
        image = str(data["image"])
    commands: dict[str, str | list[Any]] = {}
    for key in ("command", _ENTRY, _ARGUMENTS, _WHOLE):
        if isinstance(data.get(key), (str, list)):
            commands[key] = data[key]
    environment = dict(_variables(data.get("environment"))) | dict(_variables(data.get("env")))
    # Without a command an image starts an engine only by its variables (`LLAMA_ARG_MODEL`).
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
    command = _with_macros(commands.get("command", commands.get(_WHOLE, "")), macros)
    holder = Holder(0, command, commands.get(_ENTRY, ""), "", image, environment, kubernetes=kubernetes)
    if kubernetes:  # its `command` is the entrypoint
        holder.entrypoint = command
        holder.command = ""
        holder.arguments = commands.get(_ARGUMENTS, "")
    for key, value in data.items():
        if key not in _TRANSLATED_KEYS:
            holder.settings.append((f"--{key}", _short(value)))
    return holder


def _chart_holder(data: Mapping[str, Any]) -> Holder | None:
    """The holder of a tool's mapping with settings instead of a command; None for any other mapping."""
    if isinstance(data.get("run"), str):  # SkyPilot
        return Holder(0, ["bash", "-c", data["run"]], environment=dict(_variables(data.get("envs"))))
    if "modelURL" in data:  # vLLM's production stack
        vllm_settings = {_snake(key): value for key, value in _mapping(data.get("vllmConfig")).items()}
        extra_args = vllm_settings.pop("extra_args", None)
        words = [*_CHART_ENGINE.chart_command, str(data["modelURL"]), *setting_words(vllm_settings)]
        if isinstance(extra_args, list):
            words += extra_args
        return Holder(0, words)
    if {"engine_kwargs", "model_loading_config"} <= data.keys():  # Ray Serve
        settings = dict(_CHART_ENGINE.settings_of_call(dict(data)))
        return Holder(0, [*_CHART_ENGINE.chart_command, str(settings.pop("model", "")), *setting_words(settings)])
    if "modelFormat" in data and isinstance(data.get(_ARGUMENTS), list):  # KServe
        words = list(_CHART_ENGINE.chart_command)
        for argument in data[_ARGUMENTS]:
            word = str(argument).replace("--model_id", "--model")
            if not word.startswith("--model_name"):  # KServe's own flag
                words.append(word)
        return Holder(0, words)
    return None


def _snake(key: str) -> str:
    """A Helm chart's key as an engine's setting: max_model_len for ``maxModelLen``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()


def _with_macros(value: Any, macros: Mapping[str, str]) -> Any:
    """A text with llama-swap's macros expanded; any other value unchanged."""
    if not isinstance(value, str) or not macros:
        return value
    for _ in range(3):  # a macro may contain other macros
        value = re.sub(r"\$\{([\w-]+)\}", lambda match: macros.get(match[1], match[0]), value)
    return value


def _variables(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the variables of a mapping, a list of NAME=value, or Kubernetes' list of names and values.

    A variable without a value comes from the environment of whoever starts the container, and is left out.
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
    """A value cut to 60 characters, without secrets: they are removed first, since half a secret is not recognised."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    text = without_shapes(str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
