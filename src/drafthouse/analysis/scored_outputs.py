"""Judges the answers of both arms by the log-probabilities that the baseline's server gives them: the gate `scores`.

`output_scoring.py` has the baseline's server score them. Its scores of its own answers show what is normal: in
bf16 two tokens may be equally likely, and prefill kernels round differently from those of decoding.
A token's gap is how much less likely it is than the baseline's choice; a miss is a token with a gap above 0.
Log-probabilities are natural logarithms, so gaps are in nats.
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

#: The error rate of the gate for equal arms, shared by all tests of an experiment.
CHANCE = 0.01
#: At temperature 0 a token may be less likely than the target's choice by this gap, in nats. bf16 keeps eight bits of a
#: logit: between 32 and 64 its steps are 0.25.
EPSILON = 0.5
#: The allowed gap is at least this multiple of the largest gap in the baseline's own answers.
BASELINE_GAPS = 2.0
#: This many prompts may have a token beyond the allowed gap.
LOST_TO_CHANCE = 1
#: A mean log-probability per token that is lower by less is no fault, in nats: 5 % more perplexity.
MARGIN = 0.05
#: Fewer pairs of answers are not judged by mean log-probabilities.
FEWEST = 6

RULE = (
    "the baseline's server scores a sample of the answers of both arms by their token ids; fails when, at temperature "
    f"0, more than {LOST_TO_CHANCE} prompt has a token less likely than the baseline's choice by more than {EPSILON} "
    f"nats and {BASELINE_GAPS:.0f} times the largest gap of its own answers; or when, at any temperature, the mean "
    f"log-probability per token is more than {MARGIN} nats below that of its own answers, so clearly that equal arms "
    f"would differ so in fewer than {CHANCE:.0%} of experiments; or when texts do not match their token ids"
)


Arm = Literal["baseline", "speculative"]


@dataclass(frozen=True)
class Pair:
    """One draw: the scored answers of both arms to a prompt, in one round, or at temperature 0 in all rounds."""

    group: str  # the prompt kind at a temperature
    prompt_id: str
    baseline: list[ScoredAnswer] = field(default_factory=list)  # the baseline's answers
    speculative: list[ScoredAnswer] = field(default_factory=list)  # as many, of the speculative arm

    @property
    def baseline_logprob(self) -> float:
        """The mean log-probability per token of the baseline's answers, in nats."""
        return _mean_logprob(self.baseline)

    @property
    def speculative_logprob(self) -> float:
        """The mean log-probability per token of the speculative arm's answers, in nats."""
        return _mean_logprob(self.speculative)

    def of(self, arm: Arm) -> list[ScoredAnswer]:
        """The scored answers of one arm."""
        return self.baseline if arm == "baseline" else self.speculative


def _mean_logprob(answers: Sequence[ScoredAnswer]) -> float:
    """The mean over some answers of their mean log-probability per token, in nats."""
    return fmean(answer["mean_logprob"] for answer in answers)


def judge_scores(baseline: ArmResult, speculative: ArmResult) -> JudgedArms:
    """The gate `scores` over the two arms, without its name and title (see `gates.judge_gates`).

    Not measured without scores; failed by any fault of the texts, of single tokens or of the likelihood; not measured
    if there are too few pairs for the likelihood; else passed.
    """
    pairs = _pairs(baseline.get("scored") or [], speculative.get("scored") or [])
    scoring = baseline.get("scoring")
    if not pairs:
        why = (scoring and scoring.get("why")) or "this engine cannot score text, or no text was kept to score"
        return not_measured(why, "not scored")
    greedy = pairs.get(0.0, [])
    epsilon = max(EPSILON, BASELINE_GAPS * _largest_gap(_scores_of(greedy, "baseline")))
    chance = CHANCE / (1 + len(pairs) * 2)  # one test of the texts, two at each temperature
    faults = _text_mismatch(list(chain.from_iterable(pairs.values())), chance) + _unlikely_tokens(greedy, epsilon)
    for temperature, temperature_pairs in pairs.items():
        faults += _lower_likelihood(temperature_pairs, temperature, chance)
    base_side = _side(pairs, "baseline", epsilon)
    spec_side = _side(pairs, "speculative", epsilon)
    judged: JudgedArms = {
        "baseline": base_side,
        "speculative": spec_side,
        "epsilon": epsilon if greedy else None,
        "word": "passed",
        "said": f"{spec_side['said']}; the baseline's own: {base_side['said']}",
    }
    if faults:
        return {**judged, "word": "failed", "said": "; ".join(faults)}
    most_pairs = max(map(len, pairs.values()))
    if most_pairs < FEWEST:
        text = f"{count(most_pairs, 'pair')} of scored answers, and {FEWEST} are needed"
        return {**judged, "word": "not measured", "said": text}
    return {**judged, "said": judged["said"] + _scoring_text(scoring)}


def _scoring_text(scoring: ScoringTotal | None) -> str:
    """The time that scoring took and the answers left unscored, as the end of a sentence; "" if nothing is known."""
    if not scoring:
        return ""
    seconds = scoring.get("seconds")
    left = scoring.get("left")
    text = ""
    if seconds is not None:
        text += f"; scoring took {seconds:.0f} s"
    if left:
        text += f"; {count(left, 'answer')} left unscored ({scoring['why']})"
    return text


def _pairs(baseline: Sequence[ScoredAnswer], speculative: Sequence[ScoredAnswer]) -> dict[float, list[Pair]]:
    """The draws for which both arms have scores, by rising temperature."""
    speculative_rows = {(row["group"], row["prompt_id"], row["round"]): row for row in speculative}
    by_temperature: dict[float, dict[tuple[Any, ...], Pair]] = {}
    for row in baseline:
        if speculative_row := speculative_rows.get((row["group"], row["prompt_id"], row["round"])):
            temperature = float(row["temperature"])
            prompt = whole_prompt(row["prompt_id"])
            # Greedy answers to one prompt are mostly equal, so at temperature 0 its rounds are one draw.
            draw = (row["group"], prompt, row["round"] if temperature else None)
            pair = by_temperature.setdefault(temperature, {}).setdefault(draw, Pair(row["group"], prompt))
            pair.baseline.append(row)
            pair.speculative.append(speculative_row)
    return {temperature: list(draws.values()) for temperature, draws in sorted(by_temperature.items())}


def _text_mismatch(pairs: Sequence[Pair], chance: float) -> list[str]:
    """A sentence if texts differ from their token ids in the speculative arm significantly more often; else empty."""
    lost = []  # pairs with a mismatch in the speculative arm alone
    won = 0  # pairs with a mismatch in the baseline alone
    for pair in pairs:
        in_baseline = _mismatches_ids(pair.baseline)
        in_speculative = _mismatches_ids(pair.speculative)
        if in_speculative and not in_baseline:
            lost.append(pair)
        won += in_baseline and not in_speculative
    if losses_chance(len(lost), won, len(pairs)) >= chance:
        return []
    return [
        f"in {len(lost)} of {count(len(pairs), 'answer')} the text does not match its token ids "
        f"(first {lost[0].prompt_id})"
    ]


def _mismatches_ids(answers: Sequence[ScoredAnswer]) -> bool:
    """True if the text of any answer is known to differ from its token ids."""
    return any(answer["same_text"] is False for answer in answers)


def _unlikely_tokens(pairs: Sequence[Pair], epsilon: float) -> list[str]:
    """A sentence if more than `LOST_TO_CHANCE` prompts have a token with a gap above ``epsilon`` (nats); else empty.

    ``pairs`` are the prompts at temperature 0, each with the answers of all rounds.
    """
    lost = [pair for pair in pairs if _largest_gap(pair.speculative) > epsilon]
    if len(lost) <= LOST_TO_CHANCE:
        return []
    example = max(lost[0].speculative, key=lambda row: float(row["worst"]))
    return [
        f"at temperature 0 {len(lost)} of {count(len(pairs), 'prompt')} have tokens that the baseline would not have "
        f"chosen, by more than {epsilon:.2g} nats of log-probability (first {lost[0].prompt_id}: "
        f"{example['misses']} of {count(example['tokens'], 'token')}, its worst by {example['worst']:.1f})"
    ]


def _lower_likelihood(pairs: Sequence[Pair], temperature: float, chance: float) -> list[str]:
    """A sentence if the answers at a temperature are significantly less likely than the baseline's; else empty."""
    drops = []  # how much less likely the speculative arm's answers are than MARGIN allows, in nats
    lost = won = 0  # pairs in which only the speculative arm's, or only the baseline's answers are outliers
    for pair in pairs:
        drops.append(pair.baseline_logprob - pair.speculative_logprob - MARGIN)
        limit = _outlier_limit(pairs, pair)
        lost += pair.speculative_logprob < limit <= pair.baseline_logprob
        won += pair.baseline_logprob < limit <= pair.speculative_logprob
    # Many small drops show in their sum (`flip_test`), a few large ones as outliers.
    if min(flip_test(drops), losses_chance(lost, won, len(pairs))) >= chance:
        return []
    base = fmean(pair.baseline_logprob for pair in pairs)
    spec = fmean(pair.speculative_logprob for pair in pairs)
    return [
        f"at temperature {temperature:g} the baseline gives the speculative arm's answers a mean log-probability of "
        f"{spec:.2f} per token, and its own {base:.2f} ({count(len(pairs), 'pair')} of answers)"
    ]


def _outlier_limit(pairs: Sequence[Pair], pair: Pair) -> float:
    """The mean log-probability below which an answer to ``pair``'s prompt is an outlier among the baseline's others.

    The limit lies below their minimum by the distance from median to minimum, plus MARGIN: some prompt is always the
    hardest. Without other prompts it is minus infinity, so there are no outliers.
    """
    other_logprobs = [p.baseline_logprob for p in pairs if (p.group, p.prompt_id) != (pair.group, pair.prompt_id)]
    return 2 * min(other_logprobs) - median(other_logprobs) - MARGIN if other_logprobs else -math.inf


def _largest_gap(rows: Sequence[ScoredAnswer]) -> float:
    """The largest gap of any token of these answers, in nats; 0 without an answer."""
    return max((float(row["worst"]) for row in rows), default=0.0)


def _scores_of(pairs: Iterable[Pair], arm: Arm) -> list[ScoredAnswer]:
    """The scored answers of one arm over some draws."""
    return list(chain.from_iterable(pair.of(arm) for pair in pairs))


def _side(pairs: Mapping[float, Sequence[Pair]], arm: Arm, epsilon: float) -> GateSide:
    """An arm's figures by temperature; at temperature 0 answers with a gap above ``epsilon`` (nats) do not pass."""
    parts = []  # of the sentence, by temperature
    examples = []
    total = 0
    for temperature, draws in pairs.items():
        answers = _scores_of(draws, arm)
        total += len(answers)
        if temperature:
            mean_logprob = _mean_logprob(answers)
            parts.append(f"{mean_logprob:.2f} nats per token at {temperature:g} over {count(len(answers), 'answer')}")
            continue
        misses = tokens = 0
        for answer in answers:
            misses += answer["misses"]
            tokens += answer["tokens"]
            if answer["worst"] > epsilon:
                examples.append(f"{answer['prompt_id']}, round {answer['round']}: worst by {answer['worst']:.1f}")
        parts.append(
            f"{misses} of {tokens:,} tokens at temperature 0 are not the target's own choice, the worst by "
            f"{_largest_gap(answers):.2f} nats ({epsilon:.2g} are allowed)"
        )
    return gate_side(listing(parts), total, examples)
