"""The levels of a load ladder: what may be asked for, and what that makes. Pure.

A ladder is closed (so many requests at a time; the next begins as one ends) or open (so many begin in a
second, at random moments, however many still run).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, TypeVar

from ..core.errors import did_you_mean
from ..core.format import shown_level
from ..core.forms import Count
from ..core.schema import Findings, Map, Value

if TYPE_CHECKING:
    from typing import NotRequired

Level = TypeVar("Level", int, float)

CLOSED, OPEN = "closed", "open"
#: What a level counts, by the kind of load.
UNITS = {CLOSED: "concurrent requests", OPEN: "requests a second"}

#: How long a step may take, in seconds, where nothing is said.
SECONDS = 30.0
#: Half the width of the interval at which a step is sharp enough, as a share of the median.
NARROW = 0.03
ROUNDS = 2

_ONE_OF: tuple[Literal["levels", "to", "rates"], ...] = ("levels", "to", "rates")

_LIMITS = Map(dict.fromkeys(("ttft_ms", "tpot_ms"), Value(float, low=0.1)))


class LadderWishes(TypedDict):
    """How far a load ladder goes: one of levels, to, rates. ``limits``: ``ttft_ms``, ``tpot_ms``."""

    levels: NotRequired[list[Count]]
    to: NotRequired[Count]
    rates: NotRequired[list[float]]
    seconds: NotRequired[Annotated[float, {"low": 1}]]
    narrow: NotRequired[Annotated[float, {"low": 0.001, "high": 1}]]
    kinds: NotRequired[list[str]]
    limits: NotRequired[Annotated[dict[str, float], _LIMITS]]
    rounds: NotRequired[Annotated[int, {"low": 1, "high": 1_000}]]


class PlannedLadder(TypedDict):
    """The load ladder; ``levels`` are streams or requests/s, as ``unit`` says."""

    load: str
    unit: str
    levels: list[float]
    seconds: float
    narrow: float
    kinds: list[str]
    limits: dict[str, float]
    rounds: int


def doubled(to: int) -> list[int]:
    """1, 2, 4, ... and ``to`` itself as the last."""
    levels = [1]
    while levels[-1] * 2 < to:
        levels.append(levels[-1] * 2)
    if to != 1:
        levels.append(to)
    return levels


def read_levels(text: str) -> list[int]:
    """The levels that a command line names: ``1,2,4`` or ``to:16``. Raises ValueError with what was wrong."""
    word, colon, number = text.partition(":")
    if colon:
        if word != "to":
            raise ValueError(f"'{text}' is neither 1,2,4 nor to:16")
        return doubled(_ascending([_whole(number)])[0])
    return _ascending(list(map(_whole, text.split(","))))


def read_rates(text: str) -> list[float]:
    """The rates (requests a second) that a command line names, as ``0.5,1,2``. Raises ValueError."""
    try:
        rates = list(map(float, text.split(",")))
    except ValueError as error:
        raise ValueError(f"'{text}' is no list of rates like 0.5,1,2") from error
    return _ascending(rates)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"'{text.strip()}' is no whole number") from error


def _ascending(levels: list[Level]) -> list[Level]:
    # `not a < b` and not `a >= b`: what is no number (nan) is refused too.
    if any(not 0 < level < float("inf") for level in levels):
        raise ValueError(f"{_listed(levels)}: each must be above 0")
    if any(not low < high for low, high in pairwise(levels)):
        raise ValueError(f"{_listed(levels)}: each must be above the one before")
    return levels


def levels_of(ladder: LadderWishes) -> tuple[str, list[float]]:
    """The kind of load and the levels of what a profile asks for; it has been checked."""
    if "rates" in ladder:
        return OPEN, list(map(float, ladder["rates"]))
    if "levels" in ladder:
        return CLOSED, [*ladder["levels"]]
    return CLOSED, [*doubled(ladder["to"])]


def check_kinds(findings: Findings, where: str, kinds: Sequence[str], available: Sequence[str]) -> None:
    """Add to ``findings`` those of ``kinds`` that no suite has; ``available`` are the kinds of the profile's suites."""
    for number, kind in enumerate(kinds):
        if available and kind not in available:
            findings.add(
                "no-such-category",
                f"{where}[{number}]",
                f"'{kind}', which no suite of this profile has",
                f"one of: {', '.join(sorted(set(available)))}",
                did_you_mean(kind, available),
            )


def check_ladder(findings: Findings, ladder: LadderWishes, experiment_rounds: int, available: Sequence[str]) -> None:
    """Add to ``findings`` what is wrong with ``experiment.ladder``; ``available`` are the kinds of its suites."""
    where = "experiment.ladder"
    given = [key for key in _ONE_OF if key in ladder]
    if len(given) != 1:
        found = f"{len(given)} of them ({', '.join(given) or 'none'})"
        findings.add("conflicting-keys", where, found, f"exactly one of: {', '.join(_ONE_OF)}", "keep one")
    else:
        _check_order(findings, f"{where}.{given[0]}", ladder[given[0]])
    check_kinds(findings, f"{where}.kinds", ladder.get("kinds", []), available)
    rounds = ladder.get("rounds", ROUNDS)
    if rounds > experiment_rounds:
        findings.add(
            "out-of-range",
            f"{where}.rounds",
            f"{rounds}",
            f"{experiment_rounds} or fewer: the ladder is measured in the rounds of the experiment",
            "lower it, or raise experiment.rounds",
        )


def _check_order(findings: Findings, where: str, asked: object) -> None:
    if not isinstance(asked, list):
        return
    if not asked:
        findings.add("empty-value", where, "an empty list", "one level or more", "write it like [1, 2, 4, 8]")
        return
    try:
        _ascending(asked)
    except ValueError as error:
        findings.add(
            "levels-not-ascending", where, str(error), "levels in ascending order, each once", "put them in order"
        )


def check_room(findings: Findings, ladder: LadderWishes | None, option: str, room: int | None) -> None:
    """Add a finding where an arm serves fewer requests at once than the highest level sends.

    The rest would wait inside the engine, and the ladder would measure its queue. ``option`` is the engine's own
    setting, ``room`` its value, None where neither the profile nor the catalogue says it. An open loop has no
    highest number: waiting is what it shows.
    """
    if ladder is None or ("levels" not in ladder and "to" not in ladder):
        return
    highest = max(levels_of(ladder)[1], default=0)
    if room is None or room < highest:
        findings.add(
            "too-few-sequences",
            f"serve.{option}",
            "nothing" if room is None else f"{room}",
            f"{highest} or more: the ladder sends so many requests at once",
            f"set serve.{option} to {highest}, or end experiment.ladder lower",
        )


def plan_ladder(ladder: LadderWishes, kinds: Sequence[str]) -> PlannedLadder:
    """The ladder with everything explicit; ``kinds`` are the experiment's, none: all that are not once."""
    load, levels = levels_of(ladder)
    return {
        "load": load,
        "unit": UNITS[load],
        "levels": levels,
        "seconds": float(ladder.get("seconds", SECONDS)),
        "narrow": float(ladder.get("narrow", NARROW)),
        "kinds": list(ladder.get("kinds") or kinds),
        "limits": {name: float(limit) for name, limit in ladder.get("limits", {}).items()},
        "rounds": ladder.get("rounds", ROUNDS),
    }


def longest_s(ladder: PlannedLadder, kinds: int, arms: int) -> float:
    """The seconds that a ladder takes at most, answers that still run at the end of a step not counted."""
    return float(len(ladder["levels"]) * ladder["rounds"] * ladder["seconds"] * kinds * arms)


def _listed(levels: Sequence[float]) -> str:
    return ", ".join(map(shown_level, levels))
