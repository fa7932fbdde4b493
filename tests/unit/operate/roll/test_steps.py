"""What a roll does next, played through: every fleet of up to three boxes, every outcome, killed at every step."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.operate.roll import run as runner
from drafthouse.operate.roll.judge import Judged
from drafthouse.operate.roll.run import roll, status_of
from drafthouse.operate.roll.steps import Box, Move, State, Step, Word, next_move

NAMES = ("a", "b", "c")
#: What the new release turns out to be on a box: judged as such, or not served at all.
OUTCOMES = (*Word, None)


CUTS = {"none": slice(0), "all": slice(2), "the first": slice(1), "the last": slice(1, 2)}


class Killed(BaseException):
    """The roll ends here without another word."""


@dataclass
class World:
    """Boxes with no front, for which a step is a change of this. ``kill``: so many steps until the roll is killed.

    ``cut``: what of the last step's effects was there by then: all, none, or one of two. ``holds``: an undecided
    measurement ends the run that serves the new release, as it does where another serves.
    """

    boxes: dict[str, Box]
    outcomes: Mapping[str, Word | None]
    kill: int | None = None
    cut: str = "none"
    holds: bool = False
    what: str = "the new release"
    served: dict[str, str] = field(default_factory=dict)
    tested: set[str] = field(default_factory=set)
    steps: list[tuple[str, str]] = field(default_factory=list)
    most_out: int = 0
    quiet: set[str] = field(default_factory=set)

    def look(self) -> list[Box]:
        return list(self.boxes.values())

    def judged(self, box: str) -> Judged | None:
        word = self.boxes[box].word
        return Judged(word, ("as the test says",)) if word else None

    def comparable(self, box: str) -> bool:
        return True

    def wait(self) -> None:
        raise AssertionError("nothing to wait for")

    def drain(self, box: str) -> bool:
        done = self._take("drain", box, state=State.OURS)
        self.quiet.add(box)
        return done

    def put_back(self, box: str) -> bool:
        self.quiet.discard(box)
        return self._take("put back", box, state=State.READY)

    def back(self, box: str) -> bool:
        return self._take("back", box, serves_new=False)

    def change(self, box: str) -> bool:
        assert self.boxes[box].state is State.OURS, "changed while it takes requests"
        assert box in self.quiet, "changed while some still run: the drain was killed while it waited"
        word = self.outcomes[box]
        self.tested.add(box)
        served = word is not None and not (self.holds and word is Word.UNSURE)
        self._take("change", box, serves_new=served, word=word)
        return served

    def _take(self, step: str, box: str, **after: object) -> bool:
        self.steps.append((step, box))
        assert len(self.steps) < 40, self.steps
        last = self.kill is not None and len(self.steps) == self.kill
        effects = dict(list(after.items())[CUTS[self.cut]]) if last else after
        self.boxes[box] = replace(self.boxes[box], **effects)  # type: ignore[arg-type]
        self.most_out = max(self.most_out, sum(one.state is not State.READY for one in self.boxes.values()))
        if last:
            raise Killed
        return True


def ended(world: World, *, short: bool = False) -> int:
    try:
        return roll(world, lambda _: None, short=short)
    except DrafthouseError as error:
        return status_of(error)


WORLDS = [
    (size, outcomes) for size in (2, 3) for outcomes in itertools.product(OUTCOMES, repeat=size)
]  # fmt: skip


def expected(size: int, outcomes: tuple[Word | None, ...]) -> tuple[int, list[bool]]:
    """Return the status of a whole roll, and which boxes serve the new release after it."""
    good = list(itertools.takewhile(lambda word: word is Word.FINE, outcomes))
    if len(good) == size:
        return 0, [True] * size
    first = outcomes[len(good)]
    return (4 if first is Word.UNSURE else 2), [at < len(good) for at in range(size)]


@pytest.mark.parametrize(("outcome", "status"), [(Word.UNSURE, 4), (Word.WORSE, 2), (None, 2)])
def test_a_noisy_measurement_that_stops_the_run_is_no_worse_release(outcome: Word | None, status: int) -> None:
    world = World({name: Box(name, State.READY) for name in NAMES}, dict.fromkeys(NAMES, outcome), holds=True)
    assert ended(world) == status
    assert not world.tested & {"b", "c"}
    assert all(box.state is State.READY and not box.serves_new for box in world.boxes.values())


@pytest.mark.parametrize(("size", "outcomes"), WORLDS, ids=str)
def test_killed_at_every_step_it_ends_as_if_it_had_not_been(size: int, outcomes: tuple[Word | None, ...]) -> None:
    named = dict(zip(NAMES, outcomes, strict=False))
    status, new = expected(size, outcomes)

    def check(world: World) -> None:
        boxes = list(world.boxes.values())
        assert [box.serves_new for box in boxes] == new
        assert all(box.state is State.READY for box in boxes)
        assert world.most_out == 1
        # Behind the one that refused it no box was touched.
        refused = new.index(False) if False in new else size
        assert not world.tested & set(NAMES[refused + 1 : size])

    whole = World({name: Box(name, State.READY) for name in NAMES[:size]}, named)
    assert ended(whole) == status
    check(whole)
    # A second roll changes nothing; one whose release could not be served tries that again.
    again = replace(whole, steps=[])
    assert ended(again) == status
    assert again.steps == [] or None in outcomes
    for kill, cut in itertools.product(range(1, len(whole.steps) + 1), CUTS):
        world = World({name: Box(name, State.READY) for name in NAMES[:size]}, named, kill, cut)
        with pytest.raises(Killed):
            ended(world)
        world.kill = None
        assert ended(world) == status, (kill, cut, world.steps)
        check(world)


@pytest.mark.parametrize(("size", "outcomes"), WORLDS, ids=str)
def test_killed_twice(size: int, outcomes: tuple[Word | None, ...]) -> None:
    named = dict(zip(NAMES, outcomes, strict=False))
    status, new = expected(size, outcomes)
    for first, second, cut in itertools.product(range(1, 6), range(1, 6), CUTS):
        world = World({name: Box(name, State.READY) for name in NAMES[:size]}, named, first, cut)
        for kill in (second, None):
            with contextlib.suppress(Killed):
                ended(world)
            world.kill = len(world.steps) + kill if kill else None
        assert ended(world) == status
        assert [box.serves_new for box in world.boxes.values()] == new
        assert world.most_out == 1


# --- what the next step is --------------------------------------------------------------------------


def every_box(name: str) -> list[Box]:
    words = (None, *Word)
    return [Box(name, s, new, w, r) for s in State for new in (False, True) for w in words for r in (False, True)]


@pytest.mark.parametrize("short", [False, True])
def test_of_every_pair_of_boxes_no_step_takes_a_second_one_out(short: bool) -> None:
    """All 2,304 pairs: nobody is drained beside a box that the roll has out, nor, unless told, beside any that is."""
    seen = set()
    for one, two in itertools.product(every_box("a"), every_box("b")):
        move = next_move([one, two], short=short)
        seen.add(move.step)
        if move.step is Step.DRAIN:
            box, other = (one, two) if move.box == "a" else (two, one)
            assert box.state is State.READY
            assert other.state is State.READY or (short and other.state is State.OUT)
            assert box.rolled
            assert not box.refused
        if move.step in (Step.CHANGE, Step.BACK, Step.PUT_BACK):
            box = one if move.box == "a" else two
            assert box.state is State.OURS
        if move.step is Step.BACK:
            assert box.refused
        if move.step is Step.CHANGE:
            assert box.rolled
            assert not box.refused
        if move.step is Step.FINISHED:
            assert State.OURS not in (one.state, two.state)
            assert all(box.done or not box.rolled or (short and box.state is State.OUT) for box in (one, two))
    assert seen == set(Step) - ({Step.SHORT} if short else set())


@pytest.mark.parametrize(
    ("boxes", "short", "move"),
    [
        ([Box("a", State.READY)], False, Move(Step.SHORT, "a")),
        ([Box("a", State.READY)], True, Move(Step.DRAIN, "a")),
        ([Box("a", State.READY), Box("b", State.OUT)], False, Move(Step.SHORT, "a", ("b",))),
        ([Box("a", State.OUT), Box("b", State.READY)], False, Move(Step.SHORT, "a", ("a",))),
        ([Box("a", State.OUT), Box("b", State.READY)], True, Move(Step.DRAIN, "b")),
        ([Box("a", State.OURS), Box("b", State.OURS)], True, Move(Step.TWO_DRAINED, "", ("a", "b"))),
        # One of another profile serves meanwhile, and is never changed.
        ([Box("a", State.READY), Box("z", State.READY, rolled=False)], False, Move(Step.DRAIN, "a")),
        ([Box("a", State.READY), Box("z", State.OUT, rolled=False)], False, Move(Step.SHORT, "a", ("z",))),
        # What somebody drained on purpose is not put back, nor is a fleet that is done in its way.
        ([Box("a", State.OUT, True, Word.FINE), Box("b", State.READY, True, Word.FINE)], False, Move(Step.FINISHED)),
        # Left by a roll of another profile.
        ([Box("a", State.READY), Box("z", State.OURS, rolled=False)], False, Move(Step.PUT_BACK, "z")),
        # It serves the new release and nobody judged it: it is measured.
        ([Box("a", State.READY, True), Box("b", State.READY)], False, Move(Step.DRAIN, "a")),
    ],
    ids=str,
)
def test_the_next_step(boxes: list[Box], short: bool, move: Move) -> None:
    assert next_move(boxes, short=short) == move


# --- what is said -----------------------------------------------------------------------------------


def test_who_is_out_is_left_as_it_is_and_named() -> None:
    world = World(
        {"a": Box("a", State.OUT), "b": Box("b", State.READY), "c": Box("c", State.READY)},
        dict.fromkeys(NAMES, Word.FINE),
    )
    with pytest.raises(DrafthouseError) as caught:
        roll(world, lambda _: None)
    assert [problem.code for problem in caught.value.problems] == ["replica-out"]
    assert world.steps == []
    said: list[str] = []
    assert roll(world, said.append, short=True) == 1
    assert said[-1].endswith("take no requests: a")
    assert [box.serves_new for box in world.boxes.values()] == [False, True, True]


def test_a_refusal_says_which_box_and_why_and_what_was_not_touched() -> None:
    outcomes = {"a": Word.FINE, "b": Word.WORSE, "c": Word.FINE}
    world = World({name: Box(name, State.READY) for name in NAMES}, outcomes)
    with pytest.raises(DrafthouseError) as caught:
        roll(world, lambda _: None)
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == ("roll-stopped", "b")
    assert "is worse on b" in problem.found
    assert "not touched: c" in problem.found
    assert "as the test says" in problem.found


class Failing(World):
    """Steps that do not do what they should."""

    fails: str = ""

    def _take(self, step: str, box: str, **after: object) -> bool:
        if step == self.fails:
            self.steps.append((step, box))
            return False
        return super()._take(step, box, **after)

    def wait(self) -> None:
        return None


@pytest.mark.parametrize(
    ("fails", "outcome", "code", "steps"),
    [
        # Its requests did not end: it takes new ones again.
        ("drain", Word.FINE, "drain-timeout", ["drain", "put back"]),
        # It does not serve what it should: it stays out, whatever its gateway says.
        ("back", Word.WORSE, "server-not-restored", ["drain", "change", "back"]),
        ("put back", Word.FINE, "replica-out", ["drain", "change", "put back"]),
    ],
)
def test_a_step_that_fails_ends_the_roll_where_nobody_is_harmed(
    fails: str, outcome: Word, code: str, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOOKS", 2)
    world = Failing({name: Box(name, State.READY) for name in NAMES}, dict.fromkeys(NAMES, outcome))
    world.fails = fails
    with pytest.raises(DrafthouseError) as caught:
        roll(world, lambda _: None)
    assert [problem.code for problem in caught.value.problems] == [code]
    assert world.steps == [(step, "a") for step in steps]


def test_a_box_without_a_report_is_not_taken_out_for_nothing() -> None:
    class Unmeasured(World):
        def comparable(self, box: str) -> bool:
            return False

    world = Unmeasured({name: Box(name, State.READY) for name in NAMES}, dict.fromkeys(NAMES, Word.FINE))
    with pytest.raises(DrafthouseError) as caught:
        roll(world, lambda _: None)
    assert [problem.code for problem in caught.value.problems] == ["no-such-report"]
    assert world.steps == []
