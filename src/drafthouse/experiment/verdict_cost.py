"""What a verdict takes: answers, starts and minutes, for two gains and at worst, before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from ..bench.groups import StepOptions, plan_groups
from ..profiles.experiment_plan import asking_of, steps_of_round
from ..prompts.prompt_plan import FIRST_ROUNDS, FRESH_LATER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drafthouse.profiles.planned_types import PlannedStep
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.prompts.suite_types import Suite

#: The gains that the figures are of, and the fresh prompts of the third round and later that it takes to be sure of
#: them: about as many answers as docs/verdict.md has on average where the gains of prompts differ by 24 %.
GAIN, LATER = 1.3, ("few",)
SMALL_GAIN, SMALL_LATER = 1.15, ("many", "few")
#: How long a start takes where nothing was measured, in seconds, or this share of the time that it may take.
START_S, START_SHARE = 180.0, 0.1


class GainMinutes(TypedDict):
    """Minutes of a verdict at some gain: of its ``answers``, and of the servers' ``starts``."""

    answers: float
    starts: float


class Minutes(GainMinutes):
    """Minutes of a verdict at a gain of 1.3, at one of 1.15 (``small_gain``), and over the whole budget (``worst``)."""

    small_gain: GainMinutes
    worst: float


@dataclass(frozen=True)
class Asked:
    """Answers of one arm, and the tokens that they have at most, one after the other."""

    answers: int
    tokens: float


def minutes_of(resolved: ResolvedProfile) -> Minutes:
    """What a verdict takes at the decode limit, the load ladder apart; answers take all of their tokens."""
    more_rounds = resolved["experiment"]["most_rounds"] - FIRST_ROUNDS
    # At worst nothing is gained.
    worst = gain_minutes(resolved, 1.0, ("many",) * more_rounds)
    return {
        **gain_minutes(resolved, GAIN, LATER),
        "small_gain": gain_minutes(resolved, SMALL_GAIN, SMALL_LATER),
        "worst": round(worst["answers"] + worst["starts"], 1),
    }


def gain_minutes(resolved: ResolvedProfile, gain: float, later: Sequence[str]) -> GainMinutes:
    """What a verdict takes at a gain, where the rounds after the first two ask many fresh prompts or few."""
    fresh = [FRESH_LATER[name] for name in later]
    rounds = min(FIRST_ROUNDS + len(fresh), resolved["experiment"]["most_rounds"])
    answers_s = 0.0
    for number in range(1, rounds + 1):
        answers_s += answer_seconds(resolved, asked_in(resolved, number, fresh), gain)
    starts_s = rounds * len(resolved["arms"]) * start_seconds(resolved)
    return {"answers": round(answers_s / 60, 1), "starts": round(starts_s / 60, 1)}


def asked_in(resolved: ResolvedProfile, number: int, later: list[int]) -> Asked:
    """What an arm is asked in a round, where the rounds after the first two ask so many fresh prompts."""
    experiment = resolved["experiment"]
    fresh = [experiment["fresh"]] * FIRST_ROUNDS + later
    step: PlannedStep = steps_of_round(experiment, number, fresh[: max(number, FIRST_ROUNDS)])[0]
    options = StepOptions(
        first_round=number,
        temperatures=tuple(experiment["temperatures"]),
        asking=asking_of(experiment, step),
    )
    answers, tokens = 0, 0.0
    for group in plan_groups(_suites(resolved, step), options):
        answers += len(group.asks)
        # Requests under way at once share the time of a step of the engine.
        tokens += sum(ask.output_tokens for ask in group.asks) / group.concurrency
    return Asked(answers, tokens)


def answer_seconds(resolved: ResolvedProfile, asked: Asked, gain: float) -> float:
    """The seconds of all arms' answers at the decode limit; the speculative one is faster by ``gain``."""
    limit = float(resolved["expectation"]["decode_limit_tok_s"])
    return asked.tokens / limit * (len(resolved["arms"]) - 1 + 1 / gain)


def start_seconds(resolved: ResolvedProfile) -> float:
    """How long a start is assumed to take."""
    return min(START_S, START_SHARE * float(resolved["engine"]["ready_timeout_s"]))


def _suites(resolved: ResolvedProfile, step: PlannedStep) -> list[Suite]:
    return [resolved["suites"][name] for name in step["suites"]]
