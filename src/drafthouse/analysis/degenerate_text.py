"""Finds text that degenerates in the speculative arm and not in the baseline: repeats, noise, foreign characters.

All answers of both arms are checked, at every temperature. No model is needed: what is normal is measured on the
baseline's answers to *other* prompts of the same kind and temperature, and both answers to a prompt are compared with
the same references. So a model that loops by itself loops in both arms, and exact tests judge only the difference.
"""

from __future__ import annotations

import functools
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..bench.result_types import ArmResult, Request
from ..bench.samples import requests_of, whole_prompt
from ..core.format import count
from .paired_tests import losses_chance
from .verdict_types import GateSide, JudgedArms, gate_side, not_measured

#: The error rate of the gate for equal arms, shared by all tests of an experiment.
CHANCE = 0.01
#: A text or a part of it repeats if it has less than this fraction of the normal bits per byte.
COLLAPSED = 0.5
#: A text is noise above this multiple of the normal bits per byte: random tokens do not compress.
NOISE = 1.25
#: A text is foreign if more than this fraction of its characters is of classes that the references never use.
FOREIGN = 0.15
#: Length of the parts that are also measured singly, in characters.
PART_CHARACTERS = 96
#: Shorter texts are not judged, in characters.
LEAST_CHARACTERS = 16
#: A text repeats itself if the fraction REPEATED of its spans of SPAN characters occurred earlier in it.
SPAN = 24
REPEATED = 1 / 3
#: If this fraction of a category's answers repeat themselves, reports mark its acceptance.
MARKED_SHARE = 0.25
#: If this fraction of the baseline's answers repeat themselves, its speed is not that of real work.
WORTHLESS_SHARE = 0.5
#: The fewest answers of the baseline that define what is normal.
LEAST_REFERENCES = 5

RULE = (
    "an answer is degenerate when it, or a part of it, has less than half of the information per byte of the "
    "baseline's answers to other prompts of its kind and temperature (repeats), or a quarter more (noise), or when "
    f"{FOREIGN:.0%} of its characters are of a kind that those never use; fails when so many answers degenerate in the "
    f"speculative arm and not in the baseline that equal arms would do so in fewer than {CHANCE:.0%} of experiments"
)

# Reasoning and answer are measured separately, so that neither hides a fault of the other.
_TEXT_KEYS = ("reasoning_text", "text")
Draw = tuple[str, str, Any]
"""What is judged once: (group, prompt id, round). At temperature 0 all rounds of a prompt are one draw, round None."""


@dataclass(frozen=True)
class Features:
    """What is measured on a text."""

    bits: float  # bits per byte over all of it, see `bits_per_byte`
    poorest: float  # bits per byte in the part with the fewest
    classes: Mapping[str, int]  # number of characters by class, see `character_class`
    length: int  # in characters


@dataclass(frozen=True)
class Normal:
    """What is normal for an answer: the `Features` of the references, the baseline's answers to other prompts."""

    bits: float  # median
    poorest: float  # median
    classes: frozenset[str]  # the classes of all characters that occur in them
    length: float  # median, in characters


@functools.lru_cache(maxsize=20_000)
def features_of(text: str) -> Features:
    """The measures of a text; parts have `PART_CHARACTERS`, and a short last part joins the one before."""
    parts = [text[start : start + PART_CHARACTERS] for start in range(0, len(text), PART_CHARACTERS)]
    if len(parts) > 1 and len(parts[-1]) < PART_CHARACTERS // 2:
        parts[-2:] = ["".join(parts[-2:])]
    return Features(
        bits=bits_per_byte(text),
        poorest=min(map(bits_per_byte, parts)),
        classes=Counter(map(character_class, text)),
        length=len(text),
    )


def bits_per_byte(text: str) -> float:
    """The size of a compressed text, not empty, in bits per byte: about 5 for prose, below 1 for a repeated character.

    Raw DEFLATE (RFC 1951) gives an upper bound of the entropy that covers repeats of any length up to 32 KiB.
    """
    data = text.encode("utf-8", "replace")
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return 8.0 * len(compressor.compress(data) + compressor.flush()) / len(data)


def repeats_itself(text: str) -> bool:
    """True if a third of the spans of a text occurred earlier in it; False for texts below four spans."""
    spans = len(text) - SPAN + 1
    if spans < 3 * SPAN:
        return False
    distinct = {text[start : start + SPAN] for start in range(spans)}
    return spans - len(distinct) >= REPEATED * spans


def answers_repeat(requests: Iterable[Request]) -> bool:
    """True if at least a quarter of the answers repeat themselves, which makes their drafts easy to accept."""
    repeating, answers = repeating_of(requests)
    return answers > 0 and repeating >= MARKED_SHARE * answers


def repeating_of(requests: Iterable[Request]) -> tuple[int, int]:
    """The number of complete answers that repeat themselves, and the number of complete answers."""
    repeating = answers = 0
    for request in requests:
        if request.get("status") == "ok":
            answers += 1
            repeating += any(repeats_itself(str(request.get(part) or "")) for part in _TEXT_KEYS)
    return repeating, answers


@functools.cache
def character_class(character: str) -> str:
    """The class of a character: the script of a letter ("LATIN"), "digit", "space", or else the character itself."""
    category = unicodedata.category(character)
    if category[0] in "LM":
        return unicodedata.name(character, "UNNAMED").partition(" ")[0]
    if category[0] == "N":
        return "digit"
    if category[0] == "Z" or character in "\n\r\t":
        return "space"
    return character


def repeats(text: str, normal: Normal) -> str | None:
    """Why a text repeats: too few bits per byte, in all or in a part of it; None if it does not."""
    features = features_of(text)
    if features.bits < COLLAPSED * normal.bits:
        return f"repeats: {features.bits:.1f} bits a byte, {normal.bits:.1f} is normal"
    if features.poorest < COLLAPSED * normal.poorest:
        return f"repeats in a part of it: {features.poorest:.1f} bits a byte, {normal.poorest:.1f} is normal"
    return None


def strange(text: str, normal: Normal) -> str | None:
    """Why a text is foreign or noise; None if it is neither."""
    features = features_of(text)
    foreign = {name: n for name, n in features.classes.items() if name not in normal.classes}
    if sum(foreign.values()) > FOREIGN * len(text):
        most_frequent = max(foreign, key=lambda name: foreign[name])
        return f"foreign characters: {sum(foreign.values())} of {len(text)}, most of them {most_frequent!r}"
    # Short texts compress badly without being noise.
    if features.bits > NOISE * normal.bits and 2 * features.length > normal.length:
        return f"noise: {features.bits:.1f} bits a byte, {normal.bits:.1f} is normal"
    return None


#: The checks of a text, each tested separately: beside a baseline that loops, plain text counts as noise, which must
#: not hide a text that repeats.
FAULTS = (repeats, strange)


def judge_texts(baseline: ArmResult, speculative: ArmResult) -> JudgedArms:
    """The gate `texts` over the two arms, without its name and title (see `gates.judge_gates`).

    Not measured without a draw that can be judged; failed by the first set of draws and fault in which the losses are
    significant; else passed.
    """
    base = _texts_by_draw(requests_of(baseline))
    spec = _texts_by_draw(requests_of(speculative))
    judged = _faults_by_draw({draw: texts for draw, texts in base.items() if draw in spec}, spec)
    if not judged:
        text = f"fewer than {LEAST_REFERENCES + 1} prompts with a text: too few to know what is normal"
        return not_measured(text, "not judged")
    base_side = _side(judged, 0)
    spec_side = _side(judged, 1)
    text = f"{spec_side['said']}, {base_side['total'] - base_side['passed']} of the baseline's"
    result: JudgedArms = {"baseline": base_side, "speculative": spec_side, "word": "passed", "said": text}
    tested_sets = _tested_sets(judged, base)
    for draws, label in tested_sets.items():
        for index in range(len(FAULTS)):
            lost, won = _lost_and_won(judged, draws, index)
            # All tests share the error rate (Bonferroni).
            if losses_chance(len(lost), won, len(draws)) * len(tested_sets) * len(FAULTS) < CHANCE:
                _, spec_faults = judged[lost[0]]
                example = f"{_draw_text(lost[0])}: {spec_faults[index]}"
                text = f"{len(lost)} of {count(len(draws), 'answer')} {label} degenerate where the baseline's do not"
                return {**result, "word": "failed", "said": f"{text} ({example})"}
    return result


def _lost_and_won(
    judged: Mapping[Draw, tuple[Faults, Faults]], draws: Iterable[Draw], index: int
) -> tuple[list[Draw], int]:
    """The draws with fault ``index`` in the speculative arm alone, and the number with it in the baseline alone."""
    lost = []
    won = 0
    for draw in draws:
        baseline, speculative = judged[draw]
        if speculative[index] and not baseline[index]:
            lost.append(draw)
        elif baseline[index] and not speculative[index]:
            won += 1
    return lost, won


def _tested_sets(judged: Iterable[Draw], answers: Mapping[Draw, _DrawnTexts]) -> dict[tuple[Draw, ...], str]:
    """The sets of draws to test, with a label: all at one temperature, and each group. Equal sets have the group's."""
    temperatures: dict[str, list[Draw]] = {}
    groups: dict[str, list[Draw]] = {}
    for draw in judged:
        temperatures.setdefault(f"at temperature {answers[draw].temperature:g}", []).append(draw)
        groups.setdefault(f"on {draw[0]}", []).append(draw)
    return {tuple(draws): label for label, draws in (*temperatures.items(), *groups.items())}


# --- the answers of an arm ------------------------------------------------------------------------


@dataclass(frozen=True)
class _DrawnTexts:
    """The answers of one arm to a draw."""

    temperature: float
    parts: dict[str, list[str]]  # by key (reasoning, answer), the texts; several at temperature 0, one for each round


def _texts_by_draw(requests: Iterable[Request]) -> dict[Draw, _DrawnTexts]:
    """The complete answers of an arm by draw."""
    by_draw: dict[Draw, _DrawnTexts] = {}
    for request in requests:
        temperature = request.get("temperature")
        if request.get("status") != "ok" or not isinstance(temperature, int | float):
            continue
        group = str(request.get("group"))
        prompt = str(request.get("prompt_id"))
        draw: Draw = (group, prompt, request.get("round"))
        if temperature == 0:
            # Greedy answers to one prompt are mostly equal: its rounds and repeats are one draw.
            draw = (group, whole_prompt(prompt), None)
        drawn = by_draw.setdefault(draw, _DrawnTexts(float(temperature), {key: [] for key in _TEXT_KEYS}))
        for key, texts in drawn.parts.items():
            texts.append(str(request.get(key) or ""))
    return by_draw


Faults = list["str | None"]
"""The finding of each of the `FAULTS` in a draw of one arm, None where it has none."""


def _faults_by_draw(
    baseline: Mapping[Draw, _DrawnTexts], speculative: Mapping[Draw, _DrawnTexts]
) -> dict[Draw, tuple[Faults, Faults]]:
    """By draw, the faults in the baseline and in the speculative arm.

    Draws whose texts are all too short, or that have too few references, cannot be judged and are missing.
    """
    faults: dict[Draw, tuple[Faults, Faults]] = {}
    for draw, drawn in baseline.items():
        for key in _TEXT_KEYS:
            base = drawn.parts[key]
            spec = speculative[draw].parts[key]
            # One condition over both arms, so that it does not favour either.
            if max(map(len, (*base, *spec))) < LEAST_CHARACTERS:
                continue
            normal = _normal_for(baseline, draw, key)
            if normal is None:
                continue
            both_arms = faults.setdefault(draw, ([None] * len(FAULTS), [None] * len(FAULTS)))
            for texts, arm_faults in zip((base, spec), both_arms, strict=True):
                _add_faults(arm_faults, texts, normal)
    return faults


def _add_faults(faults: Faults, texts: Sequence[str], normal: Normal) -> None:
    """Set each fault that is still None to its first finding in ``texts``."""
    for index, check in enumerate(FAULTS):
        for text in texts:
            if text and not faults[index]:
                faults[index] = check(text, normal)


def _normal_for(baseline: Mapping[Draw, _DrawnTexts], draw: Draw, key: str) -> Normal | None:
    """What is normal for a draw, from the baseline's answers to other prompts.

    They are those of the draw's group, or if these are fewer than `LEAST_REFERENCES`, all at its temperature; None if
    even those are fewer. ``key`` says whether reasoning or answers are compared.
    """
    group_texts: list[str] = []
    all_texts: list[str] = []
    for other_draw, drawn in baseline.items():
        # Other rounds of the prompt are no references: where they loop as well, looping would count as normal.
        if drawn.temperature == baseline[draw].temperature and other_draw[:2] != draw[:2]:
            texts = [text for text in drawn.parts[key] if len(text) >= LEAST_CHARACTERS]
            all_texts += texts
            if other_draw[0] == draw[0]:
                group_texts += texts
    references = all_texts
    if len(group_texts) >= LEAST_REFERENCES:
        references = group_texts
    if len(references) < LEAST_REFERENCES:
        return None
    bits: list[float] = []
    poorest: list[float] = []
    lengths: list[int] = []
    classes: set[str] = set()
    for text in references:
        features = features_of(text)
        bits.append(features.bits)
        poorest.append(features.poorest)
        lengths.append(features.length)
        classes.update(features.classes)
    return Normal(bits=median(bits), poorest=median(poorest), classes=frozenset(classes), length=median(lengths))


def _side(judged: Mapping[Draw, tuple[Faults, Faults]], arm_index: int) -> GateSide:
    """One arm's figures at the gate; ``arm_index`` is 0 for the baseline, 1 for the speculative arm."""
    examples = []
    for draw, both_arms in judged.items():
        faults = list(filter(None, both_arms[arm_index]))
        if faults:
            examples.append(f"{_draw_text(draw)}: {faults[0]}")
    return gate_side(f"{len(examples)} of {count(len(judged), 'answer')} degenerate", len(judged), examples)


def _draw_text(draw: Draw) -> str:
    """A draw as part of a sentence: the prompt id, and the round if it is of one round."""
    _, prompt_id, round_number = draw
    if round_number is None:
        return prompt_id
    return f"{prompt_id}, round {round_number}"
