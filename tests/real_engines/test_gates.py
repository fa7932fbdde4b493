"""The gates on a real llama.cpp: both arms right, and each fault of a proxy in front of the speculative arm found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from drafthouse.analysis.verdict import judge
from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.results import assemble
from drafthouse.bench.samples import disturbances
from drafthouse.bench.step import run_step
from drafthouse.profiles.workspace import ROOT
from drafthouse.prompts.fill import fill
from drafthouse.prompts.loader import load_suite
from tests.fakes.breaking_proxy import breaking_proxy
from tests.support.builders import make_resolved
from tests.support.engines import LlamaServer, engine_home, llama_server, packaged_weights

Data = Any
CONTEXT = 2048
COPIES = 6


def work() -> Any:
    """What is measured: copying, and of each gate what a model of 135 million parameters can do."""
    folder = ROOT / "benchmarks"
    mixed = load_suite("mixed", folder)
    copy: Any = {**mixed["kinds"]["copy-edit"], "output_tokens": 32}
    copy["prompts"] = copy["prompts"][:COPIES]
    gates = load_suite("gates", folder, filled=False)
    kinds: Any = {name: {**kind, "prompts": kind["prompts"][:2]} for name, kind in gates["kinds"].items()}
    kinds["tool-call"]["output_tokens"] = kinds["needle"]["output_tokens"] = 32
    # Short enough for a small model, and with the sentence near the question.
    kinds["needle"]["prompts"] = [
        {**prompt, "long": {**prompt["long"], "tokens": 300, "depth": 1.0}} for prompt in kinds["needle"]["prompts"]
    ]
    return [{**mixed, "kinds": {"copy-edit": copy}}, fill({**gates, "kinds": kinds}, CONTEXT)]


def measured(arm: str, base_url: str) -> Data:
    step = run_step([Endpoint(arm, base_url, "smol")], work(), StepOptions(rounds=2, warmups=1))
    engine: Any = {"id": "llamacpp", "version": "0", "runtime": "process"}
    return assemble([step], arm, profile="cpu-smollm2-ngram", key="0123456789abcdef", engine=engine)


def judged(base: Data, spec: Data) -> tuple[Data, dict[str, str]]:
    verdict = judge(base, spec, make_resolved(suites=["mixed", "gates"]))
    return verdict, {gate["name"]: gate["word"] for gate in verdict["gates"]}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[LlamaServer, LlamaServer]]:
    home, model = engine_home("llamacpp"), str(packaged_weights("smollm2-135m-q4"))
    flags = ["-m", model, "--alias", "smol", "--ctx-size", str(CONTEXT), "--parallel", "1", "--metrics", "-t", "1"]
    lookup = ["--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "3", "--spec-ngram-map-k-size-m", "8"]
    with ExitStack() as stack:
        base = stack.enter_context(llama_server(home, *flags))
        yield base, stack.enter_context(llama_server(home, *flags, *lookup))


@pytest.fixture(scope="module")
def baseline(servers: tuple[LlamaServer, LlamaServer]) -> Data:
    return measured("baseline", servers[0].base)


def test_a_real_engine_passes_and_its_outputs_are_equal(
    servers: tuple[LlamaServer, LlamaServer], baseline: Data, figure: Callable[[str], None]
) -> None:
    speculative = measured("speculative", servers[1].base)
    verdict, words = judged(baseline, speculative)
    for result in (baseline, speculative):
        # Nobody else was there, and its own counters say so: also beside refused, cut and remembered requests.
        assert disturbances(result) == []
        assert {one["foreign"]["output_tokens"] for one in result["counters"]} == {0}
    for gate in verdict["gates"]:
        figure(f"llama.cpp, gate {gate['name']}: {gate['word']}: {gate['said']}")
    assert (words["outputs"], words["json"], words["needle"]) == ("passed", "passed", "passed")
    # So small a model calls no tool, and nobody is blamed for it.
    assert words["tools"] == "no baseline"
    assert verdict["wrong_output"] is False


@pytest.mark.parametrize(
    ("fault", "gate"),
    [
        ("garbled words", "outputs"),
        pytest.param("no JSON", "json", marks=pytest.mark.soak),
        pytest.param("another needle", "needle", marks=pytest.mark.soak),
        pytest.param("JSON of another form", "json", marks=pytest.mark.soak),
        pytest.param("half of every answer", "outputs", marks=pytest.mark.soak),
    ],
)
def test_a_fault_in_front_of_the_speculative_arm_is_found(
    servers: tuple[LlamaServer, LlamaServer], baseline: Data, figure: Callable[[str], None], fault: str, gate: str
) -> None:
    with breaking_proxy(servers[1].base, fault) as broken:
        verdict, words = judged(baseline, measured("speculative", broken))
    figure(f"llama.cpp behind '{fault}': {verdict['sentence']}")
    assert words[gate] == "failed", [one["said"] for one in verdict["gates"]]
    assert verdict["wrong_output"] is True
