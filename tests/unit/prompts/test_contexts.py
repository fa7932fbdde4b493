"""Prompts at a context length: their names, their texts, and the requests of a sweep over contexts."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.bench.sweep.plan import LadderPlan, requests_by_kind, rungs
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from drafthouse.prompts.contexts import at_contexts, base_kind, behind_a_logbook, kind_and_context
from tests.support.refusals import refuses


def test_a_kind_at_a_context_has_a_name_that_is_read_back() -> None:
    names = at_contexts(["chat", "look at 5"], [1024, 8192])
    assert names[:2] == ["chat at 1024 tokens", "chat at 8192 tokens"]
    assert [kind_and_context(name) for name in names] == [
        ("chat", 1024), ("chat", 8192), ("look at 5", 1024), ("look at 5", 8192),
    ]  # fmt: skip
    assert kind_and_context("chat") == ("chat", 0)
    assert {base_kind(name) for name in ("chat", "chat at 1024 tokens", "chat at load 4", "chat at load 0.5")} == {
        "chat"
    }
    assert at_contexts(["chat"], []) == ["chat"]


@pytest.mark.parametrize("tokens", [300, 5000])
def test_the_logbook_stands_before_the_first_words_of_the_user(tokens: int) -> None:
    messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    system, user = behind_a_logbook(messages, tokens, seed=1)
    assert system == messages[0]
    assert user["content"].endswith("\n\nWhy?")
    assert len(user["content"]) == pytest.approx(4 * tokens, abs=20)
    assert behind_a_logbook(messages, tokens, seed=1)[1] == user
    assert behind_a_logbook(messages, tokens, seed=2)[1] != user
    parts: Any = [{"role": "user", "content": [{"type": "image_url"}]}]
    assert [part["type"] for part in behind_a_logbook(parts, tokens, 1)[0]["content"]] == ["text", "image_url"]


def test_a_sweep_sends_the_same_prompts_at_each_context() -> None:
    prompts = [{"id": name, "messages": [{"role": "user", "content": name}]} for name in ("why", "how")]
    suite: Any = {"name": "mine", "kinds": {"chat": {"output_tokens": 8, "prompts": prompts}}}
    plan = LadderPlan("closed", (1.0, 4.0), tuple(at_contexts(["chat"], [300, 600])))
    asks = requests_by_kind(plan, [suite])
    assert list(asks) == list(plan.kinds)
    for name, requests in asks.items():
        assert [ask.prompt_id for ask in requests] == ["why", "how"]
        assert {ask.kind for ask in requests} == {name}
        assert len({str(ask.messages) for ask in requests}) == 2
    assert {(rung.level, rung.kind) for rung in rungs(plan, ["baseline"])} == {
        (level, name) for level in plan.levels for name in plan.kinds
    }


def asked(**ladder: Any) -> Any:
    return resolved_profile(
        "cpu-smollm2-ngram",
        site_of_inventory("local"),
        {"experiment": {"ladder": {"levels": [1], **ladder}, "max_output_tokens": 64}},
    )


def test_contexts_that_do_not_fit_or_rise_are_refused() -> None:
    assert asked(contexts=[512, 2048])["experiment"]["ladder"]["contexts"] == [512, 2048]
    assert "contexts" not in asked()["experiment"]["ladder"]
    with refuses("context-too-long", match="3832 or fewer: a request has 4096 tokens"):
        asked(contexts=[512, 4096])
    with refuses("levels-not-ascending"):
        asked(contexts=[2048, 512])
