"""A comparison of two reports as text: for a terminal, or as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ...core.format import NOTHING, number, percent, shown_level, times, times_span
from ...core.plain_text import printable
from ...core.table import table
from ...report.report_types import ARMS
from .compared_types import ComparedCost, ComparedGate, ComparedLevel, Comparison, Differing, Numbers
from .diff import TITLES

Rows = list[list[str]]


def compared_text(found: Comparison, width: int = 100) -> str:
    """A comparison for a terminal of ``width`` columns."""
    lines = []
    for name, side in (("A", found["a"]), ("B", found["b"])):
        lines.append(f"{name}  {printable(side['label'])}")
        lines += textwrap.wrap(
            printable(side["sentence"] or NOTHING), width, initial_indent="   ", subsequent_indent="   "
        )
    for title, sentences in _sentences(found):
        lines += ["", title]
        for sentence in sentences:
            lines += textwrap.wrap(printable(sentence), width, initial_indent="  - ", subsequent_indent="    ")
    for title, head, rows in _tables(found):
        cells = [[printable(text) for text in row] for row in rows]
        lines += ["", title, table(head, cells)]
    return "\n".join(lines) + "\n"


def compared_markdown(found: Comparison) -> str:
    """A comparison as Markdown, for an issue or the summary of a CI run."""
    # The page's module brings Jinja along, which a table in a terminal does not need.
    from ...report.writer import cell  # noqa: PLC0415

    lines = ["# A against B", ""]
    for name, side in (("A", found["a"]), ("B", found["b"])):
        lines.append(f"- **{name}** {cell(side['label'])}: {cell(side['sentence'] or NOTHING)}")
    for title, sentences in _sentences(found):
        lines += ["", f"## {title}", ""]
        lines += [f"- {cell(sentence)}" for sentence in sentences]
    for title, head, rows in _tables(found):
        lines += ["", f"## {title}", "", _markdown_row(head), _markdown_row([":--"] * len(head))]
        lines += [_markdown_row([cell(text) for text in row]) for row in rows]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _sentences(found: Comparison) -> list[tuple[str, Sequence[str]]]:
    """The lists of sentences that are not empty, the gravest first."""
    lists = (
        ("Not comparable", found["against"]),
        ("Regressions", found["regressions"]),
        ("Not judged", found["unjudged"]),
        ("Keep in mind", found["marks"]),
    )
    return [(title, sentences) for title, sentences in lists if sentences]


def _tables(found: Comparison) -> list[tuple[str, list[str], Rows]]:
    """The tables that have a row: title, head, rows."""
    each_arm = ["baseline A", "baseline B", "speculative A", "speculative B"]
    title = "B against A (above 1: B is faster; with the interval of prompts and starts; * kinds of the verdict)"
    tables: list[tuple[str, list[str], Rows]] = [
        ("What differs", ["what", "A", "B"], [_both(fact["what"], fact) for fact in found["differs"]]),
        (title, ["arm", "kind", "measure", "A", "B", "change", "says"], _changes(found)),
        ("What speculation gains", ["kind", "A", "B"], _gains(found)),
    ]
    load = found["load"]
    if load:
        until = []
        for kind in load["kinds"]:
            until.append([kind["kind"], kind["a"]["sentence"] or NOTHING, kind["b"]["sentence"] or NOTHING])
        speeds = [[row["kind"], shown_level(row["level"]), *_numbers(row)] for row in load["rows"]]
        head = ["kind", load["unit"] or "load", *each_arm]
        tables.append(("Until which load it pays", ["kind", "A", "B"], until))
        tables.append(("Speed of the server under load, tok/s", head, speeds))
    costs = [[row["what"], row["unit"] or "", *_numbers(row), _ratio(row["speculative"])] for row in found["cost"]]
    tables.append(("Gates", ["gate", "A", "B"], [_both(gate["title"], gate) for gate in found["gates"]]))
    tables.append(("Cost", ["what", "unit", *each_arm, "B/A"], costs))
    return [entry for entry in tables if entry[2]]


def _both(name: str, sides: Differing | ComparedGate) -> list[str]:
    return [name, _text(sides["a"]), _text(sides["b"])]


def _changes(found: Comparison) -> Rows:
    """A row for each arm, kind and measure."""
    rows: Rows = []
    for row in found["rows"]:
        kind = f"{row['kind']} *" if row["declared"] else row["kind"]
        measured = [number(row["a"]), number(row["b"]), times_span(row["change"])]
        rows.append([row["arm"], kind, f"{TITLES[row['measure']]} {row['unit']}", *measured, row["word"]])
    return rows


def _gains(found: Comparison) -> Rows:
    """The speed-up of each kind, and the share of the drafts that was accepted."""
    rows = [[row["kind"], times_span(row["a"]), times_span(row["b"])] for row in found["speedups"]]
    accepted = found["acceptance"]
    if any(accepted.values()):
        rows.append(["drafts accepted", percent(accepted["a"]), percent(accepted["b"])])
    return rows


def _numbers(row: ComparedLevel | ComparedCost) -> list[str]:
    numbers = []
    for arm in ARMS:
        numbers += [number(row[arm]["a"]), number(row[arm]["b"])]
    return numbers


def _ratio(sides: Numbers) -> str:
    if not sides["a"] or sides["b"] is None:
        return NOTHING
    return times(sides["b"] / sides["a"])


def _text(value: str | int | None) -> str:
    return NOTHING if value is None else str(value)
