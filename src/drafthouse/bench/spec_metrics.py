"""Compute acceptance of draft tokens from the engine's counters, from its answers, or from its log.

Field names and formulas are vLLM's (`vllm/v1/spec_decode/metrics.py`, `vllm/benchmarks/serve.py`):
rate = accepted / drafted tokens (percent), mean acceptance length = 1 + accepted / drafts,
acceptance at position i = accepted at i / drafts (a fraction). `engines` has each engine's counter names.
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

#: Timeout of a request for the engine's counters, in seconds. A busy engine answers late.
READ_TIMEOUT_S = 6.0
#: Part of a counter's name that has to do with speculation.
_SPECULATION_NAME = re.compile("spec|draft|accept")
#: The keys of `Counts` that are single numbers.
_COUNTED: tuple[Literal["num_drafts", "draft_tokens", "accepted_tokens"], ...]
_COUNTED = ("num_drafts", "draft_tokens", "accepted_tokens")


def parse_counters(text: str) -> Snapshot:
    """The speculation counters in a Prometheus text, summed over all labels except the draft position.

    ``dialect`` is the engine's name, None if the text is from no supported engine. ``present`` is False if the engine
    shows no such counters; all counts are then 0. If it shows some, a counter that it does not have is None. A counter
    that is no finite number makes the whole snapshot `unreadable`.
    """
    snapshot = _empty_snapshot(value=0, error=None)
    engine_samples: list[Sample] = []
    engine = None
    for sample in samples(text):
        if dialect := dialect_of(sample.name):
            if dialect is not engine:  # a server has one engine; of several in a text the last one counts
                engine = dialect
                engine_samples = []
            engine_samples.append(sample)
    if engine is None:
        return snapshot
    if any(not sample.finite and _SPECULATION_NAME.search(sample.name) for sample in engine_samples):
        return unreadable("a counter of drafting that is no number")
    snapshot["dialect"] = engine.name
    drafted = engine.drafted(engine_samples)
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
    """A snapshot without counts, for a server whose counters cannot be read because of ``error``."""
    return _empty_snapshot(value=None, error=error)


def is_late(snapshot: Snapshot) -> bool:
    """True if the counters could not be read because the server did not answer in time."""
    return "TimeoutError: " in (snapshot["error"] or "")


def _empty_snapshot(value: int | None, error: str | None) -> Snapshot:
    """A snapshot without an engine's name, in which all counts are ``value``."""
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
    """Read the counters over HTTP; ``traffic`` holds requests and tokens (`foreign_traffic.py`). Never raises.

    vLLM and TensorRT-LLM show counters without authentication, llama.cpp requires its key. The first request carries
    no key, so that the key is never sent to a server that does not require it.
    """
    import aiohttp  # noqa: PLC0415 (slow to import, and code that only evaluates counters does not need it)

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
    """The number of tokens of ``text`` by the engine's /tokenize, and an error: one of the two is None.

    The body has the fields of all engines, each of which ignores the others'. Never raises.
    """
    import aiohttp  # noqa: PLC0415

    # vLLM reads prompt and add_special_tokens, llama.cpp content and add_special.
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
    """The body of a response that is no token stream. Raises TooMuch if it exceeds ENGINE_ANSWER_BYTES."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > ENGINE_ANSWER_BYTES:
            response.close()
            raise TooMuch(f"an answer of more than {ENGINE_ANSWER_BYTES / MIB:.0f} MiB")
    return b"".join(chunks)


class _NoClock:
    """A dummy for the session's tracing callback, which sets ``sent_s`` at each request."""

    sent_s = 0.0


def difference(before: Snapshot, after: Snapshot) -> Counts | None:
    """The increase of the counters between two snapshots, or None where it is unknown.

    It is unknown if a snapshot was unreadable or of no supported engine, if a counter decreased (a restarted server),
    or if more tokens were accepted than drafted.
    """
    if not _comparable(before, after):
        return None
    increase = _empty_counts()
    for name in _COUNTED:
        value = after[name]
        increase[name] = None if value is None else value - (before[name] or 0)  # None before: not shown, so 0
    new = after["per_position"]
    old = [*before["per_position"], *[0] * len(new)]  # a position that was missing before was 0; zip drops the excess
    increase["per_position"] = [count - earlier for count, earlier in zip(new, old, strict=False)]
    if min([*(increase[name] or 0 for name in _COUNTED), *increase["per_position"]]) < 0:
        return None
    drafted = increase["draft_tokens"]
    accepted = increase["accepted_tokens"]
    if drafted is not None and accepted is not None and accepted > drafted:
        return None
    return increase


def _comparable(before: Snapshot, after: Snapshot) -> bool:
    """True if the counters of two snapshots can be subtracted.

    An engine with `shows_zeros` shows its speculation counters from the start. If it shows none, it drafts nothing, and
    the counts are 0. Other engines show these counters, or any counter at all, only after their first draft.

    False, in the order of the code: the later snapshot is unreadable or of no supported engine; the earlier one is so
    and cannot be taken for zeros; the engine has not drafted yet; it changed to another set of counters (``family``).
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
    """The sum of the results of `difference`; a count that is None in one of them is None in the sum."""
    result = _empty_counts()
    for delta in deltas:
        for name in _COUNTED:
            subtotal = result[name]
            added = delta[name]
            result[name] = None if subtotal is None or added is None else subtotal + added
        result["per_position"] = _added(result["per_position"], delta["per_position"])
    return result


def acceptance(source: str | None, counts: Counts) -> Acceptance:
    """The acceptance fields of a result, computed from counts; a field whose counts are missing or 0 drafts is None.

    ``source`` is a key of `result_types.ACCEPTANCE_SOURCES`, None if nothing is known.
    """
    drafts = counts["num_drafts"]
    drafted = counts["draft_tokens"]
    accepted = counts["accepted_tokens"]
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
    """The acceptance that the answers report, or None if they report none. The first of these counts.

    - vLLM: `metrics.speculative_decoding` has all fields. Position i counts the drafts that kept more than i tokens.
    - llama.cpp: `timings.draft_n` and `draft_n_accepted`, absent if nothing was drafted. The number of drafts is
      missing, so there is no acceptance length.
    - TensorRT-LLM: `avg_decoded_tokens_per_iter` in the last chunk, of the whole answer. It gives only the length,
      tokens / steps over all requests (`tensorrt_llm/serve/postprocess_handlers.py`). Answers of gpt-oss lack it
      (`harmony_adapter.py`) unless the server runs with `DISABLE_HARMONY_ADAPTER=1`.
    """
    metrics, timings = [], []
    steps = tokens = 0.0
    for request in requests:
        if request["status"] != OK:
            continue
        if answer_metrics := request.get("spec_metrics"):
            metrics.append(answer_metrics)
        if timing := request.get("timings"):
            timings.append(timing)
        average = request.get("avg_decoded_tokens_per_iter")
        if average and average > 0 and math.isfinite(average):
            tokens += request["output_tokens"] or 0
            steps += (request["output_tokens"] or 0) / average
    if metrics:
        return _from_spec_metrics(metrics)
    if timings:
        counts = _empty_counts(value=None)
        counts["draft_tokens"] = sum(int(timing.get("draft_n") or 0) for timing in timings)
        counts["accepted_tokens"] = sum(int(timing.get("draft_n_accepted") or 0) for timing in timings)
        return acceptance("response", counts)
    if steps:
        return acceptance("response", _empty_counts(value=None)) | {"spec_decode_acceptance_length": tokens / steps}
    return None


def _from_spec_metrics(metrics: Sequence[Mapping[str, Any]]) -> Acceptance:
    """Acceptance from vLLM's statistics in answers; the histogram counts drafts by their accepted tokens."""
    counts: list[Counts] = []
    for answer_metrics in metrics:
        histogram = list(map(int, answer_metrics.get("acceptance_histogram") or []))
        counts.append(
            {
                "num_drafts": int(answer_metrics.get("num_spec_steps") or 0),
                "draft_tokens": int(answer_metrics.get("num_draft_tokens") or 0),
                "accepted_tokens": int(answer_metrics.get("num_accepted_draft_tokens") or 0),
                "per_position": [sum(histogram[position:]) for position in range(1, len(histogram))],
            }
        )
    return acceptance("response", total(counts))


def acceptance_from_log(text: str) -> Acceptance | None:
    """The acceptance that the lines of an engine's log report, or None if no line reports one.

    If every line has a mean length, the result is the mean of these alone; otherwise it is computed from the counts.
    """
    lines = 0
    lengths: list[float] = []
    drafts: list[float] = []
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
    if len(lengths) == lines:  # a log with mean lengths instead of counts
        unknown = _empty_counts(value=None)
        return acceptance("log", unknown) | {"spec_decode_acceptance_length": math.fsum(lengths) / lines}
    counts: Counts = {
        "num_drafts": round(sum(drafts)) if len(drafts) == lines else None,
        "draft_tokens": drafted,
        "accepted_tokens": accepted,
        "per_position": per_position,
    }
    return acceptance("log", counts)


def _empty_counts(value: int | None = 0) -> Counts:
    """Counts that are all ``value``: 0 to begin a sum, None for unknown."""
    return {"num_drafts": value, "draft_tokens": value, "accepted_tokens": value, "per_position": []}


def _added(counts: Sequence[float], more_counts: Sequence[float]) -> list[float]:
    """The sums by position; a position that only one has counts as 0 in the other."""
    return [sum(pair) for pair in itertools.zip_longest(counts, more_counts, fillvalue=0)]
