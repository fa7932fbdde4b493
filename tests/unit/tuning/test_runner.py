"""What starts engines for the tuner: playbooks with a time limit, what they say of a failure, what a trial becomes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.procfs import is_gone
from drafthouse.tuning.journal import Journal, JournaledTrial
from drafthouse.tuning.prompt_split import TunePrompts
from drafthouse.tuning.runner import PREPARE, STOP, TRIAL, BoxTrial, Played, Plays, outcome_of, requests_of_task
from drafthouse.tuning.types import BASELINE, FAILED, FINAL, OK, SPECULATIVE, STOPPED, TOO_LATE, Candidate, Task

pytestmark = pytest.mark.processes

OVERRIDES = {"speculation": {"method": "ngram", "draft": None, "num_speculative_tokens": 4}}
CANDIDATE = Candidate("ngram", 4, (), OVERRIDES)


def plays(tmp_path: Path, script: str, more: Sequence[str] = ()) -> tuple[Plays, list[str]]:
    """Plays whose ansible-playbook is this shell script, and the lines they show."""
    program = tmp_path / "ansible-playbook"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    shown: list[str] = []
    made = Plays("inventory/local", more, tmp_path / "log", shown.append)
    made._program = str(program)
    return made, shown


def test_a_play_shows_its_progress_and_keeps_the_rest_in_the_log(tmp_path: Path) -> None:
    made, shown = plays(tmp_path, 'echo "$@"; echo "  box: answer 1 of 4"; echo TASK', ["--limit", "box"])
    assert made.run(TRIAL, tmp_path / "v.json", 20) == Played(0, "")
    assert shown == ["box: answer 1 of 4"]
    words = (tmp_path / "log").read_text().splitlines()[0]
    # Our variables come last: what a person gave before must not take their place.
    assert words == f"playbooks/tune.yml -i inventory/local --limit box -e @{tmp_path / 'v.json'}"


def test_a_play_that_hangs_is_ended_in_time_with_all_that_it_started(tmp_path: Path) -> None:
    made, _ = plays(tmp_path, f"trap '' INT TERM; sleep 300 & echo $! > {tmp_path}/pid; wait; wait; sleep 300")
    begun = time.monotonic()
    for seconds in (1.5, 15.0):
        played = made.run(TRIAL, tmp_path / "v.json", seconds)
        assert played.status is None
        assert "ran out" in played.why
        if (tmp_path / "pid").exists():  # it had begun by then
            break
    assert time.monotonic() - begun < 150  # half of what it would sleep
    child = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 120
    while not is_gone(child):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_a_killed_run_left_at_work_is_ended_and_nothing_else(tmp_path: Path) -> None:
    made, _ = plays(tmp_path, "sleep 300")
    assert not made.end_orphan()
    (tmp_path / "orphan.sh").write_text("sleep 300\n")
    orphan = subprocess.Popen(["sh", str(tmp_path / "orphan.sh"), f"@{tmp_path}/v.json"], start_new_session=True)
    other = subprocess.Popen(["sh", "-c", "sleep 300 # /"], start_new_session=True)
    try:
        (tmp_path / "play.pid").write_text(f"{other.pid}\n")
        assert not made.end_orphan()
        assert other.poll() is None
        (tmp_path / "play.pid").write_text(f"{orphan.pid}\n")
        assert made.end_orphan()
        assert orphan.wait(120) < 0
        assert not made.end_orphan()
    finally:
        other.kill()
        orphan.kill()
        other.wait()
    made._program = "true"
    made.run(TRIAL, tmp_path / "v.json", 20)
    assert not (tmp_path / "play.pid").exists()


def test_signs_of_life_come_while_it_is_silent(tmp_path: Path) -> None:
    made, _ = plays(tmp_path, f"until [ -e {tmp_path}/enough ]; do sleep 0.05; done")
    beats: list[float] = []

    def beat() -> None:
        beats.append(time.monotonic())
        if len(beats) == 3:
            (tmp_path / "enough").touch()

    made.beat = beat
    assert made.run(STOP, tmp_path / "v.json", 60) == Played(0, "")
    assert len(beats) >= 3


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ('printf "found: the engine died\\nCUDA out of memory\\nneeded: one\\nfound: another\\n"; exit 2',
         "the engine died / CUDA out of memory"),
        ('echo "[ERROR]: Task failed: no space left"; exit 4', "Task failed: no space left"),
        ('echo "fatal: [box]: UNREACHABLE! => gone"; exit 4', "[box]: UNREACHABLE! => gone"),
        ("exit 3", ""),
    ],
)  # fmt: skip
def test_the_reason_is_read_out_of_what_ansible_says(tmp_path: Path, script: str, why: str) -> None:
    made, _ = plays(tmp_path, script)
    played = made.run(TRIAL, tmp_path / "v.json", 20)
    assert played.status
    assert played.why == why


def ask(number: int) -> Any:
    return {"prompt_id": f"p{number}", "messages": [], "kind": "chat"}


PROMPTS = TunePrompts(tuple(ask(n) for n in range(5)), tuple(ask(n) for n in range(50, 56)), 4, ())


def test_a_task_asks_its_prompts_and_begins_again_behind_the_last() -> None:
    def names(task: Task) -> list[str]:
        return [str(one["prompt_id"]) for one in requests_of_task(task, PROMPTS)]

    assert names(Task(CANDIDATE, first=0, count=3)) == ["p0", "p1", "p2"]
    assert names(Task(CANDIDATE, first=4, count=3)) == ["p4", "p0", "p1"]
    assert names(Task(CANDIDATE, part=FINAL, first=0, count=6)) == [f"p{n}" for n in range(50, 56)]


TRIAL_DATA: Any = {
    "status": OK, "why": "", "asked": 4, "failed": 0, "measured_s": 3.0, "tpot_ms": {"p0": 10.0}, "drafted": True,
    "acceptance": {"spec_decode_acceptance_length": 3.1}, "outputs": {}, "output_tokens": 100,
    "ended_unix_s": 1.8e9, "other_cpu_percent": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "arm", "status", "why"),
    [
        ({}, SPECULATIVE, OK, ""),
        ({"status": STOPPED, "why": "0.61 x"}, SPECULATIVE, STOPPED, "0.61 x"),
        ({"failed": 1, "why": "p2: HTTP 500"}, SPECULATIVE, FAILED, "1 of 4 answers failed: p2: HTTP 500"),
        ({}, BASELINE, FAILED, "the baseline drafted"),
        ({"drafted": False}, BASELINE, OK, ""),
        ({"status": "odd"}, SPECULATIVE, FAILED, "an unknown end: odd"),
    ],
)
def test_what_a_trial_means(changes: dict[str, Any], arm: str, status: str, why: str) -> None:
    trial: Any = {**TRIAL_DATA, **changes}
    outcome = outcome_of(trial, Task(CANDIDATE, arm))
    assert outcome.status == status
    assert outcome.why.startswith(why)


class FakePlays(Plays):
    """Notes what it is asked to play, and answers as a box would."""

    def __init__(
        self, answers: Mapping[str, Any] | None, status: dict[tuple[str, ...], int | None] | None = None
    ) -> None:
        self.answers, self.status = answers, status or {}
        self.played: list[tuple[tuple[str, ...], dict[str, Any], float]] = []

    def run(self, playbooks: Sequence[str], variables: Path, seconds: float) -> Played:
        told = json.loads(variables.read_text())
        if "tune_task" in told:
            told["work"] = json.loads(Path(told["tune_task"]).read_text())
        self.played.append((tuple(playbooks), told, seconds))
        status = self.status.get(tuple(playbooks), 0)
        if tuple(playbooks) == TRIAL and status == 0:
            for host, answer in (self.answers or {}).items():
                Path(told["tune_answers"], f"{host}.json").write_text(json.dumps(answer))
        return Played(status, "" if status == 0 else "it broke")


def box(made: FakePlays, tmp_path: Path, budget_s: float = 600.0) -> BoxTrial:
    return BoxTrial("name", PROMPTS, made, tmp_path, concurrency=2, budget_s=budget_s)


def test_a_box_is_made_ready_once_for_each_family(tmp_path: Path) -> None:
    made = FakePlays({"box": TRIAL_DATA})
    trial = box(made, tmp_path)
    for task in (Task(CANDIDATE, count=2, seconds=90), Task(Candidate("ngram", 8), count=2, seconds=90),
                 Task(Candidate("draft", 8), count=2, seconds=90)):  # fmt: skip
        assert trial(task).status == OK
    assert [playbooks for playbooks, _, _ in made.played] == [PREPARE, TRIAL, TRIAL, PREPARE, TRIAL]
    prepared, first = made.played[0][1], made.played[1][1]
    # The null takes the profile's own draft away, on the box as here.
    assert prepared == {"profile": "name", "overrides": OVERRIDES}
    assert first["work"]["concurrency"] == 2
    assert [one["prompt_id"] for one in first["work"]["asks"]] == ["p0", "p1"]
    assert 0 < first["tune_deadline"] - time.time() <= 90
    assert all(seconds <= 90 for _, _, seconds in made.played)


def test_what_could_not_be_made_ready_is_not_tried_again(tmp_path: Path) -> None:
    made = FakePlays({"box": TRIAL_DATA}, {PREPARE: 2})
    trial = box(made, tmp_path)
    assert trial(Task(CANDIDATE, count=2, seconds=90)).status == FAILED
    again = trial(Task(Candidate("ngram", 8), count=2, seconds=90))
    assert (again.status, again.elapsed_s) == (FAILED, 0.0)
    assert len(made.played) == 1


def test_elapsed_time_has_no_gaps(tmp_path: Path) -> None:
    now = [100.0]
    made = FakePlays({"box": TRIAL_DATA})
    trial = BoxTrial("name", PROMPTS, made, tmp_path, concurrency=1, budget_s=600, clock=lambda: now[0])
    now[0] += 7  # between two trials
    assert trial(Task(CANDIDATE, count=1, seconds=90)).elapsed_s == 7.0


@pytest.mark.parametrize(
    ("status", "answers", "ended", "why"),
    [
        ({PREPARE: 2}, {"box": TRIAL_DATA}, FAILED, "not made ready: it broke"),
        ({PREPARE: None}, {"box": TRIAL_DATA}, TOO_LATE, "not made ready: it broke"),
        ({TRIAL: 2}, {}, FAILED, "it broke"),
        ({TRIAL: None}, {}, TOO_LATE, "it broke"),
        ({}, {}, FAILED, "the trial left no answer"),
    ],
)
def test_what_goes_wrong_is_an_outcome(
    tmp_path: Path, status: dict[tuple[str, ...], int | None], answers: dict[str, Any], ended: str, why: str
) -> None:
    outcome = box(FakePlays(answers, status), tmp_path)(Task(CANDIDATE, count=2, seconds=90))
    assert (outcome.status, outcome.why) == (ended, why)


def test_an_old_answer_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    made = FakePlays({"box": TRIAL_DATA})
    trial = box(made, tmp_path)
    assert trial(Task(CANDIDATE, count=2, seconds=90)).status == OK
    made.answers = None
    assert trial(Task(CANDIDATE, count=2, seconds=90)).status == FAILED


def test_several_boxes_are_one_too_many(tmp_path: Path) -> None:
    trial = box(FakePlays({"one": TRIAL_DATA, "two": TRIAL_DATA}), tmp_path)
    with pytest.raises(DrafthouseError) as caught:
        trial(Task(CANDIDATE, count=2, seconds=90))
    assert "2 boxes answered (one, two)" in caught.value.problems[0].found


def test_nothing_is_started_without_time_for_it(tmp_path: Path) -> None:
    made = FakePlays({"box": TRIAL_DATA})
    assert box(made, tmp_path, budget_s=1.0)(Task(CANDIDATE, count=2, seconds=90)).status == TOO_LATE
    assert made.played == []


def test_no_secret_is_written_for_a_play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTHOUSE_API_KEY", "s3cret")
    box(FakePlays({"box": TRIAL_DATA}), tmp_path)(Task(CANDIDATE, count=2, seconds=90))
    assert os.environ["DRAFTHOUSE_API_KEY"] not in "".join(
        path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    )


@pytest.mark.parametrize("playbooks", [PREPARE, TRIAL])
@pytest.mark.parametrize("status", [4, 6])
def test_a_box_out_of_reach_is_a_problem_and_no_outcome(
    tmp_path: Path, playbooks: tuple[str, ...], status: int
) -> None:
    journal = Journal(tmp_path / "journal.jsonl", "search")
    made = FakePlays({"box": TRIAL_DATA}, {playbooks: status})
    task = Task(CANDIDATE, count=2, seconds=90)
    with pytest.raises(DrafthouseError) as caught:
        JournaledTrial(box(made, tmp_path), journal)(task)
    assert "the box is unreachable: it broke" in caught.value.problems[0].found
    assert journal.outcomes == {}
    made.status = {}
    assert JournaledTrial(box(made, tmp_path), journal)(task).status == OK
    journal.close()


def test_out_of_reach_is_read_out_of_what_ansible_says() -> None:
    assert Played(2, "[box]: UNREACHABLE! => gone").unreachable
    assert not Played(2, "the engine died").unreachable
    assert not Played(None, "its time was up").unreachable


def test_what_serves_is_stopped_as_it_was_started(tmp_path: Path) -> None:
    made = FakePlays({"box": TRIAL_DATA})
    base = {"serve": {"threads": 2}}
    trial = BoxTrial("name", PROMPTS, made, tmp_path, concurrency=1, budget_s=600, overrides=base)
    assert not trial.started
    assert trial.stop(20)
    assert made.played[-1][:2] == (STOP, {"profile": "name", "overrides": base})


def test_started_is_what_runs(tmp_path: Path) -> None:
    made = FakePlays({"box": TRIAL_DATA})
    late = box(made, tmp_path, budget_s=1.0)
    late(Task(CANDIDATE, count=2, seconds=90))
    assert not late.started
    trial = box(made, tmp_path)
    trial(Task(CANDIDATE, count=2, seconds=90))
    assert trial.started
    first, last = (Task(CANDIDATE, part=part, count=2, seconds=90) for part in ("search", FINAL))
    trial(first)
    assert made.played[-1][1]["work"]["texts"] is False
    trial(last)
    assert made.played[-1][1]["work"]["texts"] is True


def test_answers_of_the_last_step_are_kept() -> None:
    answers: Any = [{"prompt_id": "a/b", "text": "x"}]
    trial: Any = {**TRIAL_DATA, "answers": answers}
    assert outcome_of(trial, Task(CANDIDATE)).facts["answers"] == answers
    assert "answers" not in outcome_of(TRIAL_DATA, Task(CANDIDATE)).facts
