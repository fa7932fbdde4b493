"""The result files of other benchmark clients, read into the names of our own results.

Three clients, with the versions that this was written for: `vllm bench serve` 0.32.0 (``vllm-bench``), GuideLLM 0.7.2
(``guidellm``) and NVIDIA's AIPerf 0.13.0 (``aiperf``). docs/second-opinion.md says how each is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from drafthouse.bench.external.columns import number_in

VLLM, GUIDELLM, AIPERF = "vllm-bench", "guidellm", "aiperf"
#: The compared numbers. Their names and definitions are vLLM's.
NUMBERS = (
    "output_throughput",
    "request_throughput",
    "median_ttft_ms",
    "p99_ttft_ms",
    "median_tpot_ms",
    "p99_tpot_ms",
    "median_e2el_ms",
)
COUNTS = ("completed", "failed", "total_output_tokens")

#: The values of `NUMBERS` and `COUNTS`; None where the file has no such finite number.
Figures = dict[str, float | None]


def _read_vllm(document: Mapping[str, Any]) -> Figures:
    return {name: number_in(document.get(name)) for name in (*NUMBERS, *COUNTS)}


def _read_guidellm(document: Mapping[str, Any]) -> Figures:
    benchmarks = document.get("benchmarks") or []
    if not benchmarks:
        raise ValueError("no benchmark in it")
    metrics = benchmarks[0].get("metrics") or {}
    totals = metrics.get("request_totals") or {}

    def of(name: str, *path: str, factor: float = 1) -> float | None:
        value: Any = (metrics.get(name) or {}).get("successful") or {}
        for key in path:
            value = (value or {}).get(key)
        known = number_in(value)
        return known * factor if known is not None else None

    return {
        "output_throughput": of("output_tokens_per_second", "mean"),
        "request_throughput": of("requests_per_second", "mean"),
        "median_ttft_ms": of("time_to_first_token_ms", "median"),
        "p99_ttft_ms": of("time_to_first_token_ms", "percentiles", "p99"),
        # Its time_per_output_token_ms includes the first token; inter_token_latency_ms is what vLLM calls TPOT.
        "median_tpot_ms": of("inter_token_latency_ms", "median"),
        "p99_tpot_ms": of("inter_token_latency_ms", "percentiles", "p99"),
        "median_e2el_ms": of("request_latency", "median", factor=1000),
        "completed": number_in(totals.get("successful")),
        "failed": (number_in(totals.get("errored")) or 0) + (number_in(totals.get("incomplete")) or 0),
        "total_output_tokens": of("output_token_count", "total_sum"),
    }


def _read_aiperf(document: Mapping[str, Any]) -> Figures:
    def of(name: str, field: str) -> float | None:
        return number_in((document.get(name) or {}).get(field))

    return {
        "output_throughput": of("output_token_throughput", "avg"),
        "request_throughput": of("request_throughput", "avg"),
        "median_ttft_ms": of("time_to_first_token", "p50"),
        "p99_ttft_ms": of("time_to_first_token", "p99"),
        "median_tpot_ms": of("inter_token_latency", "p50"),
        "p99_tpot_ms": of("inter_token_latency", "p99"),
        "median_e2el_ms": of("request_latency", "p50"),
        "completed": of("request_count", "avg"),
        "failed": of("error_request_count", "avg") or 0.0,
        "total_output_tokens": of("total_osl", "avg") or of("total_output_tokens", "avg"),
    }


#: The reader of each client's result file, by the client's name.
READERS: dict[str, Callable[[Mapping[str, Any]], Figures]] = {
    VLLM: _read_vllm,
    GUIDELLM: _read_guidellm,
    AIPERF: _read_aiperf,
}
