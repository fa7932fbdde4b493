"""Format a comparison of two reports, A and B, for a terminal or as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ...core.format import NOTHING, number, percent, shown_level, times, times_span
from ...core.plain_text import printable
from ...core.table import table
from ...report.report_types import ARMS
from .compared_types import ComparedCost, ComparedGate, ComparedLevel, Comparison, Differing, Numbers
from .diff import TITLES

#: The cells of a table, by row.
Rows = list[list[str]]


def compared_text(result: Comparison, width: int = 100) -> str:
    """The comparison as text for a terminal of ``width`` columns."""
    lines = []
    for name, side in (("A", result["a"]), ("B", result["b"])):
        lines.append(f"{name}  {printable(side['label'])}")
        lines += textwrap.wrap(
            printable(side["sentence"] or NOTHING), width, initial_indent="   ", subsequent_indent="   "
        )
    for title, sentences in _sentences(result):
        lines += ["", title]
        for sentence in sentences:
            lines += textwrap.wrap(printable(sentence), width, initial_indent="  - ", subsequent_indent="    ")
    for title, head, rows in _tables(result):
        cells = [[printable(text) for text in row] for row in rows]
        lines += ["", title, table(head, cells)]
    return "\n".join(lines) + "\n"


def compared_markdown(result: Comparison) -> str:
    """The comparison as Markdown, such as for an issue or the summary of a CI run."""
    # Import here, because the module imports Jinja, which `compared_text` does not need.
    from ...report.writer import markdown_cell  # noqa: PLC0415

    lines = ["# A against B", ""]
    for name, side in (("A", result["a"]), ("B", result["b"])):
        lines.append(f"- **{name}** {markdown_cell(side['label'])}: {markdown_cell(side['sentence'] or NOTHING)}")
    for title, sentences in _sentences(result):
        lines += ["", f"## {title}", ""]
        lines += [f"- {markdown_cell(sentence)}" for sentence in sentences]
    for title, head, rows in _tables(result):
        lines += ["", f"## {title}", "", _markdown_row(head), _markdown_row([":--"] * len(head))]
        lines += [_markdown_row([markdown_cell(text) for text in row]) for row in rows]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _sentences(result: Comparison) -> list[tuple[str, Sequence[str]]]:
    """The non-empty lists of sentences with their titles, the most serious first."""
    lists = (
        ("Not comparable", result["against"]),
        ("Regressions", result["regressions"]),
        ("Not judged", result["unjudged"]),
        ("Keep in mind", result["marks"]),
    )
    return [(title, sentences) for title, sentences in lists if sentences]


def _tables(result: Comparison) -> list[tuple[str, list[str], Rows]]:
    """The non-empty tables as (title, head, rows)."""
    arm_heads = ["baseline A", "baseline B", "speculative A", "speculative B"]
    title = "B against A (above 1: B is faster; with the interval of prompts and starts; * kinds of the verdict)"
    tables: list[tuple[str, list[str], Rows]] = [
        ("What differs", ["what", "A", "B"], [_fact_row(fact["what"], fact) for fact in result["differs"]]),
        (title, ["arm", "kind", "measure", "A", "B", "change", "says"], _change_rows(result)),
        ("What speculation gains", ["kind", "A", "B"], _speedup_rows(result)),
    ]
    load = result["load"]
    if load:
        crossovers = []
        for kind in load["kinds"]:
            crossovers.append([kind["kind"], kind["a"]["sentence"] or NOTHING, kind["b"]["sentence"] or NOTHING])
        speeds = [[row["kind"], shown_level(row["level"]), *_numbers(row)] for row in load["rows"]]
        head = ["kind", load["unit"] or "load", *arm_heads]
        tables.append(("Until which load it pays", ["kind", "A", "B"], crossovers))
        tables.append(("Speed of the server under load, tok/s", head, speeds))
    costs = [[row["what"], row["unit"] or "", *_numbers(row), _ratio(row["speculative"])] for row in result["cost"]]
    tables.append(("Gates", ["gate", "A", "B"], [_fact_row(gate["title"], gate) for gate in result["gates"]]))
    tables.append(("Cost", ["what", "unit", *arm_heads, "B/A"], costs))
    return [entry for entry in tables if entry[2]]


def _fact_row(name: str, sides: Differing | ComparedGate) -> list[str]:
    """A row with a name and its value in A and in B."""
    return [name, _text(sides["a"]), _text(sides["b"])]


def _change_rows(result: Comparison) -> Rows:
    """The table rows of the changes, by arm, kind and measure."""
    rows: Rows = []
    for row in result["rows"]:
        kind = f"{row['kind']} *" if row["declared"] else row["kind"]
        cells = [number(row["a"]), number(row["b"]), times_span(row["change"])]
        rows.append([row["arm"], kind, f"{TITLES[row['measure']]} {row['unit']}", *cells, row["word"]])
    return rows


def _speedup_rows(result: Comparison) -> Rows:
    """The table rows of the speed-ups by kind, and of the acceptance rate."""
    rows = [[row["kind"], times_span(row["a"]), times_span(row["b"])] for row in result["speedups"]]
    accepted = result["acceptance"]
    if any(accepted.values()):
        rows.append(["drafts accepted", percent(accepted["a"]), percent(accepted["b"])])
    return rows


def _numbers(row: ComparedLevel | ComparedCost) -> list[str]:
    """The cells of both arms, each in A and in B."""
    numbers = []
    for arm in ARMS:
        numbers += [number(row[arm]["a"]), number(row[arm]["b"])]
    return numbers


def _ratio(sides: Numbers) -> str:
    """B's number over A's as text; a dash if it does not exist."""
    if not sides["a"] or sides["b"] is None:
        return NOTHING
    return times(sides["b"] / sides["a"])


def _text(value: str | int | None) -> str:
    return NOTHING if value is None else str(value)
