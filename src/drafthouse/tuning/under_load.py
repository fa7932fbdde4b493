"""The best candidates under load: one user's speed against the server's throughput, as a table and a Pareto plot.

The search finds the setup that is fastest for the profile's number of concurrent requests. Under more, another one may
give the server more tokens per second: a smaller K, or another option of the server. A point is on the Pareto front
if no other point is at least as fast for one user and for the server, and faster for one of them.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..analysis.speedup import estimate_speedup
from ..bench.stats import Gain, median
from ..core.format import number, times_span
from ..core.table import table

if TYPE_CHECKING:
    from drafthouse.tuning.types import Outcome

WITHOUT_SPECULATION = "without speculation"

Tpot = Mapping[str, float]  # time per output token in ms, by prompt


@dataclass(frozen=True)
class LoadedServer:
    """A server that was measured at the profile's concurrency (``alone``) and under load, on the same prompts."""

    name: str  # the candidate's id, or `WITHOUT_SPECULATION`
    alone: Tpot
    loaded: Tpot
    throughput: float  # of the server under load, output tokens per second


@dataclass(frozen=True)
class Point:
    """A server in the plot, with its speeds over the original profile's."""

    name: str
    user_tok_s: float  # one user's tokens per second at the profile's concurrency: the profile's median times the gain
    server_tok_s: float  # as `LoadedServer.throughput`
    user_gain: Gain  # over the original profile; for that itself exactly 1
    server_gain: Gain  # the same, from the time per token of the same prompts under load
    on_front: bool


def loaded_server(name: str, alone: Outcome, loaded: Outcome) -> LoadedServer:
    """The server of two trials that ended well, at the profile's concurrency and under load."""
    tokens = loaded.facts.get("output_tokens", 0)
    throughput = tokens / loaded.measured_s if loaded.measured_s else 0.0
    return LoadedServer(name, alone.tpot_ms, loaded.tpot_ms, throughput)


def points_of(servers: Sequence[LoadedServer], original: str) -> list[Point]:
    """The points of the plot; ``original`` is the name of the profile's own candidate.

    A server with fewer than two prompts that the original answered too is left out.
    """
    points: list[Point] = []
    if not servers:
        return points
    reference = next(server for server in servers if server.name == original)
    reference_tok_s = 1000 / median(list(reference.alone.values()))
    for server in servers:
        user_gain, server_gain = _gain(reference.alone, server.alone), _gain(reference.loaded, server.loaded)
        if user_gain and server_gain:
            user_tok_s = reference_tok_s * user_gain["gain"]
            points.append(Point(server.name, user_tok_s, server.throughput, user_gain, server_gain, on_front=False))
    return [replace(point, on_front=not any(_dominates(other, point) for other in points)) for point in points]


def _gain(slow: Tpot, fast: Tpot) -> Gain | None:
    """The speed-up by the verdict's estimator, with its interval; None for fewer than two prompts.

    Each server was started once for it: what starts differ by is the estimator's prior.
    """
    logs = [{prompt: {1: math.log(tpot_ms)} for prompt, tpot_ms in arm.items()} for arm in (slow, fast)]
    speedup = estimate_speedup(logs[0], logs[1], dict.fromkeys(slow, ""))
    if speedup is None:
        return None
    gain = speedup.as_dict()
    if fast is slow:
        gain = {**gain, "low": 1.0, "high": 1.0}
    return gain


def _dominates(other: Point, point: Point) -> bool:
    """True if ``other`` is at least as good for one user and for the server, and better for one of them."""
    if other.user_tok_s < point.user_tok_s or other.server_tok_s < point.server_tok_s:
        return False
    return other.user_tok_s > point.user_tok_s or other.server_tok_s > point.server_tok_s


def load_text(points: Sequence[Point], load: int) -> str:
    """The points as a text table, the fastest for one user first, and what it shows."""
    rows = []
    for point in sorted(points, key=lambda point: -point.user_tok_s):
        rows.append(
            [
                point.name,
                number(point.user_tok_s),
                times_span(point.user_gain),
                number(point.server_tok_s),
                times_span(point.server_gain),
                "on the front" if point.on_front else "",
            ]
        )
    head = ["server", "one user, tok/s", "over the profile", f"all {load}, tok/s", "over the profile", ""]
    best = max(points, key=lambda point: point.server_tok_s)
    return f"{table(head, rows)}\nMost tokens per second for {load} concurrent requests: {best.name}."


def front_svg(points: Sequence[Point], load: int) -> str:
    """The Pareto plot as an SVG file: each point with the intervals of its gains, the front as a line."""
    # Importing matplotlib takes a second.
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "drafthouse"}):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for point in points:
            axes.errorbar(
                point.user_tok_s,
                point.server_tok_s,
                xerr=_bars(point.user_tok_s, point.user_gain),
                yerr=_bars(point.server_tok_s, point.server_gain),
                fmt="o" if point.on_front else "x",
                color="#1f5fa8" if point.on_front else "#777777",
                capsize=3,
            )
            axes.annotate(point.name, (point.user_tok_s, point.server_tok_s), (6, 6), textcoords="offset points")
        front = sorted((point.user_tok_s, point.server_tok_s) for point in points if point.on_front)
        axes.plot([user for user, _ in front], [server for _, server in front], color="#1f5fa8", linewidth=1)
        axes.set_xlabel("one user, tokens per second")
        axes.set_ylabel(f"the server with {load} concurrent requests, tokens per second")
        axes.margins(0.2)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _bars(speed: float, gain: Gain) -> list[list[float]]:
    """The lengths of an error bar below and above a speed, from the interval of its gain."""
    below, above = gain["low"] / gain["gain"], gain["high"] / gain["gain"]
    return [[speed * (1 - below)], [speed * (above - 1)]]
