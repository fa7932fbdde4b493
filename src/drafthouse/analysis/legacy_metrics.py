"""Columns of two older tools, computed from our raw requests as they compute them, errors and all.

Published numbers were often measured with llmperf or with llm-speed-benchmark. Set beside ours they mislead, because
columns of the same name mean other things. Here each column has the tool's own name and formula, and beside it what is
wrong with it, so that an old number can be compared with a new one of the same kind.

Read for this: llmperf `token_benchmark_ray.py` and `openai_chat_completions_client.py`
(github.com/ray-project/llmperf), llm-speed-benchmark `benchmark.py` (github.com/coder543/llm-speed-benchmark).
"""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import NamedTuple, TypedDict

from ..bench.result_types import ArmResult, Request
from ..bench.results import percentile
from ..bench.samples import whole_answers
from ..core.format import number


class OldColumn(TypedDict):
    """A column of another tool: its values by name, and what is wrong with it."""

    name: str
    unit: str
    values: dict[str, float | None]
    error: str


class Column(NamedTuple):
    """How a column is computed: a quantity of an answer, or one quantity over another."""

    name: str
    unit: str
    above: str
    below: str | None
    error: str


LLMPERF, SPEED = "llmperf", "llm-speed-benchmark"
#: What both share: they see the text that is shown, and neither asks the server how many tokens it made.
TOKENS_NOTE = (
    "Tokens: both tools count the tokens of the shown text with their own tokenizer (llmperf the model's or, in old "
    "versions, Llama's; llm-speed-benchmark GPT-4's). Reasoning is not counted, but its time is. Here the server's "
    "count is used, multiplied by the shown text's share of all characters."
)
#: What a terminal shows of each tool's columns.
SHOWN = {LLMPERF: ("mean", "p50", "p99", "value"), SPEED: ("median", "iqr")}
_LLMPERF_QUANTILES = (25, 50, 75, 90, 95, 99)

_LLMPERF = (
    Column(
        "inter_token_latency_s", "s", "end_s", "tokens",
        "includes the wait for the first token: it is the time of the whole answer per token (E2E / N), not the time "
        "between tokens. Our TPOT leaves the first token out; on a long prompt the two are far apart",
    ),
    Column(
        "ttft_s", "s", "shown_s", None,
        "time to the first shown text, after a reasoning model's thinking: our time to the first answer token. Our "
        "TTFT is the first token of any kind",
    ),
    Column(
        "end_to_end_latency_s", "s", "end_s", None,
        "theirs ends when the connection closes, ours at the last token: the usage chunk comes in between",
    ),
    Column(
        "request_output_throughput_token_per_s", "tok/s", "tokens", "end_s",
        "tokens over the whole time, prefill included: not a decode speed, and lower on long prompts",
    ),
    Column(
        "number_input_tokens", "tokens", "input_tokens", None,
        "theirs counts the prompt's text only; the server's count includes the chat template",
    ),
    Column("number_output_tokens", "tokens", "tokens", None, "counted with the client's own tokenizer"),
)  # fmt: skip
_LLMPERF_RUN = (
    Column(
        "mean_output_throughput_token_per_s", "tok/s", "tokens", "duration",
        "over the whole test. Theirs collects finished requests in batches of num_concurrent_requests, so fewer "
        "run than requested, and drops those still running at its timeout: the slow ones",
    ),
    Column(
        "num_completed_requests_per_min", "1/min", "completed_60", "duration",
        "depends on the output lengths, which the tool draws at random for each request",
    ),
    Column("num_completed_requests", "requests", "completed", None, "requests answered with HTTP 200"),
    Column(
        "error_rate", "fraction", "failed", "sent",
        "theirs counts an answer without any text as completed; here it is an error",
    ),
)  # fmt: skip
_SPEED = (
    Column(
        "Time To First Token", "s", "first_s", None,
        "theirs is the first chunk of any kind. Many servers send one at once with the role and no token, so it is "
        "never later than ours. Its clock starts before the connection is made",
    ),
    Column(
        "Prompt Tok/s", "tok/s", "input_tokens", "first_s",
        "prompt tokens over the wait for the first chunk, which includes queueing, the chat template and the first "
        "decode step: not a prefill speed",
    ),
    Column(
        "Response Tok/s", "tok/s", "tokens", "streaming_s",
        "tokens of the shown text over the time from the first chunk to the last. That time includes thinking, and the "
        "wait for the first token where the role is sent at once: both make it read too low. Otherwise, and here, it "
        "is our 1 / TPOT but for one token",
    ),
    Column(
        "Num Response Tokens", "tokens", "tokens", None,
        "GPT-4's tokenizer counts another model's text differently, but equally in both arms. The text of the first "
        "chunk is discarded",
    ),
    Column(
        "Avg Tokens per Chunk", "characters", "characters", "later_chunks",
        "the name is wrong: it is the number of characters (Python's len of the text)",
    ),
    Column(
        "Avg Time Between Chunks", "s", "streaming_s", "later_chunks",
        "with speculation a chunk carries several tokens: this is the time of a step, not of a token",
    ),
)  # fmt: skip

Quantities = dict[str, float | None]


def shown_tokens(request: Request) -> float | None:
    """The tokens of the shown text: the server's count times the text's share of all characters.

    None without a count. An answer that is tool calls alone has no characters: its count is taken whole.
    """
    count = request.get("output_tokens")
    if not count:
        return None
    text, thinking = len(request.get("text") or ""), len(request.get("reasoning_text") or "")
    return float(count) * text / (text + thinking) if text + thinking else float(count)


def quantities_of(request: Request) -> Quantities:
    """What the columns of one answer are made of: seconds, tokens, characters and chunks; None where not known."""
    found: Quantities = {
        "tokens": shown_tokens(request),
        "input_tokens": request.get("input_tokens"),
        "characters": float(len(request.get("text") or "")),
        "later_chunks": float(max(int(request.get("chunks") or 0) - 1, 0)),
        "streaming_s": None,
    }
    clocks = {"first_s": request.get("ttft_ms"), "shown_s": request.get("ttfat_ms"), "end_s": request.get("e2el_ms")}
    for name, milliseconds in clocks.items():
        found[name] = None if milliseconds is None else milliseconds / 1000
    first, last = found["first_s"], found["end_s"]
    if first is not None and last is not None:
        found["streaming_s"] = last - first
    return found


def columns_of(result: ArmResult) -> dict[str, list[OldColumn]]:
    """The columns of both tools for one result, times in seconds; `TOKENS_NOTE` is to be known of all of them.

    llmperf's have p25 to p99, mean, min, max and stddev over the requests (the sample's, None for one value), those of
    the whole run a `value`; llm-speed-benchmark's the median and the interquartile range.
    """
    answers = [quantities_of(request) for request in whole_answers(result)]
    found: dict[str, list[OldColumn]] = {LLMPERF: [], SPEED: []}
    for tool, columns in ((LLMPERF, _LLMPERF), (SPEED, _SPEED)):
        for column in columns:
            ratios = [_value(column, answer) for answer in answers]
            values = [value for value in ratios if value is not None]
            spread = _llmperf_spread(values) if tool == LLMPERF else _speed_spread(values)
            found[tool].append(_shown(column, spread))
    run = _quantities_of_run(result, answers)
    found[LLMPERF] += [_shown(column, {"value": _value(column, run)}) for column in _LLMPERF_RUN]
    return found


def _quantities_of_run(result: ArmResult, answers: list[Quantities]) -> Quantities:
    sent = int(result.get("num_prompts") or len(result.get("requests") or []))
    done = float(len(answers))
    found: Quantities = {"completed": done, "failed": sent - done, "sent": float(sent)}
    found |= {"duration": result.get("duration"), "tokens": None, "completed_60": None}
    if answers:
        found["tokens"] = math.fsum(answer["tokens"] or 0.0 for answer in answers)
        found["completed_60"] = 60.0 * done
    return found


def _value(column: Column, quantities: Quantities) -> float | None:
    above = quantities[column.above]
    if column.below is None or above is None:
        return above
    below = quantities[column.below]
    return above / below if below else None


def _llmperf_spread(values: list[float]) -> Quantities:
    spread = {f"p{quantile}": percentile(values, quantile) for quantile in _LLMPERF_QUANTILES}
    mean = fmean(values) if values else None
    deviation = stdev(values) if len(values) > 1 else None
    return {
        **spread,
        "mean": mean,
        "stddev": deviation,
        "min": min(values, default=None),
        "max": max(values, default=None),
    }


def _speed_spread(values: list[float]) -> Quantities:
    low, high = percentile(values, 25), percentile(values, 75)
    return {"median": percentile(values, 50), "iqr": None if low is None or high is None else high - low}


def _shown(column: Column, values: Quantities) -> OldColumn:
    return {"name": column.name, "unit": column.unit, "values": values, "error": column.error}


def old_tables(result: ArmResult) -> dict[str, str | dict[str, list[OldColumn]]]:
    """The columns of both tools as they are kept, with the note."""
    kept: dict[str, str | dict[str, list[OldColumn]]] = {"note": TOKENS_NOTE}
    return kept | {tool: {"columns": columns} for tool, columns in columns_of(result).items()}


def old_lines(result: ArmResult) -> list[str]:
    """Both tools' columns as lines for a terminal: the name, its main value, and its known error."""
    lines = []
    for tool, columns in columns_of(result).items():
        lines.append(f"As {tool} computes it, from these requests:")
        for column in columns:
            values = [f"{key} {number(column['values'][key], 4)}" for key in SHOWN[tool] if key in column["values"]]
            shown = ", ".join(values).removeprefix("value ")
            lines += [f"  {column['name']}: {shown} {column['unit']}", f"      {column['error']}."]
        lines.append("")
    return [*lines, TOKENS_NOTE]
