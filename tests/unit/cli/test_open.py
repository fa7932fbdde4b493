"""A report in the browser: which one, and what happens where nobody would see it."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from drafthouse.cli.browser import has_screen
from tests.support.report_builders import keep
from tests.support.verb import called

DISPLAY = {"DISPLAY": ":0", "WAYLAND_DISPLAY": "", "SSH_CONNECTION": "", "SSH_TTY": "", "SSH_CLIENT": ""}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the browser was asked to open."""
    asked: list[str] = []

    def note(url: str) -> bool:
        asked.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", note)
    return asked


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    for date in ("20261119-090000", "20261121-100000"):
        (keep(tmp_path, date) / "report.html").write_text("page", "utf-8")
    return tmp_path


@pytest.mark.parametrize(("name", "date"), [([], "20261121"), (["cpu-smollm2-ngram~1"], "20261119")])
def test_the_newest_report_or_a_named_one(reports: Path, opened: list[str], name: list[str], date: str) -> None:
    done = called("report", "--open", *name, "--reports", reports, **DISPLAY)
    (address,) = opened
    assert (done.returncode, done.stderr) == (0, "")
    assert address.startswith(f"file://{reports}/cpu-smollm2-ngram/{date}")
    assert done.stdout == f"report: {address}\n"


def test_over_ssh_the_address_is_printed_and_nothing_started(reports: Path, opened: list[str]) -> None:
    done = called("report", "--open", "--reports", reports, **{**DISPLAY, "SSH_CONNECTION": "192.0.2.1 5 192.0.2.2 22"})
    assert (done.returncode, opened) == (0, [])
    assert done.stdout.startswith("report: file:///")


@pytest.mark.parametrize(
    ("environ", "platform", "seen"),
    [
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "linux", False),
        ({"DISPLAY": "localhost:10.0", "SSH_TTY": "/dev/pts/1"}, "linux", True),
        ({"DISPLAY": ":0", "SSH_TTY": "/dev/pts/1"}, "linux", False),
        ({}, "darwin", True),
        ({"SSH_TTY": "/dev/ttys1"}, "darwin", False),
    ],
)
def test_who_sees_a_browser(environ: dict[str, str], platform: str, *, seen: bool) -> None:
    assert has_screen(environ, platform) is seen


def test_no_report_and_no_page_are_refused(reports: Path, opened: list[str], tmp_path: Path) -> None:
    for page in reports.rglob("report.html"):
        page.unlink()
    none = called("report", "--open", "--reports", reports)
    assert (none.returncode, opened) == (2, [])
    assert "do: make it again: drafthouse report --again " in none.stderr
    assert "code: no-such-report" in called("report", "--open", "--reports", tmp_path / "empty").stderr


def test_the_page_over_all_is_written_and_opened(reports: Path, opened: list[str]) -> None:
    done = called("reports", "--html", "--open", "--reports", reports, **DISPLAY)
    assert (done.returncode, done.stderr) == (0, "")
    assert opened == [f"file://{reports}/index.html"]
    assert (reports / "index.html").is_file()
    assert called("reports", "--open", "--reports", reports).returncode == 2
    assert called("reports", "--html", "--reports", reports / "index.html").returncode == 2


def test_a_report_that_is_not_there_is_said_with_the_forms_of_a_name(tmp_path: Path) -> None:
    keep(tmp_path, "20261118-100000")
    said = called("report", "--row", "cpu-smollm2-ngram~1", "--reports", tmp_path).stderr.splitlines()
    assert said[1:3] == ["found: 1 report of cpu-smollm2-ngram", "needed: at least 2 for 'cpu-smollm2-ngram~1'"]
    said = called("report", "--row", "cpu-smollm2-ngra", "--reports", tmp_path).stderr.splitlines()
    assert said[2].startswith("needed: a folder with a report.json, ")
    assert said[3] == "do: write 'cpu-smollm2-ngram'"
