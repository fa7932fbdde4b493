"""Answers above temperature 0: are those of the speculative arm as long as the baseline's, and do they vary as much.

No single answer can be compared there. But an arm that ignores the temperature repeats itself over the seeds of the
rounds, and its own greedy answer; and one that samples from something else answers at another length.
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

#: Healthy arms fail in fewer experiments than this, lengths and repetition together.
CHANCE = 0.01
#: The speculative arm repeats all of three answers and the baseline none: at most this often in equal arms, however
#: much their answers vary. Up to here it must also show in how far the answers repeat.
FEW_CHANCE = 1 / 64
#: Lengths that differ by less than this share in sum are no fault, however sure.
LENGTH_SHARE = 0.10
#: On fewer prompts neither is judged.
FEWEST = 6

RULE = (
    "above temperature 0; fails when the speculative arm's answers are longer, or shorter, than the baseline's in so "
    f"many prompts (sign test) and by more than {LENGTH_SHARE:.0%} in sum, or repeat themselves over rounds and their "
    "own answer at temperature 0 so often, or so far (exact tests), that equal arms would do so in fewer than "
    f"{CHANCE:.0%} of experiments"
)

#: A prompt: its kind, its id.
Prompt = tuple[str, str]


class Repeat(NamedTuple):
    """Whether an answer repeats an earlier one to the letter, and the places at which it could have parted from it."""

    whole: bool
    places: int


#: How far each further answer to a prompt, by its number, repeats an earlier one.
Repeats = Mapping[tuple[Prompt, int], Repeat]


def judge_sampled(baseline: ArmResult, speculative: ArmResult) -> JudgedArms:
    """What the gate says of two arms, without its name and title: see `gates.judge_gates`."""
    ours, theirs = _lengths(baseline), _lengths(speculative)
    changes = []
    before = after = 0.0
    for prompt in ours:
        if prompt in theirs:
            before, after = before + ours[prompt], after + theirs[prompt]
            changes.append(theirs[prompt] - ours[prompt])
    if not before:
        return not_measured("no prompt was answered above temperature 0 in both arms")
    if len(changes) < FEWEST:
        return not_measured(f"{count(len(changes), 'prompt')} answered above temperature 0, and {FEWEST} are needed")
    repeats = _repeats(baseline), _repeats(speculative)
    sides = _side(before, len(changes), repeats[0]), _side(after, len(changes), repeats[1])
    answer: JudgedArms = {
        "word": "passed",
        "said": f"{sides[1]['said']}; the baseline: {sides[0]['said']}",
        "baseline": sides[0],
        "speculative": sides[1],
    }
    if wrong := _other_lengths(changes, after / before) or _repeats_more(*repeats):
        return {**answer, "word": "failed", "said": wrong}
    return answer


def _other_lengths(changes: Sequence[float], ratio: float) -> str:
    """What is wrong where the answers of the speculative arm are longer, or shorter; ``ratio`` is that of the sums."""
    longer, shorter = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    # Two sides of the lengths and one of the repetition share the rate.
    if sign_test(max(longer, shorter), min(longer, shorter)) >= CHANCE / 4 or abs(ratio - 1) <= LENGTH_SHARE:
        return ""
    word = "shorter"
    if longer > shorter:
        word = "longer"
    return (
        f"above temperature 0 the answers to {max(longer, shorter)} of {count(len(changes), 'prompt')} are {word} than "
        f"the baseline's, {ratio:.2f} times as much text in all"
    )


def _repeats_more(ours: Repeats, theirs: Repeats) -> str:
    """What is wrong where the speculative arm repeats itself more than an arm that samples as the baseline does.

    Of few answers it must also show in how far they repeat: where a place parts as often in both arms, the baseline's
    share of the answers that parted is binomial, with its share of the places.
    """
    repeated, could_part = [], []
    for answer, own in ours.items():
        if other := theirs.get(answer):
            repeated.append((own.whole, other.whole))
            could_part.append((own.places, other.places))
    # A row for each answer of both, a column for each arm.
    whole, places = np.array(repeated, dtype=bool).reshape(-1, 2), np.array(could_part).reshape(-1, 2)
    lost, won = int((whole[:, 1] > whole[:, 0]).sum()), int((whole[:, 0] > whole[:, 1]).sum())
    chance = losses_chance(lost, won, len(repeated))
    if chance > FEW_CHANCE:
        return ""
    if chance >= CHANCE / 2:
        parted, each = (~whole).sum(axis=0), places[:, 0].sum() / places.sum()
        if binomial_tail(int(parted[0]), int(parted.sum()), float(each)) >= CHANCE / 2:
            return ""
    return (
        f"above temperature 0 {whole[:, 1].sum()} of {count(len(repeated), 'answer')} repeat an answer with another "
        f"seed or at temperature 0 to the letter, and {whole[:, 0].sum()} of the baseline's: the temperature is ignored"
    )


def _prompt(request: Request) -> Prompt:
    return str(request.get("kind")), whole_prompt(request.get("prompt_id"))


def _temperature(request: Request) -> float:
    return request.get("temperature") or 0.0


def _answers(result: ArmResult) -> list[Request]:
    """The whole answers of an arm, but for those that a gate alone asks for."""
    return [r for r in whole_answers(result) if not r.get("gate")]


def _lengths(result: ArmResult) -> dict[Prompt, float]:
    """The mean length of each prompt's answers in characters: what the server counts may be wrong."""
    found: dict[Prompt, list[float]] = {}
    for request in _answers(result):
        if _temperature(request) > 0:
            found.setdefault(_prompt(request), []).append(float(len(whole_text(request))))
    return {prompt: fmean(values) for prompt, values in found.items()}


def _repeats(result: ArmResult) -> dict[tuple[Prompt, int], Repeat]:
    """How far each further answer to a prompt repeats an earlier one with another seed, or the greedy one."""
    earlier: dict[Prompt, list[str]] = {}
    found: dict[tuple[Prompt, int], Repeat] = {}
    numbers: Counter[Prompt] = Counter()
    for request in sorted(_answers(result), key=lambda r: (_temperature(r), r.get("round") or 0)):
        prompt, text = _prompt(request), whole_text(request)
        known = earlier.setdefault(prompt, [])
        if _temperature(request) > 0 and known and text:
            # It could have parted at each of these characters, or by going on where the earlier answer ends.
            places = max(first_difference(text, earlier_text) for earlier_text in known) + 1
            found[prompt, numbers[prompt]] = Repeat(text in known, places)
            numbers[prompt] += 1
        known.append(text)
    return found


def _side(characters: float, prompts: int, repeats: Repeats) -> GateSide:
    said = f"{characters / prompts:.0f} characters an answer over {count(prompts, 'prompt')}"
    if repeats:
        said += f", {sum(own.whole for own in repeats.values())} of {count(len(repeats), 'answer')} repeated"
    return gate_side(said, prompts)
