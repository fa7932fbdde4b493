"""Are the answers of two servers the same at temperature 0, token by token, and what do numerics explain.

Greedy decoding with speculation gives the same tokens in exact arithmetic. In bf16, and wherever a batch of
another shape sums in another order, two tokens of nearly the same chance may change places; from there on
the answers are two different texts. So answers are compared up to the first difference alone, and what
counts is how soon it comes. What the rest of the texts is worth, `scored_outputs.py` and `degenerate_text.py` tell.

Thoughts and answers are compared apart, and where neither arm answered there is nothing equal about it.

numpy, as in `stats.py`: resamples as one array.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist
from typing import Any

import numpy as np

from ..bench.result_types import ArmResult, Request
from ..bench.samples import requests_of, rounds_of, whole_prompt
from ..bench.stats import CONFIDENCE, SEED, median, values_needed
from ..core.format import count, listing, percent
from .answered import LOST_CHANCE, answers_lost, is_answered, thought_of, whole_text
from .verdict_types import EqualOutputs, EqualSide, JudgedArms, not_measured

#: What numerics are granted: one first difference in so many tokens. Two equally good tokens are told apart by
#: rounding far less often than that, a wrongly accepted or lost token is followed by others at once.
TOLERATED_TOKENS = 10
#: What numerics are granted of answers that end where the other goes on: rounding seldom meets the last token.
TOLERATED_CUT = 0.2
#: A server streams token by token when it sends so many pieces for each of its tokens.
PIECES_A_TOKEN = 0.9
RESAMPLES = 2000

RULE = (
    "fails when, at 95 % confidence over prompts, the arms agree less often than the baseline with itself, and either "
    f"first differences come more often than once per {TOLERATED_TOKENS} tokens (and more often than between the "
    f"baseline and itself), or more than {TOLERATED_CUT:.0%} of the answers end where the other continues; or when so "
    "many prompts that the baseline answers get only reasoning that equal arms would do so in fewer than "
    f"{LOST_CHANCE:.0%} of experiments"
)


@dataclass(frozen=True)
class OutputPair:
    """Two answers to one prompt in one round. Places are counted from 0, in the first of the two."""

    group: str
    prompt_id: str
    round: Any
    equal: bool
    character: int
    """Where they first differ; their length where they are equal."""
    characters: int
    token: int
    """The same place in tokens: how many of them are equal."""
    tokens: int
    exact: bool
    """Whether ``token`` was counted in streamed pieces, or is in proportion to the characters."""
    cut: bool
    """One answer ends where the other goes on."""
    answered: bool = True
    """One of the two has an answer; thoughts alone, that used all of the output length, are none."""

    @property
    def compared(self) -> int:
        """Return how many tokens had the chance to differ first."""
        return max(1, self.tokens if self.equal else self.token + 1)


def pair_outputs(one: Iterable[Request], two: Iterable[Request]) -> list[OutputPair]:
    """Return the pairs of whole answers at temperature 0, in the order of ``two``."""
    answers = {_key(r): r for r in one if _comparable(r)}
    return [_pair(answers[_key(r)], r) for r in two if _comparable(r) and _key(r) in answers]


def _key(request: Request) -> tuple[Any, str, Any]:
    return request.get("round"), str(request.get("group")), request.get("prompt_id")


def _comparable(request: Request) -> bool:
    return request.get("status") == "ok" and request.get("temperature") == 0


def _pair(first: Request, second: Request) -> OutputPair:
    before, after = whole_text(first), whole_text(second)
    shorter = min(len(before), len(after))
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), shorter)
    thoughts = len(thought_of(first)), len(thought_of(second))
    # The same words as a thought and as an answer are not the same: they differ where the first begins to answer.
    split = thoughts[0] != thoughts[1] and at > min(thoughts)
    at = min(thoughts) if split else at
    token, tokens, exact = tokens_before(first, at, len(before))
    return OutputPair(
        group=str(first.get("group")),
        prompt_id=str(first.get("prompt_id")),
        round=first.get("round"),
        equal=before == after and not split,
        character=at,
        characters=max(len(before), len(after)),
        token=token,
        tokens=tokens,
        exact=exact,
        cut=before != after and at == shorter,
        answered=is_answered(first) or is_answered(second),
    )


def tokens_before(request: Request, character: int, characters: int) -> tuple[int, int, bool]:
    """Return how many tokens of an answer end at or before a character, how many it has, and whether that is exact.

    Without speculation a streamed piece is one token. Where a server sends fewer pieces (it joins them when it
    is busy, and while it drafts), the place is taken in proportion to the characters.
    """
    tokens = int(request.get("output_tokens") or 0)
    pieces = [int(size) for size in request.get("pieces") or []]
    if pieces and sum(pieces) == characters and len(pieces) >= PIECES_A_TOKEN * tokens:
        return sum(end <= character for end in accumulate(pieces)), max(tokens, len(pieces)), True
    tokens = tokens or characters
    return (min(tokens, tokens * character // characters) if characters else 0), tokens, False


def compare_outputs(one: Iterable[Request], two: Iterable[Request]) -> EqualOutputs | None:
    """Return how many texts at temperature 0 are equal, and where the others first differ.

    Places are given in characters and in tokens of the first. ``first_differences`` lists the pairs that
    differ, earliest first. None where there is no pair.
    """
    pairs = pair_outputs(one, two)
    if not pairs:
        return None
    differing = sorted((p for p in pairs if not p.equal), key=lambda p: (p.character, p.prompt_id))
    return {
        "pairs": len(pairs),
        "equal": len(pairs) - len(differing),
        "share": (len(pairs) - len(differing)) / len(pairs),
        "first_difference_characters": median([p.character for p in differing]) if differing else None,
        "first_difference_tokens": median([p.token for p in differing]) if differing else None,
        "tokens_exact": all(p.exact for p in pairs),
        "first_differences": [
            {
                "prompt_id": p.prompt_id,
                "round": p.round,
                "character": p.character,
                "of": p.characters,
                "token": p.token,
                "of_tokens": p.tokens,
            }
            for p in differing[:20]
        ],
    }


# --- the gate -------------------------------------------------------------------------------------


def judge_outputs(baseline: ArmResult, speculative: ArmResult) -> JudgedArms:
    """Return what the gate says of two arms, without its name and title: see `gates.judge_gates`.

    The A/A control is the baseline's first round against its second; prompts that were asked once are left
    out. Every group of prompts with enough of them is judged by itself, and all of them together.
    """
    requests = [requests_of(baseline), requests_of(speculative)]
    if lost := answers_lost(*requests):
        return {**not_measured(lost), "word": "failed"}
    rounds = rounds_of(requests[0])[:2]
    if len(rounds) < 2:
        return not_measured("the baseline ran one round, so the usual difference between two equal servers is unknown")
    control = pair_outputs(
        [r for r in requests[0] if r.get("round") == rounds[0]],
        [{**r, "round": rounds[0]} for r in requests[0] if r.get("round") == rounds[1]],
    )
    asked_twice = {(p.group, p.prompt_id) for p in control}
    both = [p for p in pair_outputs(*requests) if (p.group, p.prompt_id) in asked_twice]
    prompts = {_prompt(p) for p in both}
    thoughts_alone = sum(not p.answered for p in both)
    if len(prompts) < values_needed():
        return not_measured(
            f"{count(len(prompts), 'prompt')} asked twice at temperature 0, and {values_needed()} are needed"
        )
    groups = [g for g in dict.fromkeys(p.group for p in both) if _prompts_of(both, g) >= values_needed()]
    everything = Figures.of(both, control)
    parts = {group: Figures.of(both, control, group) for group in groups}
    bad = [group for group, part in parts.items() if part.wrong and not part.control_unsteady]
    answer: JudgedArms = {
        "word": "passed",
        "said": "",
        "baseline": _told(control, everything.control_rate),
        "speculative": _told(both, everything.rate),
        "groups": {group: part.as_dict() for group, part in parts.items()},
        "all": everything.as_dict(),
        "tolerated_tokens": TOLERATED_TOKENS,
        "tolerated_cut": TOLERATED_CUT,
    }
    if bad or (everything.wrong and not everything.control_unsteady):
        part, where = (parts[bad[0]], f" on {listing(bad)}") if bad else (everything, "")
        return {**answer, "word": "failed", "said": f"{part.accusation()}{where}"}
    unsteady = [group for group, part in parts.items() if part.control_unsteady]
    if unsteady or everything.control_unsteady:
        where = f" on {listing(unsteady)}" if unsteady and not everything.control_unsteady else ""
        said = f"the baseline differs from itself too early to compare{where}: {answer['baseline']['said']}"
        return {**answer, "word": "no baseline", "said": said}
    said = answer["speculative"]["said"]
    if thoughts_alone == len(both):
        said = (
            f"no answer at temperature 0: all {count(len(both), 'output')} of both arms are reasoning only ({said}); "
            "raise the output length limit, or check the engine's reasoning parser"
        )
        return {**answer, "word": "not measured", "said": said}
    if thoughts_alone:
        said += f"; {thoughts_alone} of {len(both)} are reasoning without an answer"
    return {**answer, "word": "passed", "said": said}


@dataclass(frozen=True)
class Figures:
    """How two sets of pairs differ, with 95 % bounds: both arms, and the baseline twice.

    Rates are first differences for each token that could have been one (`count_limits`); ``drop`` is how much
    less often the arms agree than the baseline with itself, ``cut`` how much more often one answer is the
    other's beginning, both bounds from resampled prompts.
    """

    rate: float
    rate_low: float
    control_rate: float
    control_rate_low: float
    control_rate_high: float
    drop_low: float
    cut_low: float
    cut_share: float
    first_token: float | None
    differing: int
    prompts: int

    @classmethod
    def of(cls, both: Sequence[OutputPair], control: Sequence[OutputPair], group: str | None = None) -> Figures:
        """Work them out over a group, or over all."""
        chosen, again = ([p for p in pairs if group in (None, p.group)] for pairs in (both, control))
        names = sorted({_prompt(p) for p in chosen})
        ours, theirs = _means(chosen, names), _means(again, names)
        draws = np.random.default_rng(SEED).integers(0, len(names), size=(RESAMPLES, len(names)))
        lost = (ours - theirs)[draws].mean(axis=1)
        tail = (1.0 - CONFIDENCE) / 2.0
        total, own = ours.sum(axis=0), theirs.sum(axis=0)
        differing = [p for p in chosen if not p.equal]
        return cls(
            rate=float(total[DIFFER] / total[TOKENS]),
            rate_low=count_limits(total[DIFFER])[0] / float(total[TOKENS]),
            control_rate=float(own[DIFFER] / own[TOKENS]),
            control_rate_low=count_limits(own[DIFFER])[0] / float(own[TOKENS]),
            control_rate_high=count_limits(own[DIFFER])[1] / float(own[TOKENS]),
            drop_low=float(np.quantile(lost[:, DIFFER], tail, method="lower")),
            cut_low=float(np.quantile(lost[:, CUT], tail, method="lower")),
            cut_share=float(total[CUT] / len(names)),
            first_token=median([p.token for p in differing]) if differing else None,
            differing=len({_prompt(p) for p in differing}),
            prompts=len(names),
        )

    @property
    def too_soon(self) -> bool:
        """Tell whether first differences come sooner than numerics and the baseline's own explain."""
        return self.rate_low > max(1.0 / TOLERATED_TOKENS, self.control_rate_high)

    @property
    def wrong(self) -> bool:
        """Tell whether the gate fails on these pairs."""
        return self.drop_low > 0 and (self.too_soon or self.cut_low > TOLERATED_CUT)

    @property
    def control_unsteady(self) -> bool:
        """Tell whether the baseline would not pass against itself."""
        return self.control_rate_low > 1.0 / TOLERATED_TOKENS

    def accusation(self) -> str:
        """Return what is wrong, in words."""
        differ = f"{self.differing} of {count(self.prompts, 'prompt')} get another answer at temperature 0"
        own = f"once per {1 / self.control_rate:.0f}" if self.control_rate else "never"
        if self.too_soon:
            return (
                f"{differ}, first after {self.first_token:.0f} tokens (median): a first difference once per "
                f"{1 / self.rate:.1f} tokens, where numerics may cause one per {TOLERATED_TOKENS} and the baseline "
                f"differs from itself {own}"
            )
        return f"{differ}, and {percent(self.cut_share)} of the answers end where the other continues"

    def as_dict(self) -> dict[str, float]:
        """Return the figures as plain data."""
        return {
            name: getattr(self, name)
            for name in ("rate", "rate_low", "control_rate", "control_rate_high", "drop_low", "cut_low", "prompts")
        }


# Columns of what is known of each prompt.
DIFFER, TOKENS, CUT = range(3)


def count_limits(count: float) -> tuple[float, float]:
    """Return the 95 % limits of a count of rare events.

    Garwood 1936 (Biometrika 28): half the chi-squared quantiles with 2 n and 2 n + 2 degrees of freedom; the
    quantiles by Wilson and Hilferty 1931 (PNAS 17), which are off by less than 1 % from five events on and
    too wide below. First differences at a steady rate are such events: the tokens up to each of them have an
    exponential distribution.
    """
    z = NormalDist().inv_cdf((1.0 + CONFIDENCE) / 2.0)

    def half_chi_squared(n: float, sign: int) -> float:
        return float(n * max(0.0, 1.0 - 1.0 / (9.0 * n) + sign * z / (3.0 * n**0.5)) ** 3)

    return half_chi_squared(count, -1) if count > 0 else 0.0, half_chi_squared(count + 1.0, 1)


def _prompt(pair: OutputPair) -> tuple[str, str]:
    """Return what a pair is about; the repeats of one prompt are one."""
    return pair.group, whole_prompt(pair.prompt_id)


def _prompts_of(pairs: Iterable[OutputPair], group: str) -> int:
    return len({_prompt(p) for p in pairs if p.group == group})


def _means(pairs: Iterable[OutputPair], names: Sequence[tuple[str, str]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return one row for each prompt, a mean over its rounds: first differences, tokens that could be one, cut answers.

    A prompt counts once however often it was asked: its rounds mostly say the same.
    """
    place = {name: row for row, name in enumerate(names)}
    sums, asked = np.zeros((len(names), 3)), np.zeros((len(names), 1))
    for pair in pairs:
        row = place.get(_prompt(pair))
        if row is not None:
            sums[row] += (not pair.equal, pair.compared, pair.cut)
            asked[row] += 1
    means: np.ndarray[Any, np.dtype[np.float64]] = sums / asked
    return means


def _told(pairs: Sequence[OutputPair], rate: float) -> EqualSide:
    """Return one side of the gate: how many answers are equal, and where the others first differ."""
    differing = [p for p in pairs if not p.equal]
    said = f"{len(pairs) - len(differing)} of {len(pairs)} equal"
    if differing:
        said += (
            f", the others first differ after {median([p.token for p in differing]):.0f} tokens (median), "
            f"once per {1 / rate:.0f}"
        )
    earliest = sorted(differing, key=lambda p: p.token)[:3]
    return {
        "said": said,
        "passed": len(pairs) - len(differing),
        "total": len(pairs),
        "first_difference_tokens": median([p.token for p in differing]) if differing else None,
        "tokens_exact": all(p.exact for p in pairs),
        "examples": [f"{p.prompt_id}, round {p.round}: token {p.token + 1} of {p.tokens}" for p in earliest],
    }
