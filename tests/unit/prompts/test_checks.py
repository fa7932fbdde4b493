"""What prompts ask for beside their messages: tools, JSON, further fields; how it is checked, and how it is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.bench.groups import StepOptions, plan_groups
from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.prompts.formats import MESSAGES, read_prompts
from drafthouse.prompts.loader import load_suite
from drafthouse.prompts.suites import check_suite, expand, pick

Data = Any
BENCHMARKS = ROOT / "benchmarks"
SHIPPED = sorted(path.stem for path in BENCHMARKS.glob("*.yml"))
TIMER = {"type": "function", "function": {"name": "set_timer", "parameters": {"type": "object"}}}
FORM = {"type": "json_schema", "json_schema": {"name": "form", "schema": {"type": "object"}}}


def user(text: str) -> list[Data]:
    return [{"role": "user", "content": text}]


def suite(kind: Data | None = None, **prompt: Any) -> Data:
    """A suite of one kind with one prompt."""
    entry = {"output_tokens": 20, "prompts": [{"id": "p", "messages": user("one"), **prompt}], **(kind or {})}
    return {"name": "s", "description": "d", "kinds": {"k": entry}}


def places(data: object) -> list[str]:
    with pytest.raises(DrafthouseError) as caught:
        check_suite(data, "s.yml")
    return [problem.where.removeprefix("s.yml: ") for problem in caught.value.problems]


def sent(data: Data, **options: Any) -> list[Data]:
    """The bodies of all requests of a suite."""
    groups = plan_groups([check_suite(data, "s.yml")], StepOptions(**options))
    return [ask.body("m") for group in groups for ask in group.requests]


# ---- what is sent ------------------------------------------------------------------------------------


def test_tools_forms_and_further_fields_are_sent_and_expectations_are_not() -> None:
    data = suite(tools=[TIMER], request={"tool_choice": "required", "top_p": 0.9}, expect={"tool": "set_timer"})
    (body,) = sent(data)
    assert body["tools"] == [TIMER]
    assert (body["tool_choice"], body["top_p"], body["max_tokens"]) == ("required", 0.9, 20)
    assert "expect" not in body
    assert "response_format" not in body
    assert sent(suite(response_format=FORM))[0]["response_format"] == FORM
    assert set(sent(suite())[0]) == {
        "model", "messages", "max_tokens", "temperature", "stream", "stream_options", "seed",
    }  # fmt: skip


def test_a_kinds_asks_are_those_of_its_prompts_and_their_own_go_before() -> None:
    kind = {
        "tools": [TIMER],
        "request": {"tool_choice": "auto", "top_p": 0.9},
        "prompts": [
            {"id": "a", "messages": user("a")},
            {"id": "b", "messages": user("b"), "request": {"tool_choice": "required"}},
        ],
    }
    bodies = sent(suite(kind))
    assert [body["tool_choice"] for body in bodies] == ["auto", "required"]
    assert [body["top_p"] for body in bodies] == [0.9, 0.9]
    assert all(body["tools"] == [TIMER] for body in bodies)


def test_a_kinds_own_temperatures_stand_in_place_of_the_steps() -> None:
    data = suite({"temperatures": [0, 1.2]})
    data["kinds"]["other"] = {"output_tokens": 5, "prompts": [{"id": "q", "messages": user("two")}]}
    groups = plan_groups([check_suite(data, "s")], StepOptions(temperatures=(0.0, 0.6)))
    assert [(group.key, group.place) for group in groups] == [("k", 0), ("other", 1), ("k@1.2", 2), ("other@0.6", 3)]
    assert [group.requests[0].temperature for group in groups] == [0.0, 0.0, 1.2, 0.6]


@pytest.mark.parametrize(
    ("prompt", "gate"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, {"name": "json", "schema": {}}),
        ({"response_format": FORM}, {"name": "json", "schema": {"type": "object"}}),
        ({"tools": [TIMER]}, {"name": "tools", "tools": {"set_timer": {"type": "object"}}, "tool": None}),
        (
            {"tools": [TIMER], "expect": {"tool": "set_timer"}},
            {"name": "tools", "tools": {"set_timer": {"type": "object"}}, "tool": "set_timer"},
        ),
        ({"expect": {"contains": "417"}}, {"name": "needle", "contains": "417"}),
    ],
)
def test_the_gate_of_a_prompt_follows_from_what_it_asks(prompt: Data, gate: Data | None) -> None:
    ((made,),) = expand(check_suite(suite(**prompt), "s")).values()
    assert made.gate == gate


def test_a_mixture_keeps_what_its_prompts_ask() -> None:
    mixed = pick(check_suite(suite({"tools": [TIMER], "request": {"top_p": 0.5}}), "s"), 1)
    ((made,),) = expand(mixed).values()
    assert made.tools == [TIMER]
    assert made.extra == {"top_p": 0.5}
    assert made.gate is not None


# ---- what is wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "where"),
    [
        ({"tools": []}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{**TIMER, "type": "tool"}]}, "tools[0].type"),
        ({"tools": [TIMER, TIMER]}, "tools[1].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [TIMER], "expect": {"tool": "set_timr"}}, "expect.tool"),
        ({"expect": {"tool": "set_timer"}}, "expect.tool"),
        ({"expect": {"contains": " "}}, "expect.contains"),
        ({"expect": {"contains": "4"}, "response_format": FORM}, "expect.contains"),
        ({"expect": {"holds": "4"}}, "expect.holds"),
        ({"response_format": {"type": "json"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": 3}}},
            "response_format.json_schema.schema",
        ),
        ({"request": {"temperature": 0.3}}, "request.temperature"),
        ({"request": {"tools": []}}, "request.tools"),
        ({"request": ["top_p"]}, "request"),
        # Beside a text such a key can't even be sorted, as a prompt's hash does; alone JSON makes it a text.
        ({"request": {"logit_bias": {50256: -100, "9.5": 1}}}, "request.logit_bias.50256"),
        ({"request": {None: 1}}, "request.None"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"enum": [{9.5: 1, "b": 2}]}}}]},
            "tools[0].function.parameters.enum[0].9.5",
        ),
        (
            {"response_format": {**FORM, "json_schema": {"name": "a", "schema": {"properties": {True: {}}}}}},
            "response_format.json_schema.schema.properties.True",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text", 2: 3}]}]}, "messages[0].content[0].2"),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "a", 1.5: "b"}]}]},
            "messages[0].tool_calls[0].1.5",
        ),
    ],
)
def test_one_problem_with_its_place(prompt: Data, where: str) -> None:
    assert places(suite(**prompt)) == [f"kinds.k.prompts[0].{where}"]


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ({"tools": [{"type": "function"}]}, "kinds.k.tools[0].function"),
        ({"temperatures": [3]}, "kinds.k.temperatures[0]"),
        ({"made": {"form": "copy", "number": 2}}, "kinds.k.made"),
    ],
)
def test_one_problem_of_a_kind(kind: Data, where: str) -> None:
    assert places(suite(kind)) == [where]


def test_a_key_that_is_no_text_is_told_as_any_problem() -> None:
    with pytest.raises(DrafthouseError) as caught:
        check_suite(suite(request={"logit_bias": {50256: -100}}), "s.yml")
    where = "s.yml: kinds.k.prompts[0].request.logit_bias.50256"
    assert caught.value.problems == [Problem("wrong-type", "a name that is 50256", "text", "put it in quotes", where)]


def test_the_nearest_tool_is_named() -> None:
    with pytest.raises(DrafthouseError, match="write 'set_timer'"):
        check_suite(suite(tools=[TIMER], expect={"tool": "set_timr"}), "s.yml")


def test_a_schema_that_is_none_is_an_error_of_the_file(tmp_path: Path) -> None:
    wrong = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "objekt"}}}
    tool = {"type": "function", "function": {"name": "a", "parameters": {"$ref": "https://example.org/x.json"}}}
    data = suite({"tools": [tool]})
    data["kinds"]["j"] = {"output_tokens": 5, "prompts": [{"id": "q", "messages": user("2"), "response_format": wrong}]}
    (tmp_path / "s.yml").write_text(yaml.safe_dump(data))
    with pytest.raises(DrafthouseError) as caught:
        load_suite("s", tmp_path)
    assert {problem.where.partition(": ")[2] for problem in caught.value.problems} == {
        "kinds.k.tools[0].function.parameters",
        "kinds.j.prompts[0].response_format.json_schema.schema",
    }


# ---- a user's own lines --------------------------------------------------------------------------------


def test_a_users_own_lines_with_tools_and_json() -> None:
    lines = [
        {"messages": user("one"), "tools": [TIMER], "tool_choice": "required", "expect": {"tool": "set_timer"}},
        {"messages": user("two"), "response_format": FORM, "request": {"top_p": 0.5}, "kind": "forms"},
    ]
    made = expand(read_prompts("\n".join(map(json.dumps, lines)), "mine", "mine.jsonl", MESSAGES))
    (one,), (two,) = made["own"], made["forms"]
    assert one.extra == {"tool_choice": "required"}
    assert one.gate == {"name": "tools", "tools": {"set_timer": {"type": "object"}}, "tool": "set_timer"}
    assert (two.extra, two.response_format) == ({"top_p": 0.5}, FORM)


def test_what_is_wrong_in_a_users_own_lines() -> None:
    lines = [
        {"messages": user("one"), "tool_choice": "auto"},
        {"messages": user("two"), "tools": [{"function": {"name": "a"}}]},
        {"messages": user("three"), "temperature": 0.3},
        {"messages": user("four"), "request": {"max_tokens": 3}},
    ]
    with pytest.raises(DrafthouseError) as caught:
        read_prompts("\n".join(map(json.dumps, lines)), "mine", "mine.jsonl", MESSAGES)
    assert [problem.where.removeprefix("mine.jsonl: ") for problem in caught.value.problems] == [
        "line 1.tool_choice",
        "line 2.tools[0].type",
        "line 3.temperature",
        "line 4.request.max_tokens",
    ]


# ---- what ships ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_every_suite_that_ships_is_whole(name: str) -> None:
    kinds = expand(load_suite(name, BENCHMARKS))
    assert all(prompts for prompts in kinds.values())
    # Each kind has an output length of its own, and an interval needs six prompts.
    assert all(len(prompts) >= 6 for prompts in kinds.values())


def test_no_two_prompts_of_all_suites_are_alike() -> None:
    seen: dict[str, str] = {}
    for name in SHIPPED:
        for prompts in expand(load_suite(name, BENCHMARKS)).values():
            for prompt in prompts:
                text = json.dumps(prompt.messages)
                own = prompt.id.partition("#")[0]
                assert seen.setdefault(text, own) == own, f"{prompt.id} is {seen[text]}"


def test_the_suites_that_ship_have_a_gate_for_each_check() -> None:
    kinds = expand(load_suite("gates", BENCHMARKS))
    assert {kind: {str(p.gate and p.gate["name"]) for p in prompts} for kind, prompts in kinds.items()} == {
        "json": {"json"}, "tool-call": {"tools"}, "needle": {"needle"},
    }  # fmt: skip
    assert {p.temperatures for prompts in kinds.values() for p in prompts} == {(0.0,)}
    creative = expand(load_suite("creative", BENCHMARKS))["creative-hot"]
    assert creative[0].temperatures == (0.0, 1.2)


def test_a_profile_with_the_gates_keeps_their_length_and_fits_their_texts() -> None:
    site = {**site_of_inventory("local"), "runtime": "process"}
    experiment = {"suites": ["mixed", "gates"], "once": ["gates"]}
    resolved = resolved_profile("cpu-smollm2-ngram", site, {"experiment": experiment})
    kinds = resolved["suites"]["gates"]["kinds"]
    assert resolved["experiment"]["max_output_tokens"] == 64
    assert kinds["json"]["output_tokens"] == 768
    for prompt in kinds["needle"]["prompts"]:
        text = prompt["messages"][-1]["content"]
        assert prompt["expect"]["contains"] in text
        assert len(text) / 3.2 + kinds["needle"]["output_tokens"] < 4096
    small = {"experiment": experiment, "serve": {"context": 512}}
    with pytest.raises(DrafthouseError, match="room for a text of 0"):
        resolved_profile("cpu-smollm2-ngram", site, small)
