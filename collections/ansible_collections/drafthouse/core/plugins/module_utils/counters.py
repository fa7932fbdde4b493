"""How much was drafted and accepted: from the engine's counters, its answers, or its log.

Names of the fields and formulas are vLLM's (`vllm/v1/spec_decode/metrics.py`, `vllm/benchmarks/serve.py`):
rate = accepted / drafted tokens (percent), mean acceptance length = 1 + accepted / drafts,
acceptance at position i = accepted at i / drafts (a fraction).

TensorRT-LLM counts twice (`tensorrt_llm/metrics/collector.py`), at /prometheus/metrics, which is there only with
`return_perf_metrics: true`:

- by request and position, since 1.3.0rc19 (PR 12636): `trtllm_spec_decode_drafted_tokens_total` and
  `trtllm_spec_decode_accepted_tokens_total`, with the label `token_position`. A draft has a token at position 0,
  so what was drafted there is the number of drafts. Written as a request ends.
- by iteration (PR 12545), with `enable_iter_perf_stats: true`: `trtllm_spec_decode_num_draft_tokens_total` and
  `trtllm_spec_decode_num_accepted_tokens_total`, without the number of drafts.

Neither has a line before it first moved, so that a server without them may draft all the same (every 1.2 does):
there they tell nothing, where vLLM's and llama.cpp's would tell "nothing drafted".
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import aiohttp

from .client import OK, Endpoint
from .traffic import parse_traffic

#: How long the engine may take to show its counters, in seconds. A busy one answers late.
READ_TIMEOUT_S = 30.0

_DIALECTS = ("vllm", "llamacpp")
#: Which of them have a tokenizer at /tokenize.
TOKENIZERS = _DIALECTS
_TRTLLM = "trtllm"
_BY_REQUEST, _BY_ITERATION = "by request", "by iteration"
_TRTLLM_FIELDS = {
    "spec_decode_drafted_tokens": (_BY_REQUEST, "draft_tokens"),
    "spec_decode_accepted_tokens": (_BY_REQUEST, "accepted_tokens"),
    "spec_decode_num_draft_tokens": (_BY_ITERATION, "draft_tokens"),
    "spec_decode_num_accepted_tokens": (_BY_ITERATION, "accepted_tokens"),
}
_FIELDS = {
    "num_drafts": "num_drafts",
    "num_draft_tokens": "draft_tokens",
    "num_accepted_tokens": "accepted_tokens",
    "num_accepted_tokens_per_pos": "per_position",
}
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_LOG_LINE = re.compile(r"SpecDecoding metrics: (.*)")
_LOG_FIELD = {
    "accepted": re.compile(r"Accepted: (\d+) tokens"),
    "drafted": re.compile(r"Drafted: (\d+) tokens"),
    "positions": re.compile(r"Per-position acceptance rate: ([\d.]+(?:, [\d.]+)*)"),
    "length": re.compile(r"Mean acceptance length: ([\d.]+)"),
}

Snapshot = dict[str, Any]


def parse_counters(text: str) -> Snapshot:
    """Return the speculation counters in a Prometheus text.

    All dialects, with and without `_total`, summed over all labels but the position (a label for each
    engine of a data-parallel server). ``dialect`` is None when the text is from none of these engines.
    ``present`` is False when the engine has no such counters: vLLM and llama.cpp run without speculation then.
    A count that the engine does not keep is None.
    """
    snapshot: Snapshot = {"dialect": None, "present": False, **_nothing(), "error": None}
    ours: dict[tuple[str, str, bool, int], float] = {}
    totals: dict[tuple[str, bool, int], float] = {}
    for line in text.splitlines():
        sample = _SAMPLE.match(line.strip())
        if not sample:
            continue
        if sample.group(1).startswith((f"{_TRTLLM}_", f"{_TRTLLM}:")):
            # With an underscore as trtllm-serve writes it, with a colon behind NVIDIA Dynamo.
            snapshot["dialect"] = _TRTLLM
            _take_trtllm(sample, ours)
            continue
        dialect, colon, name = sample.group(1).partition(":")
        if not colon or dialect not in _DIALECTS:
            continue
        snapshot["dialect"] = dialect
        if not name.startswith("spec_decode_"):
            continue
        short = name.removeprefix("spec_decode_").removesuffix("_total")
        value = _number(sample.group(3))
        if short not in _FIELDS or value is None:
            continue
        labels = dict(_LABEL.findall(sample.group(2) or ""))
        position = int(labels["position"]) if labels.get("position", "").isdigit() else 0
        key = (_FIELDS[short], name.endswith("_total"), position)
        totals[key] = totals.get(key, 0) + value
    per_position: dict[int, int] = {}
    # Sorted: where a server writes both spellings, the one with `_total` is read last and stays.
    for (short, _, position), value in sorted(totals.items()):
        snapshot["present"] = True
        if short == "per_position":
            per_position[position] = int(value)
        else:
            snapshot[short] = int(value)
    if per_position:
        snapshot["per_position"] = _by_place(per_position)
    return {**snapshot, **_read_trtllm(ours)}


def _by_place(counts: Mapping[int, int]) -> list[int]:
    return [counts.get(at, 0) for at in range(max(counts) + 1)] if counts else []


def _take_trtllm(sample: re.Match[str], found: dict[tuple[str, str, bool, int], float]) -> None:
    """Add one line of TensorRT-LLM's to ``found``, by family, field, spelling and position."""
    name, labels, value = sample.group(1)[len(_TRTLLM) + 1 :], sample.group(2), _number(sample.group(3))
    family, field = _TRTLLM_FIELDS.get(name.removesuffix("_total"), (None, None))
    if family is None or field is None or value is None:
        return
    place = dict(_LABEL.findall(labels or "")).get("token_position", "")
    key = (family, field, name.endswith("_total"), int(place) if place.isdigit() else 0)
    found[key] = found.get(key, 0) + value


def _read_trtllm(found: Mapping[tuple[str, str, bool, int], float]) -> Snapshot:
    """Return TensorRT-LLM's counts: by request, which knows the drafts, before by iteration; never both added."""
    family = next((one for one in (_BY_REQUEST, _BY_ITERATION) if any(key[0] == one for key in found)), None)
    if family is None:
        return {}
    counts: dict[str, dict[int, int]] = {"draft_tokens": {}, "accepted_tokens": {}}
    for (one, field, _, place), value in sorted(found.items()):
        if one == family:
            counts[field][place] = int(value)
    drafted, accepted = counts["draft_tokens"], counts["accepted_tokens"]
    return {
        "present": True,
        "family": family,
        "num_drafts": drafted.get(0, 0) if family == _BY_REQUEST else None,
        "draft_tokens": sum(drafted.values()),
        "accepted_tokens": sum(accepted.values()),
        "per_position": _by_place(accepted) if family == _BY_REQUEST else [],
    }


def unreadable(error: str) -> Snapshot:
    """Return the snapshot of a server whose counters cannot be read."""
    return {"dialect": None, "present": False, **_nothing(None), "error": error}


async def read_counters(session: aiohttp.ClientSession, endpoint: Endpoint) -> Snapshot:
    """Read the counters over HTTP; never raises. What the engine says of its work stands under ``traffic``.

    vLLM and TensorRT-LLM show them to anybody, llama.cpp behind its key: asked without the key first, so that a
    key is never given to a server that does not want it.
    """
    timeout = aiohttp.ClientTimeout(total=READ_TIMEOUT_S)
    error = ""
    for headers in ({}, endpoint.headers):
        try:
            async with session.get(
                endpoint.counters_url,
                headers={"Accept-Encoding": "identity", **headers},
                timeout=timeout,
                trace_request_ctx=_NoClock(),
            ) as response:
                text = (await response.read()).decode("utf-8", "replace")
                if response.status == 200:
                    return {**parse_counters(text), "traffic": parse_traffic(text)}
                error = f"HTTP {response.status}"
                if response.status not in {401, 403} or not endpoint.headers:
                    break
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as problem:
            error = f"{type(problem).__name__}: {problem}"
            break
    return unreadable(endpoint.without_key(f"{endpoint.counters_url}: {error}"))


async def count_tokens(session: aiohttp.ClientSession, endpoint: Endpoint, text: str) -> tuple[int | None, str | None]:
    """Return how many tokens the engine's tokenizer makes of ``text``, or None and why it cannot be asked.

    vLLM and llama.cpp have it at /tokenize, and each reads its own fields. Never raises.
    """
    body = {"model": endpoint.model, "prompt": text, "add_special_tokens": False, "content": text, "add_special": False}
    try:
        async with session.post(
            f"{endpoint.root}/tokenize",
            json=body,
            headers={"Accept-Encoding": "identity", **endpoint.headers},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=READ_TIMEOUT_S),
            trace_request_ctx=_NoClock(),
        ) as response:
            if response.status != 200:
                return None, f"/tokenize: HTTP {response.status}"
            tokens = json.loads(await response.read()).get("tokens")
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError, AttributeError) as problem:
        return None, endpoint.without_key(f"/tokenize: {type(problem).__name__}: {problem}")
    return (len(tokens), None) if isinstance(tokens, list) else (None, "/tokenize: no list of tokens in its answer")


class _NoClock:
    """Takes the session's clock signal where nothing is timed."""

    sent_s = 0.0


def difference(before: Snapshot, after: Snapshot) -> dict[str, Any] | None:
    """Return what was counted between two snapshots, or None where that cannot be known.

    Unknown: one of them was unreadable, no engine's, or smaller than before (a restarted server).
    vLLM or llama.cpp showing its counters but none for speculation has drafted nothing: zeros. TensorRT-LLM
    has no such line until it drafts for the first time, and older versions never have: unknown.
    """
    if before["dialect"] is None and not (after["dialect"] == _TRTLLM and before["error"] is None):
        return None
    if after["dialect"] is None:
        return None
    if after["dialect"] == _TRTLLM and (
        not after["present"] or (before["present"] and before.get("family") != after.get("family"))
    ):
        return None
    moved: dict[str, int | None] = {}
    for name in ("num_drafts", "draft_tokens", "accepted_tokens"):
        moved[name] = None if after[name] is None else after[name] - (before[name] or 0)
    old: list[int] = before["per_position"]
    new: list[int] = after["per_position"]
    positions = [count - (old[at] if at < len(old) else 0) for at, count in enumerate(new)]
    if min([*(value for value in moved.values() if value is not None), *positions]) < 0:
        return None
    return {**moved, "per_position": positions}


def total(deltas: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of what `difference` returned."""
    result = _nothing()
    for delta in deltas:
        for name in ("num_drafts", "draft_tokens", "accepted_tokens"):
            # What one of them does not know, the sum does not.
            result[name] = None if None in (result[name], delta[name]) else result[name] + delta[name]
        result["per_position"] = _added(result["per_position"], delta["per_position"])
    return result


def acceptance(source: str | None, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the acceptance fields of a result from counts; None where the counts do not say it.

    ``counts`` has num_drafts, draft_tokens, accepted_tokens, per_position; any of them may be None.
    """
    drafts, drafted, accepted = counts["num_drafts"], counts["draft_tokens"], counts["accepted_tokens"]
    positions = counts["per_position"]
    known = drafts and accepted is not None
    return {
        "spec_decode_acceptance_rate": 100 * accepted / drafted if drafted and accepted is not None else None,
        "spec_decode_acceptance_length": 1 + accepted / drafts if known else None,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": drafted,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_per_position_acceptance_rates": (
            [count / drafts for count in positions] if drafts and positions else None
        ),
        "spec_decode_source": source,
    }


def acceptance_from_requests(requests: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the acceptance that the answers themselves tell, or None when they tell nothing.

    Three engines, three ways: vLLM's `metrics.speculative_decoding` (all fields; acceptance at position i
    is the share of drafts that kept more than i tokens), llama.cpp's `timings.draft_n` and
    `draft_n_accepted` (no number of drafts, so no length; absent when nothing was drafted, then zero),
    TensorRT-LLM's `avg_decoded_tokens_per_iter` (the length alone: tokens / steps over all requests). It stands in
    every choice, of every chunk of a stream, and the last one is of the whole answer
    (`tensorrt_llm/serve/postprocess_handlers.py`); gpt-oss's own chat format has a writer of its own, which leaves
    it out (`harmony_adapter.py`), unless the server runs with `DISABLE_HARMONY_ADAPTER=1`.
    """
    good = [request for request in requests if request["status"] == OK]
    metrics = [request["spec_metrics"] for request in good if request.get("spec_metrics")]
    if metrics:
        return _from_spec_metrics(metrics)
    timings = [request["timings"] for request in good if request.get("timings")]
    if timings:
        counts = _nothing(None)
        counts["draft_tokens"] = sum(int(timing.get("draft_n") or 0) for timing in timings)
        counts["accepted_tokens"] = sum(int(timing.get("draft_n_accepted") or 0) for timing in timings)
        return acceptance("response", counts)
    steps = tokens = 0.0
    for request in good:
        average = request.get("avg_decoded_tokens_per_iter")
        if average and average > 0 and math.isfinite(average):
            tokens += request["output_tokens"]
            steps += request["output_tokens"] / average
    if steps:
        return {**acceptance("response", _nothing(None)), "spec_decode_acceptance_length": tokens / steps}
    return None


def _from_spec_metrics(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counts = _nothing()
    for one in metrics:
        counts["num_drafts"] += int(one.get("num_spec_steps") or 0)
        counts["draft_tokens"] += int(one.get("num_draft_tokens") or 0)
        counts["accepted_tokens"] += int(one.get("num_accepted_draft_tokens") or 0)
        histogram = [int(count) for count in one.get("acceptance_histogram") or []]
        kept = [sum(histogram[at + 1 :]) for at in range(len(histogram) - 1)]
        counts["per_position"] = _added(counts["per_position"], kept)
    return acceptance("response", counts)


def acceptance_from_log(text: str) -> dict[str, Any] | None:
    """Return the acceptance in vLLM's log lines (`SpecDecoding metrics: ...`), or None without any.

    A line gives accepted and drafted tokens exactly and rounded rates. The number of drafts follows from
    them: accepted / (sum of the per-position rates), which has the most digits; without positions
    accepted / (mean length - 1). Lines where nothing was accepted say nothing about the drafts, unless
    the positions give the length of a draft.
    """
    lines = [line for line in (_read_log_line(match) for match in _LOG_LINE.findall(text)) if line]
    if not lines:
        return None
    drafts = [line["num_drafts"] for line in lines]
    counts: dict[str, Any] = {
        "num_drafts": round(sum(drafts)) if None not in drafts else None,
        "draft_tokens": sum(line["draft_tokens"] for line in lines),
        "accepted_tokens": sum(line["accepted_tokens"] for line in lines),
        "per_position": [],
    }
    for line in lines:
        counts["per_position"] = _added(
            counts["per_position"], [rate * (line["num_drafts"] or 0) for rate in line["rates"]]
        )
    return acceptance("log", counts)


def _read_log_line(text: str) -> dict[str, Any] | None:
    found = {name: pattern.search(text) for name, pattern in _LOG_FIELD.items()}
    if not found["accepted"] or not found["drafted"]:
        return None
    accepted, drafted = int(found["accepted"].group(1)), int(found["drafted"].group(1))
    positions = found["positions"]
    rates = [float(rate) for rate in positions.group(1).split(", ")] if positions else []
    length = float(found["length"].group(1)) if found["length"] else 1.0
    drafts: float | None = None
    kept = math.fsum(rates)
    if accepted and kept:
        drafts = accepted / kept
    elif accepted and length > 1:
        drafts = accepted / (length - 1)
    elif rates:
        drafts = drafted / len(rates)
    return {"num_drafts": drafts, "draft_tokens": drafted, "accepted_tokens": accepted, "rates": rates}


def _nothing(value: int | None = 0) -> dict[str, Any]:
    return {"num_drafts": value, "draft_tokens": value, "accepted_tokens": value, "per_position": []}


def _added(one: Sequence[float], other: Sequence[float]) -> list[float]:
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return [value + (shorter[at] if at < len(shorter) else 0) for at, value in enumerate(longer)]


def _number(text: str) -> float | None:
    """Return a sample's value, or None for NaN, infinities and what is no number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
