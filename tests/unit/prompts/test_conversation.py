"""A conversation that grows: each turn behind the one before, at its size or what a context holds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.workspace import ROOT
from drafthouse.prompts.fill import fill
from drafthouse.prompts.loader import load_suite
from drafthouse.prompts.suites import check_suite, expand

Data = Any
TALK = {"tokens": 4000, "turns": 6, "first": 1, "last": 3, "seed": 5}


def suite(**talk: int) -> Data:
    kinds = {"talk": {"output_tokens": 64, "talk": TALK | talk}}
    return check_suite({"name": "t", "description": "a test", "kinds": kinds}, "t.yml")


def characters(messages: Data) -> int:
    return sum(len(message["content"]) for message in messages)


@pytest.mark.parametrize(("context", "low", "high"), [(None, 3_200, 4_000), (2048, 1_100, 1_700), (900, 300, 600)])
def test_each_turn_begins_with_the_one_before(context: int | None, low: int, high: int) -> None:
    prompts = expand(fill(suite(last=6), context))["talk"]
    for earlier, later in pairwise(prompts):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert [message["role"] for message in later.messages[-3:]] == ["user", "assistant", "user"]
    assert all(message["content"].strip() for message in prompts[-1].messages)
    # At 4 characters a token where there is room, at 3.2 where it has to fit.
    assert low < characters(prompts[-1].messages) / (4.0 if context is None else 3.2) <= high


def test_parts_of_one_conversation_continue_it() -> None:
    first, second = (expand(fill(suite(first=n, last=n + 2)))["talk"] for n in (1, 4))
    assert second[0].messages[: len(first[-1].messages)] == first[-1].messages
    assert [prompt.id for prompt in second] == ["talk-04", "talk-05", "talk-06"]
    assert {prompt.gate["name"] for prompt in first if prompt.gate} == {"talk"}


def test_the_suite_reaches_32_thousand_tokens_and_differs_in_every_turn() -> None:
    kinds = expand(load_suite("conversation", ROOT / "benchmarks"))
    prompts = [prompt for kind in kinds.values() for prompt in kind]
    assert [len(prompt.messages) for prompt in prompts] == list(range(1, 48, 2))
    assert 30_000 < characters(prompts[-1].messages) / 4 <= 32_000


@pytest.mark.parametrize("wrong", [{"last": 7}, {"first": 4}])
def test_turns_that_are_not_there(wrong: dict[str, int]) -> None:
    with pytest.raises(DrafthouseError, match=r"where: t\.yml: kinds\.talk\.talk\.last\nfound: the turns"):
        suite(**wrong)


def test_a_context_without_room_for_the_turns() -> None:
    with pytest.raises(DrafthouseError) as refused:
        fill(suite(), 600)
    # Told once, and not of each turn.
    (problem,) = refused.value.problems
    assert (problem.code, problem.found) == ("context-too-short", "a context of 600 tokens: room for 6 turns of 40")


def test_one_source_of_prompts() -> None:
    kinds = {"talk": {"output_tokens": 64, "talk": TALK, "made": {"form": "chat", "number": 2}}}
    with pytest.raises(DrafthouseError, match="'made' beside 'talk'"):
        check_suite({"name": "t", "description": "a test", "kinds": kinds}, "t.yml")
