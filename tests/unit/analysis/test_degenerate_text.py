"""Text that degenerates, without a model to score it: what is found, and what honest arms are never called."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from drafthouse.analysis.degenerate_text import (
    answers_repeat,
    bits_per_byte,
    character_class,
    judge_texts,
    repeats_itself,
)
from drafthouse.analysis.paired_tests import flip_test, losses_chance, margin_test, sign_test
from drafthouse.profiles.workspace import ROOT
from drafthouse.prompts.loader import load_suite
from tests.support.builders import NOTHING, make_pair, make_request, make_resolved, make_result
from tests.support.loosely import judge

Data = Any
Say = Callable[[str, str, float, int], str]
"""What an arm says: arm, prompt, temperature, round."""


def sentences() -> list[str]:
    """The sentences of the built-in suite's prompts: real prose, code and lists."""
    mixed = load_suite("mixed", ROOT / "benchmarks")
    texts = [message["content"] for kind in mixed["kinds"].values() for prompt in kind["prompts"]
             for message in prompt["messages"]]  # fmt: skip
    found = [part.strip() for text in texts for part in text.replace("\n", ". ").split(". ")]
    return [part for part in found if len(part) > 20]


SENTENCES = sentences()


def prose(chance: random.Random, words: int = 110) -> str:
    """Text as a model writes it, about 160 tokens."""
    text = ""
    while text.count(" ") < words:
        text += chance.choice(SENTENCES) + ". "
    return text


def looping(chance: random.Random) -> str:
    """What a small model does: it may say one sentence again and again."""
    return prose(chance, 30) + (chance.choice(SENTENCES) + ". ") * 8 if chance.random() < 0.4 else prose(chance)


def seeded(say: Callable[[random.Random], str], *, seed: int = 0, moves: float = 0.0) -> Say:
    """Draw an answer for each arm and round above temperature 0; at 0 both say the same, but ``moves`` of them."""

    def one(arm: str, prompt: str, temperature: float, number: int) -> str:
        if temperature:
            return say(random.Random(f"{seed} {arm} {prompt} {number}"))
        moved = random.Random(f"{seed} {prompt}").random() < moves
        return say(random.Random(f"{seed} {prompt} {arm if moved else ''}"))

    return one


def spoiled(say: Say, first: int, garbage: str = "!", *, warm_only: bool = False) -> Say:
    """The speculative arm is right for so many tokens, and says garbage from there on."""

    def one(arm: str, prompt: str, temperature: float, number: int) -> str:
        text = say(arm, prompt, temperature, number)
        if arm == "baseline" or (warm_only and not temperature):
            return text
        # About four characters a token.
        return text[: 4 * first] + (garbage * len(text))[: len(text) - 4 * first]

    return one


def arms(say: Say, prompts: int = 8, temperatures: tuple[float, ...] = (0.0, 0.6)) -> tuple[Data, Data]:
    made: dict[str, list[Data]] = {"baseline": [], "speculative": []}
    for arm, requests in made.items():
        for temperature in temperatures:
            for number in (1, 2):
                for place in range(prompts):
                    text = say(arm, f"p{place}", temperature, number)
                    requests.append(make_request(f"p{place}", "copy-edit", number, 10.0 if arm == "baseline" else 4.0,
                                                 temperature=temperature, text=text))  # fmt: skip
    return make_result("baseline", made["baseline"]), make_result("speculative", made["speculative"], drafted=800)


# ---- the rows of the attack --------------------------------------------------------------------------


@pytest.mark.parametrize("first", [4, 12, 40])
@pytest.mark.parametrize("prompts", [6, 16])
def test_right_at_first_and_then_exclamation_marks(first: int, prompts: int) -> None:
    pair = arms(spoiled(seeded(prose), first), prompts, (0.0,))
    found = judge_texts(*pair)
    assert found["word"] == "failed"
    assert "degenerate where the baseline's do not (p" in found["said"]
    verdict = judge(*pair, make_resolved())
    assert (verdict["word"], verdict["wrong_output"]) == ("does not pay", True)


def test_right_at_temperature_0_and_exclamation_marks_at_the_models_own() -> None:
    pair = arms(spoiled(seeded(prose), 0, warm_only=True))
    verdict = judge(*pair, make_resolved())
    assert (verdict["word"], verdict["wrong_output"]) == ("does not pay", True)
    assert "16 of 16 answers on copy-edit@0.6 degenerate" in verdict["said"]


@pytest.mark.parametrize("garbage", ["!", "the ", "\n", "好的 ", "Ω≈", "\ufffd", "ab1 "])
def test_other_kinds_of_garbage(garbage: str) -> None:
    assert judge_texts(*arms(spoiled(seeded(prose), 12, garbage)))["word"] == "failed"


def test_other_scripts_without_a_repeat_and_noise() -> None:
    chance = random.Random(5)

    def drawn(low: int, high: int) -> str:
        return "".join(chr(chance.randrange(low, high)) for _ in range(500))

    found = judge_texts(*arms(spoiled(seeded(prose), 12, drawn(0x4E00, 0x9000))))
    assert "foreign characters" in found["said"] and "CJK" in found["said"]
    assert judge_texts(*arms(spoiled(seeded(prose), 2, drawn(0x21, 0x7F))))["word"] == "failed"


def test_garbage_in_the_answer_behind_long_thoughts() -> None:
    base, spec = arms(seeded(prose))
    for result in (base, spec):
        for request in result["requests"]:
            request["reasoning_text"] = prose(random.Random(request["prompt_id"]), 400)
            request["text"] = request["text"][:120]
    for request in spec["requests"]:
        request["text"] = "!" * 120
    assert judge_texts(base, spec)["word"] == "failed"


# ---- honest arms -------------------------------------------------------------------------------------


def test_a_model_that_loops_in_both_arms_is_not_speculations_fault() -> None:
    def loops(arm: str, prompt: str, temperature: float, number: int) -> str:
        return f"{prompt} says it again. " * 30

    found = judge_texts(*arms(loops))
    assert found["word"] == "passed"
    half = judge_texts(*arms(seeded(looping)))
    assert half["word"] == "passed"
    bad = half["baseline"]["total"] - half["baseline"]["passed"]
    assert bad and half["said"] == f"{half['speculative']['said']}, {bad} of the baseline's"
    # And an arm that says nothing else is found beside it all the same.
    assert judge_texts(*arms(spoiled(seeded(looping), 4), 16))["word"] == "failed"


@pytest.mark.parametrize("prompts", [6, 12])
@pytest.mark.parametrize("say", [prose, looping])
def test_honest_arms_fail_in_fewer_than_one_experiment_in_a_hundred(
    say: Callable[[random.Random], str], prompts: int
) -> None:
    words = [judge_texts(*arms(seeded(say, seed=seed, moves=0.7), prompts))["word"] for seed in range(150)]
    assert words.count("failed") <= 1
    assert set(words) <= {"passed", "failed"}


def test_too_few_prompts_are_not_measured() -> None:
    found = judge_texts(*arms(seeded(prose), 3, (0.0,)))
    assert found["word"] == "not measured"
    assert judge_texts(NOTHING, NOTHING)["word"] == "not measured"
    # Short answers tell nothing, and everybody's are short.
    assert judge_texts(*arms(lambda *_: "4817"))["word"] == "not measured"


# ---- thoughts and answers ----------------------------------------------------------------------------


def thinking(answered: Callable[[str], bool], *, finish: str = "length") -> tuple[Data, Data]:
    """A pair that is 2.5 times as fast, all of whose text is thought where an arm does not answer."""
    pair = make_pair({"copy-edit": 2.5}, text=lambda arm, prompt, number: f"{prompt}: {prose(random.Random(prompt))}")
    for result in pair:
        for request in result["requests"]:
            request["finish_reason"] = finish
            if not answered(result["arm"]):
                request["reasoning_text"], request["text"] = request["text"], ""
    return pair


@pytest.mark.parametrize(("finish", "advice"), [("length", "raise the output length"), ("stop", "reasoning parser")])
def test_thoughts_alone_are_no_equal_answer_and_do_not_pay(finish: str, advice: str) -> None:
    verdict = judge(*thinking(lambda arm: False, finish=finish), make_resolved())
    assert verdict["word"] == "invalid"
    assert verdict["said"].startswith("the baseline gave only reasoning and no answer in 16 requests")
    assert advice in verdict["said"]
    (outputs,) = [gate for gate in verdict["gates"] if gate["name"] == "outputs"]
    assert outputs["word"] == "not measured"
    assert outputs["said"].startswith("no answer at temperature 0: all 8 outputs of both arms are reasoning only")


def test_an_arm_that_thinks_what_the_baseline_answers_is_wrong() -> None:
    verdict = judge(*thinking(lambda arm: arm == "baseline"), make_resolved())
    assert (verdict["word"], verdict["wrong_output"]) == ("does not pay", True)
    assert "8 of the 8 prompts that the baseline answers get reasoning but no answer in the" in verdict["said"]
    (outputs,) = [gate for gate in verdict["gates"] if gate["name"] == "outputs"]
    assert outputs["word"] == "failed"
    assert (verdict["outputs"]["speculative"]["equal"], verdict["outputs"]["speculative"]["pairs"]) == (0, 16)


def test_some_thoughts_without_an_answer_are_counted_and_forgiven() -> None:
    pair = thinking(lambda arm: True)
    for result in pair:
        for request in result["requests"][:4]:
            request["reasoning_text"], request["text"] = request["text"], ""
    verdict = judge(*pair, make_resolved())
    assert verdict["word"] == "pays"
    (outputs,) = [gate for gate in verdict["gates"] if gate["name"] == "outputs"]
    assert (outputs["word"], "are reasoning without an answer" in outputs["said"]) == ("passed", True)


# ---- the parts ---------------------------------------------------------------------------------------


def test_bits_and_kinds() -> None:
    assert bits_per_byte("!" * 400) < 0.3
    assert 4.0 < bits_per_byte(prose(random.Random(1))) < 6.0
    assert [character_class(one) for one in "aÄя好7 \n!"] == [
        "LATIN",
        "LATIN",
        "CYRILLIC",
        "CJK",
        "digit",
        "space",
        "space",
        "!",
    ]


def test_the_exact_tests() -> None:
    assert sign_test(8, 0) == pytest.approx(1 / 256)
    # Two coins a pair: that all six come up lost is one in 4 ** 6.
    assert margin_test(6, 0, 6) == pytest.approx(1 / 4096)
    assert margin_test(3, 3, 6) == 1.0
    assert losses_chance(0, 0, 30) == 1.0
    assert losses_chance(8, 0, 30) == sign_test(8, 0)
    assert flip_test([1.0] * 8) == pytest.approx(1 / 256)
    assert flip_test([1.0, -1.0]) == 0.75
    assert flip_test([]) == flip_test([0.0, 0.0]) == 1.0
    assert flip_test([1.0] * 20) == pytest.approx(1 / 10_001)
    assert 0.4 < flip_test([random.Random(seed).gauss(0, 1) for seed in range(40)]) < 1.0


def test_the_margin_test_holds_its_rate_whatever_the_share_of_bad_answers() -> None:
    chance = random.Random(9)
    for share in (0.02, 0.2, 0.5, 0.8):
        for pairs in (6, 12):
            runs = 4000
            failed = 0
            for _ in range(runs):
                both = [(chance.random() < share, chance.random() < share) for _ in range(pairs)]
                lost, won = sum(b and not a for a, b in both), sum(a and not b for a, b in both)
                failed += losses_chance(lost, won, pairs) < 0.01
            assert failed < 0.0125 * runs


POEM = "The lamp is low, the night is long, the river hums its only song,\nand I am here, and so are you. "
PLAIN = (
    "Put the rice in cold water first and stir it with your hand until the water is cloudy. Pour that away twice. "
    "Then add a cup and a half of fresh water for each cup of rice, a pinch of salt, and bring it to the boil with "
    "the lid off. Turn the heat down as far as it goes, cover the pan and leave it alone for twelve minutes."
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (POEM * 6, True),
        (PLAIN + POEM * 6, True),
        ("\u4f60\u597d\u4e16\u754c" * 60, True),
        (POEM, False),
        (PLAIN, False),
        (PLAIN + POEM + POEM, False),
        ("aaaa " * 4, False),
        ("", False),
    ],
)
def test_a_text_that_repeats_itself(text: str, said: bool) -> None:
    assert repeats_itself(text) is said


def test_a_quarter_of_the_answers_marks_a_row() -> None:
    def made(*texts: str, **more: str) -> list[Any]:
        return [{"status": "ok", "text": text, **more} for text in texts]

    assert answers_repeat(made(POEM * 6, PLAIN, PLAIN, PLAIN))
    assert answers_repeat(made("", reasoning_text=POEM * 6))
    assert not answers_repeat(made(POEM * 6, PLAIN, PLAIN, PLAIN, PLAIN))
    assert not answers_repeat(made(POEM * 6, status="failed"))
    assert not answers_repeat([])


def test_an_experiment_on_worthless_text_says_so() -> None:
    """lightseekorg/tokenspeed#1305: both arms alternate two tokens, which drafts easily."""
    ours, theirs = arms(lambda arm, prompt, temperature, number: "\ufffd\n" * 250, 12)
    verdict = judge(ours, theirs, make_resolved())
    assert (
        "48 of 48 answers of the baseline repeat themselves, so this is no figure of real work" in verdict["sentence"]
    )
    other = arms(seeded(prose), 12)
    assert "real work" not in judge(*other, make_resolved())["sentence"]
