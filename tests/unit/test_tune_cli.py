"""scripts/tune.py as it is called, as far as no engine is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tune
from ansible_collections.drafthouse.core.plugins.module_utils.house import ROOT
from ansible_collections.drafthouse.core.plugins.module_utils.problems import HouseError


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "tune.py"), *words]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60, check=False)


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
    with pytest.raises(HouseError) as caught:
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
    given = tune.parse(["name", "--budget", "5m", "--", "--limit", "box", "-e", "a=b"])
    assert given.more == ["--limit", "box", "-e", "a=b"]
    assert (given.profile, given.budget) == ("name", "5m")
    assert tune.parse(["name"]).more == []


def test_a_search_is_told_from_every_other() -> None:
    def key(*words: str) -> str:
        given = tune.parse(["cpu-smollm2-draft", *words])
        return str(tune.prepare(given, tune.seconds_of(given.budget)).search)

    same = key("--budget", "30m")
    assert same == key("--budget", "1800")
    others = {key("--budget", "31m"), key("--set", "experiment.concurrency=2"), key("--", "--limit", "x")}
    assert len(others | {same}) == 4


def test_a_tuned_profile_may_be_replaced_and_no_other(tmp_path: Path) -> None:
    tune.check_target(tmp_path / "none.yml")
    (tmp_path / "mine.yml").write_text("title: mine\n")
    with pytest.raises(HouseError):
        tune.check_target(tmp_path / "mine.yml")
    (tmp_path / "tuned.yml").write_text("title: x\ntuned:\n  from: y\n")
    tune.check_target(tmp_path / "tuned.yml")


def test_the_program_can_be_run() -> None:
    assert os.access(ROOT / "scripts" / "tune.py", os.X_OK)
