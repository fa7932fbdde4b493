"""Would the target itself have said this: what the baseline's log-probabilities of the answers of both arms say.

`output_scoring.py` has the baseline score them. The baseline's own answers, scored by the baseline, say what is normal:
in bf16 two tokens may be level, and the kernels of a prefill round otherwise than those of decoding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Literal

from ..bench.result_types import ArmResult
from ..bench.samples import whole_prompt
from ..core.format import count, listing
from .paired_tests import flip_test, losses_chance
from .verdict_types import GateSide, JudgedArms, gate_side, not_measured

if TYPE_CHECKING:
    from drafthouse.bench.output_scoring import ScoredAnswer, ScoringTotal

#: A healthy pair of arms fails in fewer experiments than this; shared among all that is tested in one.
CHANCE = 0.01
#: At temperature 0 a token may be this much less likely than the target's choice, in nats; bf16 keeps eight bits of a
#: logit, so that those between 32 and 64 move in steps of 0.25.
EPSILON = 0.5
#: And twice as much as the largest gap of the baseline's own answers.
OWN_GAPS = 2.0
#: So many prompts may hold a token beyond that.
LOST_TO_CHANCE = 1
#: Mean log-probabilities a token that differ by less are no worse, in nats: a perplexity 5 % higher.
MARGIN = 0.05
#: The fewest pairs that mean log-probabilities are judged on.
FEWEST = 6

RULE = (
    "the baseline's server scores a sample of the answers of both arms by their token ids; fails when, at temperature "
    f"0, more than {LOST_TO_CHANCE} prompt has a token less likely than the baseline's choice by more than {EPSILON} "
    f"nats and {OWN_GAPS:.0f} times the largest gap of its own answers; or when, at any temperature, the mean "
    f"log-probability per token is more than {MARGIN} nats below that of its own answers, so clearly that equal arms "
    f"would differ so in fewer than {CHANCE:.0%} of experiments; or when texts do not match their token ids"
)


Arm = Literal["baseline", "speculative"]


@dataclass(frozen=True)
class Pair:
    """One draw: the scores of both arms' answers to a prompt; at temperature 0 over all of its rounds."""

    group: str
    prompt_id: str
    baseline: list[ScoredAnswer] = field(default_factory=list)
    speculative: list[ScoredAnswer] = field(default_factory=list)

    @property
    def ours(self) -> float:
        """The mean log-probability a token of the baseline's answers, in nats."""
        return _mean_logprob(self.baseline)

    @property
    def theirs(self) -> float:
        """The mean log-probability a token of the speculative arm's answers, in nats."""
        return _mean_logprob(self.speculative)

    def of(self, arm: Arm) -> list[ScoredAnswer]:
        """The scores of one arm's answers."""
        return self.baseline if arm == "baseline" else self.speculative


def _mean_logprob(answers: Sequence[ScoredAnswer]) -> float:
    return fmean(answer["mean_logprob"] for answer in answers)


def judge_scores(baseline: ArmResult, speculative: ArmResult) -> JudgedArms:
    """What the gate says of two arms, without its name and title: see `gates.judge_gates`."""
    pairs = _pairs(baseline.get("scored") or [], speculative.get("scored") or [])
    scoring = baseline.get("scoring")
    if not pairs:
        why = (scoring and scoring.get("why")) or "this engine cannot score text, or no text was kept to score"
        return not_measured(why, "not scored")
    greedy = pairs.get(0.0, [])
    epsilon = max(EPSILON, OWN_GAPS * _worst(_scores(greedy, "baseline")))
    chance = CHANCE / (1 + len(pairs) * 2)
    wrong = _other_text(list(chain.from_iterable(pairs.values())), chance) + _unlikely(greedy, epsilon)
    for temperature, own in pairs.items():
        wrong += _worse(own, temperature, chance)
    sides = _side(pairs, "baseline", epsilon), _side(pairs, "speculative", epsilon)
    answer: JudgedArms = {
        "baseline": sides[0],
        "speculative": sides[1],
        "epsilon": epsilon if greedy else None,
        "word": "passed",
        "said": f"{sides[1]['said']}; the baseline's own: {sides[0]['said']}",
    }
    if wrong:
        return {**answer, "word": "failed", "said": "; ".join(wrong)}
    most = max(map(len, pairs.values()))
    if most < FEWEST:
        said = f"{count(most, 'pair')} of scored answers, and {FEWEST} are needed"
        return {**answer, "word": "not measured", "said": said}
    return {**answer, "said": answer["said"] + _scoring_text(scoring)}


def _scoring_text(scoring: ScoringTotal | None) -> str:
    """What the scoring took, and what it left."""
    if not scoring:
        return ""
    seconds, left = scoring.get("seconds"), scoring.get("left")
    text = ""
    if seconds is not None:
        text += f"; scoring took {seconds:.0f} s"
    if left:
        text += f"; {count(left, 'answer')} left unscored ({scoring['why']})"
    return text


def _pairs(baseline: Sequence[ScoredAnswer], speculative: Sequence[ScoredAnswer]) -> dict[float, list[Pair]]:
    """What both arms were scored on, by temperature."""
    theirs = {(row["group"], row["prompt_id"], row["round"]): row for row in speculative}
    found: dict[float, dict[tuple[Any, ...], Pair]] = {}
    for row in baseline:
        if other := theirs.get((row["group"], row["prompt_id"], row["round"])):
            temperature, prompt = float(row["temperature"]), whole_prompt(row["prompt_id"])
            # At temperature 0 the rounds of a prompt mostly say the same: one draw.
            draw = row["group"], prompt, row["round"] if temperature else None
            pair = found.setdefault(temperature, {}).setdefault(draw, Pair(row["group"], prompt))
            pair.baseline.append(row)
            pair.speculative.append(other)
    return {temperature: list(draws.values()) for temperature, draws in sorted(found.items())}


def _other_text(pairs: Sequence[Pair], chance: float) -> list[str]:
    """A sentence where texts are not what their token ids say, and the baseline's are."""
    lost, won = [], 0
    for pair in pairs:
        ours, theirs = _has_other_text(pair.baseline), _has_other_text(pair.speculative)
        if theirs and not ours:
            lost.append(pair)
        won += ours and not theirs
    if losses_chance(len(lost), won, len(pairs)) >= chance:
        return []
    return [
        f"in {len(lost)} of {count(len(pairs), 'answer')} the text does not match its token ids "
        f"(first {lost[0].prompt_id})"
    ]


def _has_other_text(answers: Sequence[ScoredAnswer]) -> bool:
    return any(answer["same_text"] is False for answer in answers)


def _unlikely(pairs: Sequence[Pair], epsilon: float) -> list[str]:
    """A sentence where answers at temperature 0 hold tokens that the target would not have chosen."""
    lost = [pair for pair in pairs if _worst(pair.speculative) > epsilon]
    if len(lost) <= LOST_TO_CHANCE:
        return []
    first = max(lost[0].speculative, key=lambda row: float(row["worst"]))
    return [
        f"at temperature 0 {len(lost)} of {count(len(pairs), 'answer')} have tokens that the baseline would not have "
        f"chosen, by more than {epsilon:.2g} nats of log-probability (first {lost[0].prompt_id}: {first['misses']} of "
        f"{count(first['tokens'], 'token')}, the worst by {first['worst']:.1f})"
    ]


def _worse(pairs: Sequence[Pair], temperature: float, chance: float) -> list[str]:
    """A sentence where the answers at a temperature are less likely than the baseline's own beyond chance."""
    drops, lost, won = [], 0, 0
    for pair in pairs:
        drops.append(pair.ours - pair.theirs - MARGIN)
        least = _least_likely(pairs, pair)
        lost += pair.theirs < least <= pair.ours
        won += pair.ours < least <= pair.theirs
    if min(flip_test(drops), losses_chance(lost, won, len(pairs))) >= chance:
        return []
    ours, theirs = fmean(pair.ours for pair in pairs), fmean(pair.theirs for pair in pairs)
    return [
        f"at temperature {temperature:g} the baseline gives the speculative arm's answers a mean log-probability of "
        f"{theirs:.2f} per token, and its own {ours:.2f} ({count(len(pairs), 'pair')} of answers)"
    ]


def _least_likely(pairs: Sequence[Pair], pair: Pair) -> float:
    """The mean log-probability below which an answer is far less likely than the baseline's to other prompts.

    That is, below the least of them by more than that is below their median: one prompt is always the hardest.
    """
    others = [one.ours for one in pairs if (one.group, one.prompt_id) != (pair.group, pair.prompt_id)]
    return 2 * min(others) - median(others) - MARGIN if others else -math.inf


def _worst(rows: Sequence[ScoredAnswer]) -> float:
    return max((float(row["worst"]) for row in rows), default=0.0)


def _scores(pairs: Iterable[Pair], arm: Arm) -> list[ScoredAnswer]:
    """The scores of one arm's answers, over some draws."""
    return list(chain.from_iterable(pair.of(arm) for pair in pairs))


def _side(pairs: Mapping[float, Sequence[Pair]], arm: Arm, epsilon: float) -> GateSide:
    """One side of the gate: how its answers were scored, at each temperature."""
    parts, examples, total = [], [], 0
    for temperature, draws in pairs.items():
        answers = _scores(draws, arm)
        total += len(answers)
        if temperature:
            mean = _mean_logprob(answers)
            parts.append(f"{mean:.2f} nats per token at {temperature:g} over {count(len(answers), 'answer')}")
            continue
        misses = tokens = 0
        for answer in answers:
            misses += answer["misses"]
            tokens += answer["tokens"]
            if answer["worst"] > epsilon:
                examples.append(f"{answer['prompt_id']}, round {answer['round']}: worst by {answer['worst']:.1f}")
        parts.append(
            f"{misses} of {tokens:,} tokens at temperature 0 are not the target's own choice, the worst by "
            f"{_worst(answers):.2f} nats ({epsilon:.2g} are allowed)"
        )
    return gate_side(listing(parts), total, examples)
