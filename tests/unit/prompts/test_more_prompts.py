"""More prompts than a suite has: synthetic ones of the same kinds, distinct, the same for the same seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.prompts.checks import schemas_of
from drafthouse.prompts.json_schema import schema_problem
from drafthouse.prompts.loader import load_suite
from drafthouse.prompts.more_prompts import MORE_FORMS, more_prompts
from drafthouse.prompts.suites import expand, only_kinds, pick

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
SHIPPED = sorted(path.stem for path in BENCHMARKS.glob("*.yml"))
#: Asked as they are: more of another's data set would be none of it, and the turns of a conversation have an order.
WHOLE = ("agents", "conversation", "published")


def texts(form: str, seed: int, number: int) -> list[str]:
    return [ask["messages"][0]["content"] for ask, _ in zip(more_prompts(form, seed), range(number), strict=False)]


@pytest.mark.parametrize("form", MORE_FORMS)
def test_hundreds_that_differ_and_follow_the_seed(form: str) -> None:
    number = 60 if form in ("needle", "summarise-long") else 400
    found = texts(form, 0, number)
    assert len(set(found)) == number
    assert texts(form, 0, 20) == found[:20]
    assert texts(form, 1, 20) != found[:20]


@pytest.mark.parametrize("name", WHOLE)
def test_a_suite_that_is_asked_as_it_is_has_no_more_than_it_has(name: str) -> None:
    with pytest.raises(DrafthouseError) as caught:
        pick(load_suite(name, BENCHMARKS), 512, seed=3)
    assert caught.value.problems[0].code == "too-few-prompts"


@pytest.mark.parametrize("name", [name for name in SHIPPED if name not in WHOLE])
def test_every_suite_that_ships_gives_512_distinct_prompts(name: str) -> None:
    suite = load_suite(name, BENCHMARKS)
    own = {prompt.id: prompt for prompts in expand(suite).values() for prompt in prompts}
    picked = pick(suite, 512, seed=3)
    prompts = expand(picked)[name]
    assert len({prompt.id for prompt in prompts}) == 512
    repeats = sum("#" in one for one in own)
    assert len({json.dumps(prompt.messages) for prompt in prompts}) == 512 - max(0, repeats - 1)
    # All of its own are there; the others are of its kinds, evenly, and are asked for the same things.
    assert {prompt.id for prompt in prompts} >= own.keys()
    lengths = {prompt.output_tokens for prompt in own.values()}
    assert {prompt.output_tokens for prompt in prompts} <= lengths
    kinds = {
        kind: [prompt for prompt in prompts if prompt.id.startswith(f"{kind}-synthetic-")] for kind in suite["kinds"]
    }
    assert sum(map(len, kinds.values())) == 512 - len(own)
    totals = [len(made) + len(expand(suite)[kind]) for kind, made in kinds.items()]
    assert max(totals) - min(totals) <= 1
    for kind, made in kinds.items():
        gates = {prompt.gate and prompt.gate["name"] for prompt in expand(suite)[kind]}
        assert {prompt.gate and prompt.gate["name"] for prompt in made} == gates
    asked = picked["kinds"][name]["prompts"]
    assert all(schema_problem(schema) is None for prompt in asked for _, schema in schemas_of(prompt))
    (note,) = picked["notes"]
    assert note.startswith(f"{512 - len(own)} of the 512 prompts are synthetic (seed 3), since the suite '{name}' has")
    assert pick(suite, 512, seed=3) == picked
    assert pick(suite, 512, seed=4) != picked


def test_a_needle_is_in_its_text_and_nowhere_else() -> None:
    for ask, _ in zip(more_prompts("needle", 5), range(20), strict=False):
        assert ask["messages"][0]["content"].count(ask["expect"]["contains"]) == 1


def test_as_many_as_there_are_need_no_synthetic_ones() -> None:
    suite = load_suite("mixed", BENCHMARKS)
    picked = pick(suite, 300)
    assert "notes" not in picked
    assert [prompt.id for prompt in expand(picked)["mixed"]] == [
        prompt.id for row in zip(*expand(suite).values(), strict=True) for prompt in row
    ]


def test_one_kind_alone_and_more_than_its_form_gives() -> None:
    suite = only_kinds(load_suite("mixed", BENCHMARKS), ["chat"])
    assert len(pick(suite, 512)["kinds"]["mixed"]["prompts"]) == 512
    with pytest.raises(DrafthouseError, match="as many as the suite and its synthetic prompts are"):
        pick(suite, 5000)


def test_a_suite_of_ones_own_may_name_a_form_and_without_it_has_none() -> None:
    prompt = {"id": "calls-synthetic-001", "messages": [{"role": "user", "content": "x"}]}
    kinds: dict[str, Any] = {"calls": {"output_tokens": 5, "prompts": [prompt]}}
    suite: Any = {"name": "s", "description": "d", "kinds": kinds}
    with pytest.raises(DrafthouseError, match="1 or fewer, as many as the suite has"):
        pick(suite, 2)
    kinds["calls"]["more"] = "chat"
    assert [one.id for one in expand(pick(suite, 3))["s"]] == [
        "calls-synthetic-001",
        "calls-synthetic-001-",
        "calls-synthetic-002",
    ]
