"""How much was drafted and accepted: from the engine's counters, its answers, or its log.

Names of the fields and formulas are vLLM's (`vllm/v1/spec_decode/metrics.py`, `vllm/benchmarks/serve.py`):
rate = accepted / drafted tokens (percent), mean acceptance length = 1 + accepted / drafts,
acceptance at position i = accepted at i / drafts (a fraction). Whose counters are called what: `engines`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..core.bounded import ENGINE_ANSWER_BYTES, MIB, TooMuch
from ..core.prometheus_text import Sample, samples
from ..engines.registry import DIALECTS, dialect_of
from .foreign_traffic import parse_traffic
from .outcome import OK

if TYPE_CHECKING:
    import aiohttp

    from drafthouse.bench.client import Endpoint
    from drafthouse.bench.result_types import Acceptance, Counts, Request, Snapshot

#: How long the engine may take to show its counters, in seconds. A busy one answers late.
READ_TIMEOUT_S = 6.0
_COUNTS_DRAFTS = re.compile("spec|draft|accept")
_COUNTED: tuple[Literal["num_drafts", "draft_tokens", "accepted_tokens"], ...]
_COUNTED = ("num_drafts", "draft_tokens", "accepted_tokens")


def parse_counters(text: str) -> Snapshot:
    """The speculation counters in a Prometheus text, summed over all labels but the position.

    ``dialect`` is None when the text is from no engine that is known. ``present`` is False when the engine shows no
    such counters. A count that the engine does not keep is None.
    """
    snapshot = _nothing_seen(0, None)
    own: list[Sample] = []
    engine = None
    for sample in samples(text):
        if found := dialect_of(sample.name):
            if found is not engine:
                engine, own = found, []
            own.append(sample)
    if engine is None:
        return snapshot
    if any(not sample.finite and _COUNTS_DRAFTS.search(sample.name) for sample in own):
        return unreadable("a counter of drafting that is no number")
    snapshot["dialect"] = engine.name
    drafted = engine.drafted(own)
    if drafted is None:
        return snapshot
    snapshot |= {
        "present": True,
        "num_drafts": drafted.num_drafts,
        "draft_tokens": drafted.draft_tokens,
        "accepted_tokens": drafted.accepted_tokens,
        "per_position": drafted.per_position,
    }
    if drafted.family:
        snapshot["family"] = drafted.family
    if drafted.length:
        snapshot["length"] = drafted.length
    return snapshot


def unreadable(error: str) -> Snapshot:
    """The snapshot of a server whose counters cannot be read."""
    return _nothing_seen(None, error)


def is_late(snapshot: Snapshot) -> bool:
    """Whether the server did not answer in time."""
    return "TimeoutError: " in (snapshot["error"] or "")


def _nothing_seen(value: int | None, error: str | None) -> Snapshot:
    return {
        "dialect": None,
        "present": False,
        "num_drafts": value,
        "draft_tokens": value,
        "accepted_tokens": value,
        "per_position": [],
        "error": error,
    }


async def read_counters(session: aiohttp.ClientSession, endpoint: Endpoint) -> Snapshot:
    """Read the counters over HTTP; never raises. What the engine says of its work stands under ``traffic``.

    vLLM and TensorRT-LLM show them to anybody, llama.cpp behind its key: asked without the key first, so that a key is
    never given to a server that does not want it.
    """
    import aiohttp  # noqa: PLC0415 (slow to import, and who judges counters reads none)

    url = endpoint.counters_url
    timeout = aiohttp.ClientTimeout(total=READ_TIMEOUT_S)
    error = ""
    for headers in ({}, endpoint.headers):
        try:
            async with session.get(
                url,
                headers={"Accept-Encoding": "identity", **headers},
                allow_redirects=False,
                timeout=timeout,
                trace_request_ctx=_NoClock(),
            ) as response:
                text = (await bounded_body(response)).decode("utf-8", "replace")
                if response.status == 200:
                    return parse_counters(text) | {"traffic": parse_traffic(text)}
                error = f"HTTP {response.status}"
                if response.status not in {401, 403} or not endpoint.headers:
                    break
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError, RecursionError) as problem:
            error = f"{type(problem).__name__}: {problem}"
            break
    return unreadable(endpoint.without_key(f"{url}: {error}"))


async def count_tokens(session: aiohttp.ClientSession, endpoint: Endpoint, text: str) -> tuple[int | None, str | None]:
    """How many tokens the engine's tokenizer makes of ``text``, or None and why it cannot be asked.

    It stands at /tokenize, and each engine reads its own fields. Never raises.
    """
    import aiohttp  # noqa: PLC0415

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
            tokens = json.loads(await bounded_body(response)).get("tokens")
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError, AttributeError, RecursionError) as problem:
        return None, endpoint.without_key(f"/tokenize: {type(problem).__name__}: {problem}")
    if not isinstance(tokens, list):
        return None, "/tokenize: no list of tokens in its answer"
    return len(tokens), None


async def bounded_body(response: aiohttp.ClientResponse) -> bytes:
    """All of an answer that is no stream of tokens. Raises TooMuch."""
    pieces = list[bytes]()
    size = 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > ENGINE_ANSWER_BYTES:
            response.close()
            raise TooMuch(f"an answer of more than {ENGINE_ANSWER_BYTES / MIB:.0f} MiB")
    return b"".join(pieces)


class _NoClock:
    """Takes the session's clock signal where nothing is timed."""

    sent_s = 0.0


def difference(before: Snapshot, after: Snapshot) -> Counts | None:
    """What was counted between two snapshots, or None where that cannot be known.

    Unknown: one of them was unreadable, no engine's, smaller than before (a restarted server), or impossible (more was
    accepted than drafted).
    """
    if not _comparable(before, after):
        return None
    moved = _nothing()
    for name in _COUNTED:
        value = after[name]
        moved[name] = None if value is None else value - (before[name] or 0)
    new = after["per_position"]
    old = [*before["per_position"], *[0] * len(new)]
    moved["per_position"] = [count - earlier for count, earlier in zip(new, old, strict=False)]
    if min([*(moved[name] or 0 for name in _COUNTED), *moved["per_position"]]) < 0:
        return None
    drafted, accepted = moved["draft_tokens"], moved["accepted_tokens"]
    if drafted is not None and accepted is not None and accepted > drafted:
        return None
    return moved


def _comparable(before: Snapshot, after: Snapshot) -> bool:
    """Whether the counters of two snapshots can be subtracted.

    An engine that `shows_zeros` and has no counters of speculation has drafted nothing: zeros. One that does not has
    no such line, or none at all, until it drafts for the first time.
    """
    engine = DIALECTS.get(after["dialect"] or "")
    if engine is None:
        return False
    if before["dialect"] is None and (engine.shows_zeros or before["error"] is not None):
        return False
    if not engine.shows_zeros and not after["present"]:
        return False
    return not before["present"] or before.get("family") == after.get("family")


def total(deltas: Iterable[Counts]) -> Counts:
    """The sum of what `difference` returned."""
    result = _nothing()
    for delta in deltas:
        for name in _COUNTED:
            # What one of them does not know, the sum does not.
            known, more = result[name], delta[name]
            result[name] = None if known is None or more is None else known + more
        result["per_position"] = _added(result["per_position"], delta["per_position"])
    return result


def acceptance(source: str | None, counts: Counts) -> Acceptance:
    """The acceptance fields of a result from counts; None where the counts do not say it."""
    drafts, drafted, accepted = counts["num_drafts"], counts["draft_tokens"], counts["accepted_tokens"]
    positions = counts["per_position"]
    rate = length = by_position = None
    if accepted is not None and drafted:
        rate = 100 * accepted / drafted
    if accepted is not None and drafts:
        length = 1 + accepted / drafts
    if drafts and positions:
        by_position = [count / drafts for count in positions]
    return {
        "spec_decode_acceptance_rate": rate,
        "spec_decode_acceptance_length": length,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": drafted,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_per_position_acceptance_rates": by_position,
        "spec_decode_source": source,
    }


def acceptance_from_requests(requests: Sequence[Request]) -> Acceptance | None:
    """The acceptance that the answers themselves tell, or None when they tell nothing.

    Three engines, three ways: vLLM's `metrics.speculative_decoding` (all fields; acceptance at position i
    is the share of drafts that kept more than i tokens), llama.cpp's `timings.draft_n` and
    `draft_n_accepted` (no number of drafts, so no length; absent when nothing was drafted, then zero),
    TensorRT-LLM's `avg_decoded_tokens_per_iter` (the length alone: tokens / steps over all requests). It stands in
    every choice, of every chunk of a stream, and the last one is of the whole answer
    (`tensorrt_llm/serve/postprocess_handlers.py`); gpt-oss's own chat format has a writer of its own, which leaves
    it out (`harmony_adapter.py`), unless the server runs with `DISABLE_HARMONY_ADAPTER=1`.
    """
    metrics, timings = [], []
    steps = tokens = 0.0
    for request in requests:
        if request["status"] != OK:
            continue
        if of_answer := request.get("spec_metrics"):
            metrics.append(of_answer)
        if timing := request.get("timings"):
            timings.append(timing)
        average = request.get("avg_decoded_tokens_per_iter")
        if average and average > 0 and math.isfinite(average):
            tokens += request["output_tokens"] or 0
            steps += (request["output_tokens"] or 0) / average
    if metrics:
        return _from_spec_metrics(metrics)
    if timings:
        counts = _nothing(None)
        counts["draft_tokens"] = sum(int(timing.get("draft_n") or 0) for timing in timings)
        counts["accepted_tokens"] = sum(int(timing.get("draft_n_accepted") or 0) for timing in timings)
        return acceptance("response", counts)
    if steps:
        return acceptance("response", _nothing(None)) | {"spec_decode_acceptance_length": tokens / steps}
    return None


def _from_spec_metrics(metrics: Sequence[Mapping[str, Any]]) -> Acceptance:
    counts: list[Counts] = []
    for of_answer in metrics:
        histogram = list(map(int, of_answer.get("acceptance_histogram") or []))
        counts.append(
            {
                "num_drafts": int(of_answer.get("num_spec_steps") or 0),
                "draft_tokens": int(of_answer.get("num_draft_tokens") or 0),
                "accepted_tokens": int(of_answer.get("num_accepted_draft_tokens") or 0),
                "per_position": [sum(histogram[at:]) for at in range(1, len(histogram))],
            }
        )
    return acceptance("response", total(counts))


def acceptance_from_log(text: str) -> Acceptance | None:
    """The acceptance that an engine's log tells, or None where it tells none."""
    lines, lengths, drafts = 0, list[float](), list[float]()
    drafted = accepted = 0
    per_position: list[float] = []
    for engine in DIALECTS.values():
        for line in engine.log_lines(text):
            lines += 1
            if line.length is not None:
                lengths.append(line.length)
            if line.num_drafts is not None:
                drafts.append(line.num_drafts)
            drafted += line.draft_tokens
            accepted += line.accepted_tokens
            per_position = _added(per_position, [rate * (line.num_drafts or 0) for rate in line.rates])
    if not lines:
        return None
    if len(lengths) == lines:
        return acceptance("log", _nothing(None)) | {"spec_decode_acceptance_length": math.fsum(lengths) / lines}
    counts: Counts = {
        "num_drafts": round(sum(drafts)) if len(drafts) == lines else None,
        "draft_tokens": drafted,
        "accepted_tokens": accepted,
        "per_position": per_position,
    }
    return acceptance("log", counts)


def _nothing(value: int | None = 0) -> Counts:
    return {"num_drafts": value, "draft_tokens": value, "accepted_tokens": value, "per_position": []}


def _added(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [sum(pair) for pair in itertools.zip_longest(one, other, fillvalue=0)]
