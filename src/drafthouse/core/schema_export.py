"""Convert a shape of `schema.py` to JSON Schema (draft 2020-12), with which an editor completes and checks files.

It checks less than the code does: engine versions, references and rules over several keys are checked only there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .schema import Anything, List, Map, Table, Value

if TYPE_CHECKING:
    from drafthouse.core.schema import Form, Shape

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}

Schema = dict[str, Any]
"""A JSON schema as data."""


def json_schema_of(shape: Shape) -> Schema:
    """The JSON schema that accepts what ``shape`` accepts."""
    if isinstance(shape, Anything):
        return {}
    schema: Schema
    if isinstance(shape, Value):
        schema = _value(shape)
    elif isinstance(shape, List):
        schema = {"type": "array", "items": json_schema_of(shape.items)}
    elif isinstance(shape, Table):
        schema = {"type": "object", "additionalProperties": json_schema_of(shape.entries)}
        if shape.names:
            schema["propertyNames"] = {"pattern": _pattern(shape.names)}
    else:
        schema = _map(shape)
    if shape.null:
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:  # it would exclude null again
            schema["enum"].append(None)
    return schema


def _value(shape: Value) -> Schema:
    """The JSON schema of a text, number or boolean."""
    schema: Schema = {"type": _TYPES[shape.type]}
    if shape.choices:
        schema["enum"] = list(shape.choices)
    if shape.form:
        schema["pattern"] = _pattern(shape.form)
    if shape.low is not None:
        schema["minimum"] = shape.low
    if shape.high is not None:
        schema["maximum"] = shape.high
    return schema


def _map(shape: Map) -> Schema:
    """The JSON schema of a mapping with named fields."""
    schema: Schema = {
        "type": "object",
        "properties": {name: json_schema_of(field) for name, field in shape.fields.items()},
    }
    if required := required_of(shape):
        schema["required"] = required
    if shape.one_of:
        schema["oneOf"] = [{"required": [name]} for name in shape.fields]
    if not shape.others:
        schema["additionalProperties"] = False
    return schema


def required_of(shape: Map) -> list[str]:
    """The names of the required fields."""
    return [name for name, field in shape.fields.items() if field.required]


def _pattern(form: Form) -> str:
    """The form as a pattern of JSON Schema, which may match anywhere in a text unless it says otherwise."""
    return f"^(?:{form.pattern})$"
