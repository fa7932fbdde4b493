"""Columns of two older tools, computed from our raw requests as they compute them, errors and all.

Published numbers were often measured with llmperf or with llm-speed-benchmark. Set beside ours they mislead,
because columns of the same name mean other things. Here each column has the tool's own name and formula, and
beside it what is wrong with it, so that an old number can be compared with a new one of the same kind.

Read for this: llmperf `token_benchmark_ray.py` and `openai_chat_completions_client.py`
(github.com/ray-project/llmperf), llm-speed-benchmark `benchmark.py`
(github.com/coder543/llm-speed-benchmark).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

from ..bench.outcome import OK
from ..bench.result_types import ArmResult, Request
from ..bench.results import percentile
from ..core.format import number


class OldColumn(TypedDict):
    """A column of another tool: its values by name, and what is wrong with it."""

    name: str
    unit: str
    values: dict[str, float | None]
    error: str


Measure = Callable[[Request], float | None]
# Name, unit, value of one request, what is wrong with it.
_Column = tuple[str, str, Measure, str]

LLMPERF, SPEED = "llmperf", "llm-speed-benchmark"
#: What both share: they see the text that is shown, and neither asks the server how many tokens it made.
TOKENS_NOTE = (
    "Tokens: both tools count the tokens of the shown text with their own tokenizer (llmperf the model's or, in old "
    "versions, Llama's; llm-speed-benchmark GPT-4's). Reasoning is not counted, but its time is. Here the server's "
    "count is used, multiplied by the shown text's share of all characters."
)

_LLMPERF_QUANTILES = (25, 50, 75, 90, 95, 99)


def shown_tokens(request: Request) -> float | None:
    """Return the tokens of the shown text: the server's count times the text's share of all characters.

    None without a count. An answer that is tool calls alone has no characters: its count is taken whole.
    """
    count = request.get("output_tokens")
    if not count:
        return None
    text, thinking = len(request.get("text") or ""), len(request.get("reasoning_text") or "")
    return float(count) * text / (text + thinking) if text + thinking else float(count)


def _good(result: ArmResult) -> list[Request]:
    return [one for one in result.get("requests") or [] if one.get("status") == OK]


def _seconds(request: Request, name: Literal["ttft_ms", "ttfat_ms", "e2el_ms"]) -> float | None:
    value = request.get(name)
    return value / 1000 if value is not None else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


# --- llmperf ----------------------------------------------------------------------------------------


def _first_shown_s(request: Request) -> float | None:
    return _seconds(request, "ttfat_ms")


def _llmperf_itl(request: Request) -> float | None:
    return _ratio(_seconds(request, "e2el_ms"), shown_tokens(request))


def _llmperf_speed(request: Request) -> float | None:
    return _ratio(shown_tokens(request), _seconds(request, "e2el_ms"))


_LLMPERF: tuple[_Column, ...] = (
    (
        "inter_token_latency_s",
        "s",
        _llmperf_itl,
        "includes the wait for the first token: it is the time of the whole answer per token (E2E / N), not the time "
        "between tokens. Our TPOT leaves the first token out; on a long prompt the two are far apart",
    ),
    (
        "ttft_s",
        "s",
        _first_shown_s,
        "time to the first shown text, after a reasoning model's thinking: our time to the first answer token. Our "
        "TTFT is the first token of any kind",
    ),
    (
        "end_to_end_latency_s",
        "s",
        lambda request: _seconds(request, "e2el_ms"),
        "theirs ends when the connection closes, ours at the last token: the usage chunk comes in between",
    ),
    (
        "request_output_throughput_token_per_s",
        "tok/s",
        _llmperf_speed,
        "tokens over the whole time, prefill included: not a decode speed, and lower on long prompts",
    ),
    (
        "number_input_tokens",
        "tokens",
        lambda request: request.get("input_tokens"),
        "theirs counts the prompt's text only; the server's count includes the chat template",
    ),
    (
        "number_output_tokens",
        "tokens",
        shown_tokens,
        "counted with the client's own tokenizer",
    ),
)


def llmperf(result: ArmResult) -> list[OldColumn]:
    """Return llmperf's columns: per request p25 to p99, mean, min, max and stddev; then the whole run's.

    Times in seconds. stddev is the sample's (pandas' default, n - 1), None for one value.
    """
    good = _good(result)
    columns: list[OldColumn] = []
    for name, unit, measure, error in _LLMPERF:
        values = [value for value in map(measure, good) if value is not None]
        spread: dict[str, float | None] = {f"p{q}": percentile(values, q) for q in _LLMPERF_QUANTILES}
        mean = math.fsum(values) / len(values) if values else None
        spread |= {"mean": mean, "min": min(values, default=None), "max": max(values, default=None)}
        spread["stddev"] = _sample_stddev(values)
        columns.append({"name": name, "unit": unit, "values": spread, "error": error})
    duration = result.get("duration")
    tokens = math.fsum(value for value in map(shown_tokens, good) if value is not None)
    sent = int(result.get("num_prompts") or len(result.get("requests") or []))
    columns += [
        _whole(
            "mean_output_throughput_token_per_s",
            "tok/s",
            _ratio(tokens, duration) if good else None,
            "over the whole test. Theirs collects finished requests in batches of num_concurrent_requests, so fewer "
            "run than requested, and drops those still running at its timeout: the slow ones",
        ),
        _whole(
            "num_completed_requests_per_min",
            "1/min",
            _ratio(60.0 * len(good), duration) if good else None,
            "depends on the output lengths, which the tool draws at random for each request",
        ),
        _whole("num_completed_requests", "requests", float(len(good)), "requests answered with HTTP 200"),
        _whole(
            "error_rate",
            "fraction",
            1 - len(good) / sent if sent else None,
            "theirs counts an answer without any text as completed; here it is an error",
        ),
    ]
    return columns


def _whole(name: str, unit: str, value: float | None, error: str) -> OldColumn:
    return {"name": name, "unit": unit, "values": {"value": value}, "error": error}


def _sample_stddev(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


# --- llm-speed-benchmark ------------------------------------------------------------------------------


def _streaming_s(request: Request) -> float | None:
    """Return the seconds from the first chunk to the last one."""
    first, last = _seconds(request, "ttft_ms"), _seconds(request, "e2el_ms")
    return last - first if first is not None and last is not None else None


def _later_chunks(request: Request) -> int:
    return max(int(request.get("chunks") or 0) - 1, 0)


_SPEED: tuple[_Column, ...] = (
    (
        "Time To First Token",
        "s",
        lambda request: _seconds(request, "ttft_ms"),
        "theirs is the first chunk of any kind. Many servers send one at once with the role and no token, so it is "
        "never later than ours. Its clock starts before the connection is made",
    ),
    (
        "Prompt Tok/s",
        "tok/s",
        lambda request: _ratio(request.get("input_tokens"), _seconds(request, "ttft_ms")),
        "prompt tokens over the wait for the first chunk, which includes queueing, the chat template and the first "
        "decode step: not a prefill speed",
    ),
    (
        "Response Tok/s",
        "tok/s",
        lambda request: _ratio(shown_tokens(request), _streaming_s(request)),
        "tokens of the shown text over the time from the first chunk to the last. That time includes thinking, and the "
        "wait for the first token where the role is sent at once: both make it read too low. Otherwise, and here, it "
        "is our 1 / TPOT but for one token",
    ),
    (
        "Num Response Tokens",
        "tokens",
        shown_tokens,
        "GPT-4's tokenizer counts another model's text differently, but equally in both arms. The text of the first "
        "chunk is discarded",
    ),
    (
        "Avg Tokens per Chunk",
        "characters",
        lambda request: _ratio(float(len(request.get("text") or "")), float(_later_chunks(request))),
        "the name is wrong: it is the number of characters (Python's len of the text)",
    ),
    (
        "Avg Time Between Chunks",
        "s",
        lambda request: _ratio(_streaming_s(request), float(_later_chunks(request))),
        "with speculation a chunk carries several tokens: this is the time of a step, not of a token",
    ),
)


def speed_benchmark(result: ArmResult) -> list[OldColumn]:
    """Return llm-speed-benchmark's columns: median and interquartile range over the requests; times in seconds."""
    good = _good(result)
    columns: list[OldColumn] = []
    for name, unit, measure, error in _SPEED:
        values = [value for value in map(measure, good) if value is not None]
        low, high = percentile(values, 25), percentile(values, 75)
        spread = {
            "median": percentile(values, 50),
            "iqr": high - low if low is not None and high is not None else None,
        }
        columns.append({"name": name, "unit": unit, "values": spread, "error": error})
    return columns


# --- both -------------------------------------------------------------------------------------------


def columns_of(result: ArmResult) -> dict[str, list[OldColumn]]:
    """Return the columns of both tools for one result; `TOKENS_NOTE` is to be known of all of them."""
    return {LLMPERF: llmperf(result), SPEED: speed_benchmark(result)}


def old_tables(result: ArmResult) -> dict[str, str | dict[str, list[OldColumn]]]:
    """Return the same as it is kept, with the note."""
    kept: dict[str, str | dict[str, list[OldColumn]]] = {"note": TOKENS_NOTE}
    return kept | {tool: {"columns": columns} for tool, columns in columns_of(result).items()}


def old_lines(result: ArmResult) -> list[str]:
    """Return both tools' columns as lines for a terminal: the name, its main value, and its known error."""
    tables = columns_of(result)
    lines = []
    for tool, main in ((LLMPERF, ("mean", "p50", "p99", "value")), (SPEED, ("median", "iqr"))):
        lines += [f"As {tool} computes it, from these requests:"]
        for column in tables[tool]:
            values = [f"{key} {number(column['values'][key], 4)}" for key in main if key in column["values"]]
            shown = ", ".join(values).removeprefix("value ")
            lines += [f"  {column['name']}: {shown} {column['unit']}", f"      {column['error']}."]
        lines.append("")
    return [*lines, TOKENS_NOTE]
