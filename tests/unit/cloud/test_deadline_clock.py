"""What time it is, says the provider: a box's watch after restarts, under wrong clocks, and when nobody answers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.support.deadline_box import DEADLINE, HOUR, Box, loaded, written

DAY = 86400.0
WRONG = pytest.mark.parametrize("wrong", [-DAY, -1800.0, 0.0, 1800.0, DAY])


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return loaded(written(tmp_path_factory.mktemp("program")))


class Told(Box):
    """A box whose provider answers with the right time: it was rented for an hour, at ``begun``."""

    begun = DEADLINE - HOUR

    def __init__(self, code: ModuleType, folder: Path, wrong: float = 0.0) -> None:
        super().__init__(code, folder)
        self.right = self.begun  # the provider's clock
        self.now["wall"] = self.right + wrong
        self.provider = lambda: (self.right, self.begun)

    def passes(self, seconds: float, wall: float | None = None) -> None:
        super().passes(seconds, wall)
        self.right += seconds

    def machine_restarts(self, away: float, wrong: float = 0.0) -> None:
        super().machine_restarts(away)
        self.right += away
        self.now["wall"] = self.right + wrong

    def silent(self) -> None:
        self.provider = lambda: None

    def answers_again(self, start: float | None = None) -> None:
        self.provider = lambda: (self.right, start)


@WRONG
def test_the_time_before_its_first_start_counts(code: ModuleType, tmp_path: Path, wrong: float) -> None:
    """Its image was fetched for twenty minutes: the bill runs since before the box did."""
    box = Told(code, tmp_path, wrong)
    box.passes(1200)
    box.rented()
    box.once()
    assert box.left == pytest.approx(HOUR - 1200)


@WRONG
def test_a_key_that_may_not_read_the_instance_still_hears_the_time(
    code: ModuleType, tmp_path: Path, wrong: float
) -> None:
    box = Told(code, tmp_path, wrong)
    box.answers_again(start=None)
    box.passes(1200)
    box.rented()
    box.once()
    assert box.left == pytest.approx(HOUR - 1200)


@WRONG
@pytest.mark.parametrize("by", ["start script", "playbook"])
def test_a_restart_of_the_machine_under_a_wrong_clock(code: ModuleType, tmp_path: Path, wrong: float, by: str) -> None:
    box = Told(code, tmp_path)
    box.rented() if by == "start script" else box.order()
    box.once()
    box.passes(600)
    box.once()
    box.machine_restarts(900, wrong)
    box.once()
    assert box.left == pytest.approx(HOUR - 1500)
    assert box.asked == []
    box.passes(HOUR - 1500)
    box.once()
    assert box.asked == ["DELETE"]


def test_a_start_that_the_provider_moves_does_not_lengthen_it(code: ModuleType, tmp_path: Path) -> None:
    """It is stopped and started: should `start_date` be another one by then, what was found first stays."""
    box = Told(code, tmp_path)
    box.rented()
    box.once()
    box.machine_restarts(1800)
    box.answers_again(start=box.right)
    box.once()
    assert box.left == pytest.approx(HOUR - 1800)


def test_a_container_that_is_made_anew_knows_by_its_start_script(code: ModuleType, tmp_path: Path) -> None:
    box = Told(code, tmp_path, wrong=DAY)
    box.passes(2 * HOUR)  # recycled long after its time: nothing of the folder is left
    box.rented()
    box.once()
    assert box.asked == ["DELETE"]


def test_a_stopped_box_that_is_started_too_late_ends_at_once(code: ModuleType, tmp_path: Path) -> None:
    box = Told(code, tmp_path)
    box.rented()
    box.once()
    box.passes(2 * HOUR)  # the container was stopped, its machine was not
    box.watch = code.Watch(str(tmp_path))
    box.once()
    assert box.asked == ["DELETE"]


def test_before_it_ends_on_the_word_of_a_wall_clock_it_asks(code: ModuleType, tmp_path: Path) -> None:
    box = Told(code, tmp_path)
    box.order()
    box.once()
    box.silent()
    box.machine_restarts(60, wrong=DAY)
    box.always = 500
    box.once()
    assert box.asked == ["DELETE"], "nobody answers: the wall clock is all there is"
    box.answers_again()
    assert box.once() == 10
    assert box.asked == ["DELETE"]
    assert box.left == pytest.approx(HOUR - 60)
    assert box.journal[-1] == "3540 s are left by the provider's clock"


def test_a_provider_that_is_silent_at_first_is_asked_again(code: ModuleType, tmp_path: Path) -> None:
    asked = []
    box = Told(code, tmp_path, wrong=DAY)
    box.provider = lambda: asked.append(box.now["up"])
    box.passes(1200)
    box.rented()
    for _ in range(60):
        box.once()
        box.passes(10)
    assert len(asked) == 2, "every five minutes, and no box asks more often"
    assert box.left == pytest.approx(HOUR - 590)
    box.answers_again(start=box.begun)
    box.once()
    assert box.left == pytest.approx(HOUR - 1800)
    box.provider = lambda: pytest.fail("it is asked once in a machine's life")
    box.passes(1000)
    box.once()


@pytest.mark.parametrize(
    ("date", "data", "says"),
    [
        ("Mon, 23 Nov 2026 07:00:00 GMT", {"instances": {"start_date": 1795417200.5}}, (1795417200.0, 1795417200.5)),
        ("Mon, 23 Nov 2026 07:00:00 GMT", {"instances": None}, (1795417200.0, None)),
        ("Mon, 23 Nov 2026 07:00:00 GMT", {"instances": {"start_date": "x"}}, (1795417200.0, None)),
        ("Mon, 23 Nov 2026 07:00:00 GMT", {}, (1795417200.0, None)),
        ("yesterday", {}, None),
        (None, {}, None),
    ],
)
def test_what_an_answer_says(
    code: ModuleType, monkeypatch: pytest.MonkeyPatch, date: str | None, data: object, says: object
) -> None:
    monkeypatch.setattr(code, "send", lambda *words: (200, data, date))
    assert code.provider_time("https://console.vast.ai", {}) == says
