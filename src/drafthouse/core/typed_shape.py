"""The shape that a TypedDict gives: what is read from a file is checked by the type that it then has.

What a type cannot say stands beside it, in the shape's own words: ``Annotated[int, {"low": 1}]``; or the whole shape,
where it lets something else through: ``Annotated[Tuned, Anything()]``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

from .schema import Anything, List, Map, Shape, Table, Value

_MAY_LACK = {"required": False}


class _NotRequired:
    """In place of typing's, which Python 3.10 has not: modules of types import it for the type checker alone."""

    def __class_getitem__(cls, kind: Any) -> Any:
        return Annotated[kind, _MAY_LACK]


class _Fields(Mapping[str, Shape]):
    """A type's fields, read when one is asked for: most programs that import a shape check little by it."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    @functools.cached_property
    def _read(self) -> dict[str, Shape]:
        hints = get_type_hints(self._kind, localns={"NotRequired": _NotRequired}, include_extras=True)
        return {key: _shape(hint, key in self._kind.__required_keys__) for key, hint in hints.items()}

    def __getitem__(self, key: str) -> Shape:
        return self._read[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


@functools.cache
def shape_of(kind: Any) -> Map:
    """The shape of a TypedDict; what is a ``dict[str, Any]`` in it is left to another place.

    Its fields raise TypeError for a type, or a word beside one, that no shape has.
    """
    return Map(_Fields(kind))


def _shape(kind: Any, required: bool = False) -> Shape:
    origin, parts = get_origin(kind), get_args(kind)
    shape: Shape
    if origin is Annotated:
        given = [part for part in parts[1:] if not isinstance(part, dict)]
        shape = replace(given[0], required=required) if given else _shape(parts[0], required)
        for part in parts[1:]:
            if isinstance(part, dict):
                shape = replace(shape, **part)
        return shape
    if kind in (str, int, float, bool):
        shape = Value(kind)
    elif origin is Literal:
        shape = Value(choices=parts)
    elif is_typeddict(kind):
        shape = shape_of(kind)
    elif origin is list:
        shape = List(_shape(parts[0]))
    elif origin is dict and parts[1] is not Any:
        shape = Table(_shape(parts[1]))
    elif origin is dict or kind is Any:
        shape = Anything()
    else:
        raise TypeError(f"no shape for {kind}")
    return replace(shape, required=required)
