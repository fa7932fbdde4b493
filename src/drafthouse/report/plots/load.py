"""The plot of speed over load, one a kind: the server's speed and one user's, both arms, the crossover marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from ...analysis.crossover_text import load
from ...core.format import number, shown_level, times
from .style import ACCENT, COLOURS, LINES, MUTED, NAMES, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from drafthouse.report.report_types import Arm, LoadKind, LoadRow, Report

Plot = tuple["Figure", str, str]
Speed = Literal["output_throughput", "per_user_tok_s"]
# Values of the two panels: name in a row's arm, label of the axis.
PANELS: tuple[tuple[Speed, str], ...] = (
    ("output_throughput", "the server, tok/s"),
    ("per_user_tok_s", "one user, tok/s"),
)


def load_plots(report: Report) -> dict[str, Plot | None]:
    """A plot for each kind under load: ``load-0``, ``load-1``, … in the order of the report's kinds."""
    found = report.get("load")
    if not found:
        return {}
    plots = {}
    for place, kind in enumerate(found["kinds"]):
        rows = [row for row in found["rows"] if row["kind"] == kind["kind"] and _has_speed(row)]
        plots[f"load-{place}"] = _over_load(kind, rows, found["unit"])
    return plots


def _has_speed(row: LoadRow) -> bool:
    return any(_value(row, arm, "per_user_tok_s") is not None for arm in NAMES)


def _over_load(kind: LoadKind, rows: Sequence[LoadRow], unit: str) -> Plot | None:
    if not rows:
        return None
    figure = new_figure(4.6)
    upper, lower = figure.subplots(2, 1, sharex=True)
    levels = [float(row["level"]) for row in rows]
    for axes, (name, label) in zip((upper, lower), PANELS, strict=True):
        for arm in NAMES:
            axes.plot(
                levels,
                _heights(rows, arm, name),
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
    _scale(lower, levels, unit)
    _crossover(upper, lower, kind, levels)
    _speedups(upper, rows)
    figure.legend(loc="outside upper left", ncols=2)
    return figure, f"Speed over load: {kind['kind']}", _in_words(kind, rows, unit)


def _heights(rows: Sequence[LoadRow], arm: Arm, name: Speed) -> list[float]:
    """An arm's speed at each level; NaN, which matplotlib leaves out, where none was measured."""
    heights = []
    for row in rows:
        value = _value(row, arm, name)
        heights.append(math.nan if value is None else value)
    return heights


def _value(row: LoadRow, arm: Arm, name: Speed) -> float | None:
    found = row[arm]
    return found[name] if found else None


def _scale(axes: Axes, levels: Sequence[float], unit: str) -> None:
    """Set the levels themselves as ticks: a ladder doubles, so each step is as wide as the next."""
    spread = 1.5
    if levels[0] > 0 and len(levels) > 1:
        axes.set_xscale("log", base=2)
        spread = (levels[-1] / levels[0]) ** 0.06
    axes.minorticks_off()
    shown = [levels[0]]
    for before, level in pairwise(levels):
        # Levels that lie close together would overprint each other.
        if level >= 1.2 * before:
            shown.append(level)
    axes.set_xticks(shown, [shown_level(level) for level in shown])
    axes.set_xlim(levels[0] / spread, levels[-1] * spread)
    axes.set_xlabel(plain(unit))


def _crossover(upper: Axes, lower: Axes, kind: LoadKind, levels: Sequence[float]) -> None:
    """Mark where speculation stops paying: a line, its interval as a band, and the number in words."""
    end = kind["pays_until"]
    if end is None:
        return
    low, high = kind["interval"] or (None, None)
    # An end that is not known lies beyond the ladder.
    left = levels[0] if low is None else low
    right = levels[-1] if high is None else high
    for axes in (upper, lower):
        if kind["interval"]:
            axes.axvspan(left, right, color=ACCENT, alpha=0.14, linewidth=0)
        axes.axvline(end, color=ACCENT, linewidth=1.6, linestyle=(0, (4, 3)))
    in_right_half = end > math.sqrt(max(levels[0], 1e-9) * levels[-1])
    side, distance = ("right", -5) if in_right_half else ("left", 5)
    lower.annotate(
        f"pays until about {load(end)}",
        (end, 0.04),
        xycoords=("data", "axes fraction"),
        xytext=(distance, 0),
        textcoords="offset points",
        ha=side,
        va="bottom",
        color=ACCENT,
        fontsize=9,
    )


def _speedups(axes: Axes, rows: Sequence[LoadRow]) -> None:
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


def _in_words(kind: LoadKind, rows: Sequence[LoadRow], unit: str) -> str:
    sentences = []
    for row in rows:
        speeds = []
        for arm in NAMES:
            if row[arm]:
                server, user = _value(row, arm, "output_throughput"), _value(row, arm, "per_user_tok_s")
                speeds.append(f"{number(server)} tokens per second {NAMES[arm].lower()} ({number(user)} per user)")
        sentence = f"at {shown_level(row['level'])}: {', '.join(speeds)}"
        if row["speedup"]:
            sentence += f", {times(row['speedup']['gain'])}"
        sentences.append(sentence)
    end = f" Speculation: {kind['sentence']}." if kind["sentence"] else ""
    return f"{kind['kind']} over {unit}, {'; '.join(sentences)}.{end}"
