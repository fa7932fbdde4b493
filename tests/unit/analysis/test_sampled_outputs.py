"""Answers above temperature 0: an arm that ignores the temperature, and one that answers at another length."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from drafthouse.analysis.sampled_outputs import judge_sampled
from tests.support.builders import make_request, make_resolved, make_result
from tests.support.loosely import judge

Data = Any
#: The text of an arm's answer to a prompt in a round, and its tokens.
Says = Callable[[str, int, int], tuple[str, int]]


def sampled(arm: str, prompt: int, number: int) -> tuple[str, int]:
    chance = random.Random(f"{arm} {prompt} {number}")
    return " ".join(chance.choices(["ale", "barrel", "cask", "draft", "hop", "malt"], k=chance.randint(20, 40))), 120


def greedy(arm: str, prompt: int, number: int) -> tuple[str, int]:
    return sampled("greedy", prompt, 0)


def arms(
    speculative: Says, baseline: Says = sampled, *, prompts: int = 16, anchors: int = 3, rounds: int = 3
) -> tuple[Data, Data]:
    """Two arms at temperature 0.6: anchors in every round, the other prompts once."""
    made: dict[str, list[Data]] = {"baseline": [], "speculative": []}
    for number in range(1, rounds + 1):
        own = range(anchors, prompts)[number - 1 :: rounds]
        for prompt in [*range(anchors), *own]:
            for arm, requests in made.items():
                text, tokens = (baseline if arm == "baseline" else speculative)(arm, prompt, number)
                request = make_request(f"p{prompt}", "chat", number, 10.0, temperature=0.6, output_tokens=tokens)
                requests.append(request | {"text": text, "output_tokens": tokens, "max_tokens": 400})
    return make_result("baseline", made["baseline"]), make_result("speculative", made["speculative"], drafted=800)


def test_arms_that_sample_alike_pass() -> None:
    assert judge_sampled(*arms(sampled))["word"] == "passed"


def label(arm: str, prompt: int, number: int) -> tuple[str, int]:
    """An answer of one word, which even an honest arm often says again."""
    return random.Random(f"{arm} {prompt} {number}").choice(["ale", "stout"]), 2


@pytest.mark.parametrize("rounds", [2, 3])
@pytest.mark.parametrize("answer", [sampled, label])
def test_healthy_arms_fail_in_few_experiments(answer: Says, rounds: int) -> None:
    def says(seed: int) -> Says:
        return lambda arm, prompt, number: answer(f"{arm} {seed}", prompt, number)

    words = [judge_sampled(*arms(says(seed), says(seed), rounds=rounds))["word"] for seed in range(200)]
    assert words.count("failed") <= (2 if answer is sampled else 5)


@pytest.mark.parametrize("rounds", [2, 3])
def test_an_arm_that_ignores_the_temperature_is_wrong(rounds: int) -> None:
    pair = arms(greedy, rounds=rounds)
    found = judge_sampled(*pair)
    assert found["word"] == "failed"
    assert "the temperature is ignored" in found["said"]
    if rounds == 3:
        assert judge(*pair, make_resolved(kinds=["chat"]))["wrong_output"]


def test_answers_twice_as_long_are_wrong() -> None:
    found = judge_sampled(*arms(lambda *of: (2 * sampled(*of)[0], 240)))
    assert found["word"] == "failed"
    assert "of 16 prompts are longer than the baseline's" in found["said"]


def test_too_few_prompts_are_not_measured() -> None:
    found = judge_sampled(*arms(greedy, prompts=4))
    assert found["word"] == "not measured"
    assert "4 prompts answered above temperature 0, and 6 are needed" in found["said"]
