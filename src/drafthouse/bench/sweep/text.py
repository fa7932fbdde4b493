"""Format a load sweep (ladder) as text: a log line per step, the final table, the live view of a terminal."""

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

#: The values of ``ended_by``, in words.
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
    """A step as one line for a log; ``load`` is "closed" or "open", which says what its level is."""
    place = ", ".join(
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
    return f"{place}: {', '.join(numbers)}"


def ladder_lines(ladder: Ladder) -> list[str]:
    """The lines of a whole ladder: the table, the meaning of its columns, and all notes."""
    if not ladder["steps"]:
        return ["No step was measured."]
    steps = sorted(
        ladder["steps"], key=lambda step: (ladder["kinds"].index(step["kind"]), step["level"], step["round"])
    )
    lines = [*_table(ladder, steps), "", *_legend(ladder)]
    for step in steps:
        label = f"{shown_level(step['level'])}, {printable(step['kind'])}, {printable(step['arm'])}"
        lines += [f"{label}: {printable(note)}" for note in step["notes"]]
    return lines + list(map(printable, ladder["notes"]))


def live_lines(ladder: Ladder, event: Event, width: int, height: int) -> list[str]:
    """The live view: the last steps, the current step, and the remaining time.

    It has at most ``height`` lines of ``width`` characters, because lines that scrolled away cannot be redrawn.
    """
    lines = _table(ladder, ladder["steps"]) if ladder["steps"] else []
    table_height = max(0, height - 4)  # two lines follow the table, two stay free
    if not table_height:
        lines = []
    elif len(lines) > table_height:
        lines = [lines[0], *lines[len(lines) - table_height + 1 :]]  # the heading and the last steps
    remaining = ""
    if event["eta_s"] is not None:
        remaining = f", about {shown_time(event['eta_s'])} left"
    lines += [f"{event['done']} of {event['total']} steps{remaining}", f"now: {printable(event['text'])}"]
    return [line[: max(1, width - 1)] for line in lines]


def _table(ladder: Ladder, steps: Sequence[LadderStep]) -> list[str]:
    """The steps as an aligned table, without columns that have a single value or none."""
    rows = [_cells(ladder, step) for step in steps]
    hidden = set()
    if len(ladder["kinds"]) == 1:
        hidden.add("kind")
    if ladder["rounds"] == 1:
        hidden.add("round")
    if len({step["arm"] for step in steps}) == 1:
        hidden.add("arm")
    for name in ("good/s", "accepted"):
        if all(row[name] == _NOTHING for row in rows):
            hidden.add(name)
    names = [name for name in rows[0] if name not in hidden]
    left_aligned = [index for index, name in enumerate(names) if name in ("kind", "arm", "ended")]
    lines = [list(map(str.strip, names))]
    for row in rows:
        lines.append([row[name] for name in names])
    return aligned(lines, left_aligned)


def _cells(ladder: Ladder, step: LadderStep) -> dict[str, str]:
    """A step's cells by column name. "p99 " of TPOT ends in a space, because TTFT already has a column "p99"."""
    return {
        "a second" if ladder["load"] == OPEN else "at once": shown_level(step["level"]),
        "kind": printable(step["kind"]),
        "arm": printable(step["arm"]),
        "round": str(step["round"]),
        "requests": f"{step['completed']}/{step['num_prompts']}",
        "tok/s": _figure(step["output_throughput"]),
        "a user": _figure(step["per_user_tok_s"]),
        "TTFT ms": _figure(step["ttft_ms"]["median"]),
        "p99": _figure(step["ttft_ms"]["p99"]),
        "TPOT ms": _figure(step["tpot_ms"]["median"]),
        "+-": _give_or_take(step["tpot_interval"]) or _NOTHING,
        "p99 ": _figure(step["tpot_ms"]["p99"]),
        "good/s": _figure(step["goodput"]),
        "accepted": _share(step["spec_decode_acceptance_rate"]),
        "ended": _ended(step),
    }


def _legend(ladder: Ladder) -> list[str]:
    """The meaning of the table's columns."""
    goodput = ""
    if ladder["limits"]:
        limits = [
            f"{name.removesuffix('_ms').upper()} {limit:g} ms" for name, limit in sorted(ladder["limits"].items())
        ]
        goodput = f"; good/s: requests a second within {', '.join(limits)}"
    return [
        f"tok/s of all {UNITS[ladder['load']]} together, and per user (1000 / TPOT).",
        f"TTFT and TPOT are medians, +- half the 95 % confidence interval{goodput}.",
    ]


def _ended(step: LadderStep) -> str:
    """What ended a step, in words; the status of a polluted one stands before it."""
    words = ENDED.get(step["ended_by"], str(step["ended_by"]))
    if step["status"] not in (BROKEN, INCOMPLETE, OK):
        return f"{step['status']} ({words})"
    if step["restarted"]:
        words += ", restarted"
    return words


def _give_or_take(interval: Interval | None) -> str:
    """Half of an interval's width in percent of its median; "" without an interval."""
    if not interval or not interval["median"]:
        return ""
    return f"{50 * (interval['high'] - interval['low']) / interval['median']:.1f} %"


def _figure(value: float | None) -> str:
    if value is None:
        return _NOTHING
    return f"{value:.2f}" if value < 100 else f"{value:,.1f}"


def _share(value: float | None) -> str:
    """A share that is in percent already, as text."""
    return _NOTHING if value is None else f"{value:.1f} %"


def _plus_minus(interval: Interval | None) -> str:
    share = _give_or_take(interval)
    return f" (+- {share})" if share else ""
