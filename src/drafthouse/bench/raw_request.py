"""Convert the recording of an ended request into its measurements: status, latencies, text, token counts.

The definitions are those of `vllm/benchmarks/serve.py`. N is the server's count of output tokens, and first and last
are the arrival times of the first and last chunk with tokens:

- TTFT = first - sent
- TTFAT = the same for the first token that is not reasoning
- E2E = last - sent
- TPOT = (E2E - TTFT) / (N - 1), unless the answer came in too few pieces (`samples.time_per_token`)
- ITL = the gaps between chunks with tokens. With speculation a chunk carries several tokens, so ITL is not TPOT.

An answer that was not streamed arrived at once, so it has only E2E.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from .outcome import outcome_of
from .samples import time_per_token
from .sse import Event, events_of_body, read_answer, split_events

if TYPE_CHECKING:
    from drafthouse.bench.client import Endpoint, Recording
    from drafthouse.bench.result_types import Request

OK_STATUS = 200


def raw_request(record: Recording, endpoint: Endpoint, zero_s: float) -> Request:
    """The measurements of one request. ``zero_s`` is the start of the run, in seconds of ``time.perf_counter``.

    The values are explained at the head of this file; one that is unknown is None.
    """
    not_streamed = not record.request.stream and not record.stream
    answer = read_answer(_events_of(record, not_streamed))
    status, error = outcome_of(record, answer, endpoint)
    sent_s = record.began_s if record.sent_s is None else record.sent_s
    times = answer.token_times_s
    chunk_lengths = answer.reasoning_pieces + answer.text_pieces
    e2el = ttft = ttfat = None
    if times:
        e2el = (times[-1] - sent_s) * 1000
    if not_streamed:
        times = []
        chunk_lengths = []
        answer.first_answer_s = None
    if times:
        ttft = (times[0] - sent_s) * 1000
    if answer.first_answer_s is not None:
        ttfat = (answer.first_answer_s - sent_s) * 1000
    gaps = [round((after - before) * 1000, 4) for before, after in itertools.pairwise(times)]
    request = record.request
    return {
        "prompt_id": request.prompt_id,
        "kind": request.kind,
        "suite": request.suite,
        "group": request.group,
        "round": request.round,
        "temperature": request.temperature,
        "status": status,
        "error": endpoint.without_key(error) if error else None,
        "http_status": record.http_status,
        "throttled": record.rate_limited,
        "throttled_s": round(record.rate_limited_s, 3),
        "started_s": round(sent_s - zero_s, 6),
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "max_tokens": request.output_tokens,
        "cached_tokens": answer.cached_tokens,
        "ttft_ms": ttft,
        "ttfat_ms": ttfat,
        "e2el_ms": e2el,
        "tpot_ms": time_per_token(ttft, e2el, answer.output_tokens, gaps),
        "itls_ms": gaps,
        "chunks": len(times),
        "finish_reason": answer.finish_reason,
        "text": answer.text,
        "reasoning_text": answer.reasoning_text,
        "tool_calls": answer.tool_calls or None,
        # Characters in each chunk (not the "pieces" of samples.py); without speculation a chunk is one token.
        "pieces": chunk_lengths,
        "gate": request.gate,
        "timings": answer.timings,
        "avg_decoded_tokens_per_iter": answer.avg_decoded_tokens_per_iter,
        "spec_metrics": answer.spec_metrics,
    }


def _events_of(record: Recording, not_streamed: bool) -> list[Event]:
    """The events of a stream. An answer that was ``not_streamed`` becomes a stream of a single event and [DONE].

    Any other answer has none: an error status, or a body where a stream was requested.
    """
    if record.stream:
        return split_events(bytes(record.body), record.times_s, record.ends)
    if not_streamed and record.http_status == OK_STATUS and record.times_s:
        return events_of_body(bytes(record.body), record.times_s[-1])
    return []
