"""The prompts of each round of an experiment: anchors are sent in every round, fresh prompts in one round only.

A round starts the server of each arm anew and sends both arms the same prompts. The repeated anchors show how much the
speed varies between server starts.

A profile declares the kinds of prompts that the verdict is about. Their prompts are put in one order: each kind is
shuffled, then kinds and temperatures alternate, so that every part of the order has them in nearly equal numbers.
The first prompts are the anchors; the next ones are the fresh prompts of round 1, then of round 2, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, TypedDict

#: Default number of anchors.
ANCHORS = 6
#: Default number of fresh prompts of each of the first rounds.
FRESH = 10
#: Fresh prompts of a later round: "many" if most of the variance is between prompts, else "few".
FRESH_LATER = {"many": 20, "few": 4}
#: Prompts of each kind that is not declared.
OTHERS = 1
#: Requests for a prompt that its suite repeats (`articles` has one prompt ten times).
REPEATS = 3
#: Concurrent requests for prompts that only a gate (a check of the answers) needs: their speed is not measured.
GATES_AT_ONCE = 8
#: If there are too few fresh prompts for all rounds, these first rounds share them.
FIRST_ROUNDS = 2


class PlannedPrompts(TypedDict):
    """Numbers of prompts of a step (one server start of an arm)."""

    anchors: int  # prompts that every round sends
    fresh: list[int]  # fresh prompts of each round, up to the step's own
    others: int  # prompts of each kind that is not declared
    gates_at_once: int  # concurrent requests for prompts that only a gate checks


@dataclass(frozen=True)
class Asking:
    """The `PlannedPrompts` of a step, with the declared kinds."""

    kinds: tuple[str, ...]  # the declared kinds; empty: all kinds without a gate
    anchors: int  # this and the next fields as in `PlannedPrompts`
    fresh: tuple[int, ...]
    others: int
    gates_at_once: int = 1


class TimedPrompt(NamedTuple):
    """A prompt of a declared kind, with the temperature of its request."""

    kind: str
    place: int  # index in the kind
    temperature: float


def prompt_order(sizes: Mapping[str, int], temperatures: Mapping[str, Sequence[float]]) -> list[TimedPrompt]:
    """All prompts of the declared kinds in the order that the module's docstring describes.

    ``sizes``: number of prompts by kind; ``temperatures``: those at which the prompts of a kind are sent in turn.
    Neighbours in a file are often alike, hence the shuffle; its seed is the kind's name.
    """
    indexes_by_kind = {}
    for kind, size in sizes.items():
        indexes_by_kind[kind] = list(range(size))
        Random(kind).shuffle(indexes_by_kind[kind])  # noqa: S311
    prompts = []
    for turn in range(max(sizes.values(), default=0)):
        for kind_number, (kind, indexes) in enumerate(indexes_by_kind.items()):
            if turn < len(indexes):
                choices = temperatures[kind]
                prompts.append(TimedPrompt(kind, indexes[turn], choices[(turn + kind_number) % len(choices)]))
    return prompts


def round_prompts(order: Sequence[TimedPrompt], asking: Asking, number: int) -> list[TimedPrompt]:
    """The prompts of round ``number`` (from 1): its fresh prompts with the anchors evenly among them.

    ``order``: all prompts, from `prompt_order`.
    """
    anchors = order[: asking.anchors]
    fresh = order[asking.anchors :]
    counts = fresh_counts(len(fresh), asking.fresh)
    start = sum(counts[: number - 1])
    return spread(anchors, fresh[start : start + counts[number - 1]])


def fresh_counts(available: int, wanted: Sequence[int]) -> list[int]:
    """Numbers of fresh prompts by round: ``wanted`` while the prompts last; too few are shared by the first rounds."""
    counts = list(wanted)
    # The first rounds always take place, so they share the prompts; later rounds get what is left.
    if sum(counts[:FIRST_ROUNDS]) > available:
        share = available // FIRST_ROUNDS
        counts[:FIRST_ROUNDS] = [min(count, share) for count in counts[:FIRST_ROUNDS]]
    left = available
    for index, count in enumerate(counts):
        counts[index] = min(count, left)
        left -= counts[index]
    return counts


def spread(anchors: Sequence[TimedPrompt], fresh: Sequence[TimedPrompt]) -> list[TimedPrompt]:
    """The fresh prompts with the anchors between them at even distances."""
    prompts: list[TimedPrompt] = []
    start = 0  # index of the first fresh prompt before the next anchor, which is in the middle of its share
    for anchor_number, anchor in enumerate(anchors):
        end = round((anchor_number + 0.5) * len(fresh) / len(anchors))
        prompts += [*fresh[start:end], anchor]
        start = end
    return [*prompts, *fresh[start:]]
