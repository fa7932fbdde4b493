"""Columns of llm-speed-benchmark, computed from our raw requests as it computes them, errors and all.

The published numbers of this field were often measured with it. Set beside ours they mislead, because columns of the
same name mean other things. Here each column has the tool's own name and formula, and beside it what is wrong with it.

Read for this: `benchmark.py` of github.com/coder543/llm-speed-benchmark.
"""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from ..bench.result_types import ArmResult, Request
from ..bench.results import percentile
from ..bench.samples import whole_answers
from ..core.format import number


class OldColumn(TypedDict):
    """A column: its values by name, and what is wrong with it."""

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


TOOL = "llm-speed-benchmark"
#: It sees the text that is shown, and never asks the server how many tokens it made.
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


def columns_of(result: ArmResult) -> list[OldColumn]:
    """The columns for one result, times in seconds: median and interquartile range over the requests."""
    answers = list(map(quantities_of, whole_answers(result)))
    found: list[OldColumn] = []
    for column in _COLUMNS:
        values = []
        for answer in answers:
            if (value := _value(column, answer)) is not None:
                values.append(value)
        low, high = percentile(values, 25), percentile(values, 75)
        spread = {"median": percentile(values, 50), "iqr": None if low is None or high is None else high - low}
        found.append({"name": column.name, "unit": column.unit, "values": spread, "error": column.error})
    return found


def _value(column: Column, quantities: Quantities) -> float | None:
    above = quantities[column.above]
    if column.below is None or above is None:
        return above
    below = quantities[column.below]
    return above / below if below else None


def old_table(result: ArmResult) -> dict[str, str | dict[str, list[OldColumn]]]:
    """The columns as they are kept, with the note."""
    return {"note": TOKENS_NOTE, TOOL: {"columns": columns_of(result)}}


def old_lines(result: ArmResult) -> list[str]:
    """The columns as lines for a terminal: the name, its values, and its known error."""
    lines = [f"As {TOOL} computes it, from these requests:"]
    for column in columns_of(result):
        shown = ", ".join(f"{key} {number(value, 4)}" for key, value in column["values"].items())
        lines += [f"  {column['name']}: {shown} {column['unit']}", f"      {column['error']}."]
    return [*lines, "", TOKENS_NOTE]
