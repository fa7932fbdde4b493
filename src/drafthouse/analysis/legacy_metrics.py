"""Recomputes the columns of llm-speed-benchmark from our requests by that tool's formulas, including its errors.

Many published numbers come from that tool. Some of its columns have the names of our metrics but mean
something else, so each column keeps the tool's name and formula, and states beside it what is wrong.

Source of the formulas: `benchmark.py` of github.com/coder543/llm-speed-benchmark.
"""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from ..bench.result_types import ArmResult, Request
from ..bench.results import percentile
from ..bench.samples import whole_answers
from ..core.format import number


class OldColumn(TypedDict):
    """A column of a result."""

    name: str  # as the tool calls it
    unit: str
    values: dict[str, float | None]  # by statistic ("median", "iqr"); None without an answer that has the quantities
    error: str  # what is wrong with the formula or the name


class Column(NamedTuple):
    """The formula of a column: quantity ``above``, divided by quantity ``below`` unless that is None."""

    name: str  # as the tool calls it
    unit: str
    above: str  # a key of `Quantities`
    below: str | None
    error: str  # what is wrong with the formula or the name


#: The name of the tool, and the key of its columns in a result.
TOOL = "llm-speed-benchmark"
#: The tool counts tokens in the displayed text; it does not read the server's token count.
TOKENS_NOTE = (
    "Tokens: the tool counts the tokens of the shown text with GPT-4's tokenizer. Reasoning is not counted, but its "
    "time is. Here the server's count is used, multiplied by the shown text's share of all characters."
)
_COLUMNS = (
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

Quantities = dict[str, float | None]  # the quantities of one answer by name, None if unknown


def shown_tokens(request: Request) -> float | None:
    """The tokens of the displayed text: the server's count times that text's share of all characters.

    None without a count. For an answer of tool calls alone, which has no characters, it is the whole count.
    """
    output_tokens = request.get("output_tokens")
    if not output_tokens:
        return None
    text_characters = len(request.get("text") or "")
    characters = text_characters + len(request.get("reasoning_text") or "")
    if not characters:
        return float(output_tokens)
    return float(output_tokens) * text_characters / characters


def quantities_of(request: Request) -> Quantities:
    """The quantities of one answer by name, in seconds (``_s``), tokens, characters and chunks; None if unknown.

    ``first_s``, ``shown_s`` and ``end_s`` are times since the request: to the first token of any kind, to the first
    shown one, to the end. ``streaming_s`` is the time from ``first_s`` to ``end_s``.
    """
    quantities: Quantities = {
        "tokens": shown_tokens(request),
        "input_tokens": request.get("input_tokens"),
        "characters": float(len(request.get("text") or "")),
        "later_chunks": float(max(int(request.get("chunks") or 0) - 1, 0)),
        "streaming_s": None,
    }
    clocks = {"first_s": request.get("ttft_ms"), "shown_s": request.get("ttfat_ms"), "end_s": request.get("e2el_ms")}
    for key, milliseconds in clocks.items():
        quantities[key] = None if milliseconds is None else milliseconds / 1000
    first_s = quantities["first_s"]
    end_s = quantities["end_s"]
    if first_s is not None and end_s is not None:
        quantities["streaming_s"] = end_s - first_s
    return quantities


def columns_of(result: ArmResult) -> list[OldColumn]:
    """The columns of one result: median and interquartile range (iqr) over its complete answers."""
    answers = list(map(quantities_of, whole_answers(result)))
    columns: list[OldColumn] = []
    for column in _COLUMNS:
        values = []
        for quantities in answers:
            if (value := _value(column, quantities)) is not None:
                values.append(value)
        low, high = percentile(values, 25), percentile(values, 75)
        iqr = None if low is None or high is None else high - low
        statistics = {"median": percentile(values, 50), "iqr": iqr}
        columns.append({"name": column.name, "unit": column.unit, "values": statistics, "error": column.error})
    return columns


def _value(column: Column, quantities: Quantities) -> float | None:
    """A column's value for one answer; None if a quantity is unknown or the divisor is 0."""
    numerator = quantities[column.above]
    if column.below is None or numerator is None:
        return numerator
    denominator = quantities[column.below]
    return numerator / denominator if denominator else None


def old_table(result: ArmResult) -> dict[str, str | dict[str, list[OldColumn]]]:
    """The columns as saved in a result, with the note on tokens."""
    return {"note": TOKENS_NOTE, TOOL: {"columns": columns_of(result)}}


def old_lines(result: ArmResult) -> list[str]:
    """The columns as lines for a terminal: name, values, and what is wrong."""
    lines = [f"As {TOOL} computes it, from these requests:"]
    for column in columns_of(result):
        shown = ", ".join(f"{key} {number(value, 4)}" for key, value in column["values"].items())
        lines += [f"  {column['name']}: {shown} {column['unit']}", f"      {column['error']}."]
    return [*lines, "", TOKENS_NOTE]
