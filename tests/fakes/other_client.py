#!/usr/bin/env python3
"""Another benchmark client of the tests: called `vllm`, `guidellm` or `aiperf`, it reads and writes what they do.

It really sends its requests, some at a time, and measures simply. FAKE_CLIENT in the environment breaks it:
fail (status 3, its last line holds the key), silent (no result file), none (no request completed), hang.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

KEY = os.environ["OPENAI_API_KEY"]


def ask(url: str, body: dict[str, Any]) -> tuple[float, float, int]:
    """Return TTFT and E2E in ms, and the server's count of tokens."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    began, first, last, tokens = time.perf_counter(), 0.0, 0.0, 0
    with urlopen(Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers), timeout=60) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if any(choice["delta"].get("content") for choice in event["choices"]):
                last = time.perf_counter()
                first = first or last
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    return (first - began) * 1000, (last - began) * 1000, tokens


def lines(name: str) -> list[dict[str, Any]]:
    """Return the rows of a JSONL file."""
    return [json.loads(line) for line in Path(name).read_text("utf-8").splitlines()]


def of_vllm(words: list[str]) -> tuple[str, int, list[dict[str, Any]]]:
    """Read `bench serve`'s words."""
    given = {word: words[place + 1] for place, word in enumerate(words[:-1]) if word.startswith("--")}
    extra = json.loads(given.get("--extra-body", "{}"))
    bodies = [
        {
            "model": given["--model"],
            "messages": [{"role": "user", "content": row["prompt"]}],
            "max_tokens": row["output_tokens"],
            "temperature": float(given["--temperature"]),
            **extra,
        }
        for row in lines(given["--dataset-path"])
    ]
    assert len(bodies) == int(given["--num-prompts"])
    return given["--base-url"], int(given["--max-concurrency"]), bodies


def of_guidellm(words: list[str]) -> tuple[str, int, list[dict[str, Any]]]:
    """Read the configuration that `run --config` names."""
    spec = json.loads(Path(words[words.index("--config") + 1]).read_text("utf-8"))["spec"]
    backend = spec["backend"]
    assert backend.get("api_key", "none") == KEY
    bodies = []
    for row in lines(spec["data"][0]["path"]):
        system = [{"role": "system", "content": row["system_prompt"]}] if row.get("system_prompt") else []
        messages = [*system, {"role": "user", "content": [{"type": "text", "text": row["prompt"]}]}]
        body = {"model": backend["model"], "messages": messages, "max_completion_tokens": row["output_tokens_count"]}
        bodies.append({**body, "max_tokens": row["output_tokens_count"], **backend["extras"]["body"]})
    return backend["target"], spec["profile"]["streams"], bodies


def of_aiperf(words: list[str]) -> tuple[str, int, list[dict[str, Any]]]:
    """Read the configuration that `profile --config` names."""
    text = Path(words[words.index("--config") + 1]).read_text("utf-8")
    assert KEY == "none" or KEY not in text
    benchmark = json.loads(text)["benchmark"]
    return benchmark["endpoint"]["url"], benchmark["phases"]["concurrency"], lines(benchmark["dataset"]["path"])


def main() -> int:
    """Send, measure, write."""
    name, broken = Path(sys.argv[0]).name, os.environ.get("FAKE_CLIENT", "")
    url, at_a_time, bodies = {"vllm": of_vllm, "guidellm": of_guidellm, "aiperf": of_aiperf}[name](sys.argv[1:])
    if broken == "fail":
        print("starting")
        print(f"cannot go on with the key {KEY}", file=sys.stderr)
        return 3
    if broken == "hang":
        time.sleep(600)
    if broken == "silent":
        return 0
    began = time.perf_counter()
    with ThreadPoolExecutor(at_a_time) as pool:
        found = list(pool.map(lambda body: ask(url, body), bodies))
    seconds = time.perf_counter() - began
    done = 0 if broken == "none" else len(found)
    tokens = sum(one[2] for one in found)
    ttft, e2el = (statistics.median(one[place] for one in found) for place in (0, 1))
    tpot = statistics.median((one[1] - one[0]) / (one[2] - 1) for one in found)
    path = "result.json"
    result: dict[str, Any]
    if name == "vllm":
        result = {
            "completed": done, "failed": 0, "total_output_tokens": tokens, "output_throughput": tokens / seconds,
            "request_throughput": done / seconds, "median_ttft_ms": ttft, "p99_ttft_ms": ttft,
            "median_tpot_ms": tpot, "p99_tpot_ms": tpot, "median_e2el_ms": e2el,
        }  # fmt: skip
    elif name == "guidellm":

        def of(median: float, mean: float = 0.0) -> dict[str, Any]:
            summary = {"median": median, "mean": mean, "percentiles": {"p99": median}, "total_sum": mean}
            return {"successful": summary, "errored": None}

        result = {"benchmarks": [{"metrics": {
            "request_totals": {"successful": done, "errored": 0, "incomplete": 0, "total": len(found)},
            "time_to_first_token_ms": of(ttft), "inter_token_latency_ms": of(tpot), "request_latency": of(e2el / 1000),
            "output_tokens_per_second": of(0, tokens / seconds), "requests_per_second": of(0, done / seconds),
            "output_token_count": of(0, tokens),
        }}]}  # fmt: skip
    else:
        Path("artifacts").mkdir()
        path = "artifacts/profile_export_aiperf.json"
        result = {
            "time_to_first_token": {"p50": ttft, "p99": ttft}, "inter_token_latency": {"p50": tpot, "p99": tpot},
            "request_latency": {"p50": e2el}, "output_token_throughput": {"avg": tokens / seconds},
            "request_throughput": {"avg": done / seconds}, "request_count": {"avg": done},
            "total_osl": {"avg": tokens},
        }  # fmt: skip
    Path(path).write_text(json.dumps(result), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
