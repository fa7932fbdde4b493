"""Draw the report's plots by kind of prompt (speed, speed-up, acceptance, latency); `draw` adds those over load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

from ...analysis.words import THRESHOLD
from ...bench.stats import Estimated, Gain
from ...core.format import count, number, percent, times, times_span
from ...core.places import INSTALLED, ROOT
from ..report_types import ARMS, Arm, Report
from .load import Plot, load_plots
from .style import ACCENT, BASELINE, COLOURS, INK, LINES, MUTED, NAMES, SPECULATIVE, STYLE, cut_label, new_axes, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Drawing(TypedDict):
    """A plot for the HTML page; ``text`` describes it in words, also as the SVG's description."""

    title: str
    text: str
    svg: str


def can_draw() -> bool:
    """True if matplotlib is installed; the wheel without extras does not have it."""
    return find_spec("matplotlib") is not None


def draw(report: Report) -> dict[str, Drawing]:
    """The plots of a report by name, such as ``speed``; plots without data are left out.

    ``load-0``, ``load-1``, … are the plots over load, in the order of the report's kinds. Returns {} without
    matplotlib.
    """
    if not can_draw():
        return {}
    # Keep matplotlib's font cache in the clone; the default is the user's home.
    if not INSTALLED:
        os.environ.setdefault("MPLCONFIGDIR", str(ROOT / ".drafthouse" / "cache" / "matplotlib"))
    import matplotlib as mpl  # noqa: PLC0415 (slow to import, and only drawing needs it)

    with mpl.rc_context(STYLE):
        plots = {
            "speed": _speed(report),
            "speedup": _speedup(report),
            "acceptance": _acceptance(report),
            "tpot": _distribution(report, "tpot_ms", "Time per output token (TPOT)"),
            "ttft": _distribution(report, "ttft_ms", "Time to first token (TTFT)"),
            **load_plots(report),
        }
        drawings: dict[str, Drawing] = {}
        for name, plot in plots.items():
            if plot:
                figure, title, text = plot
                drawings[name] = {"title": title, "text": text, "svg": to_svg(figure, f"plot-{name}", title, text)}
        return drawings


class _Row(NamedTuple):
    """A kind of prompt with a speed-up, which is a row of the plots."""

    group: str
    declared: bool  # True if the verdict covers it
    speed: dict[Arm, Estimated]  # in tok/s
    speedup: Gain
    control: Gain | None  # the baseline against itself; None: not measured


def _rows(report: Report) -> list[_Row]:
    """The kinds of prompt that have a speed-up and both arms' speeds, in the report's order."""
    rows = []
    for row in report["kinds"]:
        baseline, speculative = row["tok_s"]["baseline"], row["tok_s"]["speculative"]
        if row["speedup"] and baseline and speculative:
            speed: dict[Arm, Estimated] = {"baseline": baseline, "speculative": speculative}
            rows.append(_Row(row["group"], row["declared"], speed, row["speedup"], row["control"]))
    return rows


def _label_kinds(axes: Axes, rows: Sequence[_Row]) -> None:
    """Write the kinds beside the plot, from top to bottom; an asterisk marks those that the verdict covers."""
    names = []
    for row in rows:
        declared = " *" if row.declared else ""
        names.append(f"{cut_label(row.group)}{declared}")
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.4, -0.6)  # reversed: the first row is at the top
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def _speed(report: Report) -> Plot | None:
    """Two bars for each kind: the arms' median speeds with intervals. None without rows, as in the plots below."""
    rows = _rows(report)
    if not rows:
        return None
    figure, axes = new_axes(0.9 + 0.62 * len(rows))
    top = max(row.speed[arm]["high"] for row in rows for arm in NAMES)
    for arm, offset in zip(ARMS, (-0.19, 0.19), strict=True):
        positions = []
        medians = []
        lows = []
        highs = []
        for position, row in enumerate(rows):
            speed = row.speed[arm]
            positions.append(position + offset)
            medians.append(speed["median"])
            lows.append(speed["low"])
            highs.append(speed["high"])
            axes.text(speed["high"] + top * 0.015, position + offset, number(speed["median"]), va="center", fontsize=9)
        axes.barh(positions, medians, height=0.34, color=COLOURS[arm], label=NAMES[arm])
        axes.hlines(positions, lows, highs, colors=INK, linewidth=1.4)
    axes.set_xlim(0, top * 1.14)  # with room for the numbers beside the bars
    axes.set_xlabel("tokens per second, with 95 % intervals")
    _label_kinds(axes, rows)
    figure.legend(loc="outside upper left", ncols=2)
    sentences = []
    for row in rows:
        baseline, speculative = row.speed["baseline"]["median"], row.speed["speculative"]["median"]
        sentences.append(
            f"{row.group}: {number(baseline)} tokens per second baseline, {number(speculative)} speculative"
        )
    return figure, "Speed by kind of prompt", f"{'; '.join(sentences)}."


def _speedup(report: Report) -> Plot | None:
    """A dot with an interval for each kind's speed-up, and one below it for the baseline against itself."""
    rows = _rows(report)
    if not rows:
        return None
    figure, axes = new_axes(0.95 + 0.52 * len(rows))
    lowest, highest = _range(rows)
    width = highest - lowest  # of the axis; distances to texts are fractions of it
    axes.axvline(1.0, color=MUTED, linewidth=1)
    axes.axvline(THRESHOLD, color=ACCENT, linewidth=1.4, linestyle=(0, (4, 3)))
    # Place the line's label on its side with more room; the values below stand on the far side of their intervals.
    side, gap = ("right", -0.012) if (lowest + highest) / 2 < THRESHOLD else ("left", 0.012)
    axes.text(THRESHOLD + width * gap, -0.68, f"pays above {THRESHOLD}", color=ACCENT, va="center", ha=side, fontsize=9)
    for position, row in enumerate(rows):
        speedup = row.speedup
        control = row.control
        axes.hlines(position, speedup["low"], speedup["high"], colors=SPECULATIVE, linewidth=3)
        axes.plot(speedup["gain"], position, "o", color=SPECULATIVE, markersize=7)
        if control:
            axes.hlines(position + 0.26, control["low"], control["high"], colors=BASELINE, linewidth=2)
            axes.plot(control["gain"], position + 0.26, "o", color=BASELINE, markersize=4)
        side, edge = "left", speedup["high"] + width * 0.02
        if speedup["high"] < THRESHOLD:
            side, edge = "right", speedup["low"] - width * 0.02
        axes.text(edge, position, times(speedup["gain"]), va="center", ha=side, fontsize=9)
    axes.set_xlim(lowest - width * 0.16, highest + width * 0.16)
    axes.set_xlabel("speed-up per token; grey is the baseline against itself")
    _label_kinds(axes, rows)
    axes.set_ylim(len(rows) - 0.5, -0.9)
    text = "; ".join(f"{row.group}: {times_span(row.speedup)}" for row in rows)
    return figure, "Speed-up by kind of prompt", f"{text}. Speculation pays above {THRESHOLD}."


def _range(rows: Sequence[_Row]) -> tuple[float, float]:
    """The smallest and largest value of the axis: of 1, the threshold, and the ends of all intervals."""
    lowest, highest = 1.0, THRESHOLD
    for row in rows:
        for gain in (row.speedup, row.control):
            if gain:
                lowest, highest = min(lowest, gain["low"]), max(highest, gain["high"])
    return lowest, highest


def _acceptance(report: Report) -> Plot | None:
    """A bar for each position in the draft: the share of drafts that kept a token there."""
    rates = report["acceptance"]["overall"]["by_position"]
    if not rates:
        return None
    figure, axes = new_axes(2.7)
    positions = range(1, len(rates) + 1)
    axes.bar(positions, [100 * rate for rate in rates], width=0.72, color=SPECULATIVE)
    if len(rates) <= 10:
        for position, rate in zip(positions, rates, strict=True):
            axes.text(position, 100 * rate + 2, f"{100 * rate:.0f}", ha="center", fontsize=9)
    if len(rates) <= 10:
        ticks = list(positions)
    elif len(rates) <= 20:
        ticks = [1, *range(2, len(rates) + 1, 2)]
    else:
        ticks = [1, *range(5, len(rates) + 1, 5)]
    axes.set_xticks(ticks)
    axes.set_ylim(0, 112)  # with room for a number above a bar of 100 %
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("accepted, % of the drafts")
    axes.grid(visible=False, axis="x")
    axes.spines["left"].set_visible(False)
    text = ", ".join(f"{position}: {percent(rate)}" for position, rate in zip(positions, rates, strict=True))
    return figure, "Acceptance by position in the draft", f"Share of drafts accepted, by position: {text}."


def _distribution(report: Report, measure: Literal["tpot_ms", "ttft_ms"], title: str) -> Plot | None:
    """A curve for each arm: the share of its requests that took at most a time; None if an arm has no values."""
    values = report["distributions"][measure]
    if not all(values[arm] for arm in NAMES):
        return None
    figure, axes = new_axes(2.7)
    sentences = []
    for arm in NAMES:
        arm_values = values[arm]
        axes.ecdf(arm_values, color=COLOURS[arm], linewidth=2, linestyle=LINES[arm], label=NAMES[arm])
        low, middle, high = (arm_values[round(share * (len(arm_values) - 1))] for share in (0.1, 0.5, 0.9))
        sentences.append(
            f"{NAMES[arm]}: median {number(middle)} ms, 10 % below {number(low)} ms, "
            f"10 % above {number(high)} ms ({count(len(arm_values), 'request')})"
        )
    largest = max(values[arm][-1] for arm in NAMES)
    axes.set_xlim(0, largest * 1.05)
    axes.set_ylim(0, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25", "50", "75", "100"])
    axes.set_xlabel("milliseconds or less")
    axes.set_ylabel("% of the requests")
    axes.spines["left"].set_visible(False)
    figure.legend(loc="outside upper left", ncols=2)
    return figure, title, f"{'; '.join(sentences)}."
