"""Does an arm's text degenerate where the baseline's does not: repeats, collapsed entropy, foreign characters.

For every answer of both arms, at every temperature, whether or not an engine can score a text. It needs no model:
what is normal is read off the baseline's answers to the *other* prompts of the same kind and temperature, and both
answers to a prompt are held against the same ones. So two arms that answer alike are called degenerate as often as
each other, also where the model itself loops, and what is judged is the difference, by exact tests.
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

#: A healthy pair of arms fails in fewer experiments than this; shared among all that is judged in one.
CHANCE = 0.01
#: A text, or a part of one, has collapsed below so much of the usual information for each byte.
COLLAPSED = 0.5
#: And is noise above so much of it: tokens drawn at random do not compress.
NOISE = 1.25
#: Of so many characters a kind that the baseline never uses makes a text a foreign one.
FOREIGN = 0.15
#: The parts of a text that are looked at by themselves, in characters.
WINDOW = 96
#: Texts below this say nothing, in characters.
SHORTEST = 16
#: A text repeats itself where a third of its stretches of so many characters stood in it before.
STRETCH, REPEATED = 24, 1 / 3
#: So many answers that repeat themselves mark what was measured with them.
MARKED = 0.25
#: And so many of the baseline's make its speed one of no real work.
WORTHLESS = 0.5
#: What is normal is told by so many answers of the baseline at least.
REFERENCES = 5

RULE = (
    "an answer is degenerate when it, or a part of it, has less than half of the information per byte of the "
    "baseline's answers to other prompts of its kind and temperature (repeats), or a quarter more (noise), or when "
    f"{FOREIGN:.0%} of its characters are of a kind that those never use; fails when so many answers degenerate in the "
    f"speculative arm and not in the baseline that equal arms would do so in fewer than {CHANCE:.0%} of experiments"
)

# Thoughts and answers are looked at apart: the one is not to hide the other.
_PARTS = ("reasoning_text", "text")
Unit = tuple[str, str, Any]
"""What is one draw: group, prompt, round; at temperature 0 the rounds of a prompt are one (round None)."""


@dataclass(frozen=True)
class Features:
    """What is measured of a text: bits of information a byte, of all of it and of its poorest part; its characters."""

    bits: float
    poorest: float
    kinds: Mapping[str, int]
    length: int


@dataclass(frozen=True)
class Normal:
    """What is normal: the medians of the baseline's answers, and every kind of character in them."""

    bits: float
    poorest: float
    kinds: frozenset[str]
    length: float


@functools.lru_cache(maxsize=20_000)
def features_of(text: str) -> Features:
    """Measure one text."""
    data = [text[start : start + WINDOW] for start in range(0, len(text), WINDOW)]
    if len(data) > 1 and len(data[-1]) < WINDOW // 2:
        data[-2:] = ["".join(data[-2:])]
    return Features(bits_per_byte(text), min(map(bits_per_byte, data)), Counter(map(kind_of, text)), len(text))


def bits_per_byte(text: str) -> float:
    """How many bits each byte of a text takes once compressed: about 5 for prose, below 1 for one character.

    Raw DEFLATE (RFC 1951): an upper bound of the entropy that knows repeats of any length up to 32 KiB.
    """
    data = text.encode("utf-8", "replace")
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return 8.0 * len(packer.compress(data) + packer.flush()) / len(data)


def repeats_itself(text: str) -> bool:
    """Whether a text says the same again and again, whatever other texts do; below four stretches never."""
    places = len(text) - STRETCH + 1
    if places < 3 * STRETCH:
        return False
    distinct = {text[at : at + STRETCH] for at in range(places)}
    return places - len(distinct) >= REPEATED * places


def answers_repeat(requests: Iterable[Request]) -> bool:
    """Whether a quarter or more of some answers repeat themselves: their drafts were accepted for that."""
    repeating, answers = repeating_of(requests)
    return answers > 0 and repeating >= MARKED * answers


def repeating_of(requests: Iterable[Request]) -> tuple[int, int]:
    """How many answers repeat themselves, and of how many."""
    repeating = answers = 0
    for request in requests:
        if request.get("status") == "ok":
            answers += 1
            repeating += any(repeats_itself(str(request.get(part) or "")) for part in _PARTS)
    return repeating, answers


@functools.cache
def kind_of(character: str) -> str:
    """What kind a character is: a letter's script, "digit", "space", and of the rest each its own."""
    category = unicodedata.category(character)
    if category[0] in "LM":
        return unicodedata.name(character, "UNNAMED").partition(" ")[0]
    if category[0] == "N":
        return "digit"
    if category[0] == "Z" or character in "\n\r\t":
        return "space"
    return character


def repeats(text: str, normal: Normal) -> str | None:
    """Where a text holds too little information beside what is normal, or None."""
    own = features_of(text)
    if own.bits < COLLAPSED * normal.bits:
        return f"repeats: {own.bits:.1f} bits a byte, {normal.bits:.1f} is normal"
    if own.poorest < COLLAPSED * normal.poorest:
        return f"repeats in a part of it: {own.poorest:.1f} bits a byte, {normal.poorest:.1f} is normal"
    return None


def strange(text: str, normal: Normal) -> str | None:
    """Why a text is noise, or in characters that are not the baseline's; None where it is neither."""
    own = features_of(text)
    foreign = {kind: n for kind, n in own.kinds.items() if kind not in normal.kinds}
    if sum(foreign.values()) > FOREIGN * len(text):
        worst = max(foreign, key=lambda kind: foreign[kind])
        return f"foreign characters: {sum(foreign.values())} of {len(text)}, most of them {worst!r}"
    # A short text compresses badly, and is no noise for that.
    if own.bits > NOISE * normal.bits and 2 * own.length > normal.length:
        return f"noise: {own.bits:.1f} bits a byte, {normal.bits:.1f} is normal"
    return None


#: Judged apart: a baseline that loops makes plain text look rich, which must not hide a text that collapses.
FAULTS = (repeats, strange)


def judge_texts(baseline: ArmResult, speculative: ArmResult) -> JudgedArms:
    """What the gate says of two arms, without its name and title: see `gates.judge_gates`."""
    ours, theirs = _answers(requests_of(baseline)), _answers(requests_of(speculative))
    judged = _trouble_of({unit: own for unit, own in ours.items() if unit in theirs}, theirs)
    if not judged:
        said = f"fewer than {REFERENCES + 1} prompts with a text: too few to know what is normal"
        return not_measured(said, "not judged")
    sides = _told(judged, 0), _told(judged, 1)
    said = f"{sides[1]['said']}, {sides[0]['total'] - sides[0]['passed']} of the baseline's"
    answer: JudgedArms = {"baseline": sides[0], "speculative": sides[1], "word": "passed", "said": said}
    together = _judged_together(judged, ours)
    for units, where in together.items():
        for fault in range(len(FAULTS)):
            lost, won = _lost_and_won(judged, units, fault)
            if losses_chance(len(lost), won, len(units)) * len(together) * len(FAULTS) < CHANCE:
                first = f"{_named(lost[0])}: {judged[lost[0]][1][fault]}"
                said = f"{len(lost)} of {count(len(units), 'answer')} {where} degenerate where the baseline's do not"
                return {**answer, "word": "failed", "said": f"{said} ({first})"}
    return answer


def _lost_and_won(
    judged: Mapping[Unit, tuple[Troubles, Troubles]], units: Iterable[Unit], fault: int
) -> tuple[list[Unit], int]:
    """The draws with a fault in the speculative arm alone, and the number of those with it in the baseline alone."""
    lost, won = [], 0
    for unit in units:
        baseline, speculative = judged[unit]
        if speculative[fault] and not baseline[fault]:
            lost.append(unit)
        elif baseline[fault] and not speculative[fault]:
            won += 1
    return lost, won


def _judged_together(judged: Iterable[Unit], answers: Mapping[Unit, _Answer]) -> dict[tuple[Unit, ...], str]:
    """What is judged together: all at a temperature, and each group; once where both are the same."""
    temperatures: dict[str, list[Unit]] = {}
    groups: dict[str, list[Unit]] = {}
    for unit in judged:
        temperatures.setdefault(f"at temperature {answers[unit].temperature:g}", []).append(unit)
        groups.setdefault(f"on {unit[0]}", []).append(unit)
    return {tuple(units): where for where, units in (*temperatures.items(), *groups.items())}


# --- the answers of an arm ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Answer:
    """One draw: its temperature, and its thoughts and answers, apart; several where its rounds are one draw."""

    temperature: float
    parts: dict[str, list[str]]


def _answers(requests: Iterable[Request]) -> dict[Unit, _Answer]:
    """The whole answers of an arm, each draw once."""
    found: dict[Unit, _Answer] = {}
    for request in requests:
        temperature = request.get("temperature")
        if request.get("status") != "ok" or not isinstance(temperature, int | float):
            continue
        group, prompt = str(request.get("group")), str(request.get("prompt_id"))
        unit: Unit = (group, prompt, request.get("round"))
        if temperature == 0:
            # A prompt's rounds, and the repeats of it, mostly say the same: one draw.
            unit = (group, whole_prompt(prompt), None)
        own = found.setdefault(unit, _Answer(float(temperature), {part: [] for part in _PARTS}))
        for part, texts in own.parts.items():
            texts.append(str(request.get(part) or ""))
    return found


Troubles = list["str | None"]
"""Why an answer has each of the `FAULTS`, None where it has not."""


def _trouble_of(
    baseline: Mapping[Unit, _Answer], speculative: Mapping[Unit, _Answer]
) -> dict[Unit, tuple[Troubles, Troubles]]:
    """Why each draw is degenerate, in the baseline and in the other arm; only of those that can be judged."""
    found: dict[Unit, tuple[Troubles, Troubles]] = {}
    for unit, own in baseline.items():
        for part in _PARTS:
            ours, theirs = own.parts[part], speculative[unit].parts[part]
            # Asked of both together, so that it does not depend on which arm said it.
            if max(map(len, (*ours, *theirs))) < SHORTEST or (normal := _normal(baseline, unit, part)) is None:
                continue
            known = found.setdefault(unit, ([None] * len(FAULTS), [None] * len(FAULTS)))
            for texts, troubles in zip((ours, theirs), known, strict=True):
                _add_troubles(troubles, texts, normal)
    return found


def _add_troubles(troubles: Troubles, texts: Sequence[str], normal: Normal) -> None:
    """For each fault that is not known yet the first of some texts that has it."""
    for place, fault in enumerate(FAULTS):
        for text in texts:
            if text and not troubles[place]:
                troubles[place] = fault(text, normal)


def _normal(baseline: Mapping[Unit, _Answer], unit: Unit, part: str) -> Normal | None:
    """What the baseline's answers to other prompts say is normal: of the group, or of all at its temperature."""
    group: list[str] = []
    every: list[str] = []
    for key, answer in baseline.items():
        if answer.temperature == baseline[unit].temperature and key[:2] != unit[:2]:
            texts = [text for text in answer.parts[part] if len(text) >= SHORTEST]
            every += texts
            if key[0] == unit[0]:
                group += texts
    chosen = every
    if len(group) >= REFERENCES:
        chosen = group
    if len(chosen) < REFERENCES:
        return None
    bits, poorest, lengths = [], [], []
    kinds: set[str] = set()
    for text in chosen:
        features = features_of(text)
        bits.append(features.bits)
        poorest.append(features.poorest)
        lengths.append(features.length)
        kinds.update(features.kinds)
    return Normal(median(bits), median(poorest), frozenset(kinds), median(lengths))


def _told(judged: Mapping[Unit, tuple[Troubles, Troubles]], side: int) -> GateSide:
    examples = []
    for unit, both in judged.items():
        troubles = list(filter(None, both[side]))
        if troubles:
            examples.append(f"{_named(unit)}: {troubles[0]}")
    return gate_side(f"{len(examples)} of {count(len(judged), 'answer')} degenerate", len(judged), examples)


def _named(unit: Unit) -> str:
    if unit[2] is None:
        return str(unit[1])
    return f"{unit[1]}, round {unit[2]}"
