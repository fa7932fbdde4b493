"""Other benchmark clients, run with the requests of our own client: what each is given, and the numbers it reports.

`vllm bench serve`, GuideLLM (0.7 and newer) and AIPerf. Each runs in an environment of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drafthouse.bench.client import ChatRequest, Endpoint
from drafthouse.bench.groups import StepOptions, plan_groups
from tests.load.client_figures import AIPERF, GUIDELLM, READERS, VLLM, Figures

LIMIT_S = 600.0
_KEY = "OPENAI_API_KEY"
# The tools that count tokens themselves load a tokenizer before anything else. Every compared number comes from the
# server's own counts, so this one serves: whole words, all unknown, no network.
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


@dataclass(frozen=True)
class Work:
    """The requests of one group, in order, and how many run at a time."""

    asks: Sequence[ChatRequest]
    concurrency: int
    timeout_s: float = 120.0

    @property
    def temperature(self) -> float:
        """The temperature of the group's requests: one for all."""
        return self.asks[0].temperature


@dataclass(frozen=True)
class Call:
    """A command with the files it reads, its result file as a pattern below its folder, and its environment."""

    words: Sequence[str]
    result: str
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Tool:
    """A client: its program, the package with the version that this was written for, and its command."""

    program: str
    package: str
    call: Callable[[Work, Endpoint, Path], Call]


def work_of(suite: Any, options: StepOptions) -> Work:
    """The requests that our client sends for a suite of one category, as work for another client."""
    asks = [ask for group in plan_groups([suite], options) for ask in group.requests]
    return Work(asks, options.concurrency)


def run_tool(name: str, program: Path, work: Work, endpoint: Endpoint, folder: Path) -> tuple[Figures, dict[str, Any]]:
    """The numbers of a client that sent ``work`` from ``folder``, and its own result file. AssertionError if it fails.

    The key goes through the environment or a file that only its owner can read: a process list shows every argument.
    """
    folder.mkdir(mode=0o700)
    call = TOOLS[name].call(work, endpoint, folder)
    for file, text in call.files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text, "utf-8")
        (folder / file).chmod(0o600)
    with (folder / "output").open("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            [str(program), *call.words],
            cwd=folder,
            env={**os.environ, **call.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # AIPerf is a dozen processes: all end with the group
        )
        try:
            process.wait(LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        assert process.returncode == 0, endpoint.without_key(output.read()[-2000:])
    document: dict[str, Any] = json.loads(next(folder.glob(call.result)).read_text("utf-8"))
    return READERS[name](document), document


def _environment(endpoint: Endpoint) -> dict[str, str]:
    quiet = {"NO_PROXY": "*", "no_proxy": "*", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"}
    return {**quiet, _KEY: endpoint.api_key or "none", "HF_HUB_OFFLINE": "1"}


def _lines(rows: Sequence[Mapping[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _text(ask: ChatRequest) -> str:
    """The text of a request that is one user message, which is what vLLM's client and this call of GuideLLM send."""
    (message,) = ask.messages
    content = message["content"]
    assert isinstance(content, str)
    return content


def _vllm_call(work: Work, endpoint: Endpoint, folder: Path) -> Call:
    rows = [{"prompt": _text(ask), "output_tokens": ask.output_tokens} for ask in work.asks]
    words = [
        "bench", "serve", "--backend", "openai-chat", "--base-url", endpoint.root,
        "--endpoint", "/v1/chat/completions", "--model", endpoint.model,
        "--dataset-name", "custom", "--dataset-path", "prompts.jsonl", "--custom-output-len", "-1",
        # The server applies the chat template, and the order is ours.
        "--skip-chat-template", "--disable-shuffle", "--no-oversample",
        "--num-prompts", str(len(rows)), "--max-concurrency", str(work.concurrency),
        "--temperature", f"{work.temperature:g}", "--percentile-metrics", "ttft,tpot,itl,e2el",
        "--ready-check-timeout-sec", "0", "--save-result", "--result-dir", ".", "--result-filename", "result.json",
        "--extra-body", json.dumps({"seed": work.asks[0].seed}), "--tokenizer", str(folder / "tokenizer"),
    ]  # fmt: skip
    return Call(words, "result.json", {"prompts.jsonl": _lines(rows), **_TOKENIZER_FILES}, _environment(endpoint))


def _guidellm_call(work: Work, endpoint: Endpoint, folder: Path) -> Call:
    rows = [{"prompt": _text(ask), "output_tokens_count": ask.output_tokens} for ask in work.asks]
    backend = {
        "kind": "openai_http",
        "target": endpoint.root,
        "model": endpoint.model,
        "request_format": "/v1/chat/completions",
        "timeout": work.timeout_s,
        "validate_backend": False,
        # It sends ignore_eos with every length that it is given; what stands here is laid over that.
        "extras": {"body": {"temperature": work.temperature, "ignore_eos": False, "seed": work.asks[0].seed}},
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
    files = {"prompts.jsonl": _lines(rows), "config.json": json.dumps({"spec": spec}, indent=1)}
    words = ["run", "--config", "config.json", "--disable-console-interactive"]
    return Call(words, "result.json", files, _environment(endpoint))


def _aiperf_call(work: Work, endpoint: Endpoint, folder: Path) -> Call:
    rows = [ask.body(endpoint.model) for ask in work.asks]
    server = {
        "url": endpoint.root,
        "type": "chat",
        "streaming": True,
        "timeout": work.timeout_s,
        "use_server_token_count": True,
    }
    if endpoint.api_key:
        # AIPerf puts the variable's value in: the key is in no file.
        server["api_key"] = f"${{{_KEY}}}"
    benchmark = {
        "model": endpoint.model,
        "endpoint": server,
        "dataset": {"type": "file", "format": "raw_payload", "path": "prompts.jsonl", "sampling": "sequential"},
        "phases": {"type": "concurrency", "concurrency": work.concurrency, "requests": len(rows)},
        "tokenizer": {"name": str(folder / "tokenizer")},
        "artifacts": {"dir": "artifacts", "summary": ["json"], "records": False},
        "gpu_telemetry": {"enabled": False},
        "server_metrics": {"enabled": False},
    }
    config = {"schemaVersion": "2.0", "benchmark": benchmark}
    files = {"prompts.jsonl": _lines(rows), "config.yaml": json.dumps(config, indent=1), **_TOKENIZER_FILES}
    words = ["profile", "--config", "config.yaml", "--ui", "none"]
    environment = _environment(endpoint)
    # Offline, AIPerf looks even for a folder in the hub's cache.
    environment.pop("HF_HUB_OFFLINE")
    return Call(words, "artifacts/**/profile_export_aiperf.json", files, environment)


TOOLS: dict[str, Tool] = {
    VLLM: Tool("vllm", "vllm[bench]==0.32.0", _vllm_call),
    GUIDELLM: Tool("guidellm", "guidellm==0.7.2", _guidellm_call),
    AIPERF: Tool("aiperf", "aiperf==0.13.0", _aiperf_call),
}
