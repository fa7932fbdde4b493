"""How prompts are asked again: in which order, how many at once, and which of them not as a stream."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.bench.groups import StepOptions, plan_groups
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.prompts.loader import load_suite
from drafthouse.prompts.suites import check_suite, expand, pick

Data = Any


def suite(**kind: Data) -> Data:
    prompts = [{"id": name, "messages": [{"role": "user", "content": name}]} for name in "ab"]
    kinds = {"k": {"output_tokens": 9, "prompts": prompts, **kind}}
    return check_suite({"name": "s", "description": "a test", "kinds": kinds}, "s.yml")


@pytest.mark.parametrize(
    ("kind", "ids", "at_once", "whole"),
    [
        ({}, ["a", "b"], 8, []),
        ({"repeat": 2}, ["a#1", "b#1", "a#2", "b#2"], 8, []),
        ({"again": "warm"}, ["a#1", "a#2", "b#1", "b#2"], 1, []),
        ({"again": "streams"}, ["a#1", "a#2", "b#1", "b#2"], 1, ["a#2", "b#2"]),
        ({"again": "slots", "repeat": 3}, ["a#1", "a#2", "a#3", "b#1", "b#2", "b#3"], 3, []),
        ({"again": "warm", "repeat": 1}, ["a", "b"], 1, []),
    ],
)
def test_order_and_number_at_once(kind: Data, ids: list[str], at_once: int, whole: list[str]) -> None:
    (group,) = plan_groups([suite(**kind)], StepOptions(concurrency=8))
    assert [ask.prompt_id for ask in group.requests] == ids
    assert group.concurrency == at_once
    assert [ask.prompt_id for ask in group.requests if not ask.stream] == whole
    assert {ask.gate and ask.gate.get("again") for ask in group.requests} == {kind.get("again")}
    # `drafthouse bench` mixes the kinds, and takes each prompt as often as the suite has it.
    assert [prompt.id for prompt in expand(pick(suite(**kind), len(ids)))["s"]] == ids


def test_an_answer_as_a_whole_is_asked_without_the_words_for_streams() -> None:
    (group,) = plan_groups([suite(again="streams")], StepOptions(token_ids=9))
    streamed, whole = (ask.body("m") for ask in group.requests[:2])
    assert (streamed["stream"], whole["stream"]) == (True, False)
    assert "stream_options" in streamed
    assert "stream_options" not in whole
    # Its token ids are read from a stream.
    assert "return_token_ids" not in whole


@pytest.mark.parametrize(
    ("profile", "inventory", "left"),
    [
        ("rtx3090-qwen3-8b-eagle3", "workstation", []),
        ("rtx4090-llama32-draft1b", "workstation", ["tool-think"]),
        ("h100-gemma4-mtp", "workstation", ["tool-stream", "tool-think", "tool-history"]),
        ("cpu-smollm2-ngram", "local", []),
    ],
)
def test_only_what_the_server_can_do_is_asked_and_the_rest_is_said(
    profile: str, inventory: str, left: list[str]
) -> None:
    overrides: Data = {"experiment": {"suites": ["mixed", "agents"], "once": ["agents"]}}
    resolved = resolved_profile(profile, site_of_inventory(inventory), overrides)
    said = [warning for warning in resolved["warnings"] if "is not sent" in warning]
    assert [line.split(": ")[1].split(" is ")[0] for line in said] == left
    every = load_suite("agents", ROOT / "benchmarks")["kinds"]
    assert list(resolved["suites"]["agents"]["kinds"]) == [kind for kind in every if kind not in left]


def test_every_prompt_of_the_suite_is_asked_cold_and_again() -> None:
    kinds = expand(load_suite("agents", ROOT / "benchmarks"))
    # Beyond two blocks of a hybrid model's cache, and enough prompts for each gate to tell a fault from chance.
    assert all(len(str(prompt.messages)) > 4 * 4_200 for prompt in kinds["warm-prefix"])
    assert all(len({prompt.id.partition("#")[0] for prompt in prompts}) >= 5 for prompts in kinds.values())
    assert {prompt.temperatures for prompts in kinds.values() for prompt in prompts} == {(0.0,)}
    required = [prompt for prompt in kinds["tool-stream"] if (prompt.extra or {}).get("tool_choice") == "required"]
    assert len(required) == 2 * 3
    assert all(sum(m["role"] == "user" for m in prompt.messages) == 3 for prompt in kinds["tool-history"])
