"""Read YAML as data that JSON could hold, with the line and column of every error. Used on the controller only.

It is stricter than PyYAML's safe loader. Errors are: a repeated key, a tag of anything but plain data (an unquoted date
is text), nesting deeper than `documents.MOST_DEEP`, aliases that expand to more than `MOST_VALUES` values, and an alias
inside its own anchor.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import yaml

from .documents import MIB, MOST_DEEP, MOST_WHOLE, BadDocument, bytes_of, checked_text, place_in, short, text_of
from .errors import DrafthouseError, one_problem
from .parsed_files import parsed_once

#: The largest file that is read. Files written by hand are much smaller, and the parser is slow.
MOST_BYTES = 8 * MIB
#: The most values of a document with its aliases expanded. Without aliases the size of the file limits them.
MOST_VALUES = 1_000_000

_TAG = "tag:yaml.org,2002:"  # the prefix of YAML's own tags, which documents write as !!
_PLAIN = frozenset(_TAG + name for name in ("map", "seq", "str", "int", "float", "bool", "null", "merge"))


def read_yaml(path: Path, needed: str, do: str, *, where: str = "", most: int = MOST_BYTES) -> Any:
    """The data of a YAML file of at most ``most`` bytes; None for an empty file.

    Raises DrafthouseError where it cannot be read, with ``needed`` and ``do`` as the advice and ``where`` as the name
    of the file (default: its path).
    """
    where = where or str(path)
    try:
        return parsed_once(("yaml", path, most), [path], lambda: yaml_of(text_of(bytes_of(path, most))))
    except OSError as error:
        raise one_problem("file-unreadable", f"no readable file ({error.strerror})", needed, do, where) from error
    except BadDocument as error:
        raise DrafthouseError(error.problem(where, needed, do)) from error


def yaml_of(text: str) -> Any:
    """The data of the YAML document ``text``. Raises BadDocument with the place of the error."""
    try:
        return yaml.load(checked_text(text), Loader=_Loader)  # noqa: S506 (a safe loader, below)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = ""
        if mark:
            place = f"line {mark.line + 1}, column {mark.column + 1}"
        raise _no_yaml(short(str(error.problem or error.context), 120), place) from error
    except yaml.reader.ReaderError as error:
        # The position is in bytes with libyaml, and in characters with PyYAML's reader in Python.
        position = len(text.encode("utf-8", "surrogatepass")[: error.position].decode("utf-8", "ignore"))
        place = place_in(text, position if issubclass(_Loader, _C_LOADER) else error.position)
        raise _no_yaml(short(str(error.reason)), place) from error


def is_too_deep(text: str) -> bool:
    """True if a text nests deeper than `documents.MOST_DEEP`, which could overflow the stack of another parser.

    False for invalid YAML, whose error that parser reports. Only events are read here, without recursion.
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
    """The error of a text that does not parse."""
    return BadDocument(f"not YAML ({why})", place, why)


def _error_at(node: yaml.Node, found: str) -> yaml.constructor.ConstructorError:
    """The error ``found`` at the place where ``node`` begins."""
    return yaml.constructor.ConstructorError(None, None, found, node.start_mark)


# The parser in C if PyYAML was built with it, else the one in Python, which is slower.
_C_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_C_LOADER):  # type: ignore[misc]  # chosen at run time
    """The loader of `yaml_of`: the safe loader with the checks of this module."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._checked_mappings: set[int] = set()  # ids of their nodes

    # PyYAML calls this and `ascend_resolver` around every node, whether the parser is in C or in Python.
    def descend_resolver(self, current_node: yaml.Node | None, current_index: object) -> None:
        """Count one level down. Raises ComposerError below `MOST_DEEP`, before the recursion overflows the stack."""
        self._depth += 1
        if self._depth > MOST_DEEP:
            raise yaml.composer.ComposerError(
                None, None, "nested too deeply", getattr(current_node, "start_mark", None)
            )
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        """Count one level up."""
        self._depth -= 1
        super().ascend_resolver()

    def get_single_node(self) -> yaml.Node | None:
        """The document's tree of nodes, checked by `_measure` before data is made of it."""
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _measure(node)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Raise for a repeated key, once for each mapping and before merge keys (`<<`) are expanded into it."""
        if id(node) not in self._checked_mappings:
            self._checked_mappings.add(id(node))
            keys: set[str] = set()
            for key_node, _ in node.value:
                if not isinstance(key_node, yaml.ScalarNode):
                    raise _error_at(key_node, "a key that is no plain value")
                if key_node.value in keys:
                    raise _error_at(key_node, f"the key '{short(key_node.value)}' is written twice")
                keys.add(key_node.value)
        super().flatten_mapping(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node. Raises ConstructorError at the node for a value that JSON could not hold."""
        if node.tag in (f"{_TAG}timestamp", f"{_TAG}value"):
            # An unquoted date, and the sign "=", are meant as text.
            node.tag = f"{_TAG}str"
        if node.tag not in _PLAIN:
            raise _error_at(node, f"the tag {short(node.tag.replace(_TAG, '!!'))}, which is no plain data")
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        try:
            value = super().construct_object(node, deep)
        except (ValueError, KeyError, IndexError) as error:  # !!int x, !!bool maybe, !!float ''
            raise _error_at(node, f"'{short(node.value)}', which is no {node.tag.removeprefix(_TAG)}") from error
        if isinstance(value, float) and not math.isfinite(value):
            raise _error_at(node, f"'{short(node.value)}', which is no finite number")
        if isinstance(value, int) and abs(value) > MOST_WHOLE:
            raise _error_at(node, f"the number {short(node.value)}, too large to count with")
        if isinstance(value, str):
            try:
                checked_text(value)  # a quoted text may contain the escapes "\0" and "\ud800"
            except BadDocument as error:
                raise _error_at(node, error.found) from error
        return value


def _measure(root: yaml.Node) -> None:
    """Raise ConstructorError where a tree with its aliases expanded is too large, too deep, or part of itself.

    The tree is walked depth first. All aliases of a node are the same object, which is measured once.
    """
    measured: dict[int, tuple[int, int]] = {}  # id of a node to its number of values and its depth
    ancestors: set[int] = set()
    waiting = [(root, False)]
    while waiting:
        node, children_measured = waiting.pop()
        if id(node) in measured:
            continue
        children = _children(node)
        if children_measured:
            ancestors.discard(id(node))
            size = depth = 1
            for child in children:
                child_size, child_depth = measured[id(child)]
                size += child_size
                depth = max(depth, 1 + child_depth)
            if size > MOST_VALUES:
                raise _error_at(node, f"aliases that stand for more than {MOST_VALUES:,} values")
            if depth > MOST_DEEP:
                raise _error_at(node, "nested too deeply")
            measured[id(node)] = size, depth
            continue
        ancestors.add(id(node))
        waiting.append((node, True))
        for child in children:
            if id(child) in ancestors:
                raise _error_at(child, "an alias of what it is a part of")
            waiting.append((child, False))


def _children(node: yaml.Node) -> list[yaml.Node]:
    """The nodes below a node: keys and values of a mapping, items of a list, none of a single value."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
