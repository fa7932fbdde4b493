"""Compares answers above temperature 0 in length and variety: the gate `sampled`.

Single sampled answers cannot be compared. But an arm that ignores the temperature repeats itself over the
seeds of the rounds and its greedy answer, and an arm that samples from another distribution differs in length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from ..bench.result_types import ArmResult, Request
from ..bench.samples import whole_answers, whole_prompt
from ..core.format import count
from .answered import first_difference, whole_text
from .paired_tests import binomial_tail, losses_chance, sign_test
from .verdict_types import GateSide, JudgedArms, gate_side, not_measured

#: The error rate of the gate for healthy arms, lengths and repetition together.
CHANCE = 0.01
#: The probability, in equal arms, that the speculative arm repeats all of three answers and the baseline none. Between
#: CHANCE / 2 and this, the gate fails only if the lengths of the repeated parts show it as well.
FEW_CHANCE = 1 / 64
#: A smaller relative difference of the summed lengths is no fault, however significant.
LENGTH_SHARE = 0.10
#: Fewer prompts are not judged.
FEWEST = 6

RULE = (
    "above temperature 0; fails when the speculative arm's answers are longer, or shorter, than the baseline's in so "
    f"many prompts (sign test) and by more than {LENGTH_SHARE:.0%} in sum, or repeat themselves over rounds and their "
    "own answer at temperature 0 so often, or so far (exact tests), that equal arms would do so in fewer than "
    f"{CHANCE:.0%} of experiments"
)

#: Kind and prompt id.
Prompt = tuple[str, str]


class Repeat(NamedTuple):
    """How far an answer repeats an earlier one to the same prompt."""

    whole: bool  # True if the answer equals an earlier one
    positions: int  # the number of characters at which it could have diverged from the one that it follows longest


#: By prompt and number of its further answer: how far that answer repeats an earlier one.
Repeats = Mapping[tuple[Prompt, int], Repeat]


def judge_sampled(baseline: ArmResult, speculative: ArmResult) -> JudgedArms:
    """The gate `sampled` over the two arms, without its name and title (see `gates.judge_gates`).

    Not measured for fewer than `FEWEST` prompts that both arms answered; failed by the lengths, else by repetition;
    else passed.
    """
    base = _mean_lengths(baseline)
    spec = _mean_lengths(speculative)
    changes = []  # of the mean length, by prompt, in characters
    base_total = spec_total = 0.0
    for prompt in base:
        if prompt in spec:
            base_total += base[prompt]
            spec_total += spec[prompt]
            changes.append(spec[prompt] - base[prompt])
    if not base_total:
        return not_measured("no prompt was answered above temperature 0 in both arms")
    if len(changes) < FEWEST:
        return not_measured(f"{count(len(changes), 'prompt')} answered above temperature 0, and {FEWEST} are needed")
    base_repeats = _repeats(baseline)
    spec_repeats = _repeats(speculative)
    base_side = _side(base_total, len(changes), base_repeats)
    spec_side = _side(spec_total, len(changes), spec_repeats)
    result: JudgedArms = {
        "word": "passed",
        "said": f"{spec_side['said']}; the baseline: {base_side['said']}",
        "baseline": base_side,
        "speculative": spec_side,
    }
    if fault := _length_fault(changes, spec_total / base_total) or _repetition_fault(base_repeats, spec_repeats):
        return {**result, "word": "failed", "said": fault}
    return result


def _length_fault(changes: Sequence[float], ratio: float) -> str:
    """A sentence if the speculative arm's answers are longer or shorter, else "".

    ``changes`` has the change of each prompt's mean length, ``ratio`` is that of the summed lengths. A change must be
    significant and large (`LENGTH_SHARE`).
    """
    longer = sum(change > 0 for change in changes)
    shorter = sum(change < 0 for change in changes)
    # Half of the error rate is for lengths, a quarter per direction; the other half is for repetition.
    if sign_test(max(longer, shorter), min(longer, shorter)) >= CHANCE / 4 or abs(ratio - 1) <= LENGTH_SHARE:
        return ""
    word = "shorter"
    if longer > shorter:
        word = "longer"
    return (
        f"above temperature 0 the answers to {max(longer, shorter)} of {count(len(changes), 'prompt')} are {word} than "
        f"the baseline's, {ratio:.2f} times as much text in all"
    )


def _repetition_fault(base: Repeats, spec: Repeats) -> str:
    """A sentence if the speculative arm repeats itself more than an arm that samples like the baseline, else "".

    Few repeated answers must also agree longer with earlier ones: if both arms diverge equally often per position,
    the baseline's part of the answers that diverged is binomial, with its part of the positions as probability.
    """
    # For each answer that both arms have, the values of the baseline and of the speculative arm.
    repeated = []
    positions_by_arm = []
    for answer, repeat in base.items():
        if spec_repeat := spec.get(answer):
            repeated.append((repeat.whole, spec_repeat.whole))
            positions_by_arm.append((repeat.positions, spec_repeat.positions))
    # `reshape` keeps two columns, baseline and speculative, if there is no row.
    whole = np.array(repeated, dtype=bool).reshape(-1, 2)
    positions = np.array(positions_by_arm).reshape(-1, 2)
    lost = int((whole[:, 1] > whole[:, 0]).sum())  # repeated by the speculative arm alone
    won = int((whole[:, 0] > whole[:, 1]).sum())  # repeated by the baseline alone
    chance = losses_chance(lost, won, len(repeated))
    if chance > FEW_CHANCE:
        return ""
    # Half of CHANCE is for repetition, the other half for lengths. Below that half the repeated answers are proof.
    if chance >= CHANCE / 2:
        diverged = (~whole).sum(axis=0)  # by arm, the answers that are no repeat
        base_share = float(positions[:, 0].sum() / positions.sum())
        if binomial_tail(hits=int(diverged[0]), draws=int(diverged.sum()), p=base_share) >= CHANCE / 2:
            return ""
    return (
        f"above temperature 0 {whole[:, 1].sum()} of {count(len(repeated), 'answer')} repeat an answer with another "
        f"seed or at temperature 0 to the letter, and {whole[:, 0].sum()} of the baseline's: the temperature is ignored"
    )


def _prompt(request: Request) -> Prompt:
    """The prompt of a request; its repeats are the same prompt."""
    return str(request.get("kind")), whole_prompt(request.get("prompt_id"))


def _temperature(request: Request) -> float:
    """The temperature of a request; 0 if it is unknown, so that the answer is not taken for a sampled one."""
    return request.get("temperature") or 0.0


def _ungated_answers(result: ArmResult) -> list[Request]:
    """The complete answers of an arm, without requests that only a gate asks for."""
    return [request for request in whole_answers(result) if not request.get("gate")]


def _mean_lengths(result: ArmResult) -> dict[Prompt, float]:
    """By prompt, the mean length of its sampled answers in characters, because token counts may be wrong."""
    lengths: dict[Prompt, list[float]] = {}
    for request in _ungated_answers(result):
        if _temperature(request) > 0:
            lengths.setdefault(_prompt(request), []).append(float(len(whole_text(request))))
    return {prompt: fmean(values) for prompt, values in lengths.items()}


def _repeats(result: ArmResult) -> dict[tuple[Prompt, int], Repeat]:
    """For each sampled answer with an earlier one (other seed, or greedy), how far it repeats that one."""
    earlier: dict[Prompt, list[str]] = {}
    repeats: dict[tuple[Prompt, int], Repeat] = {}
    repeat_counts: Counter[Prompt] = Counter()
    # Greedy answers (temperature 0) come first: repeats of them count as well.
    for request in sorted(_ungated_answers(result), key=lambda r: (_temperature(r), r.get("round") or 0)):
        prompt = _prompt(request)
        text = whole_text(request)
        earlier_texts = earlier.setdefault(prompt, [])
        if _temperature(request) > 0 and earlier_texts and text:
            # The answer could have diverged at each equal character, or by continuing where the earlier one ends.
            positions = max(first_difference(text, earlier_text) for earlier_text in earlier_texts) + 1
            repeats[prompt, repeat_counts[prompt]] = Repeat(text in earlier_texts, positions)
            repeat_counts[prompt] += 1
        earlier_texts.append(text)
    return repeats


def _side(characters: float, prompts: int, repeats: Repeats) -> GateSide:
    """An arm's figures; ``characters`` is the sum of the mean lengths of ``prompts`` prompts."""
    text = f"{characters / prompts:.0f} characters an answer over {count(prompts, 'prompt')}"
    if repeats:
        text += f", {sum(repeat.whole for repeat in repeats.values())} of {count(len(repeats), 'answer')} repeated"
    return gate_side(text, prompts)
