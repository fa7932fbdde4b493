"""A rolling change, step after step, until it is through or a box refuses the new release.

What is done to a box is a `Fleet`'s; what comes next is `steps`'; what is said of it is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.exit_codes import CANNOT_SAY, DONE, FAILED, WARNED
from .judge import Judged
from .steps import Box, Move, State, Step, Word, next_move

#: How often a box that was put back is asked whether it takes requests, before it counts as out.
LOOKS = 12
Tell = Callable[[str], object]


class Fleet(Protocol):
    """Boxes with a front. Each method returns when what it says is done; False where it could not be."""

    what: str

    def look(self) -> list[Box]:
        """Return every box as it is now, the canary first; those with a report of the new release have its word."""

    def judged(self, box: str) -> Judged | None:
        """Return the judgement of the new release on a box, None where it was not measured there."""

    def comparable(self, box: str) -> bool:
        """Tell whether the box has a report from before the change."""

    def drain(self, box: str) -> bool:
        """Have a box take no more requests, and wait for those that run."""

    def change(self, box: str) -> bool:
        """Serve the new release on a box, and measure it."""

    def back(self, box: str) -> bool:
        """Serve again what a box served before."""

    def put_back(self, box: str) -> bool:
        """Have a box take requests again."""

    def wait(self) -> None:
        """Let a moment pass."""


def roll(fleet: Fleet, tell: Tell, *, short: bool = False) -> int:
    """Roll out; return the exit status. Raises DrafthouseError where it cannot begin or go on."""
    unserved: dict[str, Judged] = {}
    drained: set[str] = set()
    changed = ""
    while True:
        seen = fleet.look()
        if changed:
            _tell_judged(fleet, changed, tell, unserved)
        boxes = [_with_word(box, unserved) for box in seen]
        move = next_move(boxes, short=short)
        if move.step is Step.FINISHED:
            return _finished(fleet, boxes, tell)
        if move.step is Step.STOP:
            judged = unserved.get(move.box) or fleet.judged(move.box)
            raise DrafthouseError(_refusal(fleet, move.box, boxes, judged))
        if move.step in (Step.SHORT, Step.TWO_DRAINED):
            raise DrafthouseError(_short(move))
        if move.step is Step.CHANGE and move.box not in drained:
            # Left by a roll that was killed, maybe while it waited: its requests may still run.
            _drain(fleet, move.box, tell)
        drained.add(move.box)
        _take(fleet, move, tell, unserved)
        changed = move.box if move.step is Step.CHANGE else ""


def _with_word(box: Box, unserved: Mapping[str, Judged]) -> Box:
    return replace(box, word=unserved[box.name].word) if box.name in unserved else box


def _take(fleet: Fleet, move: Move, tell: Tell, unserved: dict[str, Judged]) -> None:
    """Take one step. Raises DrafthouseError where nobody but a person can go on."""
    box = move.box
    if move.step is Step.DRAIN:
        if not fleet.comparable(box):
            raise one_problem(
                "no-such-report",
                f"no report of what {box} serves",
                "a report from before the change on every box, as the reference",
                "measure the fleet as it is: drafthouse fleet up",
                box,
            )
        _drain(fleet, box, tell)
    elif move.step is Step.CHANGE:
        tell(f"\n{box}: serving and measuring {fleet.what}")
        if not fleet.change(box):
            unserved[box] = Judged(Word.WORSE, (f"{fleet.what} is not served; the run above says why",))
    elif move.step is Step.BACK:
        tell(f"\n{box}: restoring the previous server")
        if not fleet.back(box):
            raise one_problem(
                "server-not-restored",
                f"{box} does not serve what it served before",
                "the previous server, before it takes requests again",
                f"read the run above. The box stays drained; once it serves: drafthouse fleet undrain {box}",
                box,
            )
    elif move.step is Step.PUT_BACK:
        tell(f"\n{box}: putting it back into traffic")
        if not (fleet.put_back(box) and _takes_requests(fleet, box)):
            do = "drafthouse fleet status says why; run again once it is ready"
            raise one_problem(
                "replica-out", f"{box} is back in traffic but takes no requests", "a replica that does", do, box
            )


def _drain(fleet: Fleet, box: str, tell: Tell) -> None:
    """Have a box take no more requests. Raises DrafthouseError where some still run in the end; it takes them again."""
    tell(f"\n{box}: taking it out of traffic")
    if not fleet.drain(box):
        fleet.put_back(box)
        do = "wait until its requests end, or allow more time: drain_s in drafthouse_fleet"
        raise one_problem("drain-timeout", f"{box} is not drained", "a box with no requests", do, box)


def _tell_judged(fleet: Fleet, box: str, tell: Tell, unserved: dict[str, Judged]) -> None:
    """Say what came of a change; one that left nothing to judge counts as undecided."""
    judged = fleet.judged(box)
    if box in unserved:
        if judged is not None and judged.word is Word.UNSURE:
            unserved[box] = judged  # not served since its measurement says nothing, and not since it is worse
        return
    if judged is None:
        unserved[box] = Judged(Word.UNSURE, ("the run left no valid report",))
        return
    tell(f"\n{box}: {judged.word.value}\n" + "\n".join(f"  - {said}" for said in (*judged.why, *judged.notes)))


def _takes_requests(fleet: Fleet, name: str) -> bool:
    for _ in range(LOOKS):
        if any(box.name == name and box.state is State.READY for box in fleet.look()):
            return True
        fleet.wait()
    return False


def _finished(fleet: Fleet, boxes: Sequence[Box], tell: Tell) -> int:
    left = [box.name for box in boxes if box.rolled and not box.done]
    done = [box.name for box in boxes if box.rolled and box.done]
    tell(f"\n{fleet.what} serves on {', '.join(done) or 'no box'}")
    if left:
        tell(f"not changed, because they take no requests: {', '.join(left)}")
    return WARNED if left else DONE


def _refusal(fleet: Fleet, name: str, boxes: Sequence[Box], judged: Judged | None) -> Problem:
    why = judged.why if judged else ("its last judgement",)
    rest = [box.name for box in boxes if box.rolled and not box.done and box.name != name]
    untouched = f"; not touched: {', '.join(rest)}" if rest else ""
    unsure = judged is not None and judged.word is Word.UNSURE
    return Problem(
        "roll-undecided" if unsure else "roll-stopped",
        f"{fleet.what} {'cannot be judged' if unsure else 'is worse'} on {name}, which is back on its previous server"
        f"{untouched}\n" + "\n".join(f"  - {said}" for said in why),
        "a box that is no worse than before, and not behind its peers",
        "drafthouse reports lists both reports, drafthouse compare A B shows them; correct the profile, or the box if"
        " its peers take the change, and run again (--again measures again)",
        name,
    )


def _short(move: Move) -> Problem:
    if move.step is Step.TWO_DRAINED:
        do = "put back those that need no work: drafthouse fleet undrain HOST"
        names = ", ".join(move.why)
        return Problem("replica-out", f"several boxes are drained: {names}", "one at a time", do, names)
    if not move.why:
        return Problem(
            "replica-out",
            f"no other replica takes requests while {move.box} is changed",
            "another replica in traffic",
            "add a box to the fleet, or add --short: then nothing serves during the change",
            move.box,
        )
    return Problem(
        "replica-out",
        f"{', '.join(move.why)} takes no requests, and {move.box} would be drained too",
        "every other replica in traffic while one is changed",
        "put it back (drafthouse fleet status says why it is out), or add --short to leave it out",
        ", ".join(move.why),
    )


def status_of(error: DrafthouseError) -> int:
    """Return the exit status of a roll that ended with ``error``."""
    return CANNOT_SAY if any(problem.code == "roll-undecided" for problem in error.problems) else FAILED
