"""How long an experiment may go on after the rounds that it begins with: `experiment.budget`. Pure.

A factor of what those rounds cost (`3x`), which a cap holds down, or a time (`45m`), which is taken as it is. `0` and
`none` leave it at the rounds to begin with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.format import shown_time

if TYPE_CHECKING:
    from drafthouse.profiles.planned_types import PlannedBudget

DEFAULT_BUDGET = "3x"
#: The most that a factor may come to, in seconds: an engine of 120B takes minutes to start, on a card that bills.
CAP_S = 3600.0
#: Rounds at most, those to begin with among them.
MOST_ROUNDS = 6
NEEDED = "a factor of the first rounds' cost (3x), a time (45m, 1h30m), or 0"

_FACTOR = re.compile(r"(\d+(?:\.\d+)?)\s*x")
_TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")
_UNITS_S = (3600, 60, 1)


@dataclass(frozen=True)
class Budget:
    """What further rounds may cost: ``factor`` times the rounds to begin with (None: no factor), ``most_s`` at most."""

    factor: float | None
    most_s: float

    @property
    def nothing(self) -> bool:
        """Whether no further round may be measured, whatever the first ones cost."""
        return self.most_s == 0 or self.factor == 0

    def as_dict(self) -> PlannedBudget:
        """Return it as plain data, for the resolved profile."""
        return {"factor": self.factor, "most_s": self.most_s}


def seconds_in(text: str) -> int | None:
    """`1h30m`, `30m`, `90s` or `1800` in seconds; None for anything else."""
    found = _TIME.fullmatch(text.strip().lower())
    if found is None or not any(found.groups()):
        return None
    return sum(int(value) * unit for value, unit in zip(found.groups(), _UNITS_S, strict=True) if value)


def parse_budget(value: object) -> Budget:
    """The budget that a profile asks for. Raises ValueError where it is none."""
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
    """What the further rounds may cost, in seconds, where those to begin with took ``first_s``."""
    factor = budget["factor"]
    return float(budget["most_s"] if factor is None else min(factor * first_s, budget["most_s"]))


def limit_words(budget: PlannedBudget) -> str:
    """The budget as a person says it before anything was measured."""
    if budget["factor"] is None:
        return shown_time(budget["most_s"])
    cost = "their cost again" if budget["factor"] == 1 else f"{budget['factor']:g} times their cost"
    return f"{cost}, at most {shown_time(budget['most_s'])}"
