"""Read strict JSON and validate it against JSON schemas. Runs on the controller only, since it needs jsonschema.

jsonschema is imported inside the functions: the import takes 0.25 s, and few prompts have a schema.

A schema without `$schema` is read as draft 2020-12, which OpenAI's and vLLM's structured outputs follow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import JsonSchema

#: Longest part of a jsonschema message that is kept; the message may repeat the whole value.
MESSAGE_CHARACTERS = 200
# A document that was cut off may end with a prefix of one of these.
_LITERALS = ("true", "false", "null", "-")


class Unfinished(ValueError):
    """Error for text that is only the beginning of a JSON document, such as a cut answer."""


def read_json(text: str) -> Any:
    """The value of the JSON document ``text``, by RFC 8259: no NaN or Infinity, no text before or after it.

    Raises Unfinished if the document is only cut off, ValueError if it is malformed.
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
    """Refuse NaN and Infinity, which Python's parser would accept."""
    raise ValueError(f"no JSON: {name}")


def _ends_too_early(error: json.JSONDecodeError) -> bool:
    """True if more text could have completed the document: it ends within a string or a literal, or between values."""
    rest = error.doc[error.pos :].rstrip()
    return error.msg.startswith("Unterminated string") or any(word.startswith(rest) for word in _LITERALS)


def schema_problem(schema: object) -> str | None:
    """The reason why ``schema`` is not a usable JSON schema; None if it is one."""
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
        # check_schema does not follow references; validating any value does.
        _validator(schema).is_valid({})
    except Unresolvable as error:
        return f"the reference {error.ref} leads nowhere: nothing is fetched for it"
    except RecursionError:
        return "a reference that leads to itself"
    return None


def why_not(value: object, schema: JsonSchema) -> str | None:
    """The most relevant reason why a value does not match the schema, with its JSON path; None if it matches."""
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
    """A validator of jsonschema for the draft that the schema names."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from jsonschema.validators import validator_for  # noqa: PLC0415
    from jsonschema_specifications import REGISTRY  # noqa: PLC0415

    # This registry has the drafts' own schemas, and downloads no others.
    return validator_for(schema, default=Draft202012Validator)(schema, registry=REGISTRY)


def _message(error: Any) -> str:
    """The JSON path and the shortened message of a jsonschema error."""
    message = str(error.message)
    short = message if len(message) <= MESSAGE_CHARACTERS else f"{message[:MESSAGE_CHARACTERS]}…"
    return f"{error.json_path}: {short}"
