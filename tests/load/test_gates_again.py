"""What only a prompt shows that is asked more than once on one server: each fault is found, and nothing else is.

The client, the counters and the gates are the real ones; the servers are healthy but for one fault each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from drafthouse.analysis.acceptance_findings import COLLAPSES, acceptance_findings
from drafthouse.analysis.gates import judge_gates
from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.results import assemble
from drafthouse.bench.step import run_step
from drafthouse.prompts.fill import fill
from drafthouse.prompts.suites import check_suite
from drafthouse.report.data.checks import gates_not_measured
from tests.fakes.answering_server import answering_server
from tests.support.builders import make_resolved

Data = Any
TOOL = {
    "type": "function",
    "function": {
        "name": "reserve",
        "parameters": {
            "type": "object",
            "properties": {"pieces": {"type": "integer"}, "customer": {"type": "string"}},
            "required": ["pieces", "customer"],
        },
    },
}


def prompts(kind: str, number: int, text: str, **more: Data) -> list[Data]:
    return [
        {
            "id": f"{kind}-{n}",
            "messages": [{"role": "user", "content": text.format(n)}],
            **{key: {name: str(value).format(n) for name, value in words.items()} for key, words in more.items()},
        }
        for n in range(100, 100 + number)
    ]


SUITE: Data = fill(
    check_suite(
        {
            "name": "again",
            "description": "prompts that are asked more than once on a server",
            "kinds": {
                "warm": {
                    "again": "warm",
                    "output_tokens": 12,
                    "prompts": prompts(
                        "warm",
                        4,
                        "{0} is much text. " * 20 + "The code of door 7 is {0}. Say it.",
                        expect={"contains": "{0}"},
                    ),
                },
                "streams": {
                    "again": "streams",
                    "output_tokens": 60,
                    "tools": [TOOL],
                    "prompts": prompts("streams", 4, "Call reserve for customer {0}.", expect={"tool": "reserve"}),
                },
                "slots": {
                    "again": "slots",
                    "output_tokens": 24,
                    "prompts": prompts("slots", 6, "Tell me about subject {0}."),
                },
                "talk-first": {
                    "output_tokens": 160,
                    "talk": {"tokens": 6000, "turns": 4, "first": 1, "last": 2, "seed": 1},
                },
                "talk-last": {
                    "output_tokens": 160,
                    "talk": {"tokens": 6000, "turns": 4, "first": 3, "last": 4, "seed": 1},
                },
            },
        },
        "a test",
    )
)
KINDS = ("warm", "streams", "slots")


def measured(arm: str, *kinds: str, **options: Data) -> Data:
    with answering_server(step_ms=2.0, drafted=3 if arm == "speculative" else 0, **options) as server:
        step = run_step(
            [Endpoint(arm, server.base_url, "answering")], [SUITE], StepOptions(warmups=1, kinds=kinds or KINDS)
        )
        asked = server.state.asked
    result: Data = assemble([step], arm, engine={"id": "vllm", "version": "0", "runtime": "process"})
    return {**result, "asked": asked}


def gates(base: Data, spec: Data, sequences: int = 8) -> dict[str, Data]:
    resolved: Data = make_resolved(kinds=["chat"])
    resolved["arms"]["baseline"]["fit"] = {"sequences": sequences}
    found: Data = {gate["name"]: gate for gate in judge_gates(base, spec, resolved)}
    return {name: found[name] for name in KINDS if name in found}


@pytest.fixture(scope="module")
def baseline() -> Iterator[Data]:
    yield measured("baseline")


FAULTS = {
    "none": ({}, set()),
    "stale_prefix": ({"stale_prefix": True}, {"warm"}),
    "loses_calls": ({"loses_calls": True}, {"streams"}),
    "cuts_arguments": ({"cuts_arguments": True}, {"streams"}),
    "mixes_slots": ({"mixes_slots": True}, {"slots"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_fails_its_gate_and_no_other(baseline: Data, fault: str) -> None:
    options, failing = FAULTS[fault]
    found = gates(baseline, measured("speculative", **options))
    assert {name for name, gate in found.items() if gate["word"] == "failed"} == failing, found
    assert {gate["word"] for name, gate in found.items() if name not in failing} == {"passed"}, found
    # A fault of the model or the engine without speculation is nobody's loss.
    broken = measured("baseline", **options)
    found = gates(broken, measured("speculative", **options))
    assert all(found[name]["word"] == "no baseline" for name in failing), found


def test_how_they_are_asked(baseline: Data) -> None:
    asked = [one for one in baseline["asked"] if not str(one["messages"][0]["content"]).startswith("Count")]
    texts = [one["messages"][-1]["content"] for one in asked]
    # The cold one and the warm one at once behind each other, whatever else there is.
    assert texts[0] == texts[1] != texts[2]
    assert [one["stream"] for one in asked if "tools" in one] == [True, False] * 4
    assert all("stream_options" not in one for one in asked if not one["stream"])
    whole = [one for one in baseline["requests"] if one["prompt_id"] in ("streams-100#2", "streams-101#2")]
    assert [(one["status"], one["ttft_ms"], one["tpot_ms"], one["chunks"]) for one in whole] == [
        ("ok", None, None, 0)
    ] * 2
    assert all(one["e2el_ms"] > 0 and one["output_tokens"] for one in whole)
    assert baseline["without_tpot"] == sum(one["tpot_ms"] is None and one["chunks"] > 0 for one in baseline["requests"])


@pytest.mark.parametrize("source", ["usage", "counter"])
def test_a_warm_prefix_passes_with_the_engines_own_figure(source: str) -> None:
    arms = [measured(arm, "warm", tells_hits=source) for arm in ("baseline", "speculative")]
    gate = gates(*arms)["warm"]
    assert gate["word"] == "passed"
    assert ("own figures" if source == "usage" else "engine's counters") in gate["said"]


def test_without_a_hit_or_a_figure_nothing_is_said_to_be_right() -> None:
    silent = [measured(arm, "warm", tells_hits="") for arm in ("baseline", "speculative")]
    gate = gates(*silent)["warm"]
    assert (gate["word"], "whether the cache was hit" in gate["said"]) == ("not measured", True)
    cold = [measured(arm, "warm", caches=False) for arm in ("baseline", "speculative")]
    gate = gates(*cold)["warm"]
    assert (gate["word"], "was not hit" in gate["said"]) == ("not measured", True)
    verdict: Data = {"gates": [gate], "outputs": {"speculative": None}}
    assert gates_not_measured(verdict)[0] == f"Warm prefix cache: {gate['said']}."
    # What is wrong is wrong, whoever counts it.
    gate = gates(silent[0], measured("speculative", "warm", tells_hits="", stale_prefix=True))["warm"]
    assert gate["word"] == "failed"


def test_one_slot_and_tools_that_are_refused(baseline: Data) -> None:
    found = gates(baseline, measured("speculative", mixes_slots=True, tools=False), sequences=1)
    assert (found["slots"]["word"], "one slot" in found["slots"]["said"]) == ("not measured", True)
    assert found["streams"]["word"] == "failed"
    refused = [measured(arm, "streams", tools=False) for arm in ("baseline", "speculative")]
    gate = gates(*refused)["streams"]
    assert (gate["word"], "is not supported here" in gate["said"]) == ("no baseline", True)


def test_distinct_answers_are_counted_in_both_arms(baseline: Data) -> None:
    gate = gates(baseline, measured("speculative", "slots", mixes_slots=True))["slots"]
    assert gate["baseline"]["said"].startswith("6 distinct answers to 6 prompts, each sent 4 times at once")
    assert gate["speculative"]["said"].startswith("12 distinct")
    assert (gate["baseline"]["passed"], gate["speculative"]["passed"]) == (6, 0)


@pytest.mark.parametrize(("until", "codes"), [(1_000_000, []), (3_500, [COLLAPSES])])
def test_acceptance_that_collapses_as_a_conversation_grows(until: int, codes: list[str]) -> None:
    arm = measured("speculative", "talk-first", "talk-last", accepts_until=until)
    resolved: Data = make_resolved()
    resolved["method"]["kind"] = "head"
    arm["spec_decode_num_drafts"] = 1000
    found = acceptance_findings(arm, resolved)
    assert [one["code"] for one in found] == codes
    if codes:
        assert found[0]["said"].startswith("acceptance collapses as a conversation grows: 100 % at 2,")
