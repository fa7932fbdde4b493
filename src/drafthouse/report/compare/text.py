"""A comparison of two reports as text: for a terminal, or as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ...core.format import NOTHING, number, percent, shown_level, times, times_span
from ...core.plain_text import printable
from ...core.table import table
from .compared_types import ComparedCost, ComparedLevel, ComparedLoad, Comparison, Numbers
from .diff import MEASURES

TITLES = {name: f"{title} {unit}" for name, title, unit in MEASURES}
Rows = list[list[str]]


def compared_text(found: Comparison, width: int = 100) -> str:
    """A comparison for a terminal of ``width`` columns."""
    lines = [f"A  {printable(found['a']['label'])}", *_wrapped(found["a"]["sentence"], width)]
    lines += [f"B  {printable(found['b']['label'])}", *_wrapped(found["b"]["sentence"], width)]
    for title, sentences in _sentences(found):
        lines += ["", title]
        for sentence in sentences:
            lines += textwrap.wrap(printable(sentence), width, initial_indent="  - ", subsequent_indent="    ")
    for title, head, rows in _tables(found):
        lines += ["", title, table(head, [list(map(printable, row)) for row in rows])]
    return "\n".join(lines) + "\n"


def _wrapped(text: str | None, width: int) -> list[str]:
    return textwrap.wrap(printable(text or NOTHING), width, initial_indent="   ", subsequent_indent="   ")


def compared_markdown(found: Comparison) -> str:
    """A comparison as Markdown, for an issue or the summary of a CI run."""
    # The page's module brings Jinja along, which a table in a terminal does not need.
    from ...report.writer import cell  # noqa: PLC0415

    lines = ["# A against B", ""]
    for name, side in (("a", found["a"]), ("b", found["b"])):
        lines.append(f"- **{name.upper()}** {cell(side['label'])}: {cell(side['sentence'] or NOTHING)}")
    for title, sentences in _sentences(found):
        lines += ["", f"## {title}", ""]
        lines += [f"- {cell(sentence)}" for sentence in sentences]
    for title, head, rows in _tables(found):
        lines += ["", f"## {title}", "", f"| {' | '.join(head)} |", f"| {' | '.join([':--'] * len(head))} |"]
        for row in rows:
            lines.append(f"| {' | '.join(map(cell, row))} |")
    return "\n".join(lines) + "\n"


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
    nothing: ComparedLoad = {"unit": "", "kinds": [], "rows": []}
    load = found["load"] or nothing
    each_arm = ["baseline A", "baseline B", "speculative A", "speculative B"]
    differs = [[fact["what"], _text(fact["a"]), _text(fact["b"])] for fact in found["differs"]]
    loads = [[kind["kind"], _text(kind["a"]["sentence"]), _text(kind["b"]["sentence"])] for kind in load["kinds"]]
    speeds = [[row["kind"], shown_level(row["level"]), *_numbers(row)] for row in load["rows"]]
    gates = [[gate["title"], _text(gate["a"]), _text(gate["b"])] for gate in found["gates"]]
    costs = [[row["what"], row["unit"] or "", *_numbers(row), _ratio(row["speculative"])] for row in found["cost"]]
    title = "B against A (above 1: B is faster; with the interval of prompts and starts; * kinds of the verdict)"
    tables: list[tuple[str, list[str], Rows]] = [
        ("What differs", ["what", "A", "B"], differs),
        (title, ["arm", "kind", "measure", "A", "B", "change", "says"], _changes(found)),
        ("What speculation gains", ["kind", "A", "B"], _gains(found)),
        ("Until which load it pays", ["kind", "A", "B"], loads),
        ("Speed of the server under load, tok/s", ["kind", load["unit"] or "load", *each_arm], speeds),
        ("Gates", ["gate", "A", "B"], gates),
        ("Cost", ["what", "unit", *each_arm, "B/A"], costs),
    ]
    return [entry for entry in tables if entry[2]]


def _changes(found: Comparison) -> Rows:
    """A row for each arm, kind and measure."""
    rows: Rows = []
    for row in found["rows"]:
        kind = f"{row['kind']} *" if row["declared"] else row["kind"]
        measured = [number(row["a"]), number(row["b"]), times_span(row["change"])]
        rows.append([row["arm"], kind, TITLES[row["measure"]], *measured, row["word"]])
    return rows


def _gains(found: Comparison) -> Rows:
    """The speed-up of each kind, and the share of the drafts that was accepted."""
    rows = [[row["kind"], times_span(row["a"]), times_span(row["b"])] for row in found["speedups"]]
    accepted = found["acceptance"]
    if any(accepted.values()):
        rows.append(["drafts accepted", percent(accepted["a"]), percent(accepted["b"])])
    return rows


def _numbers(row: ComparedLevel | ComparedCost) -> list[str]:
    baseline, speculative = row["baseline"], row["speculative"]
    return list(map(number, (baseline["a"], baseline["b"], speculative["a"], speculative["b"])))


def _ratio(sides: Numbers) -> str:
    if not sides["a"] or sides["b"] is None:
        return NOTHING
    return times(sides["b"] / sides["a"])


def _text(value: str | int | None) -> str:
    return NOTHING if value in (None, "") else str(value)
