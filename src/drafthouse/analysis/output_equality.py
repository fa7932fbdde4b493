"""Compares the answers of two servers at temperature 0, up to the first differing token: the gate `outputs`.

In exact arithmetic, greedy decoding with speculation gives the same tokens as without. In bf16, or
if a batch of another shape sums in another order, two tokens of nearly equal probability may swap
places; the texts differ from there on. So only the position of the first difference counts, and how
many prompts differ early: healthy arms differ about once in 200 tokens. `scored_outputs.py` and
`degenerate_text.py` judge the rest of the texts, `sampled_outputs.py` those above temperature 0.

Reasoning and answer are compared separately; two outputs of reasoning alone are no equal answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

from ..bench.result_types import ArmResult, Request
from ..bench.samples import requests_of, whole_prompt
from ..bench.stats import median
from ..core.format import count, listing
from .answered import LOST_CHANCE, answers_lost, first_difference, is_answered, thought_of, whole_text
from .paired_tests import binomial_tail, losses_chance
from .verdict_types import EqualOutputs, EqualSide, FirstDifference, JudgedArms, not_measured

#: Numerical noise may cause one first difference in this many tokens.
TOLERATED_TOKENS = 30
#: First differences are counted within each of these numbers of tokens.
EARLY = (1, 2, 4, 8, 16)
#: The error rate of the gate for healthy arms, over all of EARLY together.
CHANCE = 0.01
#: Fewer prompts are not judged.
FEWEST = 4
#: A server streams token by token if it sends at least this many pieces per token.
PIECES_PER_TOKEN = 0.9

RULE = (
    f"fails when within the first {listing(list(map(str, EARLY)))} tokens more prompts differ than numerics "
    f"explain that differ once per {TOLERATED_TOKENS} tokens, over all or of one kind (binomial test, {CHANCE:.0%} in "
    "all); or "
    "when so many answers end where the baseline's goes on, or so many prompts that the baseline answers get only "
    f"reasoning, that equal arms would do so in fewer than {LOST_CHANCE:.0%} of experiments"
)


@dataclass(frozen=True)
class OutputPair:
    """Two answers to one prompt, compared. Positions count from 0, in the first answer."""

    group: str  # the prompt kind at a temperature
    prompt_id: str
    round: Any  # the round of the first answer; None if a file has none
    equal: bool
    character: int  # the first difference in characters; the length if the texts are equal
    characters: int  # the length of the longer text
    token: int  # the first difference in tokens, which is the number of equal tokens
    tokens: int  # the number of tokens of the first answer
    exact: bool  # True: ``token`` was counted in streamed pieces; False: it is estimated from the characters
    cut: bool  # one answer ends where the other continues
    answered: bool = True  # at least one of the two is an answer and not reasoning alone
    ends_early: bool = False  # the second answer ends where the first continues


def pair_outputs(requests_a: Iterable[Request], requests_b: Iterable[Request]) -> list[OutputPair]:
    """The pairs of complete answers at temperature 0 with equal round, group and prompt id; order of ``requests_b``."""
    answers_a = {_pairing_key(request): request for request in greedy(requests_a)}
    pairs = []
    for request in greedy(requests_b):
        if answer_a := answers_a.get(_pairing_key(request)):
            pairs.append(_compare_pair(answer_a, request))
    return pairs


def greedy(requests: Iterable[Request]) -> list[Request]:
    """The complete answers at temperature 0 that have a text (imported files may lack it)."""
    complete = []
    for request in requests:
        if request.get("status") == "ok" and request.get("temperature") == 0 and request.get("text", "") is not None:
            complete.append(request)
    return complete


def _pairing_key(request: Request) -> tuple[Any, str, Any]:
    """Round, group and prompt id: answers with equal keys are compared."""
    return request.get("round"), str(request.get("group")), request.get("prompt_id")


def _compare_pair(answer_a: Request, answer_b: Request) -> OutputPair:
    """The comparison of two answers, reasoning and tool calls included."""
    text_a = whole_text(answer_a)
    text_b = whole_text(answer_b)
    shorter = min(len(text_a), len(text_b))
    index = first_difference(text_a, text_b)
    reasoning_lengths = len(thought_of(answer_a)), len(thought_of(answer_b))
    # Reasoning of different lengths makes equal texts differ, at the end of the shorter reasoning.
    reasoning_ends_apart = reasoning_lengths[0] != reasoning_lengths[1] and index > min(reasoning_lengths)
    if reasoning_ends_apart:
        index = min(reasoning_lengths)
    cut = text_a != text_b and index == shorter
    token, tokens, exact = tokens_before(answer_a, index, len(text_a))
    return OutputPair(
        group=str(answer_a.get("group")),
        prompt_id=str(answer_a.get("prompt_id")),
        round=answer_a.get("round"),
        equal=text_a == text_b and not reasoning_ends_apart,
        character=index,
        characters=max(len(text_a), len(text_b)),
        token=token,
        tokens=tokens,
        exact=exact,
        cut=cut,
        answered=is_answered(answer_a) or is_answered(answer_b),
        ends_early=cut and shorter == len(text_b),
    )


def tokens_before(request: Request, index: int, length: int) -> tuple[int, int, bool]:
    """The number of tokens that end at or before character ``index``, of all tokens, and whether both are exact.

    ``length`` is that of the request's whole text in characters.

    Without speculation a streamed piece is one token. If a server sends fewer pieces than tokens, because
    it joins them under load or while it drafts, the position is estimated in proportion to the characters.
    """
    tokens = int(request.get("output_tokens") or 0)
    pieces = list(map(int, request.get("pieces") or []))
    if pieces and sum(pieces) == length and len(pieces) >= PIECES_PER_TOKEN * tokens:
        piece_ends = accumulate(pieces)  # in characters
        return sum(end <= index for end in piece_ends), max(tokens, len(pieces)), True
    if not length:
        return 0, tokens, False
    tokens = tokens or length  # without a count, a character stands for a token
    return min(tokens, tokens * index // length), tokens, False


def compare_outputs(requests_a: Iterable[Request], requests_b: Iterable[Request]) -> EqualOutputs | None:
    """How many texts at temperature 0 are equal, and where the others first differ; None without a pair.

    Positions are in characters and tokens of the first text; ``of`` is the length of the longer text. Two equal texts
    of reasoning alone count as equal. ``first_differences`` lists up to 20 differing pairs, the earliest first.
    """
    pairs = pair_outputs(requests_a, requests_b)
    if not pairs:
        return None
    differing = [pair for pair in pairs if not pair.equal]
    differing.sort(key=lambda pair: (pair.character, pair.prompt_id))
    listed: list[FirstDifference] = []
    for pair in differing[:20]:
        position = {"character": pair.character, "of": pair.characters, "token": pair.token, "of_tokens": pair.tokens}
        listed.append(cast("FirstDifference", {"prompt_id": pair.prompt_id, "round": pair.round, **position}))
    characters = _median_or_none([pair.character for pair in differing])
    return {
        "pairs": len(pairs),
        "equal": len(pairs) - len(differing),
        "share": (len(pairs) - len(differing)) / len(pairs),
        "first_difference_characters": characters,
        "first_difference_tokens": _median_or_none([pair.token for pair in differing]),
        "tokens_exact": all(pair.exact for pair in pairs),
        "first_differences": listed,
    }


def _median_or_none(places: Sequence[int]) -> float | None:
    """The median of some positions; None without any."""
    return median(places) if places else None


# --- the gate -------------------------------------------------------------------------------------


def judge_outputs(baseline: ArmResult, speculative: ArmResult) -> JudgedArms:
    """The gate `outputs` over the two arms, without its name and title (see `gates.judge_gates`).

    Prompts that only the baseline answers fail it; else fewer than `FEWEST` pairs are not measured; else the pairs
    decide (`_word_of`). A prompt counts once, by the first round in which both arms answered it. The control compares
    the baseline's first answer to a prompt with its second; if the control fails too, the outputs cannot be judged.
    """
    base = requests_of(baseline)
    spec = requests_of(speculative)
    # Prompts without an answer have nothing to compare, so their loss is judged first.
    if lost := answers_lost(base, spec):
        return {**not_measured(lost), "word": "failed"}
    pairs = _first_pairs(pair_outputs(base, spec))
    control = _first_pairs(_control_pairs(base))
    if len(pairs) < FEWEST:
        return not_measured(f"{count(len(pairs), 'prompt')} answered at temperature 0, and {FEWEST} are needed")
    word, text = _word_of(pairs, control)
    return {
        "word": word,
        "said": text,
        "baseline": _side(control),
        "speculative": _side(pairs),
        "tolerated_tokens": TOLERATED_TOKENS,
    }


def _word_of(pairs: Sequence[OutputPair], control: Sequence[OutputPair]) -> tuple[str, str]:
    """The word of the gate and its sentence; ``control`` pairs the baseline's answers with its own later ones.

    The first case that applies decides:

    - answers that differ too early between the arms and in the control: no baseline;
    - between the arms alone: failed;
    - too many answers of the speculative arm that end early: failed;
    - reasoning alone in all answers: not measured;
    - else passed.
    """
    early = _early_in_a_group(pairs)
    control_early = too_early(control)
    if early and control_early:
        return "no baseline", f"the baseline differs from itself too early to compare: {control_early}"
    if early:
        return "failed", f"{early} (the baseline against itself: {_side(control)['said']})"
    if early_ends := _early_ends_text(pairs):
        return "failed", early_ends
    text = _side(pairs)["said"]
    reasoning_only = sum(not pair.answered for pair in pairs)
    if reasoning_only == len(pairs):
        return "not measured", (
            f"no answer at temperature 0: all {count(len(pairs), 'output')} of both arms are reasoning only ({text}); "
            "raise the output length limit, or check the engine's reasoning parser"
        )
    if reasoning_only:
        text += f"; {reasoning_only} of {len(pairs)} are reasoning without an answer"
    return "passed", text


def _early_in_a_group(pairs: Sequence[OutputPair]) -> str | None:
    """The sentence of `too_early` over all prompts, else over the first group that has one; None if there is none.

    A group is tested alone because the others could hide its differences. All tests share the error rate `CHANCE`.
    """
    by_group: dict[str, list[OutputPair]] = {}
    for pair in pairs:
        by_group.setdefault(pair.group, []).append(pair)
    # A group of all pairs would be tested twice.
    tested_groups = {group: members for group, members in by_group.items() if FEWEST <= len(members) < len(pairs)}
    chance = CHANCE / (1 + len(tested_groups))
    if text := too_early(pairs, chance=chance):
        return text
    for group, members in tested_groups.items():
        if text := too_early(members, chance=chance):
            return f"on {group} {text}"
    return None


def too_early(
    pairs: Sequence[OutputPair], tolerated_tokens: int = TOLERATED_TOKENS, chance: float = CHANCE
) -> str | None:
    """A sentence if more prompts differ early than numerical noise explains, else None.

    Noise causes a first difference with probability 1 / ``tolerated_tokens`` per token. ``chance`` is the
    error rate over all of EARLY. The sentence names the limit with the lowest probability by a binomial test.
    """
    least_probable: tuple[float, int, int] | None = None  # probability, limit, differing prompts
    for limit in EARLY:
        differing = sum(not pair.equal and pair.token < limit for pair in pairs)
        p = 1.0 - (1.0 - 1.0 / tolerated_tokens) ** limit
        probability = binomial_tail(differing, len(pairs), p)
        if probability < chance / len(EARLY) and (least_probable is None or probability < least_probable[0]):
            least_probable = probability, limit, differing
    if least_probable is None:
        return None
    _, limit, differing = least_probable
    explained = (1.0 - (1.0 - 1.0 / tolerated_tokens) ** limit) * len(pairs)
    tokens = "token"
    if limit > 1:
        tokens = count(limit, "token")
    return (
        f"{differing} of {count(len(pairs), 'prompt')} get another answer at temperature 0 within the first "
        f"{tokens}, where numerics explain about {explained:.1f}"
    )


def _early_ends_text(pairs: Sequence[OutputPair]) -> str | None:
    """A sentence if too many answers of the speculative arm end where the baseline's continue, else None."""
    lost = sum(pair.ends_early for pair in pairs)
    won = sum(pair.cut and not pair.ends_early for pair in pairs)
    if losses_chance(lost, won, len(pairs)) >= CHANCE:
        return None
    return f"{lost} of {count(len(pairs), 'answer')} at temperature 0 end where the baseline's continues"


def _control_pairs(requests: Sequence[Request]) -> list[OutputPair]:
    """The pairs of an arm's first answer to a prompt with each later one, in the order of the rounds."""
    first: dict[tuple[str, Any], Request] = {}
    pairs = []
    for request in sorted(greedy(requests), key=lambda request: request.get("round") or 0):
        first_answer = first.setdefault((str(request.get("group")), request.get("prompt_id")), request)
        if request.get("round") != first_answer.get("round"):
            pairs.append(_compare_pair(first_answer, request))
    return pairs


def _first_pairs(pairs: Iterable[OutputPair]) -> list[OutputPair]:
    """One pair per prompt, that of its first round; repeats of a prompt count as one prompt."""
    by_prompt: dict[tuple[str, str], OutputPair] = {}
    for pair in sorted(pairs, key=lambda pair: pair.round or 0):
        by_prompt.setdefault((pair.group, whole_prompt(pair.prompt_id)), pair)
    return list(by_prompt.values())


def _side(pairs: Sequence[OutputPair]) -> EqualSide:
    """An arm's figures: how many answers are equal, and where the others first differ.

    For the speculative arm ``pairs`` are those between the arms, for the baseline those of the control.
    """
    differing = [pair for pair in pairs if not pair.equal]
    differing.sort(key=lambda pair: pair.token)
    earliest = []
    for pair in differing[:3]:
        earliest.append(f"{pair.prompt_id}, round {pair.round}: token {pair.token + 1} of {pair.tokens}")
    median_token = _median_or_none([pair.token for pair in differing])
    text = "not asked twice"
    if pairs:
        text = f"{len(pairs) - len(differing)} of {len(pairs)} equal"
    if median_token is not None:
        text += f", the others first differ after {median_token:.0f} tokens (median)"
    return {
        "said": text,
        "passed": len(pairs) - len(differing),
        "total": len(pairs),
        "first_difference_tokens": median_token,
        "tokens_exact": all(pair.exact for pair in pairs),
        "examples": earliest,
    }
