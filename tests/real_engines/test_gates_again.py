"""Prompts asked more than once on real servers: both say the same again, and their own figures prove what was cached.

The model has 135 million parameters: llama.cpp leaves it the choice whether to call a tool, and it calls none. vLLM
makes the calls that are demanded by a grammar, whatever the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.gates import judge_gates
from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.results import assemble
from drafthouse.bench.samples import disturbances
from drafthouse.bench.step import run_step
from drafthouse.profiles.workspace import ROOT
from drafthouse.prompts.fill import fill
from drafthouse.prompts.loader import load_suite
from drafthouse.weights.demo.recipes import gguf_to_hf
from tests.real_engines.vllm_servers import vllm_server
from tests.support.builders import make_resolved
from tests.support.engines import engine_home, llama_server, packaged_weights

Data = Any
ARMS = ("baseline", "speculative")
#: Tokens of each slot.
CONTEXT, SLOTS = 2560, 2
#: What so small a model finds in 300 tokens, where the sentence stands before the question.
FOUND = ("warm-signal", "warm-lamp")


def asked(call_tokens: int, *names: str) -> Data:
    """The suite `agents`, small enough for two cores: short texts, few answers, and calls that are demanded."""
    suite: Data = {**load_suite("agents", ROOT / "benchmarks", filled=False)}
    warm, stream, history, same = (
        suite["kinds"][name] for name in ("warm-prefix", "tool-stream", "tool-history", "same-at-once")
    )
    texts = [
        {**prompt, "long": {**prompt["long"], "tokens": 300, "depth": 1.0}}
        for prompt in warm["prompts"]
        if prompt["id"] in FOUND
    ]
    required = [[one for one in kind["prompts"] if "request" in one][:2] for kind in (stream, history)]
    kinds = {
        "warm-prefix": {**warm, "output_tokens": 16, "prompts": texts},
        "tool-stream": {**stream, "output_tokens": call_tokens, "prompts": required[0]},
        "tool-history": {**history, "output_tokens": call_tokens, "prompts": required[1]},
        "same-at-once": {**same, "output_tokens": 12, "repeat": SLOTS},
    }
    suite["kinds"] = {name: kinds[name] for name in names or kinds}
    return fill(suite, CONTEXT)


def measured(arm: str, base_url: str, suite: Data) -> Data:
    step = run_step([Endpoint(arm, base_url, "smol")], [suite], StepOptions(warmups=1))
    result: Data = assemble([step], arm, engine={"id": "a", "version": "0", "runtime": "process"})
    # Nobody else was there: answers that come as a whole are counted as those that are streamed.
    assert disturbances(result) == []
    assert {one["status"] for one in result["requests"]} == {"ok"}
    return result


def judged(arms: list[Data], figure: Callable[[str], None], engine: str) -> dict[str, Data]:
    resolved: Data = make_resolved(suites=["agents"])
    found: Data = {gate["name"]: gate for gate in judge_gates(arms[0], arms[1], resolved)}
    for name in ("warm", "streams", "slots", "tools"):
        figure(f"{engine}, gate {name}: {found[name]['word']}: {found[name]['said']}")
    assert "failed" not in {gate["word"] for gate in found.values()}
    return dict(found)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str]]:
    home, model = engine_home("llamacpp"), str(packaged_weights("smollm2-135m-q4"))
    flags = ["-m", model, "--alias", "smol", "--ctx-size", str(SLOTS * CONTEXT), "--parallel", str(SLOTS), "--metrics"]
    lookup = ["--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "3", "--spec-ngram-map-k-size-m", "8"]
    with ExitStack() as stack:
        base = stack.enter_context(llama_server(home, *flags, "-t", "1"))
        yield base.base, stack.enter_context(llama_server(home, *flags, "-t", "1", *lookup)).base


def test_a_real_llamacpp_says_the_same_again(servers: tuple[str, str], figure: Callable[[str], None]) -> None:
    suite = asked(12, "warm-prefix", "tool-stream", "same-at-once")
    found = judged([measured(arm, base, suite) for arm, base in zip(ARMS, servers, strict=True)], figure, "llama.cpp")
    assert (found["warm"]["word"], found["slots"]["word"]) == ("passed", "passed")
    assert "own figures" in found["warm"]["said"]
    # So small a model calls no tool, and nobody is blamed for it.
    assert (found["streams"]["word"], "no call" in found["streams"]["said"]) == ("no baseline", True)


@pytest.mark.soak
def test_a_conversation_that_grows_on_a_real_llamacpp(servers: tuple[str, str], figure: Callable[[str], None]) -> None:
    suite = fill(load_suite("conversation", ROOT / "benchmarks", filled=False), CONTEXT)
    result = measured("speculative", servers[1], suite)
    lengths = [one["input_tokens"] for one in result["requests"]]
    # As near to the context as it goes; each turn behind the one before.
    assert lengths == sorted(lengths)
    for name, group in result["groups"].items():
        rate, drafted = group["spec_decode_acceptance_rate"], group["spec_decode_draft_tokens"]
        figure(f"llama.cpp, {name}: {rate:.1f} % of {drafted}")
    # Each part has counters of its own: that is acceptance over the length of the conversation.
    assert all(group["spec_decode_draft_tokens"] > 0 for group in result["groups"].values())


@pytest.mark.soak
def test_a_real_vllm_says_the_same_again_and_counts_its_hits(tmp_path: Path, figure: Callable[[str], None]) -> None:
    target = tmp_path / "target"
    gguf_to_hf(str(packaged_weights("smollm2-135m-q4")), str(target), str(engine_home("vllm") / "bin" / "python"))
    tools = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    suite, arms = asked(160), []
    for arm, speculation in (
        ("baseline", None),
        ("speculative", {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}),
    ):
        with vllm_server(target, speculation, CONTEXT, *tools) as base:
            arms.append(measured(arm, base, suite))
    found = judged(arms, figure, "vLLM")
    assert (found["warm"]["word"], found["slots"]["word"], found["streams"]["word"]) == ("passed", "passed", "passed")
    assert "the engine's counters" in found["warm"]["said"]
