"""Draw speed over load, a plot per kind of prompt, with the crossover: the load at which speculation stops paying."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from ...analysis.crossover_text import load_text
from ...core.format import number, shown_level, times
from .style import ACCENT, COLOURS, LINES, MUTED, NAMES, escape_dollar, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from drafthouse.report.report_types import Arm, LoadKind, LoadRow, Report

#: A plot: its figure, its title, and its description in words.
Plot = tuple["Figure", str, str]
Speed = Literal["output_throughput", "per_user_tok_s"]
#: The panels from top to bottom: key in a row's arm, and label of the axis.
PANELS: tuple[tuple[Speed, str], ...] = (
    ("output_throughput", "the server, tok/s"),
    ("per_user_tok_s", "one user, tok/s"),
)


def load_plots(report: Report) -> dict[str, Plot | None]:
    """A plot per kind: ``load-0``, ``load-1``, …, ``context-0``, … in the order of the report's kinds.

    None stands for a kind without any speed.
    """
    plots = {}
    for axis, sweep in (("load", report.get("load")), ("context", report.get("contexts"))):
        if sweep is None:
            continue
        for index, kind in enumerate(sweep["kinds"]):
            rows = [row for row in sweep["rows"] if row["kind"] == kind["kind"] and _has_speed(row)]
            plots[f"{axis}-{index}"] = _plot(kind, rows, sweep["unit"], axis)
    return plots


def _has_speed(row: LoadRow) -> bool:
    """True if an arm has a speed per user at the level."""
    return any(_value(row, arm, "per_user_tok_s") is not None for arm in NAMES)


def _plot(kind: LoadKind, rows: Sequence[LoadRow], unit: str, axis: str) -> Plot | None:
    """The plot of a kind as (figure, title, description), with two panels above each other; None without rows."""
    if not rows:
        return None
    figure = new_figure(4.6)
    upper, lower = figure.subplots(2, 1, sharex=True)
    levels = [float(row["level"]) for row in rows]
    for axes, (name, label) in zip((upper, lower), PANELS, strict=True):
        for arm in NAMES:
            axes.plot(
                levels,
                _speeds(rows, arm, name),
                color=COLOURS[arm],
                linestyle=LINES[arm],
                linewidth=2,
                marker="o",
                markersize=5,
                label=NAMES[arm] if axes is upper else None,
            )
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.margins(y=0.12)
        axes.grid(visible=False, axis="x")
        axes.spines["left"].set_visible(False)
    _scale_levels(lower, levels, unit)
    _mark_crossover(upper, lower, kind, levels)
    _write_speedups(upper, rows)
    figure.legend(loc="outside upper left", ncols=2)
    return figure, f"Speed over {axis}: {kind['kind']}", _description(kind, rows, unit)


def _speeds(rows: Sequence[LoadRow], arm: Arm, name: Speed) -> list[float]:
    """An arm's speed at each level; NaN, which matplotlib skips, if it was not measured."""
    speeds = []
    for row in rows:
        value = _value(row, arm, name)
        speeds.append(math.nan if value is None else value)
    return speeds


def _value(row: LoadRow, arm: Arm, name: Speed) -> float | None:
    """An arm's speed at a level in tok/s; None if it was not measured."""
    arm_result = row[arm]
    return arm_result[name] if arm_result else None


def _scale_levels(axes: Axes, levels: Sequence[float], unit: str) -> None:
    """Set the levels as ticks of a logarithmic axis, on which doubling levels are equally far apart."""
    spread = 1.5
    if levels[0] > 0 and len(levels) > 1:
        axes.set_xscale("log", base=2)
        spread = (levels[-1] / levels[0]) ** 0.06
    axes.minorticks_off()
    shown = [levels[0]]
    for before, level in pairwise(levels):
        # Skip labels of levels that are too close together to read.
        if level >= 1.2 * before:
            shown.append(level)
    axes.set_xticks(shown, [shown_level(level) for level in shown])
    axes.set_xlim(levels[0] / spread, levels[-1] * spread)
    axes.set_xlabel(escape_dollar(unit))


def _mark_crossover(upper: Axes, lower: Axes, kind: LoadKind, levels: Sequence[float]) -> None:
    """Mark the crossover: a line, its interval as a band, and a label."""
    crossover = kind["pays_until"]
    if crossover is None:
        return
    low, high = kind["interval"] or (None, None)
    # An unknown end of the interval is outside the measured levels.
    left = levels[0] if low is None else low
    right = levels[-1] if high is None else high
    for axes in (upper, lower):
        if kind["interval"]:
            axes.axvspan(left, right, color=ACCENT, alpha=0.14, linewidth=0)
        axes.axvline(crossover, color=ACCENT, linewidth=1.6, linestyle=(0, (4, 3)))
    in_right_half = crossover > math.sqrt(max(levels[0], 1e-9) * levels[-1])  # the middle of a logarithmic axis
    side, distance = ("right", -5) if in_right_half else ("left", 5)
    lower.annotate(
        f"pays until about {load_text(crossover)}",
        (crossover, 0.04),
        xycoords=("data", "axes fraction"),
        xytext=(distance, 0),
        textcoords="offset points",
        ha=side,
        va="bottom",
        color=ACCENT,
        fontsize=9,
    )


def _write_speedups(axes: Axes, rows: Sequence[LoadRow]) -> None:
    """Write each level's speed-up above the plot."""
    for row in rows:
        if row["speedup"]:
            axes.annotate(
                times(row["speedup"]["gain"]),
                (float(row["level"]), 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                color=MUTED,
                fontsize=9,
                annotation_clip=False,
            )


def _description(kind: LoadKind, rows: Sequence[LoadRow], unit: str) -> str:
    """A plot in words: all its speeds and speed-ups by level, and the sentence on where speculation pays."""
    sentences = []
    for row in rows:
        speeds = []
        for arm in NAMES:
            if row[arm]:
                server = _value(row, arm, "output_throughput")
                user = _value(row, arm, "per_user_tok_s")
                speeds.append(f"{number(server)} tokens per second {NAMES[arm].lower()} ({number(user)} per user)")
        sentence = f"at {shown_level(row['level'])}: {', '.join(speeds)}"
        if row["speedup"]:
            sentence += f", {times(row['speedup']['gain'])}"
        sentences.append(sentence)
    end = f" Speculation: {kind['sentence']}." if kind["sentence"] else ""
    return f"{kind['kind']} over {unit}, {'; '.join(sentences)}.{end}"
