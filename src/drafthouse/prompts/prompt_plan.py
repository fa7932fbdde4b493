"""Which prompts a round of an experiment asks: anchors in every round, fresh prompts once. Pure.

All prompts of the declared kinds are put in one order, each kind's shuffled, the kinds in turns and each kind's
temperatures in turns, so that every part of the order has kinds and temperatures as equally as the numbers allow. The
first ones are the anchors, the others the fresh prompts of one round after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, TypedDict

#: Anchors and fresh prompts of a step, and fresh ones of a later round: where prompts are the larger part of the
#: variance, and where they are not.
ANCHORS, FRESH = 6, 10
FRESH_LATER = {"many": 20, "few": 4}
#: Prompts of each kind that is not declared.
OTHERS = 1
#: How often an article's one prompt is asked, of the times that its suite repeats it.
REPEATS = 3
#: What a gate looks at needs no clock: so many requests at once, where the server takes them.
GATES_AT_ONCE = 8
#: The rounds that share what fresh prompts there are, where these are too few.
FIRST_ROUNDS = 2


class PlannedPrompts(TypedDict):
    """How many prompts a step asks: anchors, the fresh ones of each round up to its own, of each other kind.

    ``gates_at_once``: how many of a gate's requests are under way at once.
    """

    anchors: int
    fresh: list[int]
    others: int
    gates_at_once: int


@dataclass(frozen=True)
class Asking:
    """What a step asks: the declared ``kinds`` (none: all without a gate), and how many prompts."""

    kinds: tuple[str, ...]
    anchors: int
    fresh: tuple[int, ...]
    others: int
    gates_at_once: int = 1


class TimedPrompt(NamedTuple):
    """A prompt of a declared kind, by its place in it, at the temperature it is asked at."""

    kind: str
    place: int
    temperature: float


def ordered(sizes: Mapping[str, int], temperatures: Mapping[str, Sequence[float]]) -> list[TimedPrompt]:
    """All prompts of the declared kinds in the order in which they are used; ``sizes`` are the prompts of each.

    A kind's prompts are shuffled, by its name: those that follow each other in a file are often alike.
    """
    shuffled = {}
    for kind, size in sizes.items():
        shuffled[kind] = list(range(size))
        Random(kind).shuffle(shuffled[kind])  # noqa: S311
    found = []
    for turn in range(max(sizes.values(), default=0)):
        for number, (kind, places) in enumerate(shuffled.items()):
            if turn < len(places):
                own = temperatures[kind]
                found.append(TimedPrompt(kind, places[turn], own[(turn + number) % len(own)]))
    return found


def asked_in_round(order: Sequence[TimedPrompt], asking: Asking, number: int) -> list[TimedPrompt]:
    """The prompts of round ``number`` (from 1), anchors evenly among the fresh ones, in one order for all arms."""
    anchors, rest = order[: asking.anchors], order[asking.anchors :]
    counts = fresh_counts(len(rest), asking.fresh)
    first = sum(counts[: number - 1])
    return spread(anchors, rest[first : first + counts[number - 1]])


def fresh_counts(available: int, wanted: Sequence[int]) -> list[int]:
    """How many fresh prompts each round gets of those that are there: too few are shared by the first rounds."""
    counts = list(wanted)
    if sum(counts[:FIRST_ROUNDS]) > available:
        share = available // FIRST_ROUNDS
        counts[:FIRST_ROUNDS] = [min(count, share) for count in counts[:FIRST_ROUNDS]]
    left = available
    for place, count in enumerate(counts):
        counts[place] = min(count, left)
        left -= counts[place]
    return counts


def spread(anchors: Sequence[TimedPrompt], fresh: Sequence[TimedPrompt]) -> list[TimedPrompt]:
    """The anchors at even distances among the fresh prompts."""
    found: list[TimedPrompt] = []
    used = 0
    for place, anchor in enumerate(anchors):
        until = round((place + 0.5) * len(fresh) / len(anchors))
        found += [*fresh[used:until], anchor]
        used = until
    return [*found, *fresh[used:]]
