"""Decide whether an experiment measures another round. Pure.

The verdict says whether the evidence needs another round (`decision.py`). The budget, the maximum number of rounds and
the end of a rented machine may forbid it. The decision is stored next to the results as ``rounds.json``, so that a run
that was stopped, or one with another budget, continues from it.
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
    """The settings under which a decision was made. If they change, the decision is made again."""

    budget: PlannedBudget
    most_rounds: int


class Note(TypedDict):
    """The state of an experiment: ``done`` rounds, whether these are ``judged``, the ``next`` round (None: no more)."""

    schema: str
    done: int
    next: int | None
    judged: bool
    settings: NotRequired[RoundSettings]
    fresh: NotRequired[list[int]]
    """The number of fresh prompts (sent in one round only) of each round, including the next one."""
    asks: NotRequired[int | None]
    """The number of fresh prompts of the next round; None if there is none."""


class Decision(Note):
    """The decision after a round. ``wanted`` is why the evidence needs another round (None: it does not).

    ``why`` is the reason of the decision, either way. In seconds: ``first_s`` is what the planned first rounds took,
    ``spent_s`` what further rounds took, ``next_s`` what the next round will take, and ``limit_s`` what all further
    rounds together may take. ``word`` and ``sentence`` are the verdict's.
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
    """The seconds by round, including server starts, without the load sweep.

    Steps of earlier versions have no start times; for them only the measurement counts.
    """
    costs: dict[int, float] = {}
    for step in steps:
        round_number = int(step["settings"]["first_round"])
        costs[round_number] = costs.get(round_number, 0.0) + float(step.get("cost_s", step["duration_s"]))
    return costs


def settings_of(experiment: PlannedExperiment) -> RoundSettings:
    """The settings that a decision depends on."""
    return {"budget": experiment["budget"], "most_rounds": experiment["most_rounds"]}


def decide(
    experiment: PlannedExperiment,
    costs: Mapping[int, float],
    judgement: Judgement,
    left_s: float | None = None,
) -> Decision:
    """The decision after the rounds in ``costs`` (seconds by round), from the judgement over all of them.

    Another round is measured only if it fits into the rest of the budget, at the cost of the last round. ``left_s`` is
    the time until a rented machine ends (None: it does not end by itself).
    """
    next_round = judgement["next_round"]
    evidence_reason = next_round["why"] if next_round else None
    done, rounds = max(costs), experiment["rounds"]
    first_s = spent_s = 0.0
    for round_number, seconds in costs.items():
        if round_number <= rounds:
            first_s += seconds
        else:
            spent_s += seconds
    next_s, limit = costs[done], limit_s(experiment["budget"], first_s)
    forbidden = _forbidden_by(experiment, done, next_s, limit - spent_s, left_s)
    goes_on = evidence_reason is not None and forbidden is None
    why = forbidden
    if goes_on or evidence_reason is None:
        why = evidence_reason or "the evidence needs no further round"
    return {
        "schema": SCHEMA,
        "done": done,
        "next": done + 1 if goes_on else None,
        "wanted": evidence_reason,
        "why": why,
        "first_s": round(first_s, 1),
        "spent_s": round(spent_s, 1),
        "next_s": round(next_s, 1),
        "limit_s": round(limit, 1),
        "word": judgement["word"],
        "sentence": judgement["sentence"],
        "settings": settings_of(experiment),
        "judged": True,
        "asks": FRESH_LATER[next_round["fresh"]] if next_round and goes_on else None,
    }


def _forbidden_by(
    experiment: PlannedExperiment, done: int, next_s: float, budget_left_s: float, left_s: float | None
) -> str | None:
    """The reason that forbids another round, or None."""
    if done >= experiment["most_rounds"]:
        if experiment["most_rounds"] == experiment["rounds"]:
            return "no further round is allowed (experiment.budget)"
        return f"experiment.most_rounds allows only {done} rounds"
    duration = f"another round takes about {shown_time(next_s)}"
    if next_s > budget_left_s:
        return f"{duration}, and {shown_time(max(budget_left_s, 0))} of the budget is left (experiment.budget)"
    if left_s is not None and next_s > left_s:
        return f"{duration}, and the box ends in {shown_time(max(left_s, 0))}"
    return None


def money(seconds: float, price_per_hour: float, currency: str) -> str:
    """The price of ``seconds`` of the machine, as text."""
    return f"{seconds * price_per_hour / 3600:.2f} {currency}".rstrip()


def interim_text(note: Decision, most_rounds: int, price_per_hour: float | None = None, currency: str = "") -> str:
    """The message after a round: the interim verdict, the next round with its reason and cost, and what Ctrl-C does.

    After the last round, the reason why it was the last if the evidence needed another one; otherwise ''.
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
            f"  next: round {note['next']} of at most {most_rounds}, with {note['asks']} fresh prompts: {note['why']}",
            f"  it takes {cost(note['next_s'])}; the budget for further rounds has {cost(left_s)} left",
            "  Ctrl-C keeps this verdict: site.yml --tags report writes its report and serves the better arm;"
            " site.yml goes on with the next round",
        ]
    )
