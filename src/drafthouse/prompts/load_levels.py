"""The load levels of a load sweep, which a profile calls its `ladder`: parsing, checks and the plan.

A ladder is closed (a level is the number of concurrent requests: one starts when another ends) or open (a level is
the rate in requests/s: they start at random moments, no matter how many are running).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, TypeVar

from ..core.errors import did_you_mean
from ..core.format import shown_level
from ..core.forms import Count
from ..core.schema import Findings, Map, Value
from .long_context import AROUND

if TYPE_CHECKING:
    from typing import NotRequired

Level = TypeVar("Level", int, float)

#: The kinds of load, see above.
CLOSED, OPEN = "closed", "open"
#: The unit of a level, by the kind of load.
UNITS = {CLOSED: "concurrent requests", OPEN: "requests a second"}

#: Default of the longest duration of a step (one level of one kind on one arm), in seconds.
SECONDS = 30.0
#: Default precision at which a step ends early: half the 95 % interval of the time per output token (TPOT), as a
#: fraction of its median.
NARROW = 0.03
#: Default number of the experiment's rounds that measure the ladder too.
ROUNDS = 2

# The keys of `LadderWishes` that give the levels.
_LEVEL_KEYS: tuple[Literal["levels", "to", "rates"], ...] = ("levels", "to", "rates")

# The shape of its key `limits`, in ms.
_LIMITS = Map(dict.fromkeys(("ttft_ms", "tpot_ms"), Value(float, low=0.1)))


class LadderWishes(TypedDict):
    """`experiment.ladder` of a profile, with exactly one of ``levels``, ``to`` and ``rates``."""

    levels: NotRequired[list[Count]]  # concurrent requests
    to: NotRequired[Count]  # short for the levels 1, 2, 4, ... up to it
    rates: NotRequired[list[float]]  # requests/s
    contexts: NotRequired[list[Count]]  # tokens; each kind is measured behind a text of each of these lengths
    seconds: NotRequired[Annotated[float, {"low": 1}]]  # longest duration of a step, see `SECONDS`
    narrow: NotRequired[Annotated[float, {"low": 0.001, "high": 1}]]  # precision that ends a step, see `NARROW`
    kinds: NotRequired[list[str]]  # prompt kinds; without them those of the experiment
    limits: NotRequired[Annotated[dict[str, float], _LIMITS]]  # longest TTFT and TPOT of a user, in ms
    rounds: NotRequired[Annotated[int, {"low": 1, "high": 1_000}]]  # see `ROUNDS`


class PlannedLadder(TypedDict):
    """A ladder with all defaults filled in."""

    load: str  # `CLOSED` or `OPEN`
    unit: str  # the unit of the levels
    levels: list[float]  # ascending
    seconds: float  # longest duration of a step
    narrow: float  # precision that ends a step, see `NARROW`
    kinds: list[str]  # prompt kinds; empty: all that are not sent once only
    limits: dict[str, float]  # longest TTFT and TPOT of a user, in ms; empty: none
    rounds: int  # the experiment's rounds that measure the ladder too
    # In tokens. Only where the profile asks for contexts: the key of kept results must not change.
    contexts: NotRequired[list[int]]


def doubled(to: int) -> list[int]:
    """1, 2, 4, ... below ``to``, then ``to`` itself."""
    levels = [1]
    while levels[-1] * 2 < to:
        levels.append(levels[-1] * 2)
    if to != 1:
        levels.append(to)
    return levels


def read_levels(text: str) -> list[int]:
    """The levels in an argument ``1,2,4`` or ``to:16``. Raises ValueError with a message for the user."""
    word, colon, number = text.partition(":")
    if colon:
        if word != "to":
            raise ValueError(f"'{text}' is neither 1,2,4 nor to:16")
        (highest,) = _checked_levels([_integer(number)])
        return doubled(highest)
    return _checked_levels(list(map(_integer, text.split(","))))


def read_rates(text: str) -> list[float]:
    """The rates (requests/s) in an argument ``0.5,1,2``. Raises ValueError with a message for the user."""
    try:
        rates = list(map(float, text.split(",")))
    except ValueError as error:
        raise ValueError(f"'{text}' is no list of rates like 0.5,1,2") from error
    return _checked_levels(rates)


def _integer(text: str) -> int:
    """The whole number in a text. Raises ValueError with a message for the user."""
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"'{text.strip()}' is no whole number") from error


def _checked_levels(levels: list[Level]) -> list[Level]:
    """The levels, if each is above 0 and above the one before. Raises ValueError otherwise."""
    # `not a < b` instead of `a >= b` refuses NaN too.
    if any(not 0 < level < float("inf") for level in levels):
        raise ValueError(f"{_listed(levels)}: each must be above 0")
    if any(not low < high for low, high in pairwise(levels)):
        raise ValueError(f"{_listed(levels)}: each must be above the one before")
    return levels


def levels_of(ladder: LadderWishes) -> tuple[str, list[float]]:
    """The kind of load, and the levels of ``ladder``, which `check_ladder` has accepted."""
    if "rates" in ladder:
        return OPEN, list(map(float, ladder["rates"]))
    if "levels" in ladder:
        return CLOSED, [*ladder["levels"]]
    return CLOSED, [*doubled(ladder["to"])]


def check_kinds(findings: Findings, where: str, kinds: Sequence[str], available: Sequence[str]) -> None:
    """Add to ``findings`` each of ``kinds`` that is not among the ``available`` ones, if there are any."""
    for index, kind in enumerate(kinds):
        if available and kind not in available:
            findings.add(
                "no-such-category",
                f"{where}[{index}]",
                f"'{kind}', which no suite of this profile has",
                f"one of: {', '.join(sorted(set(available)))}",
                did_you_mean(kind, available),
            )


def check_ladder(findings: Findings, ladder: LadderWishes, experiment_rounds: int, available: Sequence[str]) -> None:
    """Add to ``findings`` the problems of `experiment.ladder`; ``available`` are the kinds of the profile's suites."""
    where = "experiment.ladder"
    given_keys = [key for key in _LEVEL_KEYS if key in ladder]
    if len(given_keys) != 1:
        found = f"{len(given_keys)} of them ({', '.join(given_keys) or 'none'})"
        findings.add("conflicting-keys", where, found, f"exactly one of: {', '.join(_LEVEL_KEYS)}", "keep one")
    else:
        _check_order(findings, f"{where}.{given_keys[0]}", ladder[given_keys[0]])
    if "contexts" in ladder:
        _check_order(findings, f"{where}.contexts", ladder["contexts"])
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


def _check_order(findings: Findings, where: str, levels: object) -> None:
    """Add a problem for an empty list, or for levels that do not ascend."""
    if not isinstance(levels, list):
        return  # the key `to` has one number
    if not levels:
        findings.add("empty-value", where, "an empty list", "one level or more", "write it like [1, 2, 4, 8]")
        return
    try:
        _checked_levels(levels)
    except ValueError as error:
        findings.add(
            "levels-not-ascending", where, str(error), "levels in ascending order, each once", "put them in order"
        )


def check_room(findings: Findings, ladder: LadderWishes | None, option: str, room: int | None) -> None:
    """Add a problem if a server takes fewer concurrent requests than the highest level sends.

    The others would wait in the engine's queue, and the ladder would measure that; only an open ladder is meant to.
    ``option`` is the engine's setting and ``room`` its value, None if neither profile nor catalogue sets it.
    """
    if ladder is None or ("levels" not in ladder and "to" not in ladder):
        return
    _load, levels = levels_of(ladder)
    highest = max(levels, default=0)
    if room is None or room < highest:
        findings.add(
            "too-few-sequences",
            f"serve.{option}",
            "nothing" if room is None else f"{room}",
            f"{highest} or more: the ladder sends so many requests at once",
            f"set serve.{option} to {highest}, or end experiment.ladder lower",
        )


def check_contexts(findings: Findings, ladder: LadderWishes | None, option: str, room: int, answer: int) -> None:
    """Add a problem if the longest context of the ladder does not fit beside a prompt and its answer.

    ``option`` is the engine's setting for the context, ``room`` the tokens of one request by it, ``answer`` the
    longest answer in tokens.
    """
    longest = max((ladder or {}).get("contexts", []), default=0)
    needed = longest + AROUND + answer
    if longest and room < needed:
        findings.add(
            "context-too-long",
            "experiment.ladder.contexts",
            f"{longest} tokens",
            f"{room - AROUND - answer} or fewer: a request has {room} tokens, with prompt and answer",
            f"raise serve.{option}, or end experiment.ladder.contexts lower",
        )


def plan_ladder(ladder: LadderWishes, kinds: Sequence[str]) -> PlannedLadder:
    """The ladder with its defaults; ``kinds`` are the experiment's (empty: all that are not sent once only)."""
    load, levels = levels_of(ladder)
    planned: PlannedLadder = {
        "load": load,
        "unit": UNITS[load],
        "levels": levels,
        "seconds": float(ladder.get("seconds", SECONDS)),
        "narrow": float(ladder.get("narrow", NARROW)),
        "kinds": list(ladder.get("kinds") or kinds),
        "limits": {name: float(limit) for name, limit in ladder.get("limits", {}).items()},
        "rounds": ladder.get("rounds", ROUNDS),
    }
    if "contexts" in ladder:
        planned["contexts"] = list(ladder["contexts"])
    return planned


def longest_s(ladder: PlannedLadder, kinds: int, arms: int) -> float:
    """Longest duration of a ladder in seconds, without the answers still running at the end of each step."""
    return float(len(ladder["levels"]) * ladder["rounds"] * ladder["seconds"] * kinds * arms)


def _listed(levels: Sequence[float]) -> str:
    """The levels in a sentence."""
    return ", ".join(map(shown_level, levels))
