from __future__ import annotations

from typing import Any

import pytest

from drafthouse.core.schema import Findings, List, Map, Shape, Table, Value, check


def said(data: object, shape: Shape) -> list[tuple[str, str, str, str]]:
    findings = Findings("file.yml")
    check(data, shape, findings)
    return [(problem.where, problem.found, problem.needed, problem.do) for problem in findings.problems]


@pytest.mark.parametrize(
    ("data", "shape", "found"),
    [
        (3, Value(str), "3"),
        (True, Value(int), "True"),
        ("x", Value(int), "'x'"),
        (None, Value(str), "nothing"),
        (0, Value(int, low=1), "0"),
        (3, Value(int, high=2), "3"),
        ([1], Map({}), "[1]"),
        ({}, List(Value()), "{}"),
        ("x", Table(Value()), "'x'"),
    ],
)
def test_wrong_values(data: Any, shape: Shape, found: str) -> None:
    ((where, told, _, _),) = said(data, shape)
    assert where == "file.yml"
    assert told == found


def test_a_number_where_text_is_due_needs_quotes_alone() -> None:
    findings = Findings("x.yml")
    check({"NAME": 1}, Table(Value(str)), findings)
    assert [problem.do for problem in findings.problems] == ["put it in quotes"]


def test_a_whole_number_is_a_fine_number() -> None:
    assert said(1, Value(float)) == []


def test_paths_lead_to_the_place() -> None:
    shape = Map({"models": Table(Map({"tags": List(Value(str))}))})
    (one,) = said({"models": {"qwen": {"tags": ["a", 2]}}}, shape)
    assert one[0] == "file.yml: models.qwen.tags[1]"


def test_a_missing_key_and_an_unknown_one() -> None:
    shape = Map({"engine": Value(required=True)})
    unknown, missing = said({"enginee": "x"}, shape)
    assert unknown[0] == "file.yml: enginee"
    assert unknown[3] == "write 'engine'"
    assert missing[0] == "file.yml: engine"


def test_exactly_one_of() -> None:
    shape = Map({"hub": Value(), "path": Value()}, one_of=True)
    assert said({"hub": "a"}, shape) == []
    assert "2 of them (hub, path)" in said({"hub": "a", "path": "b"}, shape)[0][1]
    assert "0 of them (none)" in said({}, shape)[0][1]
