"""JSON as the standard has it, and whether it is of a schema's form. On the controller only: it needs jsonschema.

That is imported where it is used: it takes a quarter of a second, and few prompts have a schema.

A schema says itself which draft it is of (`$schema`); one that does not is read as draft 2020-12, which is what
OpenAI's and vLLM's structured outputs follow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import JsonSchema

#: How much of a library's message is kept: it may repeat the whole value.
MESSAGE_CHARACTERS = 200
# What may stand at the very end of a document that was cut off, from where it could not be read on.
_BEGUN = ("true", "false", "null", "-")


class Unfinished(ValueError):
    """Text that is the beginning of a JSON document."""


def read_json(text: str) -> Any:
    """The document that ``text`` is, as RFC 8259 has it: no NaN, and nothing before or behind.

    Raises Unfinished where the text only ends too early, ValueError for anything else.
    """
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        if _ends_too_early(error):
            raise Unfinished("the JSON ends too early") from error
        raise ValueError(f"no JSON: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise ValueError("no JSON that can be read: nested too deep") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"no JSON: {name}")


def _ends_too_early(error: json.JSONDecodeError) -> bool:
    rest = error.doc[error.pos :].rstrip()
    return error.msg.startswith("Unterminated string") or any(word.startswith(rest) for word in _BEGUN)


def schema_problem(schema: object) -> str | None:
    """Why something is no schema that can be used here, or None."""
    if not isinstance(schema, dict):
        return f"{type(schema).__name__} instead of an object"
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415
    from jsonschema.validators import validator_for  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        return _message(error)
    try:
        # References are only found out when they are followed.
        _validator(schema).is_valid({})
    except Unresolvable as error:
        return f"the reference {error.ref} leads nowhere: nothing is fetched for it"
    except RecursionError:
        return "a reference that leads to itself"
    return None


def why_not(value: object, schema: JsonSchema) -> str | None:
    """Why a value is not of the schema's form, or None: the error that says most, with its place."""
    from jsonschema.exceptions import best_match  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    try:
        error = best_match(_validator(schema).iter_errors(value))
    except Unresolvable as unresolvable:
        return f"the schema's reference {unresolvable.ref} leads nowhere"
    except RecursionError:
        return "the schema or the value is nested too deep"
    return _message(error) if error else None


def _validator(schema: JsonSchema) -> Any:
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from jsonschema.validators import validator_for  # noqa: PLC0415
    from jsonschema_specifications import REGISTRY  # noqa: PLC0415

    # The registry holds the drafts themselves and fetches nothing.
    return validator_for(schema, default=Draft202012Validator)(schema, registry=REGISTRY)


def _message(error: Any) -> str:
    message = str(error.message)
    short = message if len(message) <= MESSAGE_CHARACTERS else f"{message[:MESSAGE_CHARACTERS]}…"
    return f"{error.json_path}: {short}"
