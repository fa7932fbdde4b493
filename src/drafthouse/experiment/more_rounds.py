"""Decide whether an experiment measures another round.

In a round each arm (baseline, speculative) is started and measured once; some of its prompts are fresh: no other round
sends them. The verdict says whether the evidence needs another round (`analysis/decision.py`). The budget, the maximum
number of rounds and the end of a rented machine may forbid it. The decision is stored next to the results as
``rounds.json``, so that a run that was stopped, or one with another budget, continues from it.
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

#: The schema of ``rounds.json``.
SCHEMA = "drafthouse.rounds/1"


class RoundSettings(TypedDict):
    """The settings under which a decision was made. If they change, the decision is made again."""

    budget: PlannedBudget  # the time for further rounds
    most_rounds: int  # the maximum number of rounds, the first ones included


class RoundsNote(TypedDict):
    """The state of an experiment, the content of ``rounds.json``."""

    schema: str
    done: int  # the number of the last measured round
    next: int | None  # the round to measure next; None: no more
    judged: bool  # False: the decision after the last measured round is missing
    settings: NotRequired[RoundSettings]  # the settings of the decision; missing without a decision
    fresh: NotRequired[list[int]]  # numbers of fresh prompts by round, including the next one
    asks: NotRequired[int | None]  # number of fresh prompts of the next round; None if there is none


class RoundDecision(RoundsNote):
    """The decision after a round, with the interim verdict."""

    wanted: str | None  # why the evidence needs another round; None: it does not
    why: str | None  # the reason of the decision, for or against another round
    first_s: float  # what the planned first rounds took
    spent_s: float  # what further rounds took
    next_s: float  # what the next round will take
    limit_s: float  # what all further rounds together may take
    word: str  # the verdict's word
    sentence: str  # the verdict's sentence


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
) -> RoundDecision:
    """The decision after the rounds in ``costs`` (seconds by round), from the judgement over all of them.

    Another round is measured if the judgement wants one and nothing forbids it (`_forbidden_by`). It is expected to
    take as long as the last round. ``left_s`` is the time until a rented machine ends (None: it does not end by
    itself).
    """
    next_round = judgement["next_round"]
    wanted = next_round["why"] if next_round else None
    done = max(costs)
    # The budget pays for further rounds only, and may be a multiple of what the planned first rounds took.
    first_s = spent_s = 0.0
    for round_number, seconds in costs.items():
        if round_number <= experiment["rounds"]:
            first_s += seconds
        else:
            spent_s += seconds
    next_s = costs[done]
    limit = limit_s(experiment["budget"], first_s)
    forbidden = _forbidden_by(experiment, done=done, next_s=next_s, budget_left_s=limit - spent_s, left_s=left_s)
    goes_on = wanted is not None and forbidden is None
    why = forbidden or wanted
    if wanted is None:
        why = "the evidence needs no further round"
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
        "asks": FRESH_LATER[next_round["fresh"]] if next_round and goes_on else None,
    }


def _forbidden_by(
    experiment: PlannedExperiment, *, done: int, next_s: float, budget_left_s: float, left_s: float | None
) -> str | None:
    """What forbids another round: the number of rounds, the budget, or a rented machine's end; None if nothing does."""
    if done >= experiment["most_rounds"]:
        if experiment["most_rounds"] == experiment["rounds"]:  # as planned for a budget of 0
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


def interim_text(
    decision: RoundDecision, most_rounds: int, price_per_hour: float | None = None, currency: str = ""
) -> str:
    """The message after a round: the interim verdict, the next round with its reason and cost, and what Ctrl-C does.

    After the last round, the reason why it was the last if the evidence needed another one; otherwise ''. Costs are in
    time, and in money if ``price_per_hour`` is not None.
    """
    done = decision["done"]
    if decision["next"] is None:
        if not decision["wanted"]:
            return ""
        return f"no more after {done} rounds ({decision['why']}), although {decision['wanted']}"

    def cost(seconds: float) -> str:
        shown = f"about {shown_time(seconds)}"
        if price_per_hour is None:
            return shown
        return f"{shown} ({money(seconds, price_per_hour, currency)})"

    left_s = decision["limit_s"] - decision["spent_s"]
    asks = decision["asks"]
    return "\n".join(
        [
            f"interim verdict after {done} rounds: {decision['sentence']}",
            f"  next: round {decision['next']} of at most {most_rounds}, with {asks} fresh prompts: {decision['why']}",
            f"  it takes {cost(decision['next_s'])}; the budget for further rounds has {cost(left_s)} left",
            "  Ctrl-C keeps this verdict: site.yml --tags report writes its report and serves the better arm;"
            " site.yml goes on with the next round",
        ]
    )
