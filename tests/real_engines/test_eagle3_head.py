"""The EAGLE-3 head with random weights: vLLM's own loader takes it, serves with it, and accepts nothing of it."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.weights.demo.recipes import gguf_to_hf, random_head
from tests.support.engines import ROOT, engine_home, packaged_weights

# Asked of the engine in a process of its own: this interpreter has no vLLM.
OFFLINE = """
import json, sys
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    target, head, dtype = sys.argv[1:]
    speculative = {"method": "eagle3", "model": head, "num_speculative_tokens": 3} if head else None
    llm = LLM(target, dtype=dtype, max_model_len=512, max_num_seqs=2, enforce_eager=True, seed=0,
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


@pytest.fixture(scope="module")
def python() -> str:
    return str(engine_home("vllm") / "bin" / "python")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, python: str) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("models") / "smollm2-135m-hf"
    gguf_to_hf(str(packaged_weights("smollm2-135m-q4")), str(folder), python)
    yield folder


def ask(python: str, tmp_path: Path, target: Path, head: Path | None) -> dict[str, Any]:
    program = tmp_path / "offline.py"
    program.write_text(OFFLINE, encoding="utf-8")
    # In F32 the same tokens come out with and without speculation; in BF16 a near tie may fall the other way.
    words = [python, str(program), str(target), str(head or ""), "float32"]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment, check=False)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("TOLD ")] or [done.stdout + done.stderr]
    assert line.startswith("TOLD "), line[-3000:]
    told: dict[str, Any] = json.loads(line.removeprefix("TOLD "))
    return told


@pytest.mark.soak
def test_vllm_serves_with_it_and_accepts_nothing(
    python: str, target: Path, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    head = Path(random_head("eagle3", str(target), str(tmp_path / "head"), python).path)
    without, with_head = ask(python, tmp_path, target, None), ask(python, tmp_path, target, head)
    assert with_head["texts"] == without["texts"]
    assert without["drafted"] == 0
    assert with_head["drafted"] > 100
    assert with_head["accepted"] <= 0.02 * with_head["drafted"]
    figure(f"random EAGLE-3 head: {with_head['accepted']} of {with_head['drafted']} drafted tokens accepted")


def test_the_catalogue_describes_what_is_made(python: str, target: Path, tmp_path: Path) -> None:
    entry = yaml.safe_load((ROOT / "profiles" / "catalog" / "models.yml").read_text("utf-8"))[
        "smollm2-135m-eagle3-random"
    ]
    head = Path(random_head("eagle3", str(target), str(tmp_path / "head"), python).path)
    assert (head / "model.safetensors").stat().st_size == entry["weight_bytes"]
    config = json.loads((head / "config.json").read_text("utf-8"))
    layer = config["transformer_layer_config"]
    assert config["draft_vocab_size"] == entry["vocab"]
    fields = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    assert [layer[name] for name in fields] == [
        entry[name] for name in ("layers", "hidden", "heads", "kv_heads", "head_dim")
    ]
