"""Heads with random weights: vLLM's own loader takes each, serves with it, and accepts nothing of it."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines import engine_home
from tests.support.made_models import converted, entries, random_head

# Both are asked of the engine in a process of its own: this interpreter has no vLLM.
CONFIGURED = """
import json, sys
from vllm.engine.arg_utils import EngineArgs

told = {}
for kind, (target, speculative) in json.loads(sys.argv[1]).items():
    args = EngineArgs(target, dtype="float32", max_model_len=512, speculative_config=speculative)
    config = args.create_engine_config().speculative_config
    told[kind] = [config.method, config.draft_model_config.architectures[0], config.num_speculative_tokens]
print("TOLD " + json.dumps(told), flush=True)
"""
SERVED = """
import json, sys
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    target, speculative = json.loads(sys.argv[1])
    # In F32 the same tokens come out with and without speculation; in BF16 a near tie may fall the other way.
    llm = LLM(target, dtype="float32", max_model_len=512, max_num_seqs=2, enforce_eager=True, seed=0,
              disable_log_stats=False, speculative_config=speculative)
    prompts = ["The capital of France is", "Water boils at"]
    answers = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=24, ignore_eos=True), use_tqdm=False)
    counters = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
    told = {
        "texts": [answer.outputs[0].text for answer in answers],
        "drafted": counters.get("vllm:spec_decode_num_draft_tokens", 0),
        "accepted": counters.get("vllm:spec_decode_num_accepted_tokens", 0),
    }
    print("TOLD " + json.dumps(told), flush=True)
"""
# Kind -> the entry of the model that is made, the most that it drafts at once here, and how vLLM calls the head.
KINDS = {
    "eagle3": ("smollm2-135m-eagle3-random", 3, "Eagle3LlamaForCausalLM"),
    "dflash": ("smollm2-135m-dflash-random", 7, "DFlashDraftModel"),
    "mtp": ("smollm2-135m-mtp-random", 2, "MiMoMTPModel"),
}


@pytest.fixture(scope="module")
def python() -> str:
    return str(engine_home("vllm") / "bin" / "python")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return converted(tmp_path_factory.mktemp("models") / "smollm2-135m-hf")


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory, target: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("heads")
    return {kind: random_head(kind, target, folder / kind) for kind in KINDS}


def speculation(kind: str, target: Path, head: Path) -> tuple[str, dict[str, Any]]:
    """What is served and how it speculates: the head inside a target comes with it."""
    settings: dict[str, Any] = {"method": kind, "num_speculative_tokens": KINDS[kind][1]}
    return (str(head), settings) if kind == "mtp" else (str(target), settings | {"model": str(head)})


def told(python: str, tmp_path: Path, program: str, asked: object) -> dict[str, Any]:
    """Run a program in the engine's environment; return what it tells."""
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    words = [python, str(file), json.dumps(asked)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, env=environment, check=False)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("TOLD ")] or [done.stdout + done.stderr]
    assert line.startswith("TOLD "), line[-3000:]
    answer: dict[str, Any] = json.loads(line.removeprefix("TOLD "))
    return answer


def test_vllm_reads_each_for_what_it_is(python: str, target: Path, heads: dict[str, Path], tmp_path: Path) -> None:
    asked = {kind: speculation(kind, target, head) for kind, head in heads.items()}
    expected = {kind: [kind, architecture, tokens] for kind, (_, tokens, architecture) in KINDS.items()}
    assert told(python, tmp_path, CONFIGURED, asked) == expected


@pytest.mark.soak
def test_vllm_serves_with_each_and_accepts_nothing(
    python: str, target: Path, heads: dict[str, Path], tmp_path: Path, figure: Callable[[str], None]
) -> None:
    without = told(python, tmp_path, SERVED, [str(target), None])
    assert without["drafted"] == 0
    for kind, head in heads.items():
        with_head = told(python, tmp_path, SERVED, speculation(kind, target, head))
        assert with_head["texts"] == without["texts"], kind
        assert with_head["drafted"] > 40, kind
        assert with_head["accepted"] <= 0.02 * with_head["drafted"], kind
        figure(f"random {kind} head: {with_head['accepted']} of {with_head['drafted']} drafted tokens accepted")


@pytest.mark.parametrize("kind", KINDS)
def test_the_entry_describes_what_is_made(kind: str, heads: dict[str, Path]) -> None:
    entry, file = entries()[KINDS[kind][0]], heads[kind] / "model.safetensors"
    assert file.stat().st_size == entry["weight_bytes"]
    config = json.loads((heads[kind] / "config.json").read_text("utf-8"))
    assert config.get("draft_vocab_size", config.get("vocab_size")) == entry["vocab"]
    layer = config.get("transformer_layer_config", config)
    fields = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    assert [layer[name] for name in fields] == [
        entry[name] for name in ("layers", "hidden", "heads", "kv_heads", "head_dim")
    ]
