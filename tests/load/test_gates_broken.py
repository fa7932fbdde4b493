"""Each gate broken on purpose: a proxy in front of the speculative arm makes its answers wrong, and the gate fires.

The client, the results and the verdict are the real ones; the servers answer rightly (`answering_server.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drafthouse.analysis.verdict import judge
from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.results import assemble
from drafthouse.bench.step import run_step
from drafthouse.prompts.suites import check_suite
from tests.fakes.answering_server import answering_server
from tests.fakes.breaking_proxy import FAULTS, breaking_proxy
from tests.support.builders import make_resolved

Data = Any
OPTIONS = StepOptions(rounds=2, warmups=1)
TRIES = 3


def user(text: str) -> list[Data]:
    return [{"role": "user", "content": text}]


def tool(name: str, **properties: Data) -> Data:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def form(**properties: Data) -> Data:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}


SUITE: Any = check_suite(
    {
        "name": "mixed",
        "description": "work, and what each gate looks at",
        "kinds": {
            "chat": {
                "output_tokens": 40,
                "prompts": [{"id": f"chat-{n}", "messages": user(f"Tell me about subject {n}.")} for n in range(6)],
            },
            "json": {
                "output_tokens": 60,
                "prompts": [
                    {
                        "id": f"json-{n}",
                        "messages": user(f"Fill in form {n}."),
                        "response_format": form(
                            stars={"type": "integer", "minimum": n},
                            tone={"enum": ["calm", "loud"]},
                            late={"type": "boolean"},
                        ),
                    }
                    for n in (1, 2, 3)
                ],
            },
            "tool-call": {
                "output_tokens": 60,
                "tools": [
                    tool("get_weather", city={"type": "string"}, days={"type": "integer"}),
                    tool("set_timer", minutes={"type": "integer"}, loud={"type": "boolean"}),
                ],
                "prompts": [
                    {
                        "id": f"tool-{n}",
                        "messages": user(f"Call set_timer for {n} minutes."),
                        "expect": {"tool": "set_timer"},
                    }
                    for n in (1, 2, 3)
                ],
            },
            "needle": {
                "output_tokens": 20,
                "prompts": [
                    {
                        "id": f"needle-{code}",
                        "messages": user(f"Much text. The code of door {code % 7} is {code}. More text. What is it?"),
                        "expect": {"contains": str(code)},
                    }
                    for code in (4817, 263, 5390)
                ],
            },
        },
    },
    "a test",
)


def measured(arm: str, base_url: str) -> Data:
    """The result of one arm, as the box would keep it."""
    step = run_step([Endpoint(arm, base_url, "answering")], [SUITE], OPTIONS)
    engine: Any = {"id": "vllm", "version": "0", "runtime": "process"}
    return assemble([step], arm, profile="cpu-smollm2-ngram", key="0123456789abcdef", engine=engine)


def judged(base: Data, spec: Data) -> tuple[Data, dict[str, str]]:
    """The verdict, and the word of each gate."""
    verdict = judge(base, spec, make_resolved(kinds=["chat"]))
    return verdict, {gate["name"]: gate["word"] for gate in verdict["gates"]}


def steady(measure: Callable[[], tuple[Data, dict[str, str]]]) -> tuple[Data, dict[str, str]]:
    """Measure again where the machine was too busy for a word: a wrong gate fires, or does not, each time."""
    for _ in range(TRIES):
        verdict, words = measure()
        if verdict["word"] != "cannot say" and verdict["speedup"]["low"] > 1.5:
            break
    return verdict, words


@pytest.fixture(scope="module")
def baseline() -> Iterator[Data]:
    with answering_server() as server:
        yield measured("baseline", server.base_url)


@pytest.fixture(scope="module")
def speculative() -> Iterator[str]:
    with answering_server(drafted=3) as server:
        yield server.base_url


# What fails behind which fault; text that is spoilt spoils all that is text.
FIRES: dict[str, set[str]] = {
    "nothing": set(),
    "garbled words": {"outputs", "json"},
    "half of every answer": {"outputs", "json", "needle"},
    "no JSON": {"json"},
    "JSON of another form": {"json"},
    "another tool": {"tools"},
    "arguments of other types": {"tools"},
    "arguments cut off": {"tools"},
    "another needle": {"needle"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_gate_fires_and_the_others_do_not(baseline: Data, speculative: str, fault: str) -> None:
    with breaking_proxy(speculative, fault) as broken:
        verdict, words = steady(lambda: judged(baseline, measured("speculative", broken)))
    failed = {name for name, word in words.items() if word == "failed"}
    assert failed == FIRES[fault], [gate["said"] for gate in verdict["gates"]]
    # The server of these tests scores nothing.
    assert {word for name, word in words.items() if name not in ("scores", "sampled")} <= {"passed", "failed"}
    if failed:
        assert verdict["word"] == "does not pay", verdict["reasons"]
        assert verdict["said"].startswith("wrong output: ")
    else:
        assert verdict["word"] == "pays", verdict["reasons"]
    assert verdict["speedup"]["low"] > 1.5  # the answers are wrong, and fast


def test_a_baseline_that_is_as_wrong_blames_nobody(speculative: str) -> None:
    with answering_server() as server, breaking_proxy(server.base_url, "no JSON") as plain:
        base = measured("baseline", plain)
    with breaking_proxy(speculative, "no JSON") as broken:
        verdict, words = steady(lambda: judged(base, measured("speculative", broken)))
    assert words["json"] == "no baseline"
    assert verdict["word"] == "pays", verdict["reasons"]


def test_rounding_that_moves_some_answers_is_told_and_passes(baseline: Data) -> None:
    with answering_server(drafted=3, wanders_every=30) as server:
        verdict, words = steady(lambda: judged(baseline, measured("speculative", server.base_url)))
    assert words["outputs"] == "passed"
    assert verdict["word"] == "pays"
    (gate,) = [gate for gate in verdict["gates"] if gate["name"] == "outputs"]
    assert gate["speculative"]["passed"] < gate["speculative"]["total"]
    assert "first differ after" in gate["said"]


@pytest.mark.parametrize(("ours", "theirs", "word"), [(False, False, "pays"), (True, False, "does not pay")])
def test_tools_and_schemas_that_a_server_refuses(ours: bool, theirs: bool, word: str) -> None:
    with answering_server(tools=ours, schemas=ours) as server:
        base = measured("baseline", server.base_url)
    with answering_server(drafted=3, tools=theirs, schemas=theirs) as server:
        verdict, words = steady(lambda: judged(base, measured("speculative", server.base_url)))
    assert verdict["word"] == word, verdict["reasons"]
    wanted = "failed" if ours else "no baseline"
    assert (words["tools"], words["json"], words["outputs"]) == (wanted, wanted, "passed")
    assert "is not supported here" in str(verdict["gates"])


def test_thinking_is_counted_and_compared(baseline: Data) -> None:
    with answering_server(drafted=3, thinks=8) as server:
        spec = measured("speculative", server.base_url)
    assert baseline["reasoning"]["answers"] == 0
    assert spec["reasoning"] == {"answers": spec["completed"], "of": spec["completed"]}
    assert judged(baseline, spec)[1]["outputs"] == "failed"


def test_what_was_asked_arrives_and_what_is_checked_stays_here() -> None:
    with answering_server() as server:
        measured("baseline", server.base_url)
        asked = server.state.asked
    calls: list[Any] = [one for one in asked if "tools" in one]
    assert len(calls) == 6
    assert calls[0]["tools"][1]["function"]["name"] == "set_timer"
    assert [one["response_format"]["type"] for one in asked if "response_format" in one] == ["json_schema"] * 6
    assert all("gate" not in one and "expect" not in one for one in asked)
