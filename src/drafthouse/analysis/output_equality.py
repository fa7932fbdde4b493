"""Are the answers of two servers the same at temperature 0, token by token, and what do numerics explain.

Greedy decoding with speculation gives the same tokens in exact arithmetic. In bf16, and wherever a batch of
another shape sums in another order, two tokens of nearly the same chance may change places; from there on
the answers are two different texts. So answers are compared up to the first difference alone, and what counts is of how
many prompts it comes early: healthy arms differ once in 200 tokens or less often. What the rest of the texts is worth,
`scored_outputs.py` and `degenerate_text.py` tell, and of answers above temperature 0 `sampled_outputs.py`.

Thoughts and answers are compared apart, and where neither arm answered there is nothing equal about it.
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

#: What numerics are granted: a first difference once in so many tokens.
TOLERATED_TOKENS = 30
#: The places at which first differences are counted: within so many tokens.
EARLY = (1, 2, 4, 8, 16)
#: Healthy arms fail in fewer experiments than this, over all places together.
CHANCE = 0.01
#: On fewer prompts nothing is called equal.
FEWEST = 4
#: A server streams token by token when it sends so many pieces for each of its tokens.
PIECES_A_TOKEN = 0.9

RULE = (
    f"fails when within the first {listing(list(map(str, EARLY)))} tokens more prompts differ than numerics "
    f"explain that differ once per {TOLERATED_TOKENS} tokens, over all or of one kind (binomial test, {CHANCE:.0%} in "
    "all); or "
    "when so many answers end where the baseline's goes on, or so many prompts that the baseline answers get only "
    f"reasoning, that equal arms would do so in fewer than {LOST_CHANCE:.0%} of experiments"
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
    ends_early: bool = False
    """It is the second that ends, where the first goes on."""


def pair_outputs(one: Iterable[Request], two: Iterable[Request]) -> list[OutputPair]:
    """The pairs of whole answers at temperature 0, in the order of ``two``."""
    answers = {_key(request): request for request in greedy(one)}
    pairs = []
    for request in greedy(two):
        if first := answers.get(_key(request)):
            pairs.append(_pair(first, request))
    return pairs


def greedy(requests: Iterable[Request]) -> list[Request]:
    """The whole answers at temperature 0; other people's files may have no text of them."""
    found = []
    for request in requests:
        if request.get("status") == "ok" and request.get("temperature") == 0 and request.get("text", "") is not None:
            found.append(request)
    return found


def _key(request: Request) -> tuple[Any, str, Any]:
    return request.get("round"), str(request.get("group")), request.get("prompt_id")


def _pair(first: Request, second: Request) -> OutputPair:
    before, after = whole_text(first), whole_text(second)
    shorter = min(len(before), len(after))
    at = first_difference(before, after)
    thoughts = len(thought_of(first)), len(thought_of(second))
    # The same words as a thought and as an answer are not the same: they differ where the first begins to answer.
    split = thoughts[0] != thoughts[1] and at > min(thoughts)
    if split:
        at = min(thoughts)
    cut = before != after and at == shorter
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
        cut=cut,
        answered=is_answered(first) or is_answered(second),
        ends_early=cut and shorter == len(after),
    )


def tokens_before(request: Request, character: int, characters: int) -> tuple[int, int, bool]:
    """How many tokens of an answer end at or before a character, how many it has, and whether that is exact.

    Without speculation a streamed piece is one token. Where a server sends fewer pieces (it joins them when it
    is busy, and while it drafts), the place is taken in proportion to the characters.
    """
    tokens = int(request.get("output_tokens") or 0)
    pieces = list(map(int, request.get("pieces") or []))
    if pieces and sum(pieces) == characters and len(pieces) >= PIECES_A_TOKEN * tokens:
        return sum(end <= character for end in accumulate(pieces)), max(tokens, len(pieces)), True
    if not characters:
        return 0, tokens, False
    tokens = tokens or characters
    return min(tokens, tokens * character // characters), tokens, False


def compare_outputs(one: Iterable[Request], two: Iterable[Request]) -> EqualOutputs | None:
    """How many texts at temperature 0 are equal, and where the others first differ.

    Places are given in characters and in tokens of the first. ``first_differences`` lists the pairs that
    differ, earliest first. None where there is no pair.
    """
    pairs = pair_outputs(one, two)
    if not pairs:
        return None
    differing = sorted((pair for pair in pairs if not pair.equal), key=lambda pair: (pair.character, pair.prompt_id))
    listed: list[FirstDifference] = []
    for pair in differing[:20]:
        place = {"character": pair.character, "of": pair.characters, "token": pair.token, "of_tokens": pair.tokens}
        listed.append(cast("FirstDifference", {"prompt_id": pair.prompt_id, "round": pair.round, **place}))
    characters = _middle([pair.character for pair in differing])
    return {
        "pairs": len(pairs),
        "equal": len(pairs) - len(differing),
        "share": (len(pairs) - len(differing)) / len(pairs),
        "first_difference_characters": characters,
        "first_difference_tokens": _middle([pair.token for pair in differing]),
        "tokens_exact": all(pair.exact for pair in pairs),
        "first_differences": listed,
    }


def _middle(places: Sequence[int]) -> float | None:
    return median(places) if places else None


# --- the gate -------------------------------------------------------------------------------------


def judge_outputs(baseline: ArmResult, speculative: ArmResult) -> JudgedArms:
    """What the gate says of two arms, without its name and title: see `gates.judge_gates`.

    A prompt counts once, with the first round in which both arms answered it. The control is the baseline's first
    answer to a prompt against its second: where that fails too, nothing can be compared.
    """
    ours, theirs = requests_of(baseline), requests_of(speculative)
    if lost := answers_lost(ours, theirs):
        return {**not_measured(lost), "word": "failed"}
    pairs, control = _first_pairs(pair_outputs(ours, theirs)), _first_pairs(_asked_again(ours))
    if len(pairs) < FEWEST:
        return not_measured(f"{count(len(pairs), 'prompt')} answered at temperature 0, and {FEWEST} are needed")
    word, said = _word_of(pairs, control)
    return {
        "word": word,
        "said": said,
        "baseline": _side(control),
        "speculative": _side(pairs),
        "tolerated_tokens": TOLERATED_TOKENS,
    }


def _word_of(pairs: Sequence[OutputPair], control: Sequence[OutputPair]) -> tuple[str, str]:
    """The word of the gate and its sentence; ``control`` are the baseline's answers against its own."""
    early, own = _early_in_a_kind(pairs), too_early(control)
    if early and own:
        return "no baseline", f"the baseline differs from itself too early to compare: {own}"
    if early:
        return "failed", f"{early} (the baseline against itself: {_side(control)['said']})"
    if short := _ends_early(pairs):
        return "failed", short
    said, thoughts_alone = _side(pairs)["said"], sum(not pair.answered for pair in pairs)
    if thoughts_alone == len(pairs):
        return "not measured", (
            f"no answer at temperature 0: all {count(len(pairs), 'output')} of both arms are reasoning only ({said}); "
            "raise the output length limit, or check the engine's reasoning parser"
        )
    if thoughts_alone:
        said += f"; {thoughts_alone} of {len(pairs)} are reasoning without an answer"
    return "passed", said


def _early_in_a_kind(pairs: Sequence[OutputPair]) -> str | None:
    """What is wrong in words over all prompts, or over those of one kind, so that it does not hide among the others."""
    kinds: dict[str, list[OutputPair]] = {}
    for pair in pairs:
        kinds.setdefault(pair.group, []).append(pair)
    large = {kind: own for kind, own in kinds.items() if FEWEST <= len(own) < len(pairs)}
    chance = CHANCE / (1 + len(large))
    if found := too_early(pairs, chance=chance):
        return found
    for kind, own in large.items():
        if found := too_early(own, chance=chance):
            return f"on {kind} {found}"
    return None


def too_early(
    pairs: Sequence[OutputPair], tolerated_tokens: int = TOLERATED_TOKENS, chance: float = CHANCE
) -> str | None:
    """What is wrong in words where more prompts differ early than numerics explain, None where they do not.

    ``tolerated_tokens``: numerics may cause a first difference once in so many; ``chance`` is the error rate over all
    places. Of these the one is named that chance explains least.
    """
    worst: tuple[float, int, int] | None = None
    for place in EARLY:
        differing = sum(not pair.equal and pair.token < place for pair in pairs)
        each = 1.0 - (1.0 - 1.0 / tolerated_tokens) ** place
        probability = binomial_tail(differing, len(pairs), each)
        if probability < chance / len(EARLY) and (worst is None or probability < worst[0]):
            worst = probability, place, differing
    if worst is None:
        return None
    _, place, differing = worst
    explained = (1.0 - (1.0 - 1.0 / tolerated_tokens) ** place) * len(pairs)
    tokens = "token"
    if place > 1:
        tokens = count(place, "token")
    return (
        f"{differing} of {count(len(pairs), 'prompt')} get another answer at temperature 0 within the first "
        f"{tokens}, where numerics explain about {explained:.1f}"
    )


def _ends_early(pairs: Sequence[OutputPair]) -> str | None:
    """What is wrong in words where the speculative arm's answers end too often where the baseline's go on."""
    lost = sum(pair.ends_early for pair in pairs)
    won = sum(pair.cut and not pair.ends_early for pair in pairs)
    if losses_chance(lost, won, len(pairs)) >= CHANCE:
        return None
    return f"{lost} of {count(len(pairs), 'answer')} at temperature 0 end where the baseline's continues"


def _asked_again(requests: Sequence[Request]) -> list[OutputPair]:
    """The pairs of an arm's first and later answers to a prompt, in the order of the rounds."""
    first: dict[tuple[str, Any], Request] = {}
    pairs = []
    for request in sorted(greedy(requests), key=lambda own: own.get("round") or 0):
        known = first.setdefault((str(request.get("group")), request.get("prompt_id")), request)
        if request.get("round") != known.get("round"):
            pairs.append(_pair(known, request))
    return pairs


def _first_pairs(pairs: Iterable[OutputPair]) -> list[OutputPair]:
    """One pair for each prompt, that of its first round; the repeats of one prompt are one."""
    found: dict[tuple[str, str], OutputPair] = {}
    for pair in sorted(pairs, key=lambda own: own.round or 0):
        found.setdefault((pair.group, whole_prompt(pair.prompt_id)), pair)
    return list(found.values())


def _side(pairs: Sequence[OutputPair]) -> EqualSide:
    """One side of the gate: how many answers are equal, and where the others first differ."""
    differing = sorted((pair for pair in pairs if not pair.equal), key=lambda pair: pair.token)
    earliest = []
    for pair in differing[:3]:
        earliest.append(f"{pair.prompt_id}, round {pair.round}: token {pair.token + 1} of {pair.tokens}")
    middle = _middle([pair.token for pair in differing])
    said = "not asked twice"
    if pairs:
        said = f"{len(pairs) - len(differing)} of {len(pairs)} equal"
    if middle is not None:
        said += f", the others first differ after {middle:.0f} tokens (median)"
    return {
        "said": said,
        "passed": len(pairs) - len(differing),
        "total": len(pairs),
        "first_difference_tokens": middle,
        "tokens_exact": all(pair.exact for pair in pairs),
        "examples": earliest,
    }
