"""Generate docs/report.schema.json (JSON Schema, draft 2020-12) from the TypedDicts of `report_types.py`."""

from __future__ import annotations

import json
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

from . import report_types

#: Types without additional properties.
CLOSED = ("Report", "Load")
#: Required keys of types from other packages: those that reports of all versions have.
ALWAYS: dict[str, tuple[str, ...]] = {
    "Estimated": ("median", "low", "high", "n", "confidence", "reach"),
    # Without `gain`, which earlier versions called `median`.
    "Gain": ("low", "high", "n", "confidence", "reach"),
    "Control": ("low", "high", "n", "confidence", "reach"),
    # Without figures by bytes of text, which earlier versions did not have.
    "Energy": ("source", "mean_w", "idle_w", "j_per_output_token", "kwh_per_million_output_tokens"),
    "Money": ("price_per_hour", "per_million_output_alone", "per_million_input", "per_million_output"),
    "EqualOutputs": ("pairs", "equal", "share"),
    "Outputs": ("speculative", "control"),
    "Scope": ("kinds", "groups", "concurrency", "rounds"),
    "UserClock": ("output_tokens", "ttft_ms", "ttfat_ms", "e2el_ms"),
    "Waits": ("baseline", "speculative", "speedup"),
    "Starts": ("spread", "levels", "apart"),
    "Verdict": (
        *("word", "sentence", "said", "reasons", "warnings", "threshold", "confidence", "scope", "speedup", "control"),
        *("outputs", "groups", "drafting"),
    ),
    "CostRow": ("what", "unit", "baseline", "speculative", "note"),
    "Spread": ("median", "p90", "p99"),
}
#: Further JSON Schema keywords for keys of these types.
LIMITS: dict[str, Schema] = {
    "Estimated.n": {"minimum": 1},
    "Estimated.confidence": {"exclusiveMinimum": 0, "maximum": 1},
    "Estimated.reach": {"minimum": 0, "maximum": 1},
    "Gain.n": {"minimum": 1},
    "Gain.confidence": {"exclusiveMinimum": 0, "maximum": 1},
    "Gain.reach": {"minimum": 0, "maximum": 1},
    "Control.n": {"minimum": 1},
    "Control.confidence": {"exclusiveMinimum": 0, "maximum": 1},
    "Control.reach": {"minimum": 0, "maximum": 1},
    "EqualOutputs.pairs": {"minimum": 1},
    "EqualOutputs.equal": {"minimum": 0},
    "EqualOutputs.share": {"minimum": 0, "maximum": 1},
    "Scope.rounds": {"minimum": 0},
    "Verdict.word": {"enum": ["pays", "does not pay", "cannot say", "invalid"]},
    "Verdict.sentence": {"minLength": 1},
    "Verdict.said": {"minLength": 1},
    "Verdict.reasons": {"minItems": 1},
    "Verdict.threshold": {"minimum": 1},
}
#: Names that the type modules import only for the type checker.
NAMES = {"NotRequired": NotRequired}
MOST_COLUMNS = 120

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | bool | None"
Schema: TypeAlias = "dict[str, Json]"

_TYPES: dict[object, str] = {str: "string", bool: "boolean", int: "integer", float: "number", types.NoneType: "null"}


def schema_page() -> str:
    """The content of docs/report.schema.json."""
    definitions: dict[str, Schema] = {}
    _schema(report_types.Report, definitions)
    head: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Written by `make docs` from src/drafthouse/report/report_types.py; change that instead.",
        "title": "A report of Drafthouse (report.json)",
    }
    return _json(head | definitions.pop("Report") | {"$defs": dict(sorted(definitions.items()))}) + "\n"


def _schema(hint: Any, definitions: dict[str, Schema]) -> Schema:
    """The schema of a type; a TypedDict's goes into ``definitions``, and a reference to it is returned."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is object or hint is Any:
        return {}
    if isinstance(hint, type) and hint in _TYPES:
        return {"type": _TYPES[hint]}
    if is_typeddict(hint):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}
            definitions[hint.__name__] |= _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin is NotRequired:
        return _schema(parts[0], definitions)
    if origin is Annotated:
        # Annotated[X, SomeTypedDict]: describe only the part that the TypedDict names.
        if is_typeddict(parts[1]):
            return _schema(parts[1], definitions)
        return _schema(parts[0], definitions) | dict(parts[1:])
    if origin is Literal:
        return _literal(parts)
    if origin in (Union, types.UnionType):
        return _any_of([_schema(part, definitions) for part in parts])
    if origin in (list, Sequence):
        return {"type": "array", "items": _schema(parts[0], definitions)}
    if origin in (dict, Mapping):
        mapping: Schema = {"type": "object", "additionalProperties": _schema(parts[1], definitions)}
        if get_origin(parts[0]) is Literal:
            mapping = {"type": "object", "required": list(get_args(parts[0])), **mapping}
        return mapping
    raise TypeError(f"no word of JSON Schema for {hint}")


def _literal(values: Sequence[Json]) -> Schema:
    if len(values) == 1:
        return {"const": values[0]}
    return {"enum": list(values)}


def _any_of(choices: list[Schema]) -> Schema:
    """The schema of a union; plain types are joined into a list of types, and null is added to a typed schema."""
    if all(choice.keys() == {"type"} for choice in choices):
        return {"type": [choice["type"] for choice in choices]}
    first, *others = choices
    if others == [{"type": "null"}] and "type" in first:
        nullable: Schema = first | {"type": [first["type"], "null"]}
        enum = first.get("enum")
        if isinstance(enum, tuple):
            nullable["enum"] = [*enum, None]
        return nullable
    return {"anyOf": [*choices]}


def _object(typed_dict: Any, definitions: dict[str, Schema]) -> Schema:
    """The schema of a TypedDict, described by its docstring."""
    hints = get_type_hints(typed_dict, localns=NAMES, include_extras=True)
    name = typed_dict.__name__
    if name in ALWAYS:
        required = ALWAYS[name]
    elif typed_dict.__module__ == report_types.__name__:
        required = tuple(key for key in typed_dict.__required_keys__ if get_origin(hints[key]) is not NotRequired)
    else:
        required = ()
    schema: Schema = {"description": " ".join(typed_dict.__doc__.split()), "type": "object"}
    if required:
        schema["required"] = [key for key in hints if key in required]
    schema["properties"] = {
        key: _schema(hint, definitions) | LIMITS.get(f"{name}.{key}", {}) for key, hint in hints.items()
    }
    if name in CLOSED:
        schema["additionalProperties"] = False
    return schema


def _json(value: object, indent: str = "", before: int = 0) -> str:
    """Format JSON, each value on one line if it fits; ``before`` characters precede it on its first line."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent) + before + len(line) < MOST_COLUMNS:
        return line
    child_indent = f"{indent}  "
    if isinstance(value, dict):
        keys = [f"{json.dumps(key)}: " for key in value]
        parts = [key + _json(part, child_indent, len(key)) for key, part in zip(keys, value.values(), strict=True)]
    else:
        parts = [_json(part, child_indent) for part in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{child_indent}" + f",\n{child_indent}".join(parts) + f"\n{indent}{closing}"
