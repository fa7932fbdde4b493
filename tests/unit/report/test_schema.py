"""docs/report.schema.json is what the types of a report say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from drafthouse.report import schema
from drafthouse.report.schema import ALWAYS, LIMITS, schema_page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "report.schema.json"
KEPT = Path(__file__).resolve().parents[1] / "repository" / "still_read" / "report" / "report.json"


def test_the_published_schema_is_that_of_the_types() -> None:
    assert schema_page() == PAGE.read_text("utf-8"), "make docs"


def test_it_describes_reports_of_earlier_versions() -> None:
    jsonschema.validate(json.loads(KEPT.read_text("utf-8")), json.loads(PAGE.read_text("utf-8")))


def test_what_is_said_beside_the_types_is_of_keys_that_they_have() -> None:
    kinds = json.loads(PAGE.read_text("utf-8"))["$defs"]
    for name, keys in ALWAYS.items():
        assert set(keys) <= kinds[name]["properties"].keys(), name
    for place in LIMITS:
        name, key = place.split(".")
        assert key in kinds[name]["properties"], place


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (float | None, {"type": ["number", "null"]}),
        (list[bool], {"type": "array", "items": {"type": "boolean"}}),
        (list[str] | str, {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
        (object, {}),
    ],
)
def test_a_type_in_the_words_of_json_schema(kind: object, found: dict[str, Any]) -> None:
    assert schema._schema(kind, {}) == found


def test_a_type_that_no_word_fits_is_an_error() -> None:
    with pytest.raises(TypeError, match="set"):
        schema._schema(set[str], {})
