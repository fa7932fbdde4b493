"""Read YAML as plain data: what JSON can hold, with a place for everything that is wrong. On the controller only.

The safe loader, and stricter: no key twice in one mapping, no tags but those of plain data (a date without quotes is
text), not deeper than `documents.MOST_DEEP`, and no aliases that stand for more than `MOST_VALUES` values or for
themselves.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import yaml

from .documents import MIB, MOST_DEEP, MOST_WHOLE, BadDocument, bytes_of, checked_text, place_in, short, text_of
from .errors import DrafthouseError, one_problem
from .parsed_files import parsed_once

#: Bytes of a YAML file at most: what people write by hand is much smaller, and the parser is slow.
MOST_BYTES = 8 * MIB
#: Values that a document may stand for, aliases written out. Without aliases its size bounds them.
MOST_VALUES = 1_000_000

_TAG = "tag:yaml.org,2002:"
_PLAIN = frozenset(_TAG + name for name in ("map", "seq", "str", "int", "float", "bool", "null", "merge"))


def read_yaml(path: Path, needed: str, do: str, *, where: str = "", most: int = MOST_BYTES) -> Any:
    """The YAML in a file of at most ``most`` bytes, None where it holds nothing.

    Raises DrafthouseError with ``needed`` and ``do`` where it cannot be read; ``where`` is what the message calls the
    file (default: its path).
    """
    where = where or str(path)
    try:
        return parsed_once(("yaml", path, most), [path], lambda: yaml_of(text_of(bytes_of(path, most))))
    except OSError as error:
        raise one_problem("file-unreadable", f"no readable file ({error.strerror})", needed, do, where) from error
    except BadDocument as error:
        raise DrafthouseError(error.problem(where, needed, do)) from error


def yaml_of(text: str) -> Any:
    """The YAML document ``text`` as plain data. Raises BadDocument with the place of what is wrong."""
    try:
        return yaml.load(checked_text(text), Loader=_Loader)  # noqa: S506 (a safe loader, below)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = ""
        if mark:
            place = f"line {mark.line + 1}, column {mark.column + 1}"
        raise _no_yaml(short(str(error.problem or error.context), 120), place) from error
    except yaml.reader.ReaderError as error:
        # libyaml counts bytes, PyYAML's own reader characters.
        position = len(text.encode("utf-8", "surrogatepass")[: error.position].decode("utf-8", "ignore"))
        place = place_in(text, position if issubclass(_Loader, _C_LOADER) else error.position)
        raise _no_yaml(short(str(error.reason)), place) from error


def is_too_deep(text: str) -> bool:
    """Whether a text nests deeper than `documents.MOST_DEEP`; a reader in C that follows it ends the whole process.

    What is no YAML is not too deep: its reader says what is wrong. Events alone are read here, which does not recurse.
    """
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_C_LOADER):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MOST_DEEP:
                return True
    except (yaml.YAMLError, RecursionError):
        return False
    return False


def _no_yaml(why: str, place: str) -> BadDocument:
    return BadDocument(f"not YAML ({why})", place, why)


def _wrong(found: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, found, node.start_mark)


_C_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_C_LOADER):  # type: ignore[misc]  # chosen at run time
    """The loader of `yaml_of`."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    # Called for every node on the way down and up, by the parser in C as by the one in Python.
    def descend_resolver(self, current_node: yaml.Node | None, current_index: object) -> None:
        """Go one level down, and no further than the interpreter's own stack reaches."""
        self._depth += 1
        if self._depth > MOST_DEEP:
            raise yaml.composer.ComposerError(
                None, None, "nested too deeply", getattr(current_node, "start_mark", None)
            )
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        """Go one level up."""
        self._depth -= 1
        super().ascend_resolver()

    def get_single_node(self) -> yaml.Node | None:
        """The document's tree, which is looked at before anything is made of it."""
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _measure(node)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Look at a mapping as it was written, once, before merge keys are put into it; raise on a repeated key."""
        looked_at: set[int] = self.__dict__.setdefault("_looked_at", set())
        if id(node) not in looked_at:
            looked_at.add(id(node))
            seen: set[str] = set()
            for key_node, _ in node.value:
                if not isinstance(key_node, yaml.ScalarNode):
                    raise _wrong("a key that is no plain value", key_node)
                if key_node.value in seen:
                    raise _wrong(f"the key '{short(key_node.value)}' is written twice", key_node)
                seen.add(key_node.value)
        super().flatten_mapping(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Make the value of a node; raise at its place where it is none."""
        if node.tag in (f"{_TAG}timestamp", f"{_TAG}value"):
            # A date, or a sign, that nobody meant as more than text.
            node.tag = f"{_TAG}str"
        if node.tag not in _PLAIN:
            raise _wrong(f"the tag {short(node.tag.replace(_TAG, '!!'))}, which is no plain data", node)
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        try:
            value = super().construct_object(node, deep)
        except (ValueError, KeyError, IndexError) as error:  # !!int x, !!bool maybe, !!float ''
            raise _wrong(f"'{short(node.value)}', which is no {node.tag.removeprefix(_TAG)}", node) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise _wrong(f"'{short(node.value)}', which is no finite number", node)
        if isinstance(value, int) and abs(value) > MOST_WHOLE:
            raise _wrong(f"the number {short(node.value)}, too large to count with", node)
        if isinstance(value, str):
            try:
                checked_text(value)  # "\0" and "\ud800" may stand in quotes
            except BadDocument as error:
                raise _wrong(error.found, node) from error
        return value


def _measure(root: yaml.Node) -> None:
    """Raise where a tree, its aliases written out, is too large, too deep or part of itself.

    A node that several aliases name is one object in the tree: each is counted once, and by the sum of its parts.
    """
    sizes: dict[int, tuple[int, int]] = {}
    open_nodes: set[int] = set()
    waiting = [(root, False)]
    while waiting:
        node, seen_below = waiting.pop()
        if id(node) in sizes:
            continue
        parts = _parts(node)
        if seen_below:
            open_nodes.discard(id(node))
            size = depth = 1
            for part in parts:
                part_size, part_depth = sizes[id(part)]
                size += part_size
                depth = max(depth, 1 + part_depth)
            if size > MOST_VALUES:
                raise _wrong(f"aliases that stand for more than {MOST_VALUES:,} values", node)
            if depth > MOST_DEEP:
                raise _wrong("nested too deeply", node)
            sizes[id(node)] = size, depth
            continue
        open_nodes.add(id(node))
        waiting.append((node, True))
        for part in parts:
            if id(part) in open_nodes:
                raise _wrong("an alias of what it is a part of", part)
            waiting.append((part, False))


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
