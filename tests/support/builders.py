"""Results and resolved profiles of known numbers, as the benchmark client and the resolver make them."""

from __future__ import annotations

import copy
import math
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SPECULATION = [["--spec-type", "ngram-map-k"], ["--spec-ngram-map-k-size-m", "16"]]
KINDS = {"copy-edit": 3.0, "chat": 1.25, "creative": 0.96}

#: A result, or a resolved profile, of which nothing is there.
NOTHING: Any = {}


def serve_script(flags: Sequence[Sequence[str]]) -> str:
    lines = "".join(f"  {' '.join(words)} \\\n" for words in flags)
    return f'#!/usr/bin/env bash\n# Rendered\nset -euo pipefail\n\nexec llama-server \\\n{lines}  "$@"\n'


def make_resolved(
    *,
    kinds: Sequence[str] = ("copy-edit",),
    rounds: int = 2,
    concurrency: int = 1,
    suites: Sequence[str] = ("mixed",),
    synthetic: str | None = None,
) -> Any:
    shared = [["-m", "/models/smol-BF16.gguf"], ["--ctx-size", "4096"], ["--port", "8000"]]
    arms = {}
    for arm, speculation in (("baseline", []), ("speculative", SPECULATION)):
        flags = [*shared, *speculation]
        arms[arm] = {
            "files": [{"path": "serve.sh", "mode": "0755", "content": serve_script(flags)}],
            "flags": flags,
            "speculation_flags": speculation,
            "environment": {"OMP_NUM_THREADS": "2"},
        }
    return {
        "profile": "cpu-smollm2-ngram",
        "title": "SmolLM2-135M with n-gram lookup on the CPU",
        "synthetic": synthetic,
        "article": None,
        "key": "0123456789abcdef",
        "hardware": {"id": "cpu-small", "name": "Two CPU cores", "kind": "cpu"},
        "engine": {"id": "llamacpp", "name": "llama.cpp", "version": "11549", "runtime": "process"},
        "target": {"id": "smollm2", "name": "SmolLM2-135M-Instruct BF16", "served_name": "smollm2"},
        "draft": None,
        "method": {
            "id": "ngram-map-k",
            "name": "ngram-map-k",
            "num_speculative_tokens": 16,
            "kind": "lookup",
        },
        "experiment": {
            "suites": list(suites),
            "kinds": list(kinds),
            "concurrency": concurrency,
            "rounds": rounds,
            "schedule": "interleaved",
            "temperatures": [0.0],
            "prompts_per_kind": {},
            "anchors": 8,
            "fresh": 0,
            "gates_at_once": 1,
        },
        "arms": arms,
        "expectation": {"speedup": 2.9, "acceptance": 0.9},
        "warnings": [],
        "site": {"manage_host": True, "runtime": "process", "host": "127.0.0.1", "port": 8000},
    }


def make_request(
    prompt_id: str,
    kind: str,
    round_number: int,
    tpot_ms: float,
    *,
    suite: str = "mixed",
    temperature: float = 0.0,
    ttft_ms: float = 40.0,
    thinking_ms: float = 0.0,
    output_tokens: int = 160,
    text: str | None = None,
    draft_tokens: int | None = None,
) -> Any:
    group = kind if temperature == 0 else f"{kind}@{temperature:g}"
    if text is None:
        # The same in both arms, and nothing in it twice.
        words = [zlib.crc32(f"{prompt_id} {number}".encode()) for number in range(1 + output_tokens // 2)]
        text = " ".join(f"{word:x}" for word in words)
    elif text:
        # A token is a byte at least.
        output_tokens = min(output_tokens, len(text.encode()))
    return {
        "prompt_id": prompt_id,
        "kind": kind,
        "suite": suite,
        "group": group,
        "round": round_number,
        "temperature": temperature,
        "status": "ok",
        "error": None,
        "http_status": 200,
        "started_s": 1.0,
        "input_tokens": 78,
        "output_tokens": output_tokens,
        "ttft_ms": ttft_ms,
        "ttfat_ms": ttft_ms + thinking_ms,
        "e2el_ms": ttft_ms + tpot_ms * (output_tokens - 1),
        "tpot_ms": tpot_ms,
        "itls_ms": [],
        "chunks": output_tokens,
        "finish_reason": "length",
        "text": text,
        "reasoning_text": "",
        "timings": None
        if draft_tokens is None
        else {"draft_n": draft_tokens, "draft_n_accepted": draft_tokens * 9 // 10},
        "avg_decoded_tokens_per_iter": None,
    }


def acceptance(draft_tokens: int, positions: int = 16) -> Any:
    """The counters of an arm that drafted so many tokens, nine of ten accepted."""
    drafts = draft_tokens // positions
    rates = [0.98 * math.exp(-0.015 * position) for position in range(positions)] if drafts else []
    accepted = draft_tokens * 9 // 10
    return {
        "spec_decode_acceptance_rate": 100 * accepted / draft_tokens if draft_tokens else None,
        "spec_decode_acceptance_length": 1 + accepted / drafts if drafts else None,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": draft_tokens,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_per_position_acceptance_rates": rates,
    }


def machine_state(load: float) -> Any:
    return {
        "time": "2026-11-21T11:16:00+00:00",
        "host": "buildbox",
        "kernel": "6.12.9",
        "cpu": {"model": "Xeon", "cores": 2, "cores_usable": 2, "clock_mean_mhz": 2600.0, "load_1m": load},
        "memory": {"total_bytes": 16_000_000_000, "available_bytes": 9_000_000_000},
        "gpus": [],
        "gpu_processes": [],
    }


def make_result(arm: str, requests: Sequence[Any], *, drafted: int = 0) -> Any:
    """One arm's result around its requests; ``drafted`` tokens a group."""
    groups = list(dict.fromkeys(str(r["group"]) for r in requests))
    whole = [r for r in requests if r["status"] == "ok"]
    return {
        "schema": "drafthouse.result/1",
        "arm": arm,
        "profile": "cpu-smollm2-ngram",
        "key": "0123456789abcdef",
        "date": "20261121-111600" if arm == "baseline" else "20261121-111742",
        "backend": "openai-chat",
        "model_id": "smollm2",
        "num_prompts": len(requests),
        "request_rate": "inf",
        "max_concurrency": 1,
        "rounds": len({r["round"] for r in requests}),
        "duration": 61.2,
        "completed": len(whole),
        **{
            status: sum(r["status"] == status for r in requests)
            for status in ("failed", "cut_off", "empty", "no_usage")
        },
        "total_input_tokens": sum(r["input_tokens"] for r in whole),
        "total_output_tokens": sum(r["output_tokens"] for r in whole),
        "output_throughput": 88.1,
        **acceptance(drafted * len(groups)),
        "spec_decode_source": "metrics",
        "groups": {group: acceptance(drafted) for group in groups},
        "machine": {
            "before": machine_state(0.21),
            "after": machine_state(1.71 if arm == "baseline" else 1.64),
            "groups": [
                {"round": 1, "group": group, "between": {"other_cpu_percent": 1.5, "busy_processes": []}}
                for group in groups
            ],
        },
        "engine": {
            "id": "llamacpp",
            "name": "llama.cpp server",
            "version": "11549",
            "runtime": "process",
            "model_runner": "V2" if arm == "baseline" else "V1",
        },
        "settings": {
            "concurrency": 1,
            "first_round": 1,
            "temperatures": [0.0],
            "seed": 0,
            "ignore_eos": False,
        },
        "suites": list(dict.fromkeys(str(r["suite"]) for r in requests)),
        "requests": [dict(r) for r in requests],
    }


def make_pair(
    speedups: Mapping[str, float] | None = None,
    *,
    prompts: int = 8,
    rounds: int = 2,
    noise: float = 0.02,
    seed: int = 7,
    drafted: int = 1600,
    articles: bool = False,
    text: Callable[[str, str, int], str | None] = lambda arm, prompt, number: None,
) -> tuple[Any, Any]:
    """Two results with those speed-ups per kind; each TPOT has log-normal noise around the truth."""
    chance = random.Random(seed)
    requests: dict[str, list[Any]] = {"baseline": [], "speculative": []}
    plan = [("mixed", kind, f"{kind}-{n}") for kind in (speedups or KINDS) for n in range(1, prompts + 1)]
    if articles:
        plan += [("articles", "vacation", f"vacation#{n}") for n in range(1, 11)]
    own = {(kind, prompt): chance.lognormvariate(0, 0.12) for _, kind, prompt in plan}
    for number in range(1, rounds + 1):
        for suite, kind, prompt in plan:
            for arm, made in requests.items():
                gain = 1.0 if arm == "baseline" else (speedups or KINDS).get(kind, 1.1)
                if gain != 1.0:  # prompts gain differently, unless the arms are to be equal
                    gain *= own[kind, prompt] ** 0.5
                thinking = 600.0 / gain if suite == "articles" else 0.0
                made.append(
                    make_request(
                        prompt,
                        kind,
                        number,
                        14.0 * own[kind, prompt] / gain * chance.lognormvariate(0, noise),
                        suite=suite,
                        ttft_ms=40 * chance.lognormvariate(0, 0.15),
                        thinking_ms=thinking,
                        text=text(arm, prompt, number),
                    )
                )
    return (
        make_result("baseline", requests["baseline"]),
        make_result("speculative", requests["speculative"], drafted=drafted),
    )


def broken(whole: Any, *path: Any, value: Any) -> Any:
    """A document with one thing in it changed, or without it where the value is None."""
    data = copy.deepcopy(whole)
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data
