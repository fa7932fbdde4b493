"""The gate that sets outputs side by side: healthy runs pass, however much rounding moves; broken ones do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from drafthouse.analysis.answered import whole_text
from drafthouse.analysis.output_equality import judge_outputs, pair_outputs, tokens_before, too_early
from tests.support.builders import make_pair, make_request, make_resolved, make_result
from tests.support.loosely import compare_outputs, judge

Data = Any
TOKENS = 128
WORDS = [f" w{number:02d}" for number in range(90)]


def answer(prompt: str, kind: str, number: int, tokens: list[str], **more: Any) -> Data:
    """One answer that was streamed token by token."""
    made = make_request(prompt, kind, number, 10.0, text="".join(tokens), output_tokens=len(tokens))
    return {**made, "pieces": [len(token) for token in tokens], **more}


def drawn(prompt: str, *wanders: int) -> list[str]:
    """The tokens of a prompt's answer; from each place in ``wanders`` on they are others."""
    tokens: list[str] = []
    chance = random.Random(prompt)
    for place in range(TOKENS):
        if place in wanders:
            chance = random.Random(f"{prompt} {place} {wanders}")
            # The token at the place of the difference is never the same one.
            tokens.append(f" x{place}")
        else:
            tokens.append(chance.choice(WORDS))
    return tokens


def place_of(chance: random.Random, rate: float) -> tuple[int, ...]:
    """Where an answer first differs when each token does so with that rate; nowhere, perhaps."""
    return next(((place,) for place in range(TOKENS) if chance.random() < rate), ())


def run(rate: float, own_rate: float = 0.0, *, seed: int = 0, prompts: int = 8, kinds: int = 2) -> Data:
    """The gate over two arms; ``own_rate`` is how often the baseline differs from itself, a token."""
    chance = random.Random(seed)
    arms: dict[str, list[Data]] = {"baseline": [], "speculative": []}
    for kind in ("chat", "code", "creative")[:kinds]:
        for number in range(prompts):
            prompt = f"{kind}-{number}"
            other = place_of(chance, rate)
            for turn in (1, 2):
                own = place_of(chance, own_rate) if turn == 2 else ()
                arms["baseline"].append(answer(prompt, kind, turn, drawn(prompt, *own)))
                if own_rate:
                    other = place_of(chance, rate)
                arms["speculative"].append(answer(prompt, kind, turn, drawn(prompt, *other)))
    return judge_outputs(*(make_result(arm, requests) for arm, requests in arms.items()))


# ---- the rule ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "own_rate"),
    [
        (0.0, 0.0),
        (1 / 400, 0.0),  # bf16 at one request at a time: the baseline is steady, the arms are not equal
        (1 / 100, 0.0),
        (1 / 40, 0.0),  # not one answer in twenty is equal any more
        (1 / 100, 1 / 100),  # a busy server: neither is steady
        (1 / 40, 1 / 40),
    ],
)
def test_a_healthy_run_is_never_called_wrong(rate: float, own_rate: float) -> None:
    words = [run(rate, own_rate, seed=seed)["word"] for seed in range(40)]
    assert words.count("passed") >= 39, words


@pytest.mark.parametrize("rate", [1 / 3, 1 / 2, 1.0])
def test_differences_that_come_at_once_are_wrong(rate: float) -> None:
    found = [run(rate, seed=seed) for seed in range(20)]
    assert [one["word"] for one in found] == ["failed"] * 20
    assert "get another answer at temperature 0 within the first" in found[0]["said"]
    assert "the baseline against itself: 16 of 16 equal" in found[0]["said"]


def test_a_baseline_that_differs_from_itself_as_soon_is_no_baseline() -> None:
    words = [run(1 / 3, 1 / 3, seed=seed)["word"] for seed in range(10)]
    assert words == ["no baseline"] * 10


def test_one_kind_that_is_wrong_is_found_among_others_that_are_right() -> None:
    base, spec = make_pair({"copy-edit": 2.0, "chat": 2.0, "creative": 2.0}, text=lambda *_: " ".join(WORDS))
    for request in spec["requests"]:
        if request["kind"] == "creative":
            request["text"] = "other words from the first on"
    found = judge_outputs(base, spec)
    assert found["word"] == "failed"
    assert found["said"].startswith("8 of 24 prompts get another answer at temperature 0 within the first token")


@pytest.mark.parametrize("others", [13, 14, 15])
def test_texts_that_differ_from_the_first_token_on_are_not_diluted_by_those_that_are_equal(others: int) -> None:
    base, spec = make_pair({"copy-edit": 1.5}, prompts=16, text=lambda *_: " ".join(WORDS))
    for request in spec["requests"]:
        if int(request["prompt_id"].rpartition("-")[2]) <= others:
            request["text"] = f"another text altogether for {request['prompt_id']}, and as fluent as the target's own"
    assert judge_outputs(base, spec)["word"] == "failed"


def test_healthy_arms_fail_in_less_than_one_of_a_hundred_experiments() -> None:
    words = [run(1 / 208, seed=seed, kinds=2)["word"] for seed in range(400)]
    assert words.count("failed") <= 3


@pytest.mark.parametrize(("share", "place"), [(1.0, 12), (0.5, 0), (0.5, 2)])
def test_arms_that_are_wrong_early_are_always_caught(share: float, place: int) -> None:
    base, spec = make_pair({"copy-edit": 2.0}, prompts=16, text=lambda arm, prompt, number: "".join(drawn(prompt)))
    for result in (base, spec):
        for request in result["requests"]:
            number = int(request["prompt_id"].rpartition("-")[2])
            tokens = drawn(request["prompt_id"], *((place,) if result is spec and number <= 16 * share else ()))
            request |= {"text": "".join(tokens), "pieces": [len(token) for token in tokens], "output_tokens": TOKENS}
    assert judge_outputs(base, spec)["word"] == "failed"
    assert too_early(pair_outputs(base["requests"], spec["requests"]))


def test_answers_that_end_early_are_wrong_though_nothing_in_them_differs() -> None:
    base, spec = make_pair({"copy-edit": 2.0, "chat": 2.0}, text=lambda *_: " ".join(WORDS))
    for request in spec["requests"]:
        request["text"] = request["text"][: len(request["text"]) // 2]
    found = judge_outputs(base, spec)
    assert found["word"] == "failed"
    assert found["said"] == "16 of 16 answers at temperature 0 end where the baseline's continues"


def test_one_answer_in_eight_that_ends_early_may_be_rounding() -> None:
    base, spec = make_pair({"copy-edit": 2.0}, text=lambda *_: " ".join(WORDS))
    for request in spec["requests"]:
        if request["prompt_id"] == "copy-edit-1":
            request["text"] = request["text"][:100]
    assert judge_outputs(base, spec)["word"] == "passed"


@pytest.mark.parametrize(("prompts", "rounds", "why"), [(1, 2, "2 prompts answered at temperature 0, and 4")])
def test_too_little_to_judge_is_not_measured(prompts: int, rounds: int, why: str) -> None:
    pair = make_pair({"copy-edit": 2.0, "chat": 2.0}, prompts=prompts, rounds=rounds, text=lambda arm, *_: arm)
    found = judge_outputs(*pair)
    assert found["word"] == "not measured"
    assert why in found["said"]


def test_repeats_of_one_prompt_are_one_prompt() -> None:
    def pair(name: Callable[[int], str]) -> list[Data]:
        return [
            make_result(arm, [answer(name(n), "k", turn, drawn(arm)) for n in range(8) for turn in (1, 2)])
            for arm in ("baseline", "speculative")
        ]

    assert judge_outputs(*pair(lambda n: f"p#{n}"))["word"] == "not measured"
    assert judge_outputs(*pair(lambda n: f"p{n}"))["word"] == "failed"


def test_only_temperature_0_counts() -> None:
    base, spec = make_pair({"chat": 2.0}, text=lambda arm, *_: arm)
    for result in (base, spec):
        for request in result["requests"]:
            request["temperature"] = 1.2
    assert judge_outputs(base, spec)["word"] == "not measured"


def test_it_turns_the_verdict() -> None:
    pair = make_pair({"copy-edit": 2.5}, text=lambda arm, prompt, number: f"{arm} {prompt}")
    verdict = judge(*pair, make_resolved())
    assert verdict["word"] == "does not pay"
    assert verdict["said"].startswith("wrong output: 8 of 8 prompts get another answer at temperature 0 within the")


# ---- where two answers first differ ------------------------------------------------------------------


def test_the_first_difference_is_counted_in_tokens_where_the_stream_was_token_by_token() -> None:
    one, two = drawn("p"), drawn("p", 17)
    found = compare_outputs([answer("p", "chat", 1, one)], [answer("p", "chat", 1, two)])
    assert found is not None
    assert found["first_difference_tokens"] == 17
    assert found["tokens_exact"] is True
    assert found["first_differences"][0] == {
        "prompt_id": "p", "round": 1, "character": 17 * 4 + 1, "of": len("".join(two)),
        "token": 17, "of_tokens": TOKENS,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "character", "found"),
    [
        ({"pieces": [3, 3, 3, 3], "output_tokens": 4}, 0, (0, 4, True)),
        ({"pieces": [3, 3, 3, 3], "output_tokens": 4}, 7, (2, 4, True)),
        ({"pieces": [3, 3, 3, 3], "output_tokens": 5}, 12, (5, 5, False)),  # a token without a piece
        ({"pieces": [6, 6], "output_tokens": 4}, 7, (2, 4, False)),  # several tokens a piece
        ({"pieces": [3, 3], "output_tokens": 2}, 7, (1, 2, False)),  # pieces of another text
        ({"output_tokens": 24}, 6, (12, 24, False)),
        ({"output_tokens": 24}, 12, (24, 24, False)),
        ({}, 5, (5, 12, False)),
        ({"output_tokens": None, "pieces": None}, 0, (0, 12, False)),
    ],
)
def test_tokens_before_a_character(fields: Data, character: int, found: tuple[int, int, bool]) -> None:
    assert tokens_before(fields, character, 12) == found


def test_calls_belong_to_what_was_said_and_their_ids_do_not() -> None:
    one: Any = {"text": "", "tool_calls": [{"name": "a", "arguments": "{}", "id": "1"}]}
    assert whole_text(one) == whole_text(one | {"tool_calls": [{"name": "a", "arguments": "{}", "id": "2"}]})
    assert whole_text(one) != whole_text(one | {"tool_calls": [{"name": "b", "arguments": "{}"}]})


def test_an_answer_that_is_the_others_beginning_is_cut_and_empty_answers_are_equal() -> None:
    whole, half = answer("p", "k", 1, [" a", " b"]), answer("p", "k", 1, [" a"])
    (pair,) = pair_outputs([whole], [half])
    assert (pair.cut, pair.token, pair.ends_early) == (True, 1, True)
    (pair,) = pair_outputs([half], [whole])
    assert (pair.cut, pair.token, pair.ends_early) == (True, 1, False)
    (pair,) = pair_outputs([answer("p", "k", 1, [])], [answer("p", "k", 1, [])])
    assert (pair.equal, pair.cut, pair.ends_early) == (True, False, False)


# ---- in the verdict ----------------------------------------------------------------------------------


def test_equal_outputs_are_counted_for_both_comparisons() -> None:
    def text(arm: str, prompt: str, number: int) -> str:
        return "abcd" if (arm, prompt) == ("speculative", "copy-edit-1") else "abcx"

    outputs = judge(*make_pair({"copy-edit": 2.0}, text=text), make_resolved())["outputs"]
    assert (outputs["control"]["equal"], outputs["control"]["pairs"]) == (8, 8)
    assert (outputs["speculative"]["equal"], outputs["speculative"]["pairs"]) == (14, 16)
    assert outputs["speculative"]["first_differences"][0]["character"] == 3


def test_a_baseline_that_differs_from_itself_is_counted() -> None:
    pair = make_pair({"copy-edit": 2.0}, text=lambda arm, prompt, number: f"round {number}")
    outputs = judge(*pair, make_resolved())["outputs"]
    assert (outputs["control"]["equal"], outputs["control"]["pairs"]) == (0, 8)
    assert outputs["control"]["first_difference_characters"] == 6
    assert (outputs["speculative"]["equal"], outputs["speculative"]["pairs"]) == (16, 16)


def test_outputs_are_compared_at_temperature_0_only_thinking_included() -> None:
    warm = [make_request("p", "chat", 1, 10.0, temperature=0.7, text=text) for text in ("a", "b")]
    assert compare_outputs([warm[0]], [warm[1]]) is None
    one, two = (make_request("p", "chat", 1, 10.0, text="same") for _ in range(2))
    two["reasoning_text"] = "other thoughts"
    found = compare_outputs([one], [two])
    assert found is not None
    assert found["equal"] == 0
