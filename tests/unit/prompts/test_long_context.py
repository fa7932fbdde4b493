"""Long texts and made prompts: the same everywhere, no two alike, as long as asked, the needle in its place."""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.schema import Findings
from drafthouse.prompts.fill import fill
from drafthouse.prompts.long_context import MARK, days, long_text, passage
from drafthouse.prompts.suites import check_suite, expand
from drafthouse.prompts.synthetic import made_prompts

SETTINGS = ("farm", "harbour", "station")
NEEDLE = "The key hangs behind the portrait of Ottokar."


def suite(long: dict[str, Any], text: str = f"{MARK}\n\nWhere is the key?", **prompt: Any) -> dict[str, Any]:
    entry = {"id": "p", "long": long, "messages": [{"role": "user", "content": text}], **prompt}
    return {"name": "s", "description": "d", "kinds": {"k": {"output_tokens": 50, "prompts": [entry]}}}


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_two_days_are_alike(setting: str) -> None:
    for seed in range(5):
        told = list(islice(days(seed, setting), 400))
        assert len(set(told)) == 400
        assert all(45 <= len(day.split()) <= 120 for day in told)
        assert not any("{" in day or "  " in day or ".." in day for day in told)


def test_another_seed_is_another_text_and_the_same_one_the_same_on_every_machine() -> None:
    assert len({long_text(5000, seed, setting) for seed in range(20) for setting in SETTINGS}) == 60
    text = long_text(4000, 7, "farm", NEEDLE, 0.5)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "e78cd14e59b222f9"


@pytest.mark.parametrize("characters", [1200, 8000, 64_000])
def test_it_is_as_long_as_asked_and_never_longer(characters: int) -> None:
    for seed in range(5):
        assert characters - 900 < len(long_text(characters, seed, "harbour", NEEDLE)) <= characters


@pytest.mark.parametrize("depth", [0.0, 0.1, 0.5, 0.95, 1.0])
def test_the_needle_stands_where_it_was_put_and_only_there(depth: float) -> None:
    text = long_text(40_000, 3, "station", NEEDLE, depth, "Ottokar")
    assert text.count("Ottokar") == 1
    assert abs(text.index(NEEDLE) / len(text) - depth) < 0.05


def test_days_that_hold_the_needles_word_are_left_out() -> None:
    assert "Hettie" in long_text(40_000, 3)
    assert "hettie" not in long_text(40_000, 3, without="hettie").casefold()


def test_a_text_is_put_into_its_prompt_and_cut_to_the_context() -> None:
    checked = check_suite(suite({"tokens": 4000, "seed": 1, "needle": NEEDLE}, expect={"contains": "Ottokar"}), "s.yml")
    ((whole,),) = expand(fill(checked)).values()
    ((short,),) = expand(fill(checked, 2048)).values()
    texts = [str(prompt.messages[0]["content"]) for prompt in (whole, short)]
    assert all(MARK not in text and NEEDLE in text and text.endswith("Where is the key?") for text in texts)
    assert 14_000 < len(texts[0]) <= 16_100
    assert len(texts[1]) <= 3.2 * (2048 - 50 - 200) + 100
    assert "long" not in fill(checked)["kinds"]["k"]["prompts"][0]
    with pytest.raises(DrafthouseError, match="a context of 512 tokens: room for a text of 262"):
        fill(checked, 512)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (suite({"tokens": 4000, "seed": 1}, "no mark"), "messages"),
        (suite({"tokens": 4000, "seed": 1}, f"{MARK} {MARK}"), "messages"),
        (suite({"tokens": 20, "seed": 1}), "long.tokens"),
        (suite({"tokens": 4000}), "long.seed"),
        (suite({"tokens": 4000, "seed": 1, "setting": "moon"}), "long.setting"),
        (suite({"tokens": 4000, "seed": 1, "depth": 0.5}), "long.depth"),
        (suite({"tokens": 4000, "seed": 1, "needle": NEEDLE}, expect={"contains": "417"}), "expect.contains"),
        (suite({"tokens": 4000, "seed": 1, "needle": NEEDLE}, expect={"contains": "the"}), "expect.contains"),
    ],
)
def test_what_is_wrong_with_a_long_prompt(data: dict[str, Any], where: str) -> None:
    with pytest.raises(DrafthouseError) as caught:
        check_suite(data, "s.yml")
    assert [problem.where for problem in caught.value.problems] == [f"s.yml: kinds.k.prompts[0].{where}"]


def test_a_mark_without_a_text_is_an_error() -> None:
    data = suite({"tokens": 4000, "seed": 1})
    del data["kinds"]["k"]["prompts"][0]["long"]
    with pytest.raises(DrafthouseError, match="without a text"):
        check_suite(data, "s.yml")


# ---- prompts that are made -----------------------------------------------------------------------------


def made(form: str, number: int, **more: Any) -> list[str]:
    findings = Findings("s.yml")
    wanted: Any = {"form": form, "number": number, **more}
    prompts = made_prompts("k", wanted, findings, "kinds.k.made")
    assert not findings.problems
    return [prompt["messages"][0]["content"] for prompt in prompts]


@pytest.mark.parametrize("form", ["chat", "code", "copy", "story"])
def test_hundreds_that_differ_and_come_again_the_same(form: str) -> None:
    texts = made(form, 500)
    assert len(set(texts)) == 500
    assert made(form, 20) == texts[:20]
    assert made(form, 20, seed=1) != texts[:20]


def test_a_copy_is_a_paragraph() -> None:
    assert all(45 <= len(text.split("\n\n")[1].split()) <= 120 for text in made("copy", 50))
    assert passage(1, "farm") != passage(2, "farm")


def test_more_than_there_are_is_an_error() -> None:
    kinds = {"k": {"output_tokens": 9, "made": {"form": "chat", "number": 501}}}
    data = {"name": "s", "description": "d", "kinds": kinds}
    with pytest.raises(DrafthouseError, match="500 or less"):
        check_suite(data, "s.yml")
