"""drafthouse report as a person runs it on a kept report: its exit status, its words, its files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.places import ROOT
from drafthouse.report.writer import write_report
from tests.support.builders import make_pair, make_resolved
from tests.support.verb import called

pytestmark = pytest.mark.processes


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return called("report", *words)


def kept(folder: Path, base: Any, spec: Any, host: str = "") -> Path:
    """A report as a run keeps it."""
    return write_report(folder / "reports", base, spec, make_resolved(), ROOT / "templates", host).path


@pytest.mark.parametrize(("gain", "word"), [(2.0, "pays:"), (0.8, "does not pay:")])
def test_a_valid_verdict_exits_0_and_prints_it(tmp_path: Path, gain: float, word: str) -> None:
    place = kept(tmp_path, *make_pair({"copy-edit": gain}, rounds=3))
    (place / "report.html").unlink()
    done = run("--again", place)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"\n{word}" in done.stdout
    assert place.name == "20261121-111742-buildbox"
    assert done.stdout.endswith(f"report: {place / 'report.html'} (written)\n")


def test_a_result_whose_counters_saw_nobody_else_is_read(tmp_path: Path) -> None:
    base, spec = make_pair({"copy-edit": 2.0})
    for result in (base, spec):
        result["counters"] = [{"round": 1, "group": "copy-edit", "foreign": {"polluted": False, "said": None}}]
    done = run("--again", kept(tmp_path, base, spec))
    assert (done.returncode, done.stderr) == (0, "")


def test_invalid_exits_2_and_still_writes_the_report(tmp_path: Path) -> None:
    base, spec = make_pair({"copy-edit": 2.0})
    base["spec_decode_draft_tokens"] = 7
    place = kept(tmp_path, base, spec)
    (place / "report.html").unlink()
    done = run("--again", place)
    assert done.returncode == 2
    assert "invalid: the baseline drafted (7 tokens)" in " ".join(done.stdout.split())
    assert (place / "report.html").is_file()


def test_a_report_is_made_again_in_its_own_folder(tmp_path: Path) -> None:
    place = kept(tmp_path, *make_pair({"copy-edit": 2.0}), "box-7")
    assert place.name == "20261121-111742-box-7"
    again = run("--again", place)
    assert (again.returncode, again.stderr) == (0, "")
    assert "(unchanged)" in again.stdout
    before = (place / "report.html").read_bytes()
    (place / "report.html").write_text("spoilt")
    assert "(written)" in run("--again", place).stdout
    assert (place / "report.html").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "found: no readable file (No such file or directory)"),
        ("{", "found: text that does not parse"),
        ("[1]", "found: a list"),
    ],
)
def test_a_wrong_file_says_found_needed_and_do(tmp_path: Path, content: str | None, found: str) -> None:
    path = kept(tmp_path, *make_pair({"copy-edit": 2.0})) / "speculative.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    done = run("--again", path.parent)
    assert done.returncode == 2
    assert f"where: {path}\n{found}" in done.stderr
    assert "\nneeded: " in done.stderr
    assert "\ndo: " in done.stderr


def test_a_report_without_its_resolved_profile_cannot_be_made_again(tmp_path: Path) -> None:
    place = kept(tmp_path, *make_pair({"copy-edit": 2.0}))
    report = json.loads((place / "report.json").read_text())
    del report["resolved"]
    (place / "report.json").write_text(json.dumps(report))
    done = run("--again", place)
    assert done.returncode == 2
    assert "code: missing-key" in done.stderr


def test_half_a_command_line_is_refused() -> None:
    done = run()
    assert done.returncode == 2
    assert "give --again, --open or --row" in done.stderr
