"""Prompts of the search and of the judgement: never the same, and enough of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafthouse.bench.client import ChatRequest
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT, load_suites, resolved_profile, site_of_inventory
from drafthouse.prompts.suites import expand
from drafthouse.tuning.prompt_split import SUITE, TunePrompts, prompts_for


def texts(asks: Any) -> set[str]:
    return {json.dumps(ask["messages"]) for ask in asks}


def of_profile(name: str) -> TunePrompts:
    catalog = load_catalog(ROOT)
    profile = catalog.profiles[name]
    site = site_of_inventory(catalog.hardware[profile["hardware"]]["inventory"])
    resolved = resolved_profile(name, site)
    whole = resolved_profile(name, site, {"experiment": {"prompts_per_kind": None}})
    return prompts_for(resolved, load_suites([])[SUITE], whole["suites"])


def test_the_tuners_prompts_are_in_no_other_suite() -> None:
    suites = load_suites([])
    seen: dict[str, str] = {}
    for name, suite in suites.items():
        for prompts in expand({**suite, "kinds": {k: {**v, "repeat": 1} for k, v in suite["kinds"].items()}}).values():
            for prompt in prompts:
                text = json.dumps(prompt.messages)
                assert text not in seen or SUITE not in (name, seen[text]), prompt.id
                seen[text] = name


@pytest.mark.parametrize("name", list(load_catalog(ROOT).profiles))
def test_no_profile_is_judged_by_what_it_was_tuned_on(name: str) -> None:
    prompts = of_profile(name)
    assert not texts(prompts.search) & texts(prompts.final)
    assert len(prompts.search) >= prompts.first >= 4
    assert len(texts(prompts.final)) >= 6
    assert SUITE not in load_catalog(ROOT).profiles[name]["experiment"]["suites"]
    kinds = load_catalog(ROOT).profiles[name]["experiment"].get("kinds")
    if kinds:
        assert {ask["kind"] for ask in prompts.search} == {ask["kind"] for ask in prompts.final} == set(kinds)
        assert {ask["kind"] for ask in prompts.search[: prompts.first]} == set(kinds)


def test_prompts_that_can_be_checked_are_gates_and_neither_searched_with_nor_timed() -> None:
    prompts = of_profile("rtx6000-qwen-eagle3")
    assert {ask["kind"] for ask in prompts.gates} == {"json", "tool-call", "needle"}
    assert not texts(prompts.gates) & (texts(prompts.search) | texts(prompts.final))
    assert {ask["temperature"] for ask in prompts.gates} == {0.0}


def test_they_travel_as_plain_data_and_become_requests() -> None:
    for ask in json.loads(json.dumps(of_profile("cpu-smollm2-draft").final)):
        body = ChatRequest(**ask, group="trial").body("model")
        assert body["messages"] == ask["messages"]
        assert body["max_tokens"] <= 64


def made(kinds: dict[str, int], wanted: int | None = None, **experiment: Any) -> tuple[Any, Any]:
    """A resolved profile with so many prompts of each kind, and its suites as they are."""
    whole = {
        "own": {
            "name": "own",
            "kinds": {
                kind: {
                    "output_tokens": 100,
                    "prompts": [
                        {"id": f"{kind}-{n}", "messages": [{"role": "user", "content": f"{kind} {n}"}]}
                        for n in range(count)
                    ],
                }
                for kind, count in kinds.items()
            },
        }
    }
    trimmed = {
        "own": {
            **whole["own"],
            "kinds": {
                name: {**kind, "prompts": kind["prompts"][:wanted]}
                for name, kind in whole["own"]["kinds"].items()  # type: ignore[attr-defined]
            },
        }
    }
    given = {"kinds": list(kinds), "temperatures": [0.0], "concurrency": 1, **experiment}
    return {"profile": "p", "experiment": given, "suites": trimmed}, whole


OWN: Any = {
    "name": SUITE,
    "kinds": {
        "chat": {
            "output_tokens": 50,
            "prompts": [{"id": f"t{n}", "messages": [{"role": "user", "content": f"tune {n}"}]} for n in range(8)],
        }
    },
}


def test_a_kind_of_ones_own_is_divided_and_that_is_said() -> None:
    resolved, whole = made({"legal": 14}, wanted=6)
    prompts = prompts_for(resolved, OWN, whole)
    assert [ask["prompt_id"] for ask in prompts.search] == [f"legal-{n}" for n in range(0, 14, 2)]
    assert [ask["prompt_id"] for ask in prompts.final] == [f"legal-{n}" for n in range(1, 14, 2)]
    assert "'legal': half of the profile's" in prompts.notes[0]


def test_too_few_are_refused() -> None:
    with pytest.raises(DrafthouseError) as caught:
        prompts_for(*_with_suite(made({"legal": 8})))
    assert "4 prompts to search and 4 to judge" in caught.value.problems[0].found


def _with_suite(given: tuple[Any, Any]) -> tuple[Any, Any, Any]:
    return given[0], OWN, given[1]


def test_a_trimmed_kind_gets_all_of_its_prompts_where_an_interval_needs_them() -> None:
    resolved, whole = made({"chat": 8}, wanted=3)
    prompts = prompts_for(resolved, OWN, whole)
    assert len(prompts.final) == 8
    assert len(prompts.search) == 8
    assert prompts.weight == 2.0
    assert prompts.notes == ()


def test_temperatures_alternate_in_the_search_and_are_all_judged() -> None:
    resolved, whole = made({"chat": 8}, temperatures=[0.0, 0.6])
    prompts = prompts_for(resolved, OWN, whole)
    assert [ask["temperature"] for ask in prompts.search[:4]] == [0.0, 0.6, 0.0, 0.6]
    assert len(prompts.final) == 16


def test_more_streams_than_prompts_are_noted() -> None:
    resolved, whole = made({"chat": 8}, concurrency=32)
    prompts = prompts_for(resolved, OWN, whole)
    assert "fewer than the 32 streams" in prompts.notes[0]
    assert prompts.first == 4
