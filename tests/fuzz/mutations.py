"""Bad input, made from good input: bytes that were damaged, and data of the wrong shape.

`mutated` takes what a real file holds and returns what a slip of the hand, a full disk, another editor, another program
or a joker makes of it, with the name of what was done. Everything comes from the `random.Random` that it is given.
"""

from __future__ import annotations

import copy
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

YAML, JSON, LINES, TEXT = "yaml", "json", "jsonl", "text"
#: Nothing may touch this file: a tag that makes YAML run a program would.
MARK = "/tmp/drafthouse-fuzz-was-here"

Bytes = Callable[[random.Random, bytes], bytes]


# --- bytes ------------------------------------------------------------------------------------------------------------


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data or b" ")
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncate(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _put(what: Callable[[random.Random], bytes]) -> Bytes:
    def put(rng: random.Random, data: bytes) -> bytes:
        place = rng.randrange(len(data) + 1)
        return data[:place] + what(rng) + data[place:]

    return put


def _put_line(what: Callable[[random.Random], bytes]) -> Bytes:
    def put(rng: random.Random, data: bytes) -> bytes:
        lines = data.split(b"\n")
        lines.insert(rng.randrange(len(lines) + 1), what(rng))
        return b"\n".join(lines)

    return put


def _instead_of_a_value(what: Callable[[random.Random], bytes]) -> Bytes:
    """Put it where a value stands: behind a colon, up to the end of the line or the next comma."""

    def put(rng: random.Random, data: bytes) -> bytes:
        places = [found.span(1) for found in re.finditer(rb":[ \t]*([^\s,{}\[\]][^\n,{}\[\]]*)", data[:400_000])]
        if not places:
            return what(rng)
        start, end = rng.choice(places)
        return data[:start] + what(rng) + data[end:]

    return put


def _without_a_line(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def _line_twice(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    return b"\n".join([*lines[:place], lines[place], *lines[place:]])


def _indented(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    lines[place] = (
        rng.choice((b"\t", b" ", b"   ", b"- ", b"? ", b"& ", b"* ", b"! ", b"%", b"@", b"`", b"|")) + lines[place]
    )
    return b"\n".join(lines)


def _deep(rng: random.Random) -> bytes:
    return rng.choice((b"[", b'{"a":', b"{a: ", b"- ", b"((", b"[[[")) * rng.choice((60, 1_000, 100_000))


def _huge_number(rng: random.Random) -> bytes:
    return rng.choice(
        (b"9" * 5_000, b"-" + b"9" * 400, b"1e999", b"-1e999", b"1" + b"0" * 19, b"0x" + b"f" * 300, b"1e-400")
    )


def _odd_scalar(rng: random.Random) -> bytes:
    words = (
        b".nan", b".inf", b"-.inf", b"NaN", b"Infinity", b"~", b"null", b"yes", b"0o17", b"017", b"1_000", b"1:30:00",
        b"2026-11-23", b"2026-13-45", b"2026-11-23T25:61:61Z", b"0001-01-01", b"!!binary aGk=", b"!!binary '%%%'",
        b"!!set {a, b}", b"!!omap [a: 1]", b"!!pairs [a: 1, a: 2]", b"!!float x", b"!!int x", b"!!timestamp x",
        b"!!bool maybe", b"!!null x", b"!unknown x", b"!!merge x", b"!!str", b"!<tag:yaml.org,2002:int> 1", b"=", b"<<",
    )  # fmt: skip
    return rng.choice(words)


def _tag(rng: random.Random) -> bytes:
    touch = b"touch " + MARK.encode()
    tags = (
        b"!!python/object/apply:os.system ['" + touch + b"']",
        b"!!python/object/new:subprocess.Popen [['sh', '-c', '" + touch + b"']]",
        b"!!python/name:os.system",
        b"!!python/tuple [1, 2]",
        b"!!python/object:tests.fuzz.runner.Case {}",
        b"!vault x",
        b"!unsafe '{{ 1 }}'",
    )
    return rng.choice(tags)


def _bomb(rng: random.Random, data: bytes) -> bytes:
    """Lists of lists of lists by alias: a few hundred bytes that mean more values than there is memory for."""
    depth, width = rng.choice(((9, 9), (30, 2), (5, 40)))
    lines = ["zz0: &zz0 [x, x, x, x]"]
    lines += [f"zz{n}: &zz{n} [{', '.join([f'*zz{n - 1}'] * width)}]" for n in range(1, depth)]
    use = rng.choice((f"zz: *zz{depth - 1}", f"<<: *zz{depth - 1}", f"kinds: *zz{depth - 1}", f"*zz{depth - 1} : x"))
    return "\n".join([*lines, use, ""]).encode() + data


def _alias(rng: random.Random) -> bytes:
    return rng.choice(
        (b"&a [*a]", b"&a {x: *a}", b"*nothing", b"&b [1, 2]", b"{<<: 3}", b"{<<: [1]}", b"{<<: &c {<<: *c}}", b"&a *a")
    )


def _odd_text(rng: random.Random) -> bytes:
    texts = (
        "\u202eabc", "\u2028", "\u0085", "\ufeff", "\u00a0", "e\u0301", "\U0001f600", "\U000e0001", "\ufffe",
        "\u200b", "{{ 1 }}", "{% raw %}", "$(id)", "`id`", "';", '"', "\\", "%s%n", "\x1b[2J", "\x7f", "\r", "\x0b",
        "\x0c", "\x1c",
    )  # fmt: skip
    return rng.choice(texts).encode()


def _not_utf8(rng: random.Random) -> bytes:
    return rng.choice((b"\xe9", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\x80", b"caf\xe9 "))


def _as(encoding: str) -> Bytes:
    return lambda _, data: data.decode("utf-8", "replace").encode(encoding, "replace")


def _always(content: bytes) -> Bytes:
    return lambda _, __: content


def _grown(rng: random.Random, data: bytes) -> bytes:
    """A file of tens of MB, which is none of ours."""
    return data + rng.choice((b" ", b"\n", b"# x\n", b"a: 1\n", b'{"a": 1}\n')) * 24_000_000


_BYTES: dict[str, Bytes] = {
    "bits flipped": _flip,
    "truncated": _truncate,
    "not UTF-8": _put(_not_utf8),
    "NUL": _put(lambda _: b"\0"),
    "NULs at the end": lambda rng, data: data[: rng.randrange(len(data) + 1)] + b"\0" * rng.choice((1, 4096)),
    "BOM in front": lambda _, data: b"\xef\xbb\xbf" + data,
    "BOM inside": _put(lambda _: b"\xef\xbb\xbf"),
    "UTF-16": _as("utf-16"),
    "UTF-16 without BOM": _as("utf-16-le"),
    "UTF-32": _as("utf-32"),
    "Latin-1": lambda _, data: data.decode("utf-8", "replace").replace("e", "\u00e9", 3).encode("latin-1", "replace"),
    "CR line ends": lambda _, data: data.replace(b"\n", b"\r"),
    "CRLF line ends": lambda _, data: data.replace(b"\n", b"\r\n"),
    "empty": _always(b""),
    "blank": _always(b" \n\t\n "),
    "a comment alone": _always(b"# nothing\n"),
    "two documents": lambda _, data: data + b"\n---\n" + data,
    "document end": _put_line(lambda _: b"..."),
    "directive": lambda rng, data: rng.choice((b"%YAML 9.9\n---\n", b"%TAG ! tag:x\n---\n", b"%NOPE\n---\n")) + data,
    "not text at all": lambda rng, _: rng.randbytes(2000),
    "an archive": lambda rng, data: b"\x1f\x8b\x08\x00" + rng.randbytes(200) + data[:100],
    "deep": _put(_deep),
    "deep value": _instead_of_a_value(_deep),
    "deep alone": lambda rng, _: _deep(rng),
    "huge number": _instead_of_a_value(_huge_number),
    "odd scalar": _instead_of_a_value(_odd_scalar),
    "tag": _instead_of_a_value(_tag),
    "tag in front": lambda rng, data: rng.choice((b"!!python/object/apply:os.system\n", b"!!seq\n", b"!!str\n")) + data,
    "alias": _instead_of_a_value(_alias),
    "bomb": _bomb,
    "odd text": _put(_odd_text),
    "odd text as value": _instead_of_a_value(_odd_text),
    "tab or sign": _indented,
    "line lost": _without_a_line,
    "line twice": _line_twice,
    "key of a list": _put_line(
        lambda rng: rng.choice((b"? [a, b]\n: c", b"? {a: b}\n: c", b"[a]: 1", b"null: 1", b"1.5: x"))
    ),
    "too big": _grown,
}
#: These need no text around them that is YAML or JSON.
_OF_TEXT = {
    name for name in _BYTES if name not in ("bomb", "alias", "tag", "key of a list", "huge number", "deep value")
}
#: A file of tens of MB takes its time to write: one in so many.
_RARE = {"too big": 0.15}


# --- structure --------------------------------------------------------------------------------------------------------

Path = tuple[Any, ...]


def _nodes(data: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _nodes(value, (*path, key))
    elif isinstance(data, list):
        for number, value in enumerate(data[:50]):
            yield from _nodes(value, (*path, number))


def _at(data: Any, path: Path) -> Any:
    for step in path:
        data = data[step]
    return data


def _value(rng: random.Random, old: Any) -> Any:
    """A value of another type, or of the same type and beyond reason."""
    values: tuple[Any, ...] = (
        None, [], {}, [None], {"a": 1}, [[]], [{}], {"a": {"b": {}}}, 0, -1, 1, 2, 10**30, -(10**30), 0.0, -0.5, 1e308,
        5e-324, math.inf, -math.inf, math.nan, True, False, "", " ", "x" * 20_000, "0", "1e9", "nan", "null", "a\nb",
        "\u202etxet", "e\u0301", "\x1b[31m", "{{ 7 * 7 }}", "$(id)", "../../etc/passwd", "/", "-", "--help", "'", '"',
        "\ud800", "None", "true", ["x"] * 2_000, {"k" + str(n): n for n in range(500)}, [1, "a", None, {}],
        {"": ""}, [old], {"old": old}, str(old)[:200], [old, old], 2**63, 65536, 1e-9, "\0", ".", "..", "~", "a/b",
        "a.b",
    )  # fmt: skip
    return rng.choice(values)


def _key(rng: random.Random) -> Any:
    return rng.choice(
        (
            "",
            " ",
            "zzz",
            "constructor",
            "__class__",
            "a.b",
            "a\nb",
            "\u202ek",
            "0",
            0,
            1.5,
            True,
            None,
            "x" * 5_000,
            "name",
        )
    )


def _shuffled(rng: random.Random, data: Any, path: Path) -> Any:
    """Change the one node at ``path``; return the whole."""
    if not path:
        return _value(rng, data)
    parent, last = _at(data, path[:-1]), path[-1]
    what = rng.choice(("value", "value", "value", "remove", "extra", "rename", "other"))
    if what == "value":
        parent[last] = _value(rng, parent[last])
    elif what == "remove":
        del parent[last]
    elif what == "extra" and isinstance(parent, dict):
        parent[_key(rng)] = _value(rng, parent[last])
    elif what == "rename" and isinstance(parent, dict):
        parent[_key(rng)] = parent.pop(last)
    else:
        parent[last] = copy.deepcopy(_at(data, rng.choice(list(_nodes(data)))))
    return data


class _Dumper(yaml.SafeDumper):
    """As a person's file: no anchors for what stands there twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _dumped(form: str, data: Any) -> bytes:
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False) if form == YAML else json.dumps(data)
    return text.encode("utf-8", "surrogatepass")


def _structure(rng: random.Random, form: str, data: bytes) -> bytes:
    whole = yaml.safe_load(data) if form == YAML else json.loads(data)
    paths = list(_nodes(whole))
    # The deep nodes are many: half of the time one near the top is changed.
    near = [path for path in paths if len(path) <= 3]
    for _ in range(rng.choice((1, 1, 1, 3))):
        path = rng.choice(near if rng.random() < 0.5 else paths)
        try:
            whole = _shuffled(rng, whole, path)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    return _dumped(form, whole)


def _line_structure(rng: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    full = [number for number, line in enumerate(lines) if line.strip()]
    number = rng.choice(full)
    lines[number] = _structure(rng, JSON, lines[number]) + b"\n"
    return b"".join(lines)


def mutated(rng: random.Random, form: str, data: bytes) -> tuple[str, bytes]:
    """The name of a change, and the changed content of a good file."""
    if form != TEXT and data.strip() and rng.random() < 0.5:
        return "structure", _line_structure(rng, data) if form == LINES else _structure(rng, form, data)
    names = [name for name in _BYTES if form != TEXT or name in _OF_TEXT]
    name = rng.choices(names, [_RARE.get(name, 1.0) for name in names])[0]
    return name, _BYTES[name](rng, data)
