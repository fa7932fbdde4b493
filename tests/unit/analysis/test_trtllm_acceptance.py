"""TensorRT-LLM's acceptance through the real client and verdict, against a made server: each of its sources alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafthouse.analysis.verdict import judge
from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.results import assemble, summary_lines
from drafthouse.bench.sse import Event, read_answer
from drafthouse.bench.step import run_step
from drafthouse.report.data.build import build_report
from tests.fakes.trtllm_server import trtllm_server
from tests.support.builders import make_resolved

pytestmark = pytest.mark.processes

Data = Any

PATH = "/prometheus/metrics"
# Prompts: the interval of a median needs six pairs.
SUITE: Any = {
    "name": "mixed",
    "description": "for tests",
    "kinds": {
        "copy-edit": {
            "output_tokens": 12,
            "prompts": [
                {"id": f"copy-edit-{number}", "messages": [{"role": "user", "content": f"prompt {number}"}]}
                for number in range(6)
            ],
        }
    },
}
DRAFTS: Data = {"drafted": 3, "accepted": 2}


def compare(baseline: Data, speculative: Data, *, engine: str | None = "trtllm") -> tuple[Data, Data, Data]:
    """Measure two such servers with the real client; return both results and the verdict."""
    resolved = make_resolved(concurrency=6)
    with trtllm_server(**baseline) as one, trtllm_server(**speculative) as two:
        servers = {"baseline": one, "speculative": two}
        endpoints = [Endpoint(arm, server.base_url, "fake", metrics_path=PATH) for arm, server in servers.items()]
        step = run_step(endpoints, [SUITE], StepOptions(rounds=2, concurrency=6), lambda event: None)
        for server in servers.values():
            # Reading /metrics would take the iteration stats away from whoever wants them.
            assert set(server.state.paths) == {"/v1/chat/completions", PATH}
            assert server.state.iteration_stats
    known: Any = {"id": engine, "name": "TensorRT-LLM", "version": "1.2.1", "runtime": "docker"} if engine else None
    results = {
        arm: assemble([step], arm, profile=resolved["profile"], key=resolved["key"], engine=known) for arm in servers
    }
    verdict = judge(results["baseline"], results["speculative"], resolved)
    build_report(results["baseline"], results["speculative"], resolved)  # says something of every case
    return results["baseline"], results["speculative"], verdict


def test_counters_by_request_tell_all() -> None:
    base, spec, verdict = compare({}, {**DRAFTS, "by_request": True, "by_iteration": True})
    assert spec["spec_decode_source"] == "metrics"
    # 12 prompts of 12 tokens in 4 steps: 48 drafts of 3, 2 of them accepted.
    assert (spec["spec_decode_num_drafts"], spec["spec_decode_draft_tokens"]) == (48, 144)
    assert spec["spec_decode_accepted_tokens"] == 96
    assert spec["spec_decode_acceptance_rate"] == pytest.approx(100 * 2 / 3)
    assert spec["spec_decode_acceptance_length"] == pytest.approx(3.0)
    assert spec["spec_decode_per_position_acceptance_rates"] == [1.0, 1.0]
    # The baseline has no such line, which alone would say nothing; its answers do.
    assert (base["spec_decode_source"], base["spec_decode_acceptance_length"]) == ("response", 1.0)
    assert verdict["drafting"]["baseline"]["drafted"] is False
    assert verdict["drafting"]["speculative"]["drafted"] is True
    assert verdict["word"] != "invalid", verdict["reasons"]


def test_counters_by_iteration_have_the_length_from_the_answers() -> None:
    _, spec, verdict = compare({}, {**DRAFTS, "by_iteration": True})
    assert (spec["spec_decode_source"], spec["spec_decode_num_drafts"]) == ("metrics", None)
    assert (spec["spec_decode_draft_tokens"], spec["spec_decode_accepted_tokens"]) == (144, 96)
    assert spec["spec_decode_acceptance_length"] == pytest.approx(3.0)
    assert spec["spec_decode_per_position_acceptance_rates"] is None
    assert verdict["word"] != "invalid", verdict["reasons"]


@pytest.mark.parametrize("page", [True, False])
def test_answers_alone_tell_the_length(page: bool) -> None:
    base, spec, verdict = compare({"page": page}, {**DRAFTS, "page": page})
    assert (spec["spec_decode_source"], spec["spec_decode_acceptance_length"]) == ("response", pytest.approx(3.0))
    assert spec["spec_decode_acceptance_rate"] is spec["spec_decode_draft_tokens"] is None
    assert base["spec_decode_acceptance_length"] == 1.0
    assert (verdict["drafting"]["baseline"]["drafted"], verdict["drafting"]["speculative"]["drafted"]) == (False, True)
    assert verdict["word"] != "invalid", verdict["reasons"]
    report = build_report(base, spec, make_resolved())
    assert any(line.startswith("The acceptance rate: the engine reported") for line in report["not_measured"])
    assert "Speculation: one token per step, according to the answers themselves" in "\n".join(summary_lines(base))


@pytest.mark.parametrize(("page", "engine"), [(True, "trtllm"), (False, "trtllm"), (True, None)])
def test_with_neither_source_the_verdict_says_so(page: bool, engine: str | None) -> None:
    quiet = {"average": False, "page": page}
    base, spec, verdict = compare(quiet, {**quiet, **DRAFTS}, engine=engine)
    assert base["spec_decode_source"] is spec["spec_decode_source"] is None
    assert verdict["word"] == "invalid"
    (reason,) = verdict["reasons"]
    assert reason.startswith(
        "the speculative arm shows no sign of drafting: the server has neither trtllm_spec_decode_* counters "
    )
    assert "nor avg_decoded_tokens_per_iter in its answers" in reason
    assert verdict["sentence"].startswith("invalid: the speculative arm shows no sign of drafting")


def test_one_token_an_iteration_is_not_taken_for_either() -> None:
    _, spec, verdict = compare({}, {"drafted": 3, "accepted": 0})
    assert (spec["spec_decode_source"], spec["spec_decode_acceptance_length"]) == ("response", 1.0)
    assert verdict["word"] == "invalid"
    (reason,) = verdict["reasons"]
    assert reason.startswith("nothing shows that the speculative arm drafted: 12 of 12 answers report one token")
    assert "so does a server whose drafts are all rejected" in reason


def test_counters_tell_a_draft_of_which_nothing_was_accepted() -> None:
    _, spec, verdict = compare({}, {"drafted": 3, "accepted": 0, "by_request": True})
    assert (spec["spec_decode_draft_tokens"], spec["spec_decode_accepted_tokens"]) == (432, 0)
    assert spec["spec_decode_acceptance_length"] == 1.0
    assert verdict["drafting"]["speculative"]["drafted"] is True
    assert verdict["word"] != "invalid", verdict["reasons"]


@pytest.mark.parametrize("drafting", [DRAFTS, {**DRAFTS, "by_request": True}, {**DRAFTS, "by_iteration": True}])
def test_a_baseline_that_drafts_is_none(drafting: Data) -> None:
    _, _, verdict = compare(drafting, drafting)
    assert verdict["word"] == "invalid"
    assert any(reason.startswith("the baseline drafted") for reason in verdict["reasons"])


def answer(**choice: Any) -> float | None:
    document = {"choices": [{"index": 0, **choice}], "usage": {"prompt_tokens": 1, "completion_tokens": 4}}
    return read_answer([Event(1.0, "message", json.dumps(document))]).avg_decoded_tokens_per_iter


def test_the_average_is_read_from_a_chunk_and_from_a_whole_answer() -> None:
    # Made, after `ChatCompletionResponseStreamChoice` and `ChatCompletionResponseChoice`.
    assert answer(delta={"content": "Hi"}, avg_decoded_tokens_per_iter=2.5) == 2.5
    assert answer(message={"content": "Hi"}, finish_reason="stop", avg_decoded_tokens_per_iter=2.5) == 2.5
    assert answer(message={"content": "Hi"}, avg_decoded_tokens_per_iter=None) is None
