"""The page over all reports: its order, its links, and what stands in it of others' words."""

from __future__ import annotations

from pathlib import Path

from drafthouse.report.archive import KeptLine, kept_lines
from drafthouse.report.index import sections, write_index
from tests.support.report_builders import keep

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"


def line(folder: Path, day: str, profile: str) -> KeptLine:
    return KeptLine(folder / profile / f"{day}-box", day, profile, "box", "pays", None, "")


def test_profiles_stand_by_name_and_their_reports_newest_first(tmp_path: Path) -> None:
    newest_first = [
        line(tmp_path, "2026-11-25", "b"),
        line(tmp_path, "2026-11-24", "a"),
        line(tmp_path, "2026-11-21", "b"),
    ]
    found = [(section.profile, [row.line.date for row in section.rows]) for section in sections(newest_first, tmp_path)]
    assert found == [("a", ["2026-11-24"]), ("b", ["2026-11-25", "2026-11-21"])]


def test_the_page_links_what_is_there_and_escapes_what_it_is_told(tmp_path: Path) -> None:
    folder = keep(tmp_path, "20261120-090000", lambda _, __, resolved: resolved.update(profile="p"))
    report = folder / "report.json"
    report.write_text(report.read_text("utf-8").replace('"buildbox"', '"<script>x</script>"'), "utf-8")
    write_index(tmp_path / "index.html", kept_lines(tmp_path), TEMPLATES)
    assert "no page" in (tmp_path / "index.html").read_text("utf-8")
    (folder / "report.html").write_text("x", "utf-8")
    write_index(tmp_path / "index.html", kept_lines(tmp_path), TEMPLATES)
    text = (tmp_path / "index.html").read_text("utf-8")
    assert f'href="p/{folder.name}/report.html"' in text
    assert "no page" not in text
    assert "<script>x" not in text
    assert "src=" not in text


def test_no_report_is_said(tmp_path: Path) -> None:
    write_index(tmp_path / "index.html", [], TEMPLATES)
    assert "No report is kept yet." in (tmp_path / "index.html").read_text("utf-8")
