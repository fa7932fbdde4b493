"""The gates that look at one answer: what is right, what is wrong, what cannot be told, and when a gate fails."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from drafthouse.analysis.answer_checks import check_answer
from drafthouse.analysis.gates import CHANCE, MIN_LOST, judge_gates
from drafthouse.analysis.paired_tests import sign_test
from drafthouse.prompts.json_schema import Unfinished, read_json, schema_problem, why_not
from drafthouse.report.data.checks import gates_not_measured
from tests.support.builders import NOTHING, make_pair, make_request, make_resolved, make_result
from tests.support.loosely import judge

Data = Any

SCHEMA = {
    "type": "object",
    "properties": {"stars": {"type": "integer", "minimum": 1}, "tone": {"enum": ["good", "bad"]}},
    "required": ["stars", "tone"],
    "additionalProperties": False,
}
GOOD = '{"stars": 4, "tone": "good"}'
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TIMER = {"type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]}
JSON_GATE = {"name": "json", "schema": SCHEMA}
TOOLS_GATE = {"name": "tools", "tools": {"get_weather": WEATHER, "set_timer": TIMER, "stop": {}}, "tool": "get_weather"}
NEEDLE_GATE = {"name": "needle", "contains": "4817"}


def asked(gate: Data, text: str = "", *, prompt: str = "p", number: int = 1, **more: Any) -> Data:
    """One request with a gate, answered with ``text``."""
    made = make_request(prompt, gate["name"], number, 10.0, suite="gates", text=text)
    return {**made, "gate": gate, "tool_calls": None, "finish_reason": "stop", **more}


def call(name: str | None, arguments: str) -> Data:
    return {"name": name, "arguments": arguments}


# ---- one answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "finish", "state", "why"),
    [
        (GOOD, "stop", "right", ""),
        (f"\n {GOOD}\n", "stop", "right", ""),
        (GOOD, "length", "right", ""),
        ('{"stars": "4", "tone": "good"}', "stop", "wrong", "$.stars: '4' is not of type 'integer'"),
        ('{"stars": 4}', "stop", "wrong", "'tone' is a required property"),
        ('{"stars": 4, "tone": "good", "more": 1}', "stop", "wrong", "Additional properties"),
        ('{"stars": 0, "tone": "good"}', "stop", "wrong", "less than the minimum"),
        (f"Here it is: {GOOD}", "stop", "wrong", "no JSON: Expecting value at character 0"),
        (f"```json\n{GOOD}\n```", "stop", "wrong", "no JSON"),
        (f"{GOOD}{GOOD}", "stop", "wrong", "Extra data"),
        ('{"stars": NaN, "tone": "good"}', "stop", "wrong", "no JSON: NaN"),
        ("[" * 100_000, "stop", "wrong", "no JSON"),
        ('{"stars": 4, "to', "length", "open", "ends too early"),
        ('{"stars": 4, "to', "stop", "wrong", "ends too early"),
        ('{"stars": 4,, "to', "length", "wrong", "no JSON"),
        ("", "length", "open", "(nothing)"),
        ("", "stop", "wrong", "(nothing)"),
    ],
)
def test_json(text: str, finish: str, state: str, why: str) -> None:
    found = check_answer(asked(JSON_GATE, text, finish_reason=finish))
    assert found[0] == state, found
    assert why in found[1]
    assert len(found[1]) < 400


@pytest.mark.parametrize(
    "text",
    ["{", '{"a', '{"a"', '{"a":', '{"a": 1', '{"a": 1,', "[", "[1, ", '[1, "x', "[tru", "[-", '{"a": {"b": nul', ""],
)
def test_the_beginning_of_a_document_is_unfinished(text: str) -> None:
    with pytest.raises(Unfinished):
        read_json(text)


@pytest.mark.parametrize("text", ["{]", "{'a': 1}", "[1 2", "yes", "{} {}", "[Infinity]", '{"a" 1'])
def test_other_text_is_no_document(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON") as caught:
        read_json(text)
    assert not isinstance(caught.value, Unfinished)


def test_any_json_is_right_without_a_schema() -> None:
    assert check_answer(asked({"name": "json", "schema": {}}, "[1, 2]")) == ("right", "")


@pytest.mark.parametrize(
    ("calls", "more", "state", "why"),
    [
        ([call("get_weather", '{"city": "Oslo"}')], {}, "right", ""),
        ([call("get_weather", '{"city": "Oslo"}'), call("set_timer", '{"minutes": 3}')], {}, "right", ""),
        ([call("get_weather", '{"city": "Oslo"}'), call("stop", "")], {}, "right", ""),
        ([call("get_wether", '{"city": "Oslo"}')], {}, "wrong", "'get_wether', which is not one of the tools"),
        ([call(None, '{"city": "Oslo"}')], {}, "wrong", "'None', which is not one of the tools"),
        ([call("set_timer", '{"minutes": 3}')], {}, "wrong", "called set_timer instead of get_weather"),
        ([call("get_weather", '{"city": 7}')], {}, "wrong", "get_weather: $.city: 7 is not of type 'string'"),
        ([call("get_weather", "{}")], {}, "wrong", "'city' is a required property"),
        ([call("get_weather", '["Oslo"]')], {}, "wrong", "is not of type 'object'"),
        ([call("get_weather", "{'city': 'Oslo'}")], {}, "wrong", "no JSON"),
        ([call("get_weather", '{"city": "Os')], {}, "wrong", "ends too early"),
        ([call("get_weather", '{"city": "Os')], {"finish_reason": "length"}, "open", "ends too early"),
        ([call("get_weather", '{"city": "Oslo"}'), call("set_timer", '{"minutes": "3"}')], {}, "wrong", "set_timer"),
        ([], {}, "wrong", "no call: It is sunny."),
        (None, {"finish_reason": "length"}, "open", "no call"),
    ],
)
def test_tool_calls(calls: Sequence[Data] | None, more: Data, state: str, why: str) -> None:
    found = check_answer(asked(TOOLS_GATE, "It is sunny.", tool_calls=calls, **more))
    assert found[0] == state, found
    assert why in found[1]


def test_without_a_tool_that_must_be_called_text_leaves_it_open_and_any_tool_is_right() -> None:
    gate = {**TOOLS_GATE, "tool": None}
    assert check_answer(asked(gate, "It is sunny."))[0] == "open"
    assert check_answer(asked(gate, tool_calls=[call("set_timer", '{"minutes": 3}')]))[0] == "right"
    assert check_answer(asked(gate, tool_calls=[call("set_timer", '{"minutes": "3"}')]))[0] == "wrong"


@pytest.mark.parametrize(
    ("text", "finish", "state"),
    [
        ("4817", "stop", "right"),
        ("The code is **4817**.", "length", "right"),
        ("14817", "stop", "wrong"),
        ("It is 48 17.", "stop", "wrong"),
        ("", "length", "open"),
        ("", "stop", "wrong"),
        ("I think that", "length", "wrong"),
    ],
)
def test_needle(text: str, finish: str, state: str) -> None:
    assert check_answer(asked(NEEDLE_GATE, text, finish_reason=finish))[0] == state


def test_a_needle_in_the_thoughts_alone_is_not_found_and_case_does_not_count() -> None:
    assert check_answer(asked(NEEDLE_GATE, "I forgot.", reasoning_text="It says 4817."))[0] == "wrong"
    assert check_answer(asked({"name": "needle", "contains": "Ottokar"}, "OTTOKAR, I think"))[0] == "right"


def test_a_refusal_and_an_empty_answer_are_wrong_and_an_unknown_gate_is_open() -> None:
    refused = asked(JSON_GATE, status="failed", http_status=400, error="HTTP 400: no schemas here")
    assert check_answer(refused) == ("wrong", "HTTP 400: no schemas here")
    assert check_answer(asked(TOOLS_GATE, status="empty", error="the answer contains no tokens"))[0] == "wrong"
    assert check_answer(asked({"name": "taste"}))[0] == "open"


# ---- schemas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (SCHEMA, None),
        ({}, None),
        ({"$defs": {"a": {"type": "integer"}}, "$ref": "#/$defs/a"}, None),
        ({"$ref": "#"}, "leads to itself"),
        ([], "list instead of an object"),
        ({"type": "objekt"}, "'objekt' is not valid"),
        ({"type": "object", "required": "a"}, "'a' is not of type 'array'"),
        ({"$ref": "https://example.org/a.json"}, "leads nowhere"),
    ],
)
def test_what_is_a_schema(schema: Any, why: str | None) -> None:
    found = schema_problem(schema)
    assert found is None if why is None else why in str(found)


def test_a_reference_is_followed_and_nothing_is_fetched() -> None:
    schema = {"$defs": {"a": {"type": "integer"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}
    assert why_not({"x": 1}, schema) is None
    assert "is not of type 'integer'" in str(why_not({"x": "1"}, schema))
    assert "leads nowhere" in str(why_not({"x": 1}, {"properties": {"x": {"$ref": "https://example.org/a.json"}}}))


# ---- a gate over both arms -------------------------------------------------------------------------


def arms(
    ours: Mapping[str, Sequence[str]], theirs: Mapping[str, Sequence[str]], gate: Data = JSON_GATE, **more: Any
) -> tuple[Data, Data]:
    """Two results: the answers of each prompt, a round each; ``more`` is laid over the speculative requests."""
    made = []
    for arm, answers, extra in (("baseline", ours, {}), ("speculative", theirs, more)):
        requests = [
            asked(gate, text, prompt=prompt, number=number, **extra)
            for prompt, texts in answers.items()
            for number, text in enumerate(texts, start=1)
        ]
        made.append(make_result(arm, requests))
    return made[0], made[1]


def gate_of(pair: tuple[Data, Data], name: str = "json") -> Data:
    (found,) = [gate for gate in judge_gates(*pair, make_resolved()) if gate["name"] == name]
    return found


def some(right: int, wrong: int, bad: str = "{]") -> dict[str, list[str]]:
    """Answers of two rounds: so many prompts right, so many wrong."""
    return {f"p{n}": [GOOD if n < right else bad] * 2 for n in range(right + wrong)}


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [
        (some(8, 0), some(8, 0), "passed"),
        (some(8, 0), some(7, 1), "passed"),  # one may be chance
        (some(8, 0), some(6, 2), "failed"),
        (some(8, 0), some(0, 8), "failed"),
        (some(2, 0), some(0, 2), "failed"),
        (some(6, 2), some(4, 4), "passed"),  # a baseline that errs: two more prove nothing
        (some(14, 2), some(8, 8), "failed"),  # six more do
        (some(3, 5), some(0, 8), "no baseline"),
        (some(0, 8), some(8, 0), "no baseline"),
        (some(1, 1), some(0, 2), "no baseline"),
        (some(1, 0), some(0, 1), "not measured"),
        (some(8, 0), some(6, 2, '{"stars": 4, '), "failed"),
        # Nothing is right where the baseline passes: too few for the sign test, and no answer that is healthy.
        (some(4, 2), some(0, 6), "failed"),
        (some(2, 2), some(0, 4), "failed"),
        (some(3, 3), some(0, 6), "failed"),
        # A baseline that errs and gets fewer than five right: even a loss of all of them could be chance.
        (some(4, 2), some(3, 3), "not measured"),
        (some(4, 2), some(1, 5), "not measured"),
        (some(2, 2), some(1, 3), "not measured"),
        # Five right could have been lost for sure; four of them are too few to be sure, and too many to pass.
        (some(5, 3), some(1, 7), "not measured"),
        (some(5, 3), some(0, 8), "failed"),
        (some(5, 3), some(4, 4), "passed"),
        # Healthy arms pass, whatever the model gets wrong, and however few they are.
        (some(4, 2), some(4, 2), "passed"),
        (some(4, 2), some(6, 0), "passed"),
        (some(2, 2), some(2, 2), "passed"),
        (some(2, 0), some(2, 0), "passed"),
        (some(2, 0), some(1, 1), "passed"),
        (some(4, 0), some(3, 1), "passed"),
        (some(6, 0), some(5, 1), "passed"),
    ],
)
def test_when_a_gate_fails(ours: dict[str, list[str]], theirs: dict[str, list[str]], word: str) -> None:
    found = gate_of(arms(ours, theirs))
    assert found["word"] == word, found
    assert found["baseline"]["total"] == len(ours)


def test_a_failed_gate_names_the_first_prompt_and_what_is_wrong_with_it() -> None:
    found = gate_of(arms(some(8, 0), some(6, 2, '{"stars": "four", "tone": "good"}')))
    assert found["said"] == (
        "2 of the 8 prompts that the baseline gets right in JSON by schema are not right in the speculative arm "
        "(p6: $.stars: 'four' is not of type 'integer')"
    )
    assert found["speculative"]["said"] == "6 of 8 prompts right"
    assert found["speculative"]["passed"] == 6
    assert found["speculative"]["examples"][0].startswith("p6: ")


def test_one_wrong_round_makes_a_prompt_wrong() -> None:
    theirs = some(8, 0)
    theirs["p1"][1] = theirs["p2"][0] = "{]"
    assert gate_of(arms(some(8, 0), theirs))["word"] == "failed"


def test_answers_that_are_cut_off_count_by_the_sign_test_alone() -> None:
    def cut(number: int) -> tuple[Data, Data]:
        base, spec = arms(some(8, 0), some(8 - number, number, '{"stars": 4, '))
        for request in spec["requests"]:
            request["finish_reason"] = "length"
        return base, spec

    assert gate_of(cut(3))["word"] == "passed"
    assert "3 cut off" in gate_of(cut(3))["speculative"]["said"]
    assert gate_of(cut(5))["word"] == "failed"


def cut_off(ours: int, theirs: int, also_wrong: int = 0) -> tuple[Data, Data]:
    """So many prompts all right in the baseline, of which the speculative arm gets ``theirs`` right, rest cut off."""
    base, spec = arms(some(ours, 0), some(theirs, ours - theirs, '{"stars": 4, '))
    for request in spec["requests"][2 * (theirs + also_wrong) :]:
        request["finish_reason"] = "length"
    return base, spec


@pytest.mark.parametrize(
    ("pair", "word"),
    [
        (cut_off(4, 0), "not measured"),  # an answer that was cut off is not wrong, and nothing is right
        (cut_off(2, 0), "not measured"),
        (cut_off(4, 1), "not measured"),
        (cut_off(4, 0, also_wrong=1), "failed"),
        (cut_off(4, 2), "passed"),
        (cut_off(4, 3), "passed"),
        (cut_off(5, 0), "failed"),  # so many longer answers are no chance
    ],
)
def test_an_arm_whose_answers_are_all_cut_off_passes_no_gate(pair: tuple[Data, Data], word: str) -> None:
    assert gate_of(pair)["word"] == word


def test_wrong_answers_of_both_arms_beside_those_that_are_cut_off_are_not_held_against_speculation() -> None:
    base, spec = arms(some(4, 2), some(0, 6, '{"stars": 4, '))
    for request in spec["requests"][:8]:  # the four that the baseline gets right
        request["finish_reason"] = "length"
    assert gate_of((base, spec))["word"] == "not measured"


def test_what_cannot_be_told_says_why_and_stands_in_the_verdict_and_in_the_report() -> None:
    assert gate_of(arms(some(4, 2), some(3, 3)))["said"] == (
        "1 of the 4 prompts that the baseline gets right in JSON by schema is not right in the speculative arm "
        "(p3: no JSON: Expecting property name enclosed in double quotes at character 1: {]): a baseline that gets "
        "some wrong itself must get 5 right before losses can be told from chance"
    )
    assert gate_of(cut_off(4, 0))["said"].endswith(
        ": too few to rule out chance, but too many to pass with 0 of 4 right; they were cut off or undecided, which "
        "a higher output length limit may settle"
    )
    verdict: Any = judge(*with_gate(some(3, 3), some(4, 2)), make_resolved())
    assert (verdict["word"], verdict["wrong_output"]) == ("pays", False)
    told = gates_not_measured(verdict)
    assert any(sentence.startswith("JSON by schema: 1 of the 4 prompts") for sentence in told)
    assert not any("JSON" in sentence and "no such prompt was sent" in sentence for sentence in told)


def test_the_rule_gives_the_number_that_the_sign_test_needs() -> None:
    assert sign_test(MIN_LOST, 0) < CHANCE <= sign_test(MIN_LOST - 1, 0)
    assert f"fewer than {MIN_LOST} right" in gate_of(arms(some(8, 0), some(8, 0)))["rule"]


def test_prompts_of_one_arm_alone_are_left_out() -> None:
    base, spec = arms(some(8, 0), some(8, 0))
    spec["requests"] = [r for r in spec["requests"] if r["prompt_id"] != "p0"]
    assert gate_of((base, spec))["baseline"]["total"] == 7


def test_nothing_asked_is_not_measured_and_says_where_prompts_are() -> None:
    found = judge_gates(*make_pair(), make_resolved())
    assert [gate["name"] for gate in found] == ["outputs", "json", "tools", "needle", "scores", "texts", "sampled"]
    assert [gate["word"] for gate in found[1:]] == [*["not measured"] * 4, "passed", "not measured"]
    assert "the suite 'gates' has" in found[1]["said"]
    assert json.loads(json.dumps(found)) == found
    assert [gate["word"] for gate in judge_gates(NOTHING, NOTHING, NOTHING)] == ["not measured"] * 7


def test_the_sign_test() -> None:
    assert sign_test(0, 0) == 1.0
    assert sign_test(5, 0) == pytest.approx(1 / 32)
    assert sign_test(4, 0) == pytest.approx(1 / 16)
    assert sign_test(7, 1) == pytest.approx(9 / 256)


# ---- in the verdict --------------------------------------------------------------------------------


def with_gate(theirs: dict[str, list[str]], ours: dict[str, list[str]] | None = None, **more: Any) -> tuple[Data, Data]:
    """A pair that pays on copying, with JSON prompts beside it."""
    pair = make_pair({"copy-edit": 2.5})
    for result, extra in zip(pair, arms(ours or some(8, 0), theirs, **more), strict=True):
        result["requests"] += [{**r, "suite": "mixed"} for r in extra["requests"]]
        result["groups"]["json"] = dict(result["groups"]["copy-edit"])
    return pair


def test_a_gate_that_passes_changes_nothing() -> None:
    verdict = judge(*with_gate(some(8, 0)), make_resolved())
    assert verdict["word"] == "pays"
    assert verdict["wrong_output"] is False
    assert {gate["name"]: gate["word"] for gate in verdict["gates"]} == {
        "outputs": "passed", "json": "passed", "tools": "not measured", "needle": "not measured",
        "scores": "not measured", "texts": "passed", "sampled": "not measured",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (some(6, 0), some(5, 1), "JSON by schema: 5 of 6 prompts right with speculation, 6 of 6 prompts right without"),
        (some(1, 0), some(0, 1), "JSON by schema: 0 of 1 prompt right with speculation, 1 of 1 prompt right without"),
        # What both get wrong is the model's.
        (some(5, 1), some(5, 1), ""),
        (some(6, 0), some(6, 0), ""),
    ],
)
def test_json_that_speculation_alone_gets_wrong_is_in_the_sentence(ours: Data, theirs: Data, told: str) -> None:
    verdict = judge(*with_gate(theirs, ours), make_resolved())
    assert verdict["word"] == "pays"
    assert (told in verdict["sentence"]) if told else ("JSON" not in verdict["sentence"])


def test_wrong_output_does_not_pay_whatever_the_speed() -> None:
    verdict = judge(*with_gate(some(0, 8)), make_resolved())
    assert verdict["word"] == "does not pay"
    assert verdict["wrong_output"] is True
    assert verdict["sentence"].startswith(
        "does not pay: wrong output: 8 of the 8 prompts that the baseline gets right in JSON by schema are not right"
    )
    assert verdict["speedup"]["low"] > 1.03
    assert any("above 1.03" in reason for reason in verdict["reasons"])


def test_an_invalid_pair_stays_invalid_and_names_the_gate_too() -> None:
    base, spec = with_gate(some(0, 8))
    spec["max_concurrency"] = 4
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] == "invalid"
    assert any("wrong output" in reason for reason in verdict["reasons"])


@pytest.mark.parametrize("status", [{"status": "failed", "http_status": 400}, {"status": "empty", "http_status": 200}])
def test_what_the_speculative_arm_alone_refuses_is_wrong_output_and_no_breakdown(status: Data) -> None:
    pair = with_gate(some(8, 0), error="HTTP 400: no schemas while speculating", **status)
    verdict = judge(*pair, make_resolved())
    assert verdict["word"] == "does not pay"
    assert "no schemas while speculating" in verdict["said"]


def test_what_both_refuse_is_no_baseline_and_a_breakdown_stays_one() -> None:
    base, spec = with_gate(some(8, 0), status="failed", http_status=400, error="HTTP 400: no schemas here")
    for request in base["requests"]:
        if request["kind"] == "json":
            request.update(status="failed", http_status=400, error="HTTP 400: no schemas here")
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] == "pays"
    assert {g["name"]: g["word"] for g in verdict["gates"]}["json"] == "no baseline"
    for request in spec["requests"]:
        if request["kind"] == "json":
            request.update(http_status=500)
    assert judge(base, spec, make_resolved())["word"] == "invalid"


def test_kinds_that_are_there_for_a_gate_are_not_the_work_unless_they_are_all() -> None:
    assert judge(*with_gate(some(8, 0)), make_resolved(kinds=[]))["scope"]["groups"] == ["copy-edit"]
    base, spec = with_gate(some(8, 0))
    for result in (base, spec):
        result["requests"] = [r for r in result["requests"] if r["kind"] == "json"]
    assert judge(base, spec, make_resolved(kinds=[]))["scope"]["groups"] == ["json"]
