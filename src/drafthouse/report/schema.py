"""docs/report.schema.json, made from the types of a report: JSON Schema, draft 2020-12."""

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

#: Types that hold no key beyond those they name.
CLOSED = ("Report", "Load")
#: The keys that every report has of types that gain some from version to version: those of other rooms.
ALWAYS: dict[str, tuple[str, ...]] = {
    "Estimated": ("median", "low", "high", "n", "confidence", "reach"),
    # Earlier versions called the gain `median`.
    "Gain": ("low", "high", "n", "confidence", "reach"),
    "Control": ("low", "high", "n", "confidence", "reach"),
    # And had no figures by bytes of text.
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
#: Words of JSON Schema for keys of such types.
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
#: What modules of types import for the type checker alone.
NAMES = {"NotRequired": NotRequired}
MOST_COLUMNS = 120

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | bool | None"
Schema: TypeAlias = "dict[str, Json]"

_WORDS: dict[object, str] = {str: "string", bool: "boolean", int: "integer", float: "number", types.NoneType: "null"}


def schema_page() -> str:
    """Docs/report.schema.json."""
    definitions: dict[str, Schema] = {}
    _schema(report_types.Report, definitions)
    head: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Written by `make docs` from src/drafthouse/report/report_types.py; change that instead.",
        "title": "A report of Drafthouse (report.json)",
    }
    return _text(head | definitions.pop("Report") | {"$defs": dict(sorted(definitions.items()))}) + "\n"


def _schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """The schema of a type; that of a TypedDict goes to ``definitions``, by its name."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is object or kind is Any:
        return {}
    if isinstance(kind, type) and kind in _WORDS:
        return {"type": _WORDS[kind]}
    if is_typeddict(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}
            definitions[kind.__name__] |= _object(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if origin is NotRequired:
        return _schema(parts[0], definitions)
    if origin is Annotated:
        # What is only partly described has another type beside its own.
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
        found: Schema = {"type": "object", "additionalProperties": _schema(parts[1], definitions)}
        if get_origin(parts[0]) is Literal:
            found = {"type": "object", "required": list(get_args(parts[0])), **found}
        return found
    raise TypeError(f"no word of JSON Schema for {kind}")


def _literal(values: Sequence[Json]) -> Schema:
    if len(values) == 1:
        return {"const": values[0]}
    return {"enum": list(values)}


def _any_of(choices: list[Schema]) -> Schema:
    """The schema of whatever fits one of several; plain types, and a type or null, are put together."""
    if all(choice.keys() == {"type"} for choice in choices):
        return {"type": [choice["type"] for choice in choices]}
    one, *others = choices
    if others == [{"type": "null"}] and "type" in one:
        nullable: Schema = one | {"type": [one["type"], "null"]}
        words = one.get("enum")
        if isinstance(words, tuple):
            nullable["enum"] = [*words, None]
        return nullable
    return {"anyOf": [*choices]}


def _object(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """The schema of a TypedDict."""
    hints = get_type_hints(kind, localns=NAMES, include_extras=True)
    name = kind.__name__
    if name in ALWAYS:
        needed = ALWAYS[name]
    elif kind.__module__ == report_types.__name__:
        needed = tuple(key for key in kind.__required_keys__ if get_origin(hints[key]) is not NotRequired)
    else:
        needed = ()
    found: Schema = {"description": " ".join(kind.__doc__.split()), "type": "object"}
    if needed:
        found["required"] = [key for key in hints if key in needed]
    found["properties"] = {
        key: _schema(hint, definitions) | LIMITS.get(f"{name}.{key}", {}) for key, hint in hints.items()
    }
    if name in CLOSED:
        found["additionalProperties"] = False
    return found


def _text(value: object, indent: str = "", before: int = 0) -> str:
    """JSON in which what fits into a line stands in one; ``before`` characters stand in it already."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent) + before + len(line) < MOST_COLUMNS:
        return line
    deeper = f"{indent}  "
    if isinstance(value, dict):
        heads = [f"{json.dumps(key)}: " for key in value]
        rows = [head + _text(part, deeper, len(head)) for head, part in zip(heads, value.values(), strict=True)]
    else:
        rows = [_text(part, deeper) for part in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{deeper}" + f",\n{deeper}".join(rows) + f"\n{indent}{last}"
