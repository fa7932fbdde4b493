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

# The gains (speed-ups, ratios) of the two estimates, and for each round from the third how many fresh prompts it sends
# (`FRESH_LATER`). With these, the answers in sum are about the average number in docs/verdict.md for gains that differ
# by 24 % between prompts.
GAIN = 1.3
LATER = ("few",)
SMALL_GAIN = 1.15
SMALL_LATER = ("many", "few")
#: The assumed duration of a server start, in seconds.
START_S = 180.0
#: A start takes at most this fraction of the engine's start timeout.
START_SHARE = 0.1


class GainMinutes(TypedDict):
    """The minutes that a verdict takes at some gain."""

    answers: float  # for the answers
    starts: float  # for the starts of the servers


class Minutes(GainMinutes):
    """The minutes of the estimates; those that it has itself are at the gain `GAIN`."""

    small_gain: GainMinutes  # at the gain `SMALL_GAIN`
    worst: float  # in all, if there is no gain and all allowed rounds are used


@dataclass(frozen=True)
class RoundLoad:
    """What one arm (server) does in a round."""

    answers: int  # the number of answers
    tokens: float  # output tokens of answers of full length; those of concurrent answers count once


def minutes_of(resolved: ResolvedProfile) -> Minutes:
    """The minutes of a verdict at the decode limit, with answers of full length and without the load sweep."""
    more_rounds = resolved["experiment"]["most_rounds"] - FIRST_ROUNDS
    worst = gain_minutes(resolved, gain=1.0, later=("many",) * more_rounds)  # a gain of 1.0 is none
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
    # All steps of a round send the same prompts.
    step: PlannedStep
    step, *_ = steps_of_round(experiment, round_number, fresh[: max(round_number, FIRST_ROUNDS)])
    options = StepOptions(
        first_round=round_number,
        temperatures=tuple(experiment["temperatures"]),
        asking=asking_of(experiment, step),
    )
    answers = 0
    tokens = 0.0
    for group in plan_groups(_suites(resolved, step), options):
        answers += len(group.requests)
        # Concurrent requests share the engine's steps, so their tokens count once.
        tokens += sum(request.output_tokens for request in group.requests) / group.concurrency
    return RoundLoad(answers, tokens)


def answer_seconds(resolved: ResolvedProfile, load: RoundLoad, gain: float) -> float:
    """The seconds of all arms' answers at the decode limit; one arm, the speculative one, is ``gain`` times as fast."""
    limit = float(resolved["expectation"]["decode_limit_tok_s"])
    return load.tokens / limit * (len(resolved["arms"]) - 1 + 1 / gain)


def start_seconds(resolved: ResolvedProfile) -> float:
    """The assumed duration of a server start in seconds; see `START_S`."""
    return min(START_S, START_SHARE * float(resolved["engine"]["ready_timeout_s"]))


def _suites(resolved: ResolvedProfile, step: PlannedStep) -> list[Suite]:
    """The suites whose prompts a step sends."""
    return [resolved["suites"][name] for name in step["suites"]]
