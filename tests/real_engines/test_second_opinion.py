"""Our client beside vLLM's own, against the same server: throughput and TPOT within 3 %."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.module_utils.gguf_recipes import gguf_to_hf
from ansible_collections.drafthouse.core.plugins.module_utils.house import ROOT

from tests.engines import engine_home, packaged_weights
from tests.fakes.clock_server import clock_server

PROMPTS, TOKENS, STREAMS = 16, 120, 4


def run(words: list[str], **environment: str) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer: vLLM's client counts the tokens of its prompts itself."""
    folder = tmp_path_factory.mktemp("model") / "hf"
    python = engine_home("vllm") / "bin" / "python"
    gguf_to_hf(str(packaged_weights("smollm2-135m-q4")), str(folder), python=str(python))
    return folder


def theirs(base_url: str, tokenizer: Path, folder: Path) -> dict[str, Any]:
    run(
        [
            str(engine_home("vllm") / "bin" / "vllm"), "bench", "serve", "--backend", "openai-chat",
            "--base-url", base_url, "--endpoint", "/v1/chat/completions", "--model", "clock",
            "--tokenizer", str(tokenizer), "--dataset-name", "random", "--random-input-len", "32",
            "--random-output-len", str(TOKENS), "--num-prompts", str(PROMPTS), "--max-concurrency", str(STREAMS),
            "--save-result", "--result-dir", str(folder), "--result-filename", "theirs.json",
            "--ready-check-timeout-sec", "0",
        ],
        HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
    )  # fmt: skip
    data: dict[str, Any] = json.loads((folder / "theirs.json").read_text())
    return data


def ours(base_url: str, folder: Path) -> dict[str, Any]:
    run(
        [
            sys.executable, str(ROOT / "scripts" / "bench.py"), "--base-url", base_url, "--model", "clock",
            "--num-prompts", str(PROMPTS), "--max-concurrency", str(STREAMS), "--output-tokens", str(TOKENS),
            "--num-warmups", "0", "--result", str(folder / "ours.json"),
        ]
    )  # fmt: skip
    data: dict[str, Any] = json.loads((folder / "ours.json").read_text())
    return data


def test_output_throughput_and_median_tpot_agree(
    tmp_path: Path, tokenizer: Path, figure: Callable[[str], None]
) -> None:
    with clock_server(ttft_ms=200, interval_ms=40, tokens_per_chunk=3, tokens=TOKENS) as server:
        one = ours(server.base_url, tmp_path)
        other = theirs(server.base_url, tokenizer, tmp_path)
    assert one["completed"] == other["completed"] == PROMPTS
    for name in ("output_throughput", "median_tpot_ms", "median_ttft_ms"):
        figure(f"{name}: ours {one[name]:.2f}, vllm bench serve {other[name]:.2f}")
    for name in ("output_throughput", "median_tpot_ms"):
        assert one[name] == pytest.approx(other[name], rel=0.03)
    # The field names are theirs, so that what reads their files reads ours.
    shared = {
        name
        for name in other
        if name.startswith(("mean_", "median_", "std_", "p99_", "total_", "output_", "request_t"))
    }
    assert shared <= set(one), shared - set(one)
