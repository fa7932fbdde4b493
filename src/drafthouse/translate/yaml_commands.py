"""Commands in YAML: services of docker compose, containers of Kubernetes, models of llama-swap."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.documents import BadDocument
from ..core.secret_shapes import without_shapes
from ..core.yaml_documents import yaml_of
from .shell_text import split_on

_FENCE = re.compile(r"^([ \t]*)```[ \t]*(?:ya?ml)\b[^\n]*\n(?P<body>.*?)^\1```", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(
    r"<<-?[ \t]*(['\"]?)(?P<end>\w+)\1[^\n]*\n(?P<body>.*?)^[ \t]*(?P=end)[ \t]*$", re.MULTILINE | re.DOTALL
)
_DOCUMENT = re.compile(r"^---[^\n]*\n|^\.\.\.[ \t]*\n", re.MULTILINE)
#: What a holder of a command says of itself under these keys: the program, its arguments, and both.
_ENTRY, _ARGUMENTS, _WHOLE = "entrypoint", "args", "cmd"
#: Keys that are read; the others of a service or a container are named, and are not for a profile.
_READ = {"command", _ENTRY, _ARGUMENTS, _WHOLE, "image", "environment", "env", "name"}


@dataclass
class Holder:
    """What starts a command in a YAML file. ``settings`` are its other keys, as flags of a container."""

    line: int
    command: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    image: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    settings: list[tuple[str, str]] = field(default_factory=list)


def yaml_holders(text: str) -> tuple[list[Holder], str]:
    """Return what starts a command in the YAML of a text, and the text without that YAML, lines kept.

    The text is YAML as a whole, or has it between fences of Markdown or in a script's heredoc. What cannot be read as
    YAML is left as it is.
    """
    parts = [*_FENCE.finditer(text), *_HEREDOC.finditer(text)]
    places = [(part.start("body"), part.end("body")) for part in parts] or [(0, len(text))]
    found: list[Holder] = []
    rest = text
    for begin, end in places:
        holders = list(_holders(text[begin:end], text.count("\n", 0, begin)))
        if holders:
            found += holders
            rest = rest[:begin] + re.sub(r"[^\n]", " ", rest[begin:end]) + rest[end:]
    return found, rest


def _holders(text: str, above: int) -> Iterator[Holder]:
    if not re.search(rf"^[ \t-]*(?:command|{_ENTRY}|{_ARGUMENTS}|{_WHOLE}):", text, re.MULTILINE):
        return
    starts = [0, *(match.end() for match in _DOCUMENT.finditer(text))]
    for begin, end in zip(starts, [*starts[1:], len(text)], strict=True):
        body = _DOCUMENT.sub("", text[begin:end])
        try:
            data = yaml_of(_dedented(body))
        except BadDocument:
            continue
        macros = data.get("macros") if isinstance(data, dict) else None
        texts = {str(name): str(text) for name, text in macros.items()} if isinstance(macros, dict) else {}
        for holder in _walk(data, texts):
            word = (holder.entrypoint or holder.command)[-1]
            place = text.find(word.split("\n")[0][:20], begin)
            holder.line = above + text.count("\n", 0, max(place, begin)) + 1
            yield holder


def _dedented(text: str) -> str:
    """Return a piece of YAML that was cut out of a deeper one at the left margin."""
    lines = text.split("\n")
    depth = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return "\n".join(line[depth:] for line in lines)


def _walk(data: Any, macros: Mapping[str, str]) -> Iterator[Holder]:
    """Yield every holder in a document, in order."""
    if isinstance(data, list):
        for item in data:
            yield from _walk(item, macros)
    if not isinstance(data, dict):
        return
    holder = _holder(data, macros)
    if holder is not None:
        yield holder
        return
    for value in data.values():
        yield from _walk(value, macros)


def _holder(data: Any, macros: Mapping[str, str]) -> Holder | None:
    """Return the holder that a mapping is; None where it starts nothing."""
    kubernetes = _ARGUMENTS in data or (isinstance(data.get("env"), list) and "name" in data)
    words = {key: _words(data[key], macros) for key in ("command", _ENTRY, _ARGUMENTS, _WHOLE) if key in data}
    if not any(words.values()):
        return None
    holder = Holder(0, image=str(data.get("image") or ""))
    if kubernetes:  # its `command` is the entrypoint
        holder.entrypoint, holder.command = words.get("command", []), words.get(_ARGUMENTS, [])
    else:
        holder.entrypoint = words.get(_ENTRY, [])
        holder.command = [*words.get("command", []), *words.get(_WHOLE, [])]
    for key in ("environment", "env"):
        holder.environment |= dict(_variables(data.get(key)))
    holder.settings = [(f"--{key}", _short(value)) for key, value in data.items() if key not in _READ]
    return holder


def _words(value: Any, macros: Mapping[str, str]) -> list[str]:
    """Return the words of a command that is a list, or a text as a shell reads it."""
    if isinstance(value, list):
        return [_filled(str(item), macros) for item in value if not isinstance(item, (dict, list))]
    if not isinstance(value, str):
        return []
    text = _filled(value, macros).strip()
    # Folded or not, it is one command: a line end means nothing here.
    return split_on(re.sub(r"\\?[ \t]*\n[ \t]*", " ", text))[0]


def _filled(text: str, macros: Mapping[str, str]) -> str:
    """Put llama-swap's macros into a text."""
    for _ in range(3):  # one may name another
        text = re.sub(r"\$\{([\w-]+)\}", lambda match: macros.get(match[1], match[0]), text)
    return text.replace("$$", "$")


def _variables(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the variables of a mapping, of a list of NAME=value, or of one of Kubernetes' name and value."""
    if isinstance(value, dict):
        yield from ((str(name), "" if one is None else str(one)) for name, one in value.items())
    for item in value if isinstance(value, list) else ():
        if isinstance(item, str):
            name, _, one = item.partition("=")
            yield name, one
        elif isinstance(item, dict) and "name" in item:
            yield str(item["name"]), str(item.get("value", f"${{{item['name']}}}"))


def _short(value: Any) -> str:
    """Return a value in a few words, without a secret: of what is cut off nobody could tell that it is one."""
    text = without_shapes(", ".join(map(str, value)) if isinstance(value, list) else str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
