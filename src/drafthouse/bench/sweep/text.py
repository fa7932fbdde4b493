"""A load ladder as plain text: a line for each step, the table, and the same while it is measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.format import shown_level, shown_time
from ...core.plain_text import printable
from ...core.table import aligned
from ...prompts.load_levels import OPEN, UNITS
from .store import BROKEN, INCOMPLETE, OK

if TYPE_CHECKING:
    from drafthouse.bench.stats import Interval
    from drafthouse.bench.sweep.ladder_types import Ladder, LadderStep
    from drafthouse.core.progress import Event

#: How a step ended, in words.
ENDED = {
    "narrow": "sharp enough",
    "time": "time was up",
    "prompts": "no more prompts",
    "died": "the engine died",
    "failed": "requests failed",
    "overload": "did not keep up",
    "stopped": "stopped",
}
_NOTHING = "-"


def step_line(step: LadderStep, load: str) -> str:
    """Return a step as one line for a log."""
    where = ", ".join(
        [
            f"{shown_level(step['level'])} {UNITS[load]}",
            printable(step["kind"]),
            printable(step["arm"]),
            f"round {step['round']}",
        ]
    )
    numbers = [
        f"{_figure(step['output_throughput'])} tok/s",
        f"{_figure(step['per_user_tok_s'])} a user",
        f"TTFT {_figure(step['ttft_ms']['median'])} ms",
        f"TPOT {_figure(step['tpot_ms']['median'])} ms{_plus_minus(step['tpot_interval'])}",
        f"{step['completed']} of {step['num_prompts']} requests in {step['duration_s']:.0f} s",
        _ended(step),
    ]
    return f"{where}: {', '.join(numbers)}"


def ladder_lines(ladder: Ladder) -> list[str]:
    """Return the whole ladder: the table, what its columns mean, and what a person must know of its steps."""
    if not ladder["steps"]:
        return ["No step was measured."]
    steps = sorted(ladder["steps"], key=lambda one: (ladder["kinds"].index(one["kind"]), one["level"], one["round"]))
    lines = [*_table(ladder, steps), "", *_legend(ladder)]
    notes = [
        f"{shown_level(step['level'])}, {printable(step['kind'])}, {printable(step['arm'])}: {printable(note)}"
        for step in steps
        for note in step["notes"]
    ]
    return lines + notes + [printable(note) for note in ladder["notes"]]


def live_lines(ladder: Ladder, event: Event, width: int, height: int) -> list[str]:
    """Return what a terminal shows while the ladder is measured: the last steps, what goes on, and the time left.

    Never more lines or wider ones than ``height`` and ``width``: what scrolled away could not be drawn over.
    """
    table = _table(ladder, ladder["steps"]) if ladder["steps"] else []
    room = max(0, height - 4)
    if len(table) > room:
        table = [table[0], *table[len(table) - room + 1 :]] if room else []
    left = f", about {shown_time(event['eta_s'])} left" if event["eta_s"] is not None else ""
    lines = [*table, f"{event['done']} of {event['total']} steps{left}", f"now: {printable(event['text'])}"]
    return [line[: max(1, width - 1)] for line in lines]


def _table(ladder: Ladder, steps: Sequence[LadderStep]) -> list[str]:
    """Return the steps as aligned lines; columns in which all steps are alike are left out."""
    columns = {
        "a second" if ladder["load"] == OPEN else "at once": [shown_level(one["level"]) for one in steps],
        "kind": [printable(one["kind"]) for one in steps],
        "arm": [printable(one["arm"]) for one in steps],
        "round": [str(one["round"]) for one in steps],
        "requests": [f"{one['completed']}/{one['num_prompts']}" for one in steps],
        "tok/s": [_figure(one["output_throughput"]) for one in steps],
        "a user": [_figure(one["per_user_tok_s"]) for one in steps],
        "TTFT ms": [_figure(one["ttft_ms"]["median"]) for one in steps],
        "p99": [_figure(one["ttft_ms"]["p99"]) for one in steps],
        "TPOT ms": [_figure(one["tpot_ms"]["median"]) for one in steps],
        "+-": [_give_or_take(one["tpot_interval"]) or _NOTHING for one in steps],
        "p99 ": [_figure(one["tpot_ms"]["p99"]) for one in steps],
        "good/s": [_figure(one["goodput"]) for one in steps],
        "accepted": [_share(one["spec_decode_acceptance_rate"]) for one in steps],
        "ended": [_ended(one) for one in steps],
    }
    same = ["kind"] if len(ladder["kinds"]) == 1 else []
    same += ["round"] if ladder["rounds"] == 1 else []
    same += ["arm"] if len({one["arm"] for one in steps}) == 1 else []
    same += [name for name in ("good/s", "accepted") if set(columns[name]) == {_NOTHING}]
    kept = {name: cells for name, cells in columns.items() if name not in same}
    left = [place for place, name in enumerate(kept) if name in ("kind", "arm", "ended")]
    return aligned([[name.strip() for name in kept], *zip(*kept.values(), strict=True)], left)


def _legend(ladder: Ladder) -> list[str]:
    limits = ", ".join(
        f"{name.removesuffix('_ms').upper()} {limit:g} ms" for name, limit in sorted(ladder["limits"].items())
    )
    good = f"; good/s: requests a second within {limits}" if limits else ""
    return [
        f"tok/s of all {UNITS[ladder['load']]} together, and per user (1000 / TPOT).",
        f"TTFT and TPOT are medians, +- half the 95 % confidence interval{good}.",
    ]


def _ended(step: LadderStep) -> str:
    words = ENDED.get(step["ended_by"], str(step["ended_by"]))
    if step["status"] in (BROKEN, INCOMPLETE, OK):
        return words + (", restarted" if step["restarted"] else "")
    return f"{step['status']} ({words})"


def _give_or_take(interval: Interval | None) -> str:
    if not interval or not interval["median"]:
        return ""
    return f"{50 * (interval['high'] - interval['low']) / interval['median']:.1f} %"


def _figure(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.2f}" if value < 100 else f"{value:,.1f}"


def _share(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.1f} %"


def _plus_minus(interval: Interval | None) -> str:
    share = _give_or_take(interval)
    return f" (+- {share})" if share else ""
