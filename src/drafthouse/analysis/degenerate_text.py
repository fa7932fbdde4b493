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
from .verdict_types import GateSide, JudgedArms, not_measured

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
    """Return how many bits each byte of a text takes once compressed: about 5 for prose, below 1 for one character.

    Raw DEFLATE (RFC 1951): an upper bound of the entropy that knows repeats of any length up to 32 KiB.
    """
    data = text.encode("utf-8", "replace")
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return 8.0 * len(packer.compress(data) + packer.flush()) / len(data)


@functools.cache
def kind_of(character: str) -> str:
    """Return what kind a character is: a letter's script, "digit", "space", and of the rest each its own."""
    category = unicodedata.category(character)
    if category[0] in "LM":
        return unicodedata.name(character, "UNNAMED").partition(" ")[0]
    return {"N": "digit", "Z": "space", "C": "space" if character in "\n\r\t" else character}.get(
        category[0], character
    )


def repeats(text: str, normal: Normal) -> str | None:
    """Return where a text holds too little information beside what is normal, or None."""
    own = features_of(text)
    if own.bits < COLLAPSED * normal.bits:
        return f"repeats: {own.bits:.1f} bits a byte, {normal.bits:.1f} is normal"
    if own.poorest < COLLAPSED * normal.poorest:
        return f"repeats in a part of it: {own.poorest:.1f} bits a byte, {normal.poorest:.1f} is normal"
    return None


def strange(text: str, normal: Normal) -> str | None:
    """Return why a text is noise, or in characters that are not the baseline's; None where it is neither."""
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
    """Return what the gate says of two arms, without its name and title: see `gates.judge_gates`."""
    arms = [_answers(requests_of(result)) for result in (baseline, speculative)]
    shared = [key for key in arms[0] if key in arms[1]]
    found = [{key: arm[key] for key in shared} for arm in arms]
    judged = _trouble_of(found[0], found[1])
    if not judged:
        said = f"fewer than {REFERENCES + 1} prompts with a text: too few to know what is normal"
        return not_measured(said, "not judged")
    sides = [_told(judged, place) for place in (0, 1)]
    head: JudgedArms = {"baseline": sides[0], "speculative": sides[1], "word": "passed", "said": ""}
    sets = _sets(judged, found[0])
    for units, where in sets.items():
        for fault in range(len(FAULTS)):
            lost = [unit for unit in units if judged[unit][1][fault] and not judged[unit][0][fault]]
            won = sum(bool(judged[unit][0][fault]) and not judged[unit][1][fault] for unit in units)
            if losses_chance(len(lost), won, len(units)) * len(sets) * len(FAULTS) < CHANCE:
                return {
                    **head,
                    "word": "failed",
                    "said": f"{len(lost)} of {count(len(units), 'answer')} {where} degenerate where the baseline's do "
                    f"not ({_named(lost[0])}: {judged[lost[0]][1][fault]})",
                }
    said = f"{sides[1]['said']}, {sides[0]['total'] - sides[0]['passed']} of the baseline's"
    return {**head, "word": "passed", "said": said}


def _sets(judged: Iterable[Unit], answers: Mapping[Unit, _Answer]) -> dict[tuple[Unit, ...], str]:
    """Return what is judged together: all at a temperature, and each group; once where both are the same."""
    temperatures: dict[float, list[Unit]] = {}
    groups: dict[str, list[Unit]] = {}
    for unit in judged:
        temperatures.setdefault(answers[unit].temperature, []).append(unit)
        groups.setdefault(unit[0], []).append(unit)
    named = {tuple(units): f"on {group}" for group, units in groups.items()}
    return {tuple(units): f"at temperature {value:g}" for value, units in temperatures.items()} | named


# --- the answers of an arm ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Answer:
    """One draw: its temperature, and its thoughts and answers, apart; several where its rounds are one draw."""

    temperature: float
    parts: Mapping[str, tuple[str, ...]]


def _answers(requests: Iterable[Request]) -> dict[Unit, _Answer]:
    """Return the whole answers of an arm, each draw once."""
    found: dict[Unit, _Answer] = {}
    for request in requests:
        temperature = request.get("temperature")
        if request.get("status") != "ok" or not isinstance(temperature, int | float):
            continue
        # At temperature 0 a prompt's rounds, and the repeats of it, mostly say the same: one draw.
        prompt = str(request.get("prompt_id"))
        unit = (
            (str(request.get("group")), prompt, request.get("round"))
            if temperature
            else (str(request.get("group")), whole_prompt(prompt), None)
        )
        known = found.get(unit)
        texts = {part: str(request.get(part) or "") for part in _PARTS}
        found[unit] = _Answer(
            float(temperature),
            {part: (*(known.parts[part] if known else ()), text) for part, text in texts.items()},
        )
    return found


Troubles = tuple["str | None", ...]
"""Why an answer has each of the `FAULTS`, None where it has not."""


def _trouble_of(
    baseline: Mapping[Unit, _Answer], speculative: Mapping[Unit, _Answer]
) -> dict[Unit, tuple[Troubles, Troubles]]:
    """Return why each draw is degenerate, in the baseline and in the other arm; only of those that can be judged."""
    found: dict[Unit, tuple[Troubles, Troubles]] = {}
    for unit, own in baseline.items():
        for part in _PARTS:
            ours, theirs = own.parts[part], speculative[unit].parts[part]
            # Asked of both together, so that it does not depend on which arm said it.
            if max(map(len, (*ours, *theirs))) < SHORTEST or (normal := _normal(baseline, unit, part)) is None:
                continue
            known = found.get(unit, ((None,) * len(FAULTS),) * 2)
            found[unit] = (_troubles(ours, normal, known[0]), _troubles(theirs, normal, known[1]))
    return found


def _troubles(texts: Sequence[str], normal: Normal, known: Troubles) -> Troubles:
    """Return for each fault what is known of it already, or the first of some texts that has it."""
    return tuple(
        old or next((why for text in texts if text and (why := fault(text, normal))), None)
        for fault, old in zip(FAULTS, known, strict=True)
    )


def _normal(baseline: Mapping[Unit, _Answer], unit: Unit, part: str) -> Normal | None:
    """Return what the baseline's answers to other prompts say is normal: of the group, or of all at its temperature."""
    others = [
        (key[0], text)
        for key, answer in baseline.items()
        if answer.temperature == baseline[unit].temperature and key[:2] != unit[:2]
        for text in answer.parts[part]
        if len(text) >= SHORTEST
    ]
    group = [text for name, text in others if name == unit[0]]
    chosen = group if len(group) >= REFERENCES else [text for _, text in others]
    if len(chosen) < REFERENCES:
        return None
    measured = [features_of(text) for text in chosen]
    return Normal(
        median(one.bits for one in measured),
        median(one.poorest for one in measured),
        frozenset(kind for one in measured for kind in one.kinds),
        median(one.length for one in measured),
    )


def _told(judged: Mapping[Unit, tuple[Troubles, Troubles]], side: int) -> GateSide:
    bad = [(unit, next(why for why in both[side] if why)) for unit, both in judged.items() if any(both[side])]
    return {
        "said": f"{len(bad)} of {count(len(judged), 'answer')} degenerate",
        "passed": len(judged) - len(bad),
        "total": len(judged),
        "examples": [f"{_named(unit)}: {why}" for unit, why in bad[:3]],
    }


def _named(unit: Sequence[Any]) -> str:
    return f"{unit[1]}, round {unit[2]}" if unit[2] is not None else str(unit[1])
