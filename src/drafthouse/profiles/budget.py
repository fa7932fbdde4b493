"""The time that an experiment may take for rounds after the first ones: `experiment.budget`.

The budget is a factor of the first rounds' time (`3x`), which a cap limits, or a time (`45m`). `0` and `none` allow no
further rounds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.format import shown_time

if TYPE_CHECKING:
    from drafthouse.profiles.planned_types import PlannedBudget

DEFAULT_BUDGET = "3x"
#: Seconds that a factor allows at most: a model of 120B takes minutes to start, and a rented GPU costs money.
CAP_S = 3600.0
#: Rounds at most, the first ones included.
MOST_ROUNDS = 6
NEEDED = "a factor of the first rounds' cost (3x), a time (45m, 1h30m), or 0"

_FACTOR = re.compile(r"(\d+(?:\.\d+)?)\s*x")
_TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")
_UNITS_S = (3600, 60, 1)  # seconds of an hour, a minute and a second: the groups of _TIME


@dataclass(frozen=True)
class Budget:
    """The time for further rounds."""

    factor: float | None  # of the time of the first rounds; None: they do not matter
    most_s: float  # seconds at most

    @property
    def nothing(self) -> bool:
        """True if the budget allows no further round, whatever time the first ones take."""
        return self.most_s == 0 or self.factor == 0

    def as_dict(self) -> PlannedBudget:
        """The budget as plain data, for the resolved profile."""
        return {"factor": self.factor, "most_s": self.most_s}


def seconds_in(text: str) -> int | None:
    """The seconds of a time like `1h30m`, `30m`, `90s` or `1800`; None for any other text."""
    match = _TIME.fullmatch(text.strip().lower())
    if match is None or not any(match.groups()):
        return None
    return sum(int(value) * unit for value, unit in zip(match.groups(), _UNITS_S, strict=True) if value)


def parse_budget(value: object) -> Budget:
    """The budget that a profile's `experiment.budget` stands for. Raises ValueError if ``value`` is no budget.

    A factor has the cap `CAP_S`; a time has none.
    """
    text = str(value).strip().lower()
    if text == "none":
        return Budget(None, 0.0)
    if factor := _FACTOR.fullmatch(text):
        return Budget(float(factor[1]), CAP_S)
    seconds = None if isinstance(value, bool) else seconds_in(text)
    if seconds is None:
        raise ValueError(text)
    return Budget(None, float(seconds))


def limit_s(budget: PlannedBudget, first_s: float) -> float:
    """The seconds that further rounds may take if the first ones took ``first_s``."""
    factor = budget["factor"]
    return float(budget["most_s"] if factor is None else min(factor * first_s, budget["most_s"]))


def limit_words(budget: PlannedBudget) -> str:
    """The budget in words, before anything is measured."""
    if budget["factor"] is None:
        return shown_time(budget["most_s"])
    cost = "their cost again" if budget["factor"] == 1 else f"{budget['factor']:g} times their cost"
    return f"{cost}, at most {shown_time(budget['most_s'])}"
