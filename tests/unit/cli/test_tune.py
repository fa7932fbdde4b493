"""drafthouse tune as it is called, as far as no engine is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from drafthouse.cli import tune
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.workspace import ROOT
from drafthouse.tuning.runner import BoxTrial, Played, Plays
from drafthouse.tuning.search import tune as search
from drafthouse.tuning.tries import KILL_S
from tests.fakes.known_box import KnownBox, peak
from tests.support.verb import called

pytestmark = pytest.mark.processes


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return called("tune", *words, folder="/")


def test_a_list_of_what_would_be_tried() -> None:
    done = run("cpu-smollm2-draft", "--list")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("draft-simple smollm2-135m-q4: K = 1, 2, 3, 4")
    assert "(the profile: K = 4)" in lines[0]
    assert any(line.startswith("ngram-simple: K = ") for line in lines)
    assert "prompts to search with" in lines[-1]


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("90s", 90), ("1H", 3600), ("1800", 1800), ("1h1m1s", 3661)]
)
def test_budgets(text: str, seconds: int) -> None:
    assert tune.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "soon", "-5m", "30 m x", "10s", "0", "m5"])
def test_what_is_no_budget_is_said(text: str) -> None:
    with pytest.raises(DrafthouseError) as caught:
        tune.seconds_of(text)
    assert caught.value.problems[0].where.startswith("BUDGET")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["cpu-smollm2-drft", "--list"], "found: no profile 'cpu-smollm2-drft'"),
        (["cpu-smollm2-draft", "--budget", "later"], "found: 'later'"),
        (["cpu-smollm2-draft", "--inventory", "moon", "--list"], "found: no inventory 'moon'"),
        (
            ["cpu-smollm2-draft", "--to", str(ROOT / "profiles/cpu-smollm2-draft.yml"), "--list"],
            "found: a profile that",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(words: list[str], found: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert any(line.startswith(found) for line in done.stderr.splitlines()), done.stderr
    assert any(line.startswith("do: ") for line in done.stderr.splitlines())


def test_words_behind_the_dashes_are_ansibles() -> None:
    given = tune.options().parse_args(["name", "--budget", "5m", "--", "--limit", "box", "-e", "a=b"])
    assert given.words == ["--limit", "box", "-e", "a=b"]
    assert (given.profile, given.budget) == ("name", "5m")
    assert tune.options().parse_args(["name"]).words == []


def test_a_search_is_told_from_every_other() -> None:
    def key(*words: str) -> str:
        given = tune.options().parse_args(["cpu-smollm2-draft", *words])
        return str(tune.prepare(given, tune.seconds_of(given.budget)).search_hash)

    same = key("--budget", "30m")
    assert same == key("--budget", "1800")
    others = {key("--budget", "31m"), key("--set", "experiment.concurrency=2"), key("--", "--limit", "x")}
    assert len(others | {same}) == 4


def test_a_tuned_profile_may_be_replaced_and_no_other(tmp_path: Path) -> None:
    tune.check_target(tmp_path / "none.yml")
    (tmp_path / "mine.yml").write_text("title: mine\n")
    with pytest.raises(DrafthouseError):
        tune.check_target(tmp_path / "mine.yml")
    (tmp_path / "tuned.yml").write_text("title: x\ntuned:\n  from: y\n")
    tune.check_target(tmp_path / "tuned.yml")


def test_the_program_can_be_run() -> None:
    assert os.access(ROOT / "scripts" / "drafthouse", os.X_OK)


@pytest.mark.parametrize(
    ("target", "found"), [("none/tuned.yml", "no folder "), ("", "a folder"), ("file/tuned.yml", "no folder ")]
)
def test_a_place_that_cannot_be_written_is_said_before_any_time_is_spent(
    tmp_path: Path, target: str, found: str
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DrafthouseError) as caught:
        tune.check_target(tmp_path / target)
    assert caught.value.problems[0].found.startswith(found)


def ended(tmp_path: Path, target: Path, **box: object) -> None:
    """Finish a search on a box of known speeds."""
    work = replace(tune.prepare(tune.options().parse_args(["cpu-smollm2-draft"]), 1800), folder=tmp_path, target=target)
    found = search(work.space, KnownBox(lambda c: peak(7)(c.tokens) / (1 + ("ngram" in c.family)), 3, **box), 1800.0)  # type: ignore[arg-type]
    tune.finish(work, 1800, found)


def test_a_place_that_has_gone_meanwhile_is_said_too(tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError) as caught:
        ended(tmp_path, tmp_path / "gone" / "tuned.yml")
    assert "could not be written" in caught.value.problems[0].found
    assert (tmp_path / "result.json").exists()


def test_no_profile_is_written_for_wrong_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended(tmp_path, tmp_path / "right.yml")
    assert "outputs: 'passed" in (tmp_path / "right.yml").read_text()
    names = [family.candidate(k).id for family in tune.prepare(
        tune.options().parse_args(["cpu-smollm2-draft"]), 1800).space.families for k in family.tokens]  # fmt: skip
    settings = [f"{name} min_probability={value}" for name in names for value in (0.2, 0.5, 0.75)]
    ended(tmp_path, tmp_path / "wrong.yml", wrong=(*names, *settings))
    assert not (tmp_path / "wrong.yml").exists()
    assert "no new profile: its output" in capsys.readouterr().out


def test_what_is_unconfirmed_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended(tmp_path, tmp_path / "new.yml", dies=lambda task: task.part == "final")
    assert not (tmp_path / "new.yml").exists()
    assert "AGAIN=1" in capsys.readouterr().out


class SlowPlays(Plays):
    """Plays that take all the time they are given, by a clock that a test moves, and as long again to end."""

    now = 0.0
    played: ClassVar[list[float]] = []

    def run(self, playbooks: Sequence[str], variables: Path, seconds: float) -> Played:
        SlowPlays.now += seconds + KILL_S / 2
        self.played.append(SlowPlays.now)
        return Played(None, f"its {seconds:.0f} s ran out")


def test_the_budget_holds_where_everything_takes_all_of_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tune.options().parse_args(["cpu-smollm2-draft", "--budget", "5m"])
    folder = ROOT / "build" / "tune" / f"test-{tmp_path.name}-{os.getpid()}"
    work = replace(tune.prepare(given, 300), folder=folder)
    SlowPlays.now, SlowPlays.played = 1003.0, []
    clock = SimpleNamespace(monotonic=lambda: SlowPlays.now, time=time.time)
    monkeypatch.setattr(tune, "Plays", SlowPlays)
    monkeypatch.setattr(tune, "time", clock)
    monkeypatch.setattr(tune, "BoxTrial", partial(BoxTrial, clock=clock.monotonic))
    try:
        with pytest.raises(DrafthouseError, match="s ran out"):
            tune.search(work, 300, given, 1000.0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    # One trial and the stop, within the budget that began three seconds before.
    assert len(SlowPlays.played) == 2
    assert SlowPlays.played[-1] <= 1300.0


def test_again_goes_through_make() -> None:
    command = ["make", "-n", "tune", "PROFILE=x", "AGAIN=1"]
    assert "--again" in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--again" not in subprocess.run(command[:-1], cwd=ROOT, capture_output=True, text=True, check=True).stdout
