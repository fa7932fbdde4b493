"""drafthouse report as a person runs it: its exit status, its words, its files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.builders import make_pair, make_resolved
from tests.support.verb import called

pytestmark = pytest.mark.processes


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return called("report", *words)


def given(folder: Path, base: Any, spec: Any, resolved: Any) -> list[object]:
    words: list[object] = ["--reports", folder / "reports"]
    for name, data in (("baseline", base), ("speculative", spec), ("resolved", resolved)):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(data), "utf-8")
        words += [f"--{name}", path]
    return words


@pytest.mark.parametrize(("gain", "word"), [(2.0, "pays:"), (1.0, "does not pay:")])
def test_a_valid_verdict_exits_0_and_prints_it(tmp_path: Path, gain: float, word: str) -> None:
    done = run(*given(tmp_path, *make_pair({"copy-edit": gain}), make_resolved()))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"\n{word}" in done.stdout
    page = tmp_path / "reports" / "cpu-smollm2-ngram" / "20261121-111742-buildbox" / "report.html"
    assert page.is_file()
    assert done.stdout.endswith(f"report: {page} (written)\n")


def test_a_result_whose_counters_saw_nobody_else_is_read(tmp_path: Path) -> None:
    base, spec = make_pair({"copy-edit": 2.0})
    for result in (base, spec):
        result["counters"] = [{"round": 1, "group": "copy-edit", "foreign": {"polluted": False, "said": None}}]
    done = run(*given(tmp_path, base, spec, make_resolved()))
    assert (done.returncode, done.stderr) == (0, "")


def test_invalid_exits_2_and_still_writes_the_report(tmp_path: Path) -> None:
    base, spec = make_pair({"copy-edit": 2.0})
    base["spec_decode_draft_tokens"] = 7
    done = run(*given(tmp_path, base, spec, make_resolved()))
    assert done.returncode == 2
    assert "invalid: the baseline drafted (7 tokens)" in " ".join(done.stdout.split())
    assert list((tmp_path / "reports").rglob("report.html"))


def test_a_report_is_made_again_from_its_own_folder(tmp_path: Path) -> None:
    words = given(tmp_path, *make_pair({"copy-edit": 2.0}), make_resolved())
    assert run(*words, "--host", "box-7").returncode == 0
    (place,) = (tmp_path / "reports" / "cpu-smollm2-ngram").iterdir()
    assert place.name == "20261121-111742-box-7"
    again = run("--again", place)
    assert (again.returncode, again.stderr) == (0, "")
    assert "(unchanged)" in again.stdout
    before = (place / "report.html").read_bytes()
    (place / "report.html").write_text("spoilt")
    assert "(written)" in run("--again", place).stdout
    assert (place / "report.html").read_bytes() == before


def test_the_resolved_profile_may_be_yaml(tmp_path: Path) -> None:
    words = given(tmp_path, *make_pair({"copy-edit": 2.0}), make_resolved())
    path = tmp_path / "resolved.yml"
    path.write_text(yaml.safe_dump(make_resolved()), "utf-8")
    assert run(*words, "--resolved", path).returncode == 0


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "found: no readable file (No such file or directory)"),
        ("{", "found: text that does not parse"),
        ("[1]", "found: a list"),
    ],
)
def test_a_wrong_file_says_found_needed_and_do(tmp_path: Path, content: str | None, found: str) -> None:
    words = given(tmp_path, *make_pair({"copy-edit": 2.0}), make_resolved())
    path = tmp_path / "speculative.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    done = run(*words)
    assert done.returncode == 2
    assert f"where: {path}\n{found}" in done.stderr
    assert "\nneeded: " in done.stderr
    assert "\ndo: " in done.stderr
    assert not (tmp_path / "reports").exists()


def test_a_report_without_its_resolved_profile_cannot_be_made_again(tmp_path: Path) -> None:
    assert run(*given(tmp_path, *make_pair({"copy-edit": 2.0}), make_resolved())).returncode == 0
    (place,) = (tmp_path / "reports" / "cpu-smollm2-ngram").iterdir()
    kept = json.loads((place / "report.json").read_text())
    del kept["resolved"]
    (place / "report.json").write_text(json.dumps(kept))
    done = run("--again", place)
    assert done.returncode == 2
    assert "code: missing-key" in done.stderr


def test_a_folder_that_cannot_be_written_is_an_error_with_advice(tmp_path: Path) -> None:
    words = given(tmp_path, *make_pair({"copy-edit": 2.0}), make_resolved())
    (tmp_path / "reports").write_text("a file in the way")
    done = run(*words)
    assert done.returncode == 2
    assert "do: choose --reports" in done.stderr


@pytest.mark.parametrize("words", [[], ["--baseline", "x"], ["--again", "x", "--baseline", "y"]])
def test_half_a_command_line_is_refused(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "or --again alone" in done.stderr
