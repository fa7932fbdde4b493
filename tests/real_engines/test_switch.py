"""The real vLLM with a schedule by batch size: it drafts for one request, and for a batch above the switch it does not.

The option is given as a profile gives it, in `speculation.options`, and judged by the counters of the running server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench.client import ChatRequest, Endpoint, closed_loop, open_session, raw_request
from drafthouse.bench.foreign_traffic import foreign_work, settled
from drafthouse.bench.spec_metrics import difference, read_counters
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from drafthouse.weights.demo.recipes import gguf_to_hf
from tests.real_engines.vllm_servers import vllm_server
from tests.support.engines import engine_home, packaged_weights
from tests.support.ladders import KIND

pytestmark = pytest.mark.alone

PROFILE = "cpu-smollm2-vllm-ngram"
OPTION = "num_speculative_tokens_per_batch_size"
ROWS = [[1, 1, 8], [2, 4, 0]]
TOKENS = 32


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "smollm2-135m-hf"
    python = engine_home("vllm") / "bin" / "python"
    gguf_to_hf(str(packaged_weights("smollm2-135m-q4")), str(folder), str(python))
    return folder


def copying(number: int) -> ChatRequest:
    text = f"Copy this line three times: the {number} quick brown foxes jump over the {number} lazy dogs."
    return ChatRequest("s", KIND, KIND, f"p{number}", [{"role": "user", "content": text}], TOKENS, ignore_eos=True)


async def drafted(base_url: str, first: int, level: int) -> float:
    """Send requests at a level and return the draft tokens a request; nobody else may be there."""
    endpoint = Endpoint("speculative", base_url, "smol")
    async with open_session(300) as session:
        before = await settled(lambda: read_counters(session, endpoint))
        asks = [copying(number) for number in range(first, first + 2 * level)]
        records = await closed_loop(session, endpoint, asks, level)
        after = await settled(lambda: read_counters(session, endpoint))
    requests = [raw_request(record, endpoint, 0.0) for record in records]
    assert [request["status"] for request in requests] == ["ok"] * len(requests)
    told = foreign_work(before, after, requests, TOKENS)
    assert told is not None
    assert not told["polluted"], told["said"]
    moved = difference(before, after)
    assert moved is not None
    return float(moved["draft_tokens"] or 0) / len(requests)


@pytest.mark.soak
def test_vllm_drafts_below_the_switch_and_not_above(target: Path, figure: Callable[[str], None]) -> None:
    overrides: Any = {"speculation": {"options": {OPTION: ROWS}}}
    speculation = resolved_profile(PROFILE, site_of_inventory("local"), overrides)["method"]["settings"]
    assert speculation[OPTION] == ROWS
    with vllm_server(target, speculation) as base_url:
        alone = asyncio.run(drafted(base_url, 0, 1))
        four = asyncio.run(drafted(base_url, 10, 4))
    figure(f"vLLM with {ROWS}: {alone:.1f} draft tokens a request alone, {four:.1f} among four")
    assert alone > 0
    # As the last of a batch ends the others are one: a little is drafted then.
    assert four < alone / 3
