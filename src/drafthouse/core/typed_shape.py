"""Derive a shape (`schema.py`) from a TypedDict, so that data read from a file is checked by its own type.

What a type cannot express is added with `Annotated`: fields of the shape, ``Annotated[int, {"low": 1}]``, or another
shape instead, ``Annotated[Tuned, Anything()]``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

from .schema import Anything, List, Map, Shape, Table, Value

_MAY_LACK = {"required": False}  # the field of a shape that `NotRequired` stands for


class _NotRequired:
    """Stands for `typing.NotRequired`, which Python 3.10 lacks and which modules import under TYPE_CHECKING only."""

    def __class_getitem__(cls, kind: Any) -> Any:
        return Annotated[kind, _MAY_LACK]


class _Fields(Mapping[str, Shape]):
    """The fields of a TypedDict as shapes, computed at first use: most programs never use most shapes."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    @functools.cached_property
    def _shapes(self) -> dict[str, Shape]:
        hints = get_type_hints(self._kind, localns={"NotRequired": _NotRequired}, include_extras=True)
        return {key: _shape(hint, key in self._kind.__required_keys__) for key, hint in hints.items()}

    def __getitem__(self, key: str) -> Shape:
        return self._shapes[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


@functools.cache
def shape_of(kind: Any) -> Map:
    """The shape of a TypedDict. A field of type ``dict[str, Any]`` accepts anything.

    Using its fields raises TypeError for a type, or an annotation, that no shape expresses.
    """
    return Map(_Fields(kind))


def _shape(kind: Any, required: bool = False) -> Shape:
    """The shape of a type, which may be annotated. Raises TypeError for a type that no shape expresses."""
    origin = get_origin(kind)
    parts = get_args(kind)
    shape: Shape
    if origin is Annotated:
        # The first part is the type. The others are dicts of a shape's fields, or a shape in place of the type's.
        shapes = [part for part in parts[1:] if not isinstance(part, dict)]
        shape = replace(shapes[0], required=required) if shapes else _shape(parts[0], required)
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
