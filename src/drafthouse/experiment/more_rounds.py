"""Whether an experiment goes on with another round: what the evidence asks for, and what time and money allow. Pure.

That the evidence asks for one is the verdict's own word (`decision.py`); here it is held against the budget, the most
rounds, and the end of a rented box. What is decided is plain data, kept beside the results as ``rounds.json``: a run
that was stopped, and one with another budget, go on from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

from ..core.format import shown_time
from ..profiles.budget import limit_s
from ..prompts.prompt_plan import FRESH_LATER

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.analysis.verdict_types import Judgement
    from drafthouse.bench.result_types import StepResult
    from drafthouse.profiles.planned_types import PlannedBudget, PlannedExperiment

SCHEMA = "drafthouse.rounds/1"


class RoundSettings(TypedDict):
    """The settings that a decision was made under; with others it is made anew."""

    budget: PlannedBudget
    most_rounds: int


class Note(TypedDict):
    """How far the rounds are; ``next`` is the round that follows, None at the end."""

    schema: str
    done: int
    next: int | None
    judged: bool
    settings: NotRequired[RoundSettings]
    fresh: NotRequired[list[int]]
    """The fresh prompts of each round, the next one included."""
    asks: NotRequired[int | None]
    """The fresh prompts of the next round."""


class Decision(Note):
    """What was decided after a round. ``wanted`` is why the evidence asks for another one (None: it does not).

    ``why`` says either why it goes on or why it does not. In seconds: what the rounds to begin with took, what was
    spent on further ones, what the next one takes, and what all of these may. ``asks`` are the next round's fresh
    prompts.
    """

    wanted: str | None
    why: str | None
    first_s: float
    spent_s: float
    next_s: float
    limit_s: float
    word: str
    sentence: str


def costs_by_round(steps: Iterable[StepResult]) -> dict[int, float]:
    """What each round took in seconds, the starts of its servers included; a load ladder is not in it.

    An earlier version did not keep how long a start took: of its steps only the measuring counts.
    """
    found: dict[int, float] = {}
    for step in steps:
        number = int(step["settings"]["first_round"])
        found[number] = found.get(number, 0.0) + float(step.get("cost_s", step["duration_s"]))
    return found


def settings_of(experiment: PlannedExperiment) -> RoundSettings:
    """The settings that a decision is made under."""
    return {"budget": experiment["budget"], "most_rounds": experiment["most_rounds"]}


def decide(
    experiment: PlannedExperiment,
    costs: Mapping[int, float],
    judgement: Judgement,
    left_s: float | None = None,
) -> Decision:
    """What comes after the rounds in ``costs`` (seconds by round), by the judgement over all of them.

    A round is bought only where the last one's cost fits into what is left. ``left_s`` is how long a box that ends by
    itself still lives.
    """
    asked = judgement["next_round"]
    wanted = asked["why"] if asked else None
    done, rounds = max(costs), experiment["rounds"]
    first_s = spent_s = 0.0
    for number, seconds in costs.items():
        if number <= rounds:
            first_s += seconds
        else:
            spent_s += seconds
    next_s, limit = costs[done], limit_s(experiment["budget"], first_s)
    against = _against(experiment, done, next_s, limit - spent_s, left_s)
    goes_on = wanted is not None and against is None
    why = against
    if goes_on or wanted is None:
        why = wanted or "the evidence needs no further round"
    return {
        "schema": SCHEMA,
        "done": done,
        "next": done + 1 if goes_on else None,
        "wanted": wanted,
        "why": why,
        "first_s": round(first_s, 1),
        "spent_s": round(spent_s, 1),
        "next_s": round(next_s, 1),
        "limit_s": round(limit, 1),
        "word": judgement["word"],
        "sentence": judgement["sentence"],
        "settings": settings_of(experiment),
        "judged": True,
        "asks": FRESH_LATER[asked["fresh"]] if asked and goes_on else None,
    }


def _against(
    experiment: PlannedExperiment, done: int, next_s: float, budget_left_s: float, left_s: float | None
) -> str | None:
    """What forbids another round, or None."""
    if done >= experiment["most_rounds"]:
        if experiment["most_rounds"] == experiment["rounds"]:
            return "no further round is allowed (experiment.budget)"
        return f"experiment.most_rounds allows only {done} rounds"
    takes = f"another round takes about {shown_time(next_s)}"
    if next_s > budget_left_s:
        return f"{takes}, and {shown_time(max(budget_left_s, 0))} of the budget is left (experiment.budget)"
    if left_s is not None and next_s > left_s:
        return f"{takes}, and the box ends in {shown_time(max(left_s, 0))}"
    return None


def money(seconds: float, price_per_hour: float, currency: str) -> str:
    """What some time of the box costs."""
    return f"{seconds * price_per_hour / 3600:.2f} {currency}".rstrip()


def interim_text(note: Decision, most: int, price_per_hour: float | None = None, currency: str = "") -> str:
    """What a person is told after a round: the verdict so far, what is bought and why, and what Ctrl-C does.

    Of the last round only why it was the last, where the evidence had asked for another one; '' otherwise.
    """
    done = note["done"]
    if note["next"] is None:
        if not note["wanted"]:
            return ""
        return f"no more after {done} rounds ({note['why']}), although {note['wanted']}"

    def cost(seconds: float) -> str:
        shown = f"about {shown_time(seconds)}"
        if price_per_hour is None:
            return shown
        return f"{shown} ({money(seconds, price_per_hour, currency)})"

    left_s = note["limit_s"] - note["spent_s"]
    return "\n".join(
        [
            f"interim verdict after {done} rounds: {note['sentence']}",
            f"  next: round {note['next']} of at most {most}, with {note['asks']} fresh prompts: {note['why']}",
            f"  it takes {cost(note['next_s'])}; the budget for further rounds has {cost(left_s)} left",
            "  Ctrl-C keeps this verdict: site.yml --tags report writes its report and serves the better arm;"
            " site.yml goes on with the next round",
        ]
    )
