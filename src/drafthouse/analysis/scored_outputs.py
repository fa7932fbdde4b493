"""Would the target itself have said this: what the baseline's log-probabilities of the answers of both arms say.

`output_scoring.py` has the baseline score them. The baseline's own answers, scored by the baseline, say what is normal:
in bf16 two tokens may be level, and the kernels of a prefill round otherwise than those of decoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from ..bench.result_types import ArmResult
from ..bench.samples import whole_prompt
from ..core.format import count, listing
from .paired_tests import flip_test, losses_chance
from .verdict_types import GateSide, JudgedArms, not_measured

if TYPE_CHECKING:
    from drafthouse.bench.output_scoring import ScoredAnswer

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


@dataclass(frozen=True)
class Pair:
    """One draw: the scores of both arms' answers to a prompt; at temperature 0 over all of its rounds."""

    group: str
    prompt_id: str
    baseline: tuple[ScoredAnswer, ...]
    speculative: tuple[ScoredAnswer, ...]

    @property
    def means(self) -> tuple[float, float]:
        """Return the mean log-probability a token of either arm, in nats."""
        one, two = (fmean(row["mean_logprob"] for row in rows) for rows in (self.baseline, self.speculative))
        return one, two


def judge_scores(baseline: ArmResult, speculative: ArmResult) -> JudgedArms:
    """Return what the gate says of two arms, without its name and title: see `gates.judge_gates`."""
    rows = [list(result.get("scored") or []) for result in (baseline, speculative)]
    pairs = _pairs(*rows)
    if not pairs:
        scoring = baseline.get("scoring")
        why = (scoring and scoring.get("why")) or "this engine cannot score text, or no text was kept to score"
        return not_measured(why, "not scored")
    epsilon = max(EPSILON, OWN_GAPS * _worst(pairs.get(0.0, []), "baseline"))
    tests = 1 + len(pairs) * 2
    wrong = _other_text(pairs, CHANCE / tests)
    if 0.0 in pairs:
        wrong += _unlikely(pairs[0.0], epsilon)
    for temperature, of_temperature in pairs.items():
        wrong += _worse(of_temperature, temperature, CHANCE / tests)
    head: JudgedArms = {
        "baseline": _told(pairs, "baseline", epsilon),
        "speculative": _told(pairs, "speculative", epsilon),
        "epsilon": epsilon if 0.0 in pairs else None,
        "word": "passed",
        "said": "",
    }
    if wrong:
        return {**head, "word": "failed", "said": "; ".join(wrong)}
    if all(len(of_temperature) < FEWEST for of_temperature in pairs.values()):
        said = f"{count(max(map(len, pairs.values())), 'pair')} of scored answers, and {FEWEST} are needed"
        return {**head, "word": "not measured", "said": said}
    said = f"{head['speculative']['said']}; the baseline's own: {head['baseline']['said']}"
    scoring = baseline.get("scoring")
    if scoring and scoring.get("seconds") is not None:
        said += f"; scoring took {scoring['seconds']:.0f} s"
    if scoring and scoring.get("left"):
        said += f"; {count(scoring['left'], 'answer')} left unscored ({scoring['why']})"
    return {**head, "word": "passed", "said": said}


def _pairs(baseline: Sequence[ScoredAnswer], speculative: Sequence[ScoredAnswer]) -> dict[float, list[Pair]]:
    """Return what both arms were scored on, by temperature."""
    theirs = {(row["group"], row["prompt_id"], row["round"]): row for row in speculative}
    draws: dict[float, dict[tuple[Any, ...], list[tuple[ScoredAnswer, ScoredAnswer]]]] = {}
    for row in baseline:
        if other := theirs.get((row["group"], row["prompt_id"], row["round"])):
            temperature = float(row["temperature"])
            # At temperature 0 the rounds of a prompt mostly say the same: one draw.
            draw = (row["group"], whole_prompt(row["prompt_id"]), row["round"] if temperature else None)
            draws.setdefault(temperature, {}).setdefault(draw, []).append((row, other))
    return {
        temperature: [
            Pair(draw[0], draw[1], tuple(one for one, _ in both), tuple(two for _, two in both))
            for draw, both in of_temperature.items()
        ]
        for temperature, of_temperature in sorted(draws.items())
    }


def _other_text(pairs: Mapping[float, Sequence[Pair]], chance: float) -> list[str]:
    """Return a sentence where texts are not what their token ids say, and the baseline's are."""
    every = [pair for of_temperature in pairs.values() for pair in of_temperature]
    bad = [[any(row["same_text"] is False for row in rows) for rows in (p.baseline, p.speculative)] for p in every]
    lost = [pair for pair, (ours, theirs) in zip(every, bad, strict=True) if theirs and not ours]
    won = sum(ours and not theirs for ours, theirs in bad)
    if losses_chance(len(lost), won, len(every)) >= chance:
        return []
    return [
        f"in {len(lost)} of {count(len(every), 'answer')} the text does not match its token ids "
        f"(first {lost[0].prompt_id})"
    ]


def _unlikely(pairs: Sequence[Pair], epsilon: float) -> list[str]:
    """Return a sentence where answers at temperature 0 hold tokens that the target would not have chosen."""
    lost = [pair for pair in pairs if any(row["worst"] > epsilon for row in pair.speculative)]
    if len(lost) <= LOST_TO_CHANCE:
        return []
    first = max(lost[0].speculative, key=lambda row: float(row["worst"]))
    return [
        f"at temperature 0 {len(lost)} of {count(len(pairs), 'answer')} have tokens that the baseline would not have "
        f"chosen, by more than {epsilon:.2g} nats of log-probability (first {lost[0].prompt_id}: {first['misses']} of "
        f"{count(first['tokens'], 'token')}, the worst by {first['worst']:.1f})"
    ]


def _worse(pairs: Sequence[Pair], temperature: float, chance: float) -> list[str]:
    """Return a sentence where the answers at a temperature are less likely than the baseline's own beyond chance."""
    drops = [ours - theirs for ours, theirs in (pair.means for pair in pairs)]
    below = [(_below(pairs, pair, 0), _below(pairs, pair, 1)) for pair in pairs]
    lost = sum(theirs and not ours for ours, theirs in below)
    won = sum(ours and not theirs for ours, theirs in below)
    if (
        flip_test([drop - MARGIN for drop in drops]) >= chance
        and losses_chance(lost, won, len(pairs)) >= chance
    ):  # fmt: skip
        return []
    ours, theirs = (fmean(pair.means[arm] for pair in pairs) for arm in (0, 1))
    return [
        f"at temperature {temperature:g} the baseline gives the speculative arm's answers a mean log-probability of "
        f"{theirs:.2f} per token, and its own {ours:.2f} ({count(len(pairs), 'pair')} of answers)"
    ]


def _below(pairs: Sequence[Pair], pair: Pair, arm: int) -> bool:
    """Tell whether an answer is far less likely than each of the baseline's to other prompts.

    That is, below the least of them by more than that is below their median: one prompt is always the hardest.
    """
    others = [one.means[0] for one in pairs if (one.group, one.prompt_id) != (pair.group, pair.prompt_id)]
    return bool(others) and pair.means[arm] < 2 * min(others) - median(others) - MARGIN


def _worst(pairs: Sequence[Pair], arm: str) -> float:
    return max((float(row["worst"]) for pair in pairs for row in getattr(pair, arm)), default=0.0)


def _told(pairs: Mapping[float, Sequence[Pair]], arm: str, epsilon: float) -> GateSide:
    """Return one side of the gate: how its answers were scored, at each temperature."""
    said, rows = [], []
    for temperature, of_temperature in pairs.items():
        own = [row for pair in of_temperature for row in getattr(pair, arm)]
        rows += own
        tokens = sum(row["tokens"] for row in own)
        if temperature == 0:
            misses = sum(row["misses"] for row in own)
            said.append(
                f"{misses} of {tokens:,} tokens at temperature 0 are not the target's own choice, the worst by "
                f"{_worst(of_temperature, arm):.2f} nats ({epsilon:.2g} are allowed)"
            )
        else:
            mean = fmean(row["mean_logprob"] for row in own)
            said.append(f"{mean:.2f} nats per token at {temperature:g} over {count(len(own), 'answer')}")
    bad = [row for row in rows if row["temperature"] == 0 and row["worst"] > epsilon]
    return {
        "said": listing(said),
        "passed": len(rows) - len(bad),
        "total": len(rows),
        "examples": [f"{row['prompt_id']}, round {row['round']}: worst by {row['worst']:.1f}" for row in bad[:3]],
    }
