"""Usage that the text contradicts: the tokens are the server's word, the bytes are not."""

from __future__ import annotations

import random
from typing import Any

import pytest

from drafthouse.analysis.text_clock import usage_against_text
from tests.support.builders import make_request, make_resolved, make_result
from tests.support.loosely import judge

Data = Any


def arms(inflated: float, seed: int = 1, prompts: int = 16) -> tuple[Data, Data]:
    """Two arms of equal wall time whose texts part, of which one counts ``inflated`` times as many tokens."""
    chance = random.Random(seed)
    made: dict[str, list[Data]] = {"baseline": [], "speculative": []}
    for prompt in range(prompts):
        for number in (1, 2, 3):
            for arm, requests in made.items():
                tokens = chance.randint(80, 120)
                # What texts of one language differ by in their bytes a token.
                size = round(tokens * 4.2 * chance.lognormvariate(0.0, 0.06))
                counted = round(tokens * (inflated if arm == "speculative" else 1.0))
                seconds = 0.014 * tokens
                request = make_request(f"p{prompt}", "chat", number, 1000 * seconds / counted, output_tokens=counted)
                text = "".join(chance.choice("abcdefghij klmnop ") for _ in range(size))
                requests.append(request | {"text": text, "output_tokens": counted, "e2el_ms": 1000 * seconds})
    return make_result("baseline", made["baseline"]), make_result("speculative", made["speculative"], drafted=800)


def found(inflated: float, seed: int = 1) -> list[str]:
    base, spec = arms(inflated, seed)
    return usage_against_text({"baseline": base, "speculative": spec}, ["chat"])


def test_texts_that_part_are_no_contradiction() -> None:
    assert not any(found(1.0, seed) for seed in range(100))


@pytest.mark.parametrize("inflated", [1.5, 0.5, 1.2])
def test_a_usage_that_is_moved_is_invalid(inflated: float) -> None:
    assert all(found(inflated, seed) for seed in range(20))
    base, spec = arms(inflated)
    if inflated == 1.5:
        # The texts differ, so that only this check can see it.
        for result in (base, spec):
            for request in result["requests"]:
                request["temperature"] = 0.6
        verdict = judge(base, spec, make_resolved(kinds=["chat"]))
        assert verdict["word"] == "invalid", verdict["sentence"]
        assert "usage and the text disagree: over 16 prompts" in " ".join(verdict["reasons"])
