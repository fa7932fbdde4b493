"""docs/report.schema.json, made from the types of a report: JSON Schema, draft 2020-12."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from ..profiles.profile_types import LadderLimits
from . import report_types

#: Types that hold no key beyond those they name.
CLOSED = ("Report", "Load")
#: Keys that every report has of types that are not of this room: these gain keys from version to version.
ALWAYS: dict[str, tuple[str, ...]] = {
    "Estimated": ("median", "low", "high", "n", "confidence", "reach"),
}
#: Words of JSON Schema for keys of types that are not of this room.
LIMITS: dict[str, dict[str, int]] = {
    "Estimated.n": {"minimum": 1},
    "Estimated.confidence": {"exclusiveMinimum": 0, "maximum": 1},
    "Estimated.reach": {"minimum": 0, "maximum": 1},
}
#: What modules of types import for the type checker alone.
NAMES = {"NotRequired": NotRequired, "LadderLimits": LadderLimits}

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | bool | None"
Schema = dict[str, Json]

_WORDS = {str: "string", bool: "boolean", int: "integer", float: "number", types.NoneType: "null"}


def report_schema() -> Schema:
    """Return the schema of report.json."""
    definitions: dict[str, Schema] = {}
    _schema(report_types.Report, definitions)
    head: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A report of Drafthouse (report.json)",
    }
    return head | definitions.pop("Report") | {"$defs": dict(sorted(definitions.items()))}


def _schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a type; that of a TypedDict goes to ``definitions``, by its name."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind in _WORDS:
        return {"type": _WORDS[kind]}
    if kind in (Any, object):
        return {}
    if is_typeddict(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}
            definitions[kind.__name__] |= _object(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if origin is NotRequired:
        return _schema(parts[0], definitions)
    if origin is Annotated:
        if is_typeddict(kind.__metadata__[0]):
            return _schema(kind.__metadata__[0], definitions)
        return _schema(parts[0], definitions) | dict(kind.__metadata__)
    if origin is Literal:
        return {"const": parts[0]} if len(parts) == 1 else {"enum": list(parts)}
    if origin in (Union, types.UnionType):
        return _any_of([_schema(part, definitions) for part in parts])
    if origin in (list, Sequence):
        return {"type": "array", "items": _schema(parts[0], definitions)}
    if origin in (dict, Mapping):
        named = {"required": list(get_args(parts[0]))} if get_origin(parts[0]) is Literal else {}
        return {"type": "object", **named, "additionalProperties": _schema(parts[1], definitions)}
    raise TypeError(f"no word of JSON Schema for {kind}")


def _any_of(choices: Sequence[Schema]) -> Schema:
    """Return the schema of whatever fits one of several; those of one word each, or one and null, are put together."""
    null = {"type": "null"}
    others = [choice for choice in choices if choice != null]
    words = [choice["type"] for choice in choices if choice.keys() == {"type"}]
    if len(words) == len(choices):
        return {"type": words}
    if len(others) == 1 and isinstance(others[0].get("type"), str):
        nullable = {"enum": [*enum, None]} if isinstance(enum := others[0].get("enum"), Sequence) else {}
        return others[0] | {"type": [others[0]["type"], "null"]} | nullable
    return {"anyOf": list(choices)}


def _object(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a TypedDict."""
    hints = get_type_hints(kind, localns=NAMES, include_extras=True)
    optional = {
        key for key, hint in hints.items() if get_origin(hint) is NotRequired or key not in kind.__required_keys__
    }
    always = hints.keys() - optional if kind.__module__ == report_types.__name__ else ALWAYS.get(kind.__name__, ())
    return {
        "description": " ".join(kind.__doc__.split()),
        "type": "object",
        "required": list(always),
        "properties": {
            key: _schema(hint, definitions) | LIMITS.get(f"{kind.__name__}.{key}", {}) for key, hint in hints.items()
        },
        **({"additionalProperties": False} if kind.__name__ in CLOSED else {}),
    }
