"""Which step of a rolling change comes next: of what the boxes are at this moment, and of nothing remembered. Pure.

So a roll that was killed goes on where it was: a box that is done is seen to be done, and one that it left drained is
dealt with first. At most one box is drained by a roll at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """What a box is: it takes requests; this or an earlier roll has drained it; it takes none for another reason."""

    READY = "ready"
    OURS = "drained by the roll"
    OUT = "out"


class Word(Enum):
    """What is known of the new release on a box: it was measured there and judged, or could not be served."""

    FINE = "fine"
    WORSE = "worse"
    UNSURE = "unsure"


@dataclass(frozen=True)
class Box:
    """A box at this moment. ``serves_new``: it serves what is rolled out; ``word``: None where it was not measured.

    ``rolled``: whether the roll is about it at all. One of another profile is there to serve meanwhile.
    """

    name: str
    state: State
    serves_new: bool = False
    word: Word | None = None
    rolled: bool = True

    @property
    def refused(self) -> bool:
        """Tell whether the new release may not serve there."""
        return self.word in (Word.WORSE, Word.UNSURE)

    @property
    def done(self) -> bool:
        """Tell whether it serves the new release, judged. One that takes requests had its judgement when put back."""
        judged = self.word is not None if self.state is not State.OURS else self.word is Word.FINE
        return self.serves_new and judged


class Step(Enum):
    """What a roll does next. Those above STOP change a box, the others end it."""

    DRAIN = "drain"
    CHANGE = "change"  # serve the new release, and measure it
    BACK = "back"  # serve the old one again
    PUT_BACK = "put back"  # have it take requests
    STOP = "stop"  # the new release was refused on a box
    TWO_DRAINED = "two drained"
    SHORT = "short"  # another replica is out, or there is no other one
    FINISHED = "finished"


@dataclass(frozen=True)
class Move:
    """The next step, and the box that it is about; ``why`` are the boxes that stand in its way."""

    step: Step
    box: str = ""
    why: tuple[str, ...] = ()


def next_move(boxes: Sequence[Box], *, short: bool = False) -> Move:
    """Return the next step; ``boxes`` are all of the fleet, in the order in which they are changed, the canary first.

    ``short``: go on although another replica is out, which is left alone, or although there is no other one.
    """
    ours = [box for box in boxes if box.state is State.OURS]
    if len(ours) > 1:
        return Move(Step.TWO_DRAINED, why=tuple(box.name for box in ours))
    if ours:
        return Move(_of_drained(ours[0]), ours[0].name)
    for box in boxes:
        if box.done or not box.rolled:
            continue
        if box.refused:
            return Move(Step.STOP, box.name)
        if short and box.state is State.OUT:
            continue
        out = tuple(one.name for one in boxes if one.state is State.OUT)
        alone = not any(one.state is State.READY for one in boxes if one is not box)
        if (out or alone) and not short:
            return Move(Step.SHORT, box.name, out)
        return Move(Step.DRAIN, box.name)
    return Move(Step.FINISHED)


def _of_drained(box: Box) -> Step:
    """Return what a drained box needs; one that the roll is not about, or is done, is put back."""
    if box.refused:
        return Step.BACK if box.serves_new else Step.PUT_BACK
    return Step.PUT_BACK if box.done or not box.rolled else Step.CHANGE
