"""A real vLLM scores what another one answered: good arms pass, answers that a proxy spoiled do not.

One server at a time, as on a box that holds one arm: the speculative ones first, each also behind the proxies, then the
baseline, which answers the same prompts and scores the answers of all of them.

At temperature 0 that is n-grams and a draft model. Above it vLLM 0.32.0 has no good arm on a CPU: its build for one
recovers wrong tokens there after a rejected draft ("The quick brownsdkoodles jump over the lazy dogs", seen
2026-11-23), which the gate found. So the honest answers of 0.6 are those of the same server with other seeds.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.verdict import judge
from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.output_scoring import ANSWERS, score_answers
from drafthouse.bench.results import assemble
from drafthouse.bench.step import run_step
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.prompts.loader import load_suite
from drafthouse.weights.demo.recipes import gguf_to_hf
from tests.fakes.breaking_proxy import breaking_proxy
from tests.real_engines.vllm_servers import vllm_server
from tests.support.builders import make_resolved
from tests.support.engines import engine_home, packaged_weights

pytestmark = pytest.mark.alone

Data = Any
NGRAM = {"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
PROMPTS, TOKENS, ROUNDS = 3, 32, 2
COLD, WARM = 0.0, 0.6
# The draft: the target without its last two blocks, which agrees with it about half of the time in free writing.
PRUNE = """
import json, sys
from pathlib import Path
from safetensors.torch import load_file, save_file

source, goal = map(Path, sys.argv[1:])
goal.mkdir()
for file in source.iterdir():
    if file.suffix != ".safetensors":
        (goal / file.name).write_bytes(file.read_bytes())
settings = json.loads((source / "config.json").read_text())
settings["num_hidden_layers"] -= 2
settings.pop("layer_types", None)
(goal / "config.json").write_text(json.dumps(settings))
kept = {}
for file in source.glob("*.safetensors"):
    kept |= load_file(file)
last = settings["num_hidden_layers"]
gone = tuple(f"model.layers.{number}." for number in (last, last + 1))
kept = {name: tensor for name, tensor in kept.items() if not name.startswith(gone)}
save_file(kept, goal / "model.safetensors", metadata={"format": "pt"})
"""


def work() -> list[Data]:
    """Copying, which n-grams draft for, and talk, which they do not."""
    mixed = load_suite("mixed", ROOT / "benchmarks")
    kinds = {
        name: {**mixed["kinds"][name], "output_tokens": TOKENS, "prompts": mixed["kinds"][name]["prompts"][:PROMPTS]}
        for name in ("copy-edit", "chat")
    }
    return [{**mixed, "kinds": kinds}]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "smollm2-135m-hf"
    gguf_to_hf(str(packaged_weights("smollm2-135m-q4")), str(folder), str(engine_home("vllm") / "bin" / "python"))
    return folder


def measured(arm: str, base_url: str, temperature: float = COLD, seed: int = 0) -> Data:
    options = StepOptions(rounds=ROUNDS, warmups=1, temperatures=(temperature,), seed=seed, token_ids=ANSWERS)
    return run_step([Endpoint(arm, base_url, "smol")], work(), options)


def behind(fault: str, base_url: str, temperature: float = COLD, seed: int = 0) -> Data:
    with breaking_proxy(base_url, fault) as broken:
        return measured("speculative", broken, temperature, seed)


def judged(base_url: str, own: Data, step: Data) -> Data:
    """The verdict over a speculative step, after the baseline has scored both."""
    scores: Any = resolved_profile("cpu-smollm2-vllm-ngram", site_of_inventory("local"))["scores"]
    engine: Any = {"id": "vllm", "version": "0.32.0", "runtime": "process"}
    scoring = score_answers(Endpoint("baseline", base_url, "smol"), [step, own], scores["tokens"])
    base, spec = (
        assemble(
            [step, own | {"scoring": scoring}], arm, profile="cpu-smollm2-ngram", key="0123456789abcdef", engine=engine
        )
        for arm in ("baseline", "speculative")
    )
    return judge(base, spec, make_resolved(kinds=["copy-edit", "chat"]))


def words(verdict: Data) -> dict[str, str]:
    return {gate["name"]: gate["word"] for gate in verdict["gates"]}


def said(verdict: Data) -> str:
    (gate,) = [gate for gate in verdict["gates"] if gate["name"] == "scores"]
    return str(gate["said"])


def passes(name: str, verdict: Data, figure: Callable[[str], None]) -> None:
    figure(f"vLLM scored by its baseline, {name}: {words(verdict)['scores']}: {said(verdict)}")
    assert (words(verdict)["scores"], words(verdict)["texts"]) == ("passed", "passed"), verdict["gates"]
    assert verdict["wrong_output"] is False
    # Both kinds, all of the prompts in both rounds.
    (gate,) = [gate for gate in verdict["gates"] if gate["name"] == "scores"]
    assert gate["speculative"]["total"] == 2 * PROMPTS * ROUNDS


def fails(name: str, verdict: Data, figure: Callable[[str], None]) -> None:
    figure(f"vLLM behind '{name}': {verdict['sentence']}; {words(verdict)}")
    assert words(verdict)["scores"] == "failed", verdict["gates"]
    assert verdict["wrong_output"] is True
    # The clocks of so short a run prove nothing here; that nobody is told it pays does.
    assert verdict["word"] != "pays"


@pytest.mark.soak
def test_the_baseline_scores_a_good_arm_and_one_that_is_wrong_in_one_token_of_eight(
    target: Path, figure: Callable[[str], None]
) -> None:
    fault = "one token in eight"
    with vllm_server(target, NGRAM, 1024) as base_url:
        good, bad = measured("speculative", base_url), behind(fault, base_url)
    with vllm_server(target, None, 1024) as base_url:
        own = measured("baseline", base_url)
        passes("n-gram", judged(base_url, own, good), figure)
        wrong = judged(base_url, own, bad)
    fails(fault, wrong, figure)
    assert wrong["word"] == "does not pay"


@pytest.mark.soak
def test_every_fault_and_a_draft_model(target: Path, tmp_path: Path, figure: Callable[[str], None]) -> None:
    faults = ["one token in eight", "garbage from token 4", "garbled words"]
    with vllm_server(target, NGRAM, 1024) as base_url:
        cold = {"n-gram": measured("speculative", base_url)} | {fault: behind(fault, base_url) for fault in faults}
        own_fault = measured("speculative", base_url, WARM)
    draft = tmp_path / "draft"
    subprocess.run([engine_home("vllm") / "bin" / "python", "-c", PRUNE, target, draft], check=True)
    drafting = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": 4}
    with vllm_server(target, drafting, 1024) as base_url:
        cold["draft model"] = measured("speculative", base_url)
    drafted = cold["draft model"]["arms"]["speculative"]["counters"][-1]["after"]
    assert 0 < drafted["accepted_tokens"] < drafted["draft_tokens"]
    with vllm_server(target, None, 1024) as base_url:
        own = measured("baseline", base_url)
        found = {name: judged(base_url, own, step) for name, step in cold.items()}
        own = measured("baseline", base_url, WARM)
        fault = "garbage at temperature 0.6"
        honest = judged(base_url, own, measured("speculative", base_url, WARM, seed=500))
        garbage = judged(base_url, own, behind(fault, base_url, WARM, seed=500))
        recovered = judged(base_url, own, own_fault)
    for name in ("n-gram", "draft model"):
        passes(name, found[name], figure)
    passes("other seeds at 0.6", honest, figure)
    for name in faults:
        fails(name, found[name], figure)
    assert "does not match its token ids" in said(found["garbled words"])
    fails(fault, garbage, figure)
    assert {found[name]["word"] for name in faults} == {recovered["word"]} == {"does not pay"}
    fails("vLLM 0.32.0's own fault on a CPU, n-gram at 0.6", recovered, figure)
