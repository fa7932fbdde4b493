"""Pastes that were read wrongly once, each of its kind, with its source; what must come of each was written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT
from drafthouse.translate.flags import load_flags
from drafthouse.translate.text import as_data, translation_text
from drafthouse.translate.translator import Translation, translate

HOUSE, FLAGS = load_catalog(ROOT), load_flags(ROOT)
CASES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "cases.yml").read_text("utf-8"))
HIDDEN = {name: case for name, case in CASES.items() if "asked" in case}


def only(text: str) -> Translation:
    (found,) = translate(text, HOUSE, FLAGS, lambda _: None)[0]
    return found


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "target" in case])
def test_a_paste_is_read(name: str) -> None:
    case = CASES[name]
    found = only(case["text"])
    target = found.profile["target"]
    spec = None if found.baseline else found.profile["speculation"]
    assert (HOUSE.models[target]["name"] if target in HOUSE.models else target) == case["target"]
    assert ([spec["method"], spec["num_speculative_tokens"]] if spec else None) == case.get("speculation")
    command = " ".join(word for flag in found.command for word in flag)
    for words in case.get("has", []):
        assert words in command


@pytest.mark.parametrize("name", HIDDEN)
def test_what_may_speculate_is_asked_for_and_no_baseline_is_printed(name: str) -> None:
    found = only(HIDDEN[name]["text"])
    shown = translation_text(found)
    assert HIDDEN[name]["asked"] in shown
    assert not found.baseline
    assert "today's command" not in shown and "profiles/" not in shown
    assert as_data(found)["command"] is None and as_data(found)["profile"] is None


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "refused" in case])
def test_a_paste_is_refused_by_name(name: str) -> None:
    with pytest.raises(DrafthouseError, match=CASES[name]["refused"]):
        only(CASES[name]["text"])


def test_a_variable_is_no_model() -> None:
    found = only('vllm serve "$MODEL" --max-model-len 4096')
    assert "a variable, not a model: $MODEL" in translation_text(found)
    assert "drafthouse model add" not in translation_text(found)


def test_speculation_in_a_branch_that_is_not_taken_is_told() -> None:
    text = 'MTP=0\nif [ "$MTP" = 1 ]; then\n  A=(--speculative-config "$SPEC")\nfi\nvllm serve a/b "${A[@]}"'
    found, left_out, _ = translate(text, HOUSE, FLAGS, lambda _: None)
    assert [one.baseline for one in found] == [True]
    assert left_out == ["line 3: --speculative-config (not reached)"]


def test_flags_of_an_array_that_the_command_uses_are_not_told_as_left_out() -> None:
    text = 'ARGS=(\n  --max-model-len 4096\n  --enable-prefix-caching\n)\nvllm serve a/b "${ARGS[@]}"'
    found, left_out, _ = translate(text, HOUSE, FLAGS, lambda _: None)
    assert len(found) == 1
    assert left_out == []
