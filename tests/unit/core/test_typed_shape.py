"""What a type says of the file that it is read from."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from drafthouse.core.schema import Anything, Form, List, Map, Table, Value
from drafthouse.core.typed_shape import shape_of

WORD = Form("[a-z]+", "small letters")
Few = Annotated[int, {"low": 1, "high": 3}]


class Inner(TypedDict):
    share: float


class Optional(TypedDict, total=False):
    first: bool


class Outer(Optional):
    text: str
    small: NotRequired[Few]
    named: NotRequired[Annotated[dict[str, Inner], {"names": WORD}]]
    several: list[Literal["a", "b"]]
    free: dict[str, Any]
    inner: Annotated[Inner, {"one_of": True}]
    other: NotRequired[Annotated[str | int, Anything()]]


def test_a_shape_is_what_its_type_says() -> None:
    inner = {"share": Value(float, required=True)}
    assert shape_of(Outer) == Map(
        {
            "first": Value(bool),
            "text": Value(required=True),
            "small": Value(int, low=1, high=3),
            "named": Table(Map(inner), names=WORD),
            "several": List(Value(choices=("a", "b")), required=True),
            "free": Anything(required=True),
            "inner": Map(inner, required=True, one_of=True),
            "other": Anything(),
        }
    )


def test_a_type_without_a_shape_is_refused() -> None:
    class Unknown(TypedDict):
        either: str | int

    class Odd(TypedDict):
        number: Annotated[int, {"lowest": 1}]

    with pytest.raises(TypeError, match=r"no shape for str \| int"):
        dict(shape_of(Unknown).fields)
    with pytest.raises(TypeError, match="lowest"):
        dict(shape_of(Odd).fields)
