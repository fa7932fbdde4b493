"""What each other benchmark client is given to send, and what its own result file says. Pure.

Three tools, each with its own words: `vllm bench serve`, GuideLLM (0.7 and newer), AIPerf. Written for the
versions in VERSIONS, which docs/second-opinion.md says how to install.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...bench.client import Ask, Endpoint
from ...core.errors import DrafthouseError, one_problem

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Message

#: Numbers under the names of `NUMBERS` and `COUNTS`.
Figures = dict[str, float | None]

VLLM, GUIDELLM, AIPERF = "vllm-bench", "guidellm", "aiperf"
#: What the numbers of both sides are called; the names are vLLM's, and so are the definitions.
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

#: Stands in words and configurations for the folder that the tool runs in.
HERE = "@here@"
_KEY = "OPENAI_API_KEY"
# The tools that count tokens by themselves load a tokenizer before anything else. Every figure that is compared
# comes from the server's own counts, so where none is named this one serves: whole words, all unknown, no network.
_TOKENIZER = f"{HERE}/tokenizer"
_TOKENIZER_FILES = {
    "tokenizer/tokenizer.json": json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "Whitespace"},
            "model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"},
        }
    ),
    "tokenizer/tokenizer_config.json": json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "model_max_length": 1_000_000}
    ),
}


_ONE_SEED = (
    "It sends the first request's seed with every request; we send a different seed with each. Above temperature 0 "
    "the answers therefore differ."
)


@dataclass(frozen=True)
class Work:
    """The requests of one group, in order, and how many run at a time."""

    name: str
    asks: Sequence[Ask]
    concurrency: int
    timeout_s: float = 600.0

    @property
    def temperature(self) -> float:
        """The temperature of the group's requests: one for all."""
        return self.asks[0].temperature


@dataclass(frozen=True)
class Call:
    """A command, what it needs in its environment, the files it reads, and the file that it writes."""

    words: Sequence[str]
    result: str
    """A pattern below the folder that it runs in, where `files` lie too."""
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Tool:
    """One other client."""

    name: str
    program: str
    package: str
    """What to install, with the version that this was written for."""
    call: Callable[[Work, Endpoint, str | None], Call]
    read: Callable[[Mapping[str, Any]], Figures]
    cannot_send: Callable[[Ask], str | None]
    """Why it cannot send a request; None where it can."""
    differs: Sequence[str]
    """What in its numbers is not what ours are."""


def _environment(endpoint: Endpoint, tokenizer: str | None) -> dict[str, str]:
    """Return the variables that every tool gets. The key goes this way: a process list shows a command's every word."""
    found = {"NO_PROXY": "*", "no_proxy": "*", "DO_NOT_TRACK": "1", _KEY: endpoint.api_key or "none"}
    if tokenizer is None or Path(tokenizer).is_dir():
        found["HF_HUB_OFFLINE"] = "1"
    return found


def _files(tokenizer: str | None) -> dict[str, str]:
    return {} if tokenizer else dict(_TOKENIZER_FILES)


def _lines(rows: Sequence[Mapping[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _text(message: Message) -> str | None:
    content = message.get("content")
    return content if isinstance(content, str) else None


def _extras(ask: Ask) -> str | None:
    """Return what a request holds beyond messages, lengths and sampling, which only a verbatim body can carry."""
    plain = {"model", "messages", "max_tokens", "temperature", "stream", "stream_options", "seed", "ignore_eos"}
    more = sorted(set(ask.body("")) - plain)
    return f"it asks for {', '.join(more)}" if more else None


# --- vllm bench serve ---------------------------------------------------------------------------------


def _vllm_cannot(ask: Ask) -> str | None:
    if len(ask.messages) != 1 or ask.messages[0].get("role") != "user" or _text(ask.messages[0]) is None:
        return "it is not a single user message of text"
    return _extras(ask)


def _vllm_call(work: Work, endpoint: Endpoint, tokenizer: str | None) -> Call:
    rows = [{"prompt": _text(ask.messages[0]), "output_tokens": ask.output_tokens} for ask in work.asks]
    first = work.asks[0]
    body = {"seed": first.seed} if first.seed is not None else {}
    words = [
        "bench", "serve", "--backend", "openai-chat", "--base-url", endpoint.root,
        "--endpoint", "/v1/chat/completions", "--model", endpoint.model,
        "--dataset-name", "custom", "--dataset-path", "prompts.jsonl", "--custom-output-len", "-1",
        # The server applies the chat template, and the order is ours.
        "--skip-chat-template", "--disable-shuffle", "--no-oversample",
        "--num-prompts", str(len(rows)), "--max-concurrency", str(work.concurrency),
        "--temperature", f"{work.temperature:g}", "--percentile-metrics", "ttft,tpot,itl,e2el",
        "--ready-check-timeout-sec", "0", "--save-result", "--result-dir", ".", "--result-filename", "result.json",
    ]  # fmt: skip
    if body:
        words += ["--extra-body", json.dumps(body)]
    if first.ignore_eos:
        words.append("--ignore-eos")
    words += ["--tokenizer", tokenizer or _TOKENIZER]
    environment = {**_environment(endpoint, tokenizer), "VLLM_NO_USAGE_STATS": "1"}
    return Call(words, "result.json", {"prompts.jsonl": _lines(rows), **_files(tokenizer)}, environment)


def _vllm_read(found: Mapping[str, Any]) -> Figures:
    return {name: number_in(found.get(name)) for name in (*NUMBERS, *COUNTS)}


# --- GuideLLM -----------------------------------------------------------------------------------------


def _guidellm_cannot(ask: Ask) -> str | None:
    roles = [message.get("role") for message in ask.messages]
    if roles not in (["user"], ["system", "user"]) or None in map(_text, ask.messages):
        return "it is not a single user message of text, with or without a system message"
    return _extras(ask)


def _guidellm_call(work: Work, endpoint: Endpoint, tokenizer: str | None) -> Call:
    rows = []
    for ask in work.asks:
        system = _text(ask.messages[0]) if len(ask.messages) > 1 else ""
        # A column that some rows have and others lack would be read as nothing in all of them.
        rows.append(
            {"system_prompt": system, "prompt": _text(ask.messages[-1]), "output_tokens_count": ask.output_tokens}
        )
    if not any(row["system_prompt"] for row in rows):
        rows = [{name: value for name, value in row.items() if name != "system_prompt"} for row in rows]
    first = work.asks[0]
    # It sends ignore_eos with every length that it is given; what stands here is laid over that.
    body = {"temperature": work.temperature, "ignore_eos": first.ignore_eos}
    if first.seed is not None:
        body["seed"] = first.seed
    backend = {
        "kind": "openai_http",
        "target": endpoint.root,
        "model": endpoint.model,
        "request_format": "/v1/chat/completions",
        "timeout": work.timeout_s,
        "validate_backend": False,
        "extras": {"body": body},
    }
    if endpoint.api_key:
        backend["api_key"] = endpoint.api_key
    spec = {
        "backend": backend,
        "profile": {"kind": "concurrent", "streams": work.concurrency},
        "data": [{"kind": "json_file", "path": "prompts.jsonl", "load_kwargs": {"split": "train"}}],
        "constraints": [{"kind": "max_requests", "count": len(rows)}],
        "outputs": [{"kind": "json", "path": "result.json"}],
    }
    if tokenizer:
        spec["tokenizer"] = {"kind": "huggingface_auto", "model": tokenizer}
    files = {"prompts.jsonl": _lines(rows), "config.json": json.dumps({"spec": spec}, indent=1)}
    words = ["run", "--config", "config.json", "--disable-console-interactive"]
    return Call(words, "result.json", files, _environment(endpoint, tokenizer))


def _guidellm_read(found: Mapping[str, Any]) -> Figures:
    runs = found.get("benchmarks") or []
    if not runs:
        raise _unread("no benchmark in it")
    metrics = runs[0].get("metrics") or {}
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
        # Its time_per_output_token_ms has the first token inside; this one is what vLLM calls TPOT.
        "median_tpot_ms": of("inter_token_latency_ms", "median"),
        "p99_tpot_ms": of("inter_token_latency_ms", "percentiles", "p99"),
        "median_e2el_ms": of("request_latency", "median", factor=1000),
        "completed": number_in(totals.get("successful")),
        "failed": (number_in(totals.get("errored")) or 0) + (number_in(totals.get("incomplete")) or 0),
        "total_output_tokens": of("output_token_count", "total_sum"),
    }


# --- AIPerf -------------------------------------------------------------------------------------------


def _aiperf_call(work: Work, endpoint: Endpoint, tokenizer: str | None) -> Call:
    rows = [ask.body(endpoint.model) for ask in work.asks]
    server = {
        "url": endpoint.root,
        "type": "chat",
        "streaming": True,
        "timeout": work.timeout_s,
        "use_server_token_count": True,
    }
    if endpoint.api_key:
        # It puts the variable's value in by itself: the key is in no file.
        server["api_key"] = f"${{{_KEY}}}"
    benchmark = {
        "model": endpoint.model,
        "endpoint": server,
        "dataset": {"type": "file", "format": "raw_payload", "path": "prompts.jsonl", "sampling": "sequential"},
        "phases": {"type": "concurrency", "concurrency": work.concurrency, "requests": len(rows)},
        "tokenizer": {"name": tokenizer or _TOKENIZER},
        "artifacts": {"dir": "artifacts", "summary": ["json"], "records": False},
        "gpu_telemetry": {"enabled": False},
        "server_metrics": {"enabled": False},
    }
    config = {"schemaVersion": "2.0", "benchmark": benchmark}
    files = {"prompts.jsonl": _lines(rows), "config.yaml": json.dumps(config, indent=1), **_files(tokenizer)}
    words = ["profile", "--config", "config.yaml", "--ui", "none"]
    environment = _environment(endpoint, tokenizer)
    # Told that the hub is out of reach it looks even for a folder in the hub's cache.
    environment.pop("HF_HUB_OFFLINE", None)
    return Call(words, "artifacts/**/profile_export_aiperf.json", files, environment)


def _aiperf_read(found: Mapping[str, Any]) -> Figures:
    def of(name: str, field_name: str) -> float | None:
        return number_in((found.get(name) or {}).get(field_name))

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


def number_in(value: object) -> float | None:
    """Return a finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _unread(why: str) -> DrafthouseError:
    return one_problem(
        "client-failed",
        f"a result file in an unknown format ({why})",
        "the tool's own JSON",
        "check its version",
    )


TOOLS: dict[str, Tool] = {
    VLLM: Tool(
        VLLM,
        "vllm",
        "vllm[bench]==0.32.0",
        _vllm_call,
        _vllm_read,
        _vllm_cannot,
        ("Its clock starts before the connection is opened, ours when the request is sent.", _ONE_SEED),
    ),
    GUIDELLM: Tool(
        GUIDELLM,
        "guidellm",
        "guidellm==0.7.2",
        _guidellm_call,
        _guidellm_read,
        _guidellm_cannot,
        (
            "Its `inter_token_latency` is compared with our TPOT: the same formula, but weighted by each request's "
            "tokens.",
            "It asks for usage with every chunk (continuous_usage_stats), which makes the stream larger.",
            _ONE_SEED,
        ),
    ),
    AIPERF: Tool(
        AIPERF,
        "aiperf",
        "aiperf==0.13.0",
        _aiperf_call,
        _aiperf_read,
        lambda ask: None,
        ("Its `inter_token_latency` is compared with our TPOT: the same formula.",),
    ),
}
