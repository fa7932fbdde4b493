"""A search that is killed, again and again: it goes on, decides the same, and keeps to one budget."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.tuning.journal import Journal, JournaledTrial
from drafthouse.tuning.search import tune
from drafthouse.tuning.tries import STOP_S
from drafthouse.tuning.types import OK, Candidate, Outcome, Task
from tests.fakes.known_box import KnownBox, peak, space

pytestmark = pytest.mark.processes

TASK = Task(Candidate("draft", 4), count=4)
OUTCOME = Outcome(OK, {"a": 12.5}, 30.0, 5.0, 10.0, "", {"drafted": True})


class Clock:
    """Epoch seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def kept(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_outcome_comes_back_as_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl", "search")
    assert not journal.resumed
    journal.begin(TASK)
    journal.done(TASK, OUTCOME)
    journal.close()
    again = Journal(tmp_path / "j.jsonl", "search")
    assert again.resumed
    assert again.outcomes == {TASK.key: OUTCOME}
    assert again.spent_s == 30.0


def test_what_a_killed_run_used_is_counted_once(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "j.jsonl"
    journal = Journal(path, "search", clock)
    journal.begin(TASK)
    clock.now += 40
    journal.touch()
    journal.close()  # as a kill leaves it
    clock.now += 3600
    second = Journal(path, "search", clock)
    assert second.spent_s == pytest.approx(40, abs=0.1)
    second.begin(TASK)
    clock.now += 7
    second.touch()
    second.close()
    third = Journal(path, "search", clock)
    assert third.spent_s == pytest.approx(47, abs=0.1)
    outcome = JournaledTrial(lambda task: OUTCOME, third)(TASK)
    # It belongs to the budget, and is no start's usual cost.
    assert outcome.elapsed_s == pytest.approx(77, abs=0.1)
    assert outcome.overhead_s == pytest.approx(OUTCOME.overhead_s, abs=0.1)
    third.close()
    assert Journal(path, "search", clock).spent_s == pytest.approx(77, abs=0.1)


def test_a_line_that_was_cut_is_dropped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path, "search")
    journal.begin(TASK)
    journal.done(TASK, OUTCOME)
    journal.close()
    whole = path.read_text()
    path.write_text(whole[:-20])
    again = Journal(path, "search")
    assert again.outcomes == {}
    again.done(TASK, OUTCOME)
    again.close()
    assert Journal(path, "search").outcomes == {TASK.key: OUTCOME}


@pytest.mark.parametrize("text", ["", "\n", "no json\n", "[1]\n", '{"schema": "drafthouse.tune/0"}\n', "\x00\xff\n"])
def test_a_file_that_is_no_journal_of_ours_is_put_aside(tmp_path: Path, text: str) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(text)
    journal = Journal(path, "search")
    journal.done(TASK, OUTCOME)
    journal.close()
    assert Journal(path, "search").outcomes == {TASK.key: OUTCOME}


def test_another_search_begins_anew_and_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    first = Journal(path, "one")
    first.done(TASK, OUTCOME)
    first.close()
    second = Journal(path, "two")
    assert not second.resumed
    assert second.spent_s == 0
    assert TASK.key in (tmp_path / "j.old").read_text()
    assert kept(path)[0]["search"] == "two"


def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    holder = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'a')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", holder, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DrafthouseError) as caught:
            Journal(path, "search")
        assert caught.value.problems[0].code == "already-running"
    finally:
        other.communicate()
    Journal(path, "search").close()


class Killed(BaseException):
    """Nothing of ours catches it, as nothing catches SIGKILL."""


@pytest.mark.parametrize("every", [1, 3, 7])
def test_killed_again_and_again_it_finds_the_same_in_one_budget(tmp_path: Path, every: int) -> None:
    budget_s = 1800.0
    whole = tune(space(own=2, families={"head": 8}), KnownBox(lambda c: peak(9)(c.tokens), 11), budget_s)
    clock = Clock()
    box = KnownBox(lambda candidate: peak(9)(candidate.tokens), 11)
    done = kills = 0

    def trial(task: Task) -> Outcome:
        nonlocal done, kills
        if done == every:
            done = 0
            kills += 1
            # Killed before the engine was up: ten seconds of the budget are gone.
            clock.now += 10
            journal.touch()
            raise Killed
        done += 1
        outcome = box(task)
        clock.now += outcome.elapsed_s
        return outcome

    while True:
        journal = Journal(tmp_path / "j.jsonl", "search", clock)
        recorded = JournaledTrial(trial, journal)
        begun, before_s = clock.now, journal.spent_s
        try:
            found = tune(space(own=2, families={"head": 8}), recorded, budget_s)
        except Killed:
            continue
        finally:
            assert clock.now - begun + before_s <= budget_s - STOP_S + 1
            journal.close()
        break
    assert kills >= 2
    assert found.winner == whole.winner
    assert found.spent_s == pytest.approx(journal.spent_s, abs=1)
    assert found.spent_s <= budget_s - STOP_S
    assert box.spent_s + 10 * kills == pytest.approx(found.spent_s, abs=1)


@pytest.mark.parametrize(("part", "said"), [("search", "could not be measured"), ("final", "the engine died")])
def test_what_ended_the_search_is_asked_again_once_it_is_mended(tmp_path: Path, part: str, said: str) -> None:
    broken = True

    def dies(task: Task) -> bool:
        return broken and task.part == part

    box = KnownBox(lambda candidate: peak(9)(candidate.tokens), 11, dies=dies)

    def run() -> tuple[str, Journal]:
        journal = Journal(tmp_path / "j.jsonl", "search")
        try:
            found = tune(space(own=2), JournaledTrial(box, journal), 1800.0)
        except DrafthouseError as error:
            return error.problems[0].found, journal
        finally:
            journal.close()
        assert found.spent_s == pytest.approx(journal.spent_s, abs=1)
        return found.unconfirmed, journal

    first, journal = run()
    assert said in first
    tasks, spent_s = len(box.tasks), box.spent_s
    # Still broken: asked once more, and nothing of what it took is forgotten.
    assert said in run()[0]
    assert len(box.tasks) == tasks + 1
    broken = False
    unconfirmed, journal = run()
    assert unconfirmed == ""
    assert box.spent_s > spent_s
    assert journal.spent_s == pytest.approx(box.spent_s, abs=1)
    tasks = len(box.tasks)
    run()
    assert len(box.tasks) == tasks


def test_a_failure_that_ended_nothing_is_kept(tmp_path: Path) -> None:
    box = KnownBox(lambda c: peak(9)(c.tokens), 11, broken=("draft K=1", "draft K=16"))
    for _ in range(2):
        journal = Journal(tmp_path / "j.jsonl", "search")
        assert tune(space(own=2), JournaledTrial(box, journal), 1800.0).final
        journal.close()
    assert len(box.tasks) == len({task.key for task in box.tasks})


def test_what_a_run_used_before_its_first_trial_is_spent_too(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl", "search", early_s=4.0)
    assert not journal.resumed
    assert journal.spent_s == 4.0
    assert JournaledTrial(lambda task: OUTCOME, journal)(TASK).elapsed_s == 34.0
    journal.close()
    again = Journal(tmp_path / "j.jsonl", "search", early_s=2.0)
    assert again.spent_s == pytest.approx(36.0, abs=0.1)
