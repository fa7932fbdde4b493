"""The kept reports: which one a name means, what a broken one says, and the list of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.report.archive import find, folders, read_kept
from tests.support.report_builders import keep
from tests.support.verb import called

pytestmark = pytest.mark.processes


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    for date in ("20261119-090000", "20261121-100000", "20261120-100000"):
        keep(tmp_path, date)
    return tmp_path


@pytest.mark.parametrize(
    ("what", "date"),
    [
        ("cpu-smollm2-ngram", "20261121"),
        ("cpu-smollm2-ngram~1", "20261120"),
        ("cpu-smollm2-ngram~", "20261120"),
        ("cpu-smollm2-ngram~2", "20261119"),
        ("cpu-smollm2-ngram/20261119", "20261119"),
    ],
)
def test_a_report_is_found_by_profile_and_place(reports: Path, what: str, date: str) -> None:
    assert find(reports, what).name.startswith(date)


def test_a_report_is_found_by_its_folder_and_by_its_file(reports: Path) -> None:
    folder = folders(reports)[1]
    assert find(Path("/nowhere"), str(folder)) == folder
    assert find(Path("/nowhere"), str(folder / "report.json")) == folder


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("cpu-smollm2-ngran", "write 'cpu-smollm2-ngram'"),
        ("cpu-smollm2-ngram~3", "3 reports of cpu-smollm2-ngram"),
        ("cpu-smollm2-ngram~x", "no report"),
        ("cpu-smollm2-ngram/2026", "3 reports of cpu-smollm2-ngram begin with '2026'"),
        ("cpu-smollm2-ngram/1999", "0 reports of cpu-smollm2-ngram begin with '1999'"),
        ("", "no report ''"),
        ("../../etc", "no report"),
    ],
)
def test_a_name_that_means_none_or_several_is_refused_with_advice(reports: Path, what: str, said: str) -> None:
    with pytest.raises(DrafthouseError) as error:
        find(reports, what, "A")
    assert said in str(error.value)
    assert "where: A" in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("report.json", "{", "text that does not parse"),
        ("report.json", "[]", "a list"),
        ("report.json", '{"schema": "drafthouse.report/0"}', "'drafthouse.report/0'"),
        ("baseline.json", None, "no readable file"),
    ],
)
def test_a_kept_report_that_is_broken_is_named(reports: Path, name: str, content: str | None, said: str) -> None:
    folder = folders(reports)[0]
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content, "utf-8")
    with pytest.raises(DrafthouseError, match="needed: ") as error:
        read_kept(folder)
    assert said in str(error.value)
    assert str(folder / name) in str(error.value)


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return called("reports", *words, **environment)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_fits_the_terminal(reports: Path, columns: int) -> None:
    lines = run("--reports", reports, COLUMNS=str(columns)).stdout.splitlines()
    assert len(lines) > 4
    assert max(map(len, lines)) <= columns


def test_the_list_shows_every_report_also_a_broken_one(reports: Path) -> None:
    (folders(reports)[2] / "report.json").write_text("{", "utf-8")
    done = run("--reports", reports, COLUMNS="160")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "2026-11-21 10:00" in lines[2]
    assert "cpu-smollm2-ngram/20261119-090000-buildbox" in done.stdout
    assert "text that does not parse" in " ".join(done.stdout.split())
    assert "found: no report of 'none'" in run("none", "--reports", reports).stderr
