"""The columns of llm-speed-benchmark, by hand and against what the tool itself would read."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.request import Request, urlopen

import pytest

from drafthouse.analysis.legacy_metrics import columns_of, old_lines, shown_tokens
from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.results import assemble
from drafthouse.bench.step import run_step
from tests.fakes.clock_server import clock_server
from tests.support.loosely import old_table

pytestmark = pytest.mark.processes

Columns = dict[str, Any]


def request(**more: Any) -> Any:
    return {
        "status": "ok", "input_tokens": 100, "output_tokens": 50, "ttft_ms": 500.0, "ttfat_ms": 500.0,
        "e2el_ms": 1500.0, "chunks": 26, "text": "x" * 200, "reasoning_text": "", **more,
    }  # fmt: skip


def result(*requests: Any, duration: float = 10.0) -> Any:
    return {"requests": list(requests), "duration": duration, "num_prompts": len(requests)}


def speed_benchmark(measured: Any) -> list[Any]:
    return list(columns_of(measured))


def by_name(columns: list[Any]) -> Columns:
    return {column["name"]: column["values"] for column in columns}


def test_thinking_is_not_counted() -> None:
    thinking = request(ttfat_ms=1100.0, reasoning_text="y" * 600, e2el_ms=1600.0)
    assert shown_tokens(thinking) == pytest.approx(50 * 200 / 800)


def test_the_articles_tool() -> None:
    found = by_name(speed_benchmark(result(*(request(ttft_ms=500.0 * n, e2el_ms=500.0 * n + 1000) for n in (1, 2, 3)))))
    assert found["Time To First Token"] == {"median": 1.0, "iqr": 0.5}
    assert found["Response Tok/s"] == {"median": 50.0, "iqr": 0.0}
    assert found["Prompt Tok/s"]["median"] == 100.0
    # Characters, whatever the column's name says: 200 in 25 later chunks.
    assert found["Avg Tokens per Chunk"]["median"] == 8.0
    assert found["Avg Time Between Chunks"]["median"] == pytest.approx(0.04)


def test_nothing_measured_is_no_number_and_no_error() -> None:
    empties: list[Any] = [result(), result(request(status="failed")), {"requests": []}]
    for nothing in empties:
        tables = old_table(nothing)
        json.dumps(tables, allow_nan=False)
        assert by_name(tables["llm-speed-benchmark"]["columns"])["Response Tok/s"]["median"] is None
    # A single chunk: no time between chunks; no count: no tokens.
    one = request(chunks=1, e2el_ms=500.0, output_tokens=None)
    assert by_name(speed_benchmark(result(one)))["Avg Time Between Chunks"]["median"] is None
    assert shown_tokens(request(text="", output_tokens=7)) == 7


def test_every_column_says_what_is_wrong_with_it() -> None:
    lines = old_lines(result(request()))
    for column in old_table(result(request()))["llm-speed-benchmark"]["columns"]:
        assert any(line.strip() == f"{column['error']}." for line in lines)
    assert any("Response Tok/s: median 50" in line for line in lines)


def test_the_tools_own_loop_reads_the_same() -> None:
    """A stream read as llm-speed-benchmark reads it, and the column that is computed from our requests."""
    messages = [{"role": "user", "content": "Go on"}]
    suite: Any = {
        "name": "s", "description": "s",
        "kinds": {"k": {"output_tokens": 60, "prompts": [{"id": "p", "messages": messages}]}},
    }  # fmt: skip
    with clock_server(ttft_ms=100, interval_ms=20, tokens_per_chunk=3, tokens=60, role_chunk=True) as server:
        step = run_step([Endpoint("single", server.base_url, "clock")], [suite], StepOptions(warmups=1))
        ours = by_name(speed_benchmark(assemble([step], "single")))
        own = server.record()[-1]["sent_s"]
        server.reset()
        body = {"model": "clock", "messages": messages, "stream": True, "max_tokens": 60}
        asked = Request(f"{server.base_url}/v1/chat/completions", json.dumps(body).encode())
        first = last = None
        with urlopen(asked, timeout=60) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                choices = json.loads(line[6:])["choices"]
                if not choices:
                    continue
                if first is None:
                    first = time.monotonic()
                    continue
                last = time.monotonic()
        (entry,) = server.record()
    assert first is not None and last is not None
    # The role comes at once and starts the tool's clock: its answer takes the prompt's 100 ms with it, and
    # reads slower than ours: the known error, in numbers. When it was sent stands in the server's record.
    theirs = 60 / (last - first)
    assert ours["Response Tok/s"]["median"] == pytest.approx(60 / (own[-1] - own[0]), rel=0.1)
    assert theirs == pytest.approx(60 / (entry["sent_s"][-1] - entry["received_s"]), rel=0.1)
