"""The speed-ups of several reports in the order they were measured, as one small SVG.

Written by hand: a page over all reports has one of these for each profile and box, where matplotlib's take 20 KiB each.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...core.format import TIMES, listing, times

_WIDTH, _HEIGHT = 400, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 54, 14, 28
_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_MOST_TICKS = 5
# Between the middles of two labels of the axis, in px.
_APART = 15.0


@dataclass(frozen=True)
class Point:
    """A report's speed-up with its interval; ``pays``: whether its verdict says so."""

    date: str
    median: float
    low: float
    high: float
    pays: bool


def trend_svg(name: str, points: Sequence[Point]) -> str:
    """Return the drawing; ``name`` begins its ids and is another one for every drawing of a page.

    The points stand side by side whatever time lies between them. A full point pays, a hollow one does not.
    """
    least = min(1.0, *(point.low for point in points))
    most = max(1.0, *(point.high for point in points))
    room = (most - least) * 0.08 or 0.05
    least, most = least - room, most + room

    def across(place: int) -> float:
        if len(points) == 1:
            return (_LEFT + _WIDTH - _RIGHT) / 2
        return _LEFT + 12 + place * (_WIDTH - _LEFT - _RIGHT - 24) / (len(points) - 1)

    def down(value: float) -> float:
        return _TOP + (most - value) / (most - least) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{down(tick):.1f}" y2="{down(tick):.1f}" '
        f'stroke="var(--line)"/>{_text(_LEFT - 8, down(tick) + 4, _tick(tick), "end", "var(--muted)")}'
        for tick in _ticks(least, most)
        if abs(down(tick) - down(1.0)) >= _APART
    ]
    parts += [
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{down(1.0):.1f}" y2="{down(1.0):.1f}" '
        'stroke="var(--threshold)" stroke-dasharray="5 3"/>',
        _text(_LEFT - 8, down(1.0) + 4, times(1.0, 0), "end", "var(--threshold)"),
    ]
    line = " ".join(f"{across(place):.1f},{down(point.median):.1f}" for place, point in enumerate(points))
    parts.append(f'<polyline points="{line}" fill="none" stroke="var(--speculative)" stroke-width="1.5"/>')
    for place, point in enumerate(points):
        x, fill = f"{across(place):.1f}", "var(--speculative)" if point.pays else "var(--card)"
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="{down(point.low):.1f}" y2="{down(point.high):.1f}" '
            'stroke="var(--speculative)" stroke-width="3" opacity="0.35"/>'
            f'<circle cx="{x}" cy="{down(point.median):.1f}" r="4.5" fill="{fill}" stroke="var(--speculative)" '
            f'stroke-width="2"><title>{html.escape(point.date)}: {times(point.median)}</title></circle>'
        )
    last = points[-1]
    parts.append(_text(_WIDTH - _RIGHT + 4, down(last.median) + 4, times(last.median), "start", "currentColor", 600))
    first = points[0].date.partition(" ")[0]
    parts.append(_text(_LEFT, _HEIGHT - 8, first, "start", "var(--muted)"))
    if len(points) > 1:
        parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - 8, last.date.partition(" ")[0], "end", "var(--muted)"))
    told = listing([f"{times(point.median)} ({point.date})" for point in points])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">Speed-up by report</title>'
        f'<desc id="{name}-desc">{html.escape(told)}</desc>{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str, colour: str, weight: int = 400) -> str:
    """Return a label whose baseline is at ``y``."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'style="font: {weight} 13px var(--plot-font); fill: {colour}">{html.escape(text)}</text>'
    )


def _ticks(least: float, most: float) -> list[float]:
    """Return the multiples of a round step inside the axis, six at most."""
    step = next((one for one in _STEPS if (most - least) / one <= _MOST_TICKS), most - least)
    return [number * step for number in range(math.ceil(least / step), math.floor(most / step) + 1)]


def _tick(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") + TIMES
