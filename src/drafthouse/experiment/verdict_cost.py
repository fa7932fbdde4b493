"""Estimate the minutes of answers and server starts that a verdict takes, for two speed-ups and the worst case."""

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

#: The estimates' gains (speed-ups), and how many fresh (new) prompts each round from the third then sends. The sum is
#: about the average number of answers in docs/verdict.md for gains that differ by 24 % between prompts.
GAIN, LATER = 1.3, ("few",)
SMALL_GAIN, SMALL_LATER = 1.15, ("many", "few")
#: The assumed duration of a server start: this many seconds, or this fraction of the start timeout if that is less.
START_S, START_SHARE = 180.0, 0.1


class GainMinutes(TypedDict):
    """The minutes that a verdict takes at some gain: for ``answers``, and for the servers' ``starts``."""

    answers: float
    starts: float


class Minutes(GainMinutes):
    """The minutes at a gain of 1.3, at 1.15 (``small_gain``), and if all allowed rounds are used (``worst``)."""

    small_gain: GainMinutes
    worst: float


@dataclass(frozen=True)
class RoundLoad:
    """The answers of one arm (server) in a round, and their maximum number of tokens if generated one by one."""

    answers: int
    tokens: float


def minutes_of(resolved: ResolvedProfile) -> Minutes:
    """The minutes of a verdict at the decode limit, with answers of full length and without the load sweep."""
    more_rounds = resolved["experiment"]["most_rounds"] - FIRST_ROUNDS
    # In the worst case there is no gain (1.0).
    worst = gain_minutes(resolved, 1.0, ("many",) * more_rounds)
    return {
        **gain_minutes(resolved, GAIN, LATER),
        "small_gain": gain_minutes(resolved, SMALL_GAIN, SMALL_LATER),
        "worst": round(worst["answers"] + worst["starts"], 1),
    }


def gain_minutes(resolved: ResolvedProfile, gain: float, later: Sequence[str]) -> GainMinutes:
    """The minutes of a verdict at ``gain``; ``later``: "many" or "few" fresh prompts for each round from the third."""
    fresh = [FRESH_LATER[name] for name in later]
    rounds = min(FIRST_ROUNDS + len(fresh), resolved["experiment"]["most_rounds"])
    answers_s = 0.0
    for round_number in range(1, rounds + 1):
        answers_s += answer_seconds(resolved, round_load(resolved, round_number, fresh), gain)
    starts_s = rounds * len(resolved["arms"]) * start_seconds(resolved)
    return {"answers": round(answers_s / 60, 1), "starts": round(starts_s / 60, 1)}


def round_load(resolved: ResolvedProfile, round_number: int, later: list[int]) -> RoundLoad:
    """The load of one arm in a round; ``later`` has the number of fresh prompts of each round from the third."""
    experiment = resolved["experiment"]
    fresh = [experiment["fresh"]] * FIRST_ROUNDS + later
    step: PlannedStep = steps_of_round(experiment, round_number, fresh[: max(round_number, FIRST_ROUNDS)])[0]
    options = StepOptions(
        first_round=round_number,
        temperatures=tuple(experiment["temperatures"]),
        asking=asking_of(experiment, step),
    )
    answers, tokens = 0, 0.0
    for group in plan_groups(_suites(resolved, step), options):
        answers += len(group.asks)
        # Concurrent requests share the engine's steps, so their tokens count once.
        tokens += sum(ask.output_tokens for ask in group.asks) / group.concurrency
    return RoundLoad(answers, tokens)


def answer_seconds(resolved: ResolvedProfile, load: RoundLoad, gain: float) -> float:
    """The seconds of all arms' answers at the decode limit; the speculative arm is ``gain`` times as fast."""
    limit = float(resolved["expectation"]["decode_limit_tok_s"])
    return load.tokens / limit * (len(resolved["arms"]) - 1 + 1 / gain)


def start_seconds(resolved: ResolvedProfile) -> float:
    """The assumed duration of a server start in seconds; see `START_S`."""
    return min(START_S, START_SHARE * float(resolved["engine"]["ready_timeout_s"]))


def _suites(resolved: ResolvedProfile, step: PlannedStep) -> list[Suite]:
    return [resolved["suites"][name] for name in step["suites"]]
