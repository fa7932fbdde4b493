"""The page over all reports: its trends, its links, and what stands in it of others' words."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.format import TIMES
from drafthouse.report.archive import KeptLine, kept_lines
from drafthouse.report.index import sections, write_index
from drafthouse.report.plots.trend import Point, trend_svg
from tests.support.report_builders import keep

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"


def line(folder: Path, number: int, said: str, median: float | None, host: str = "box", profile: str = "p") -> KeptLine:
    speedup: Any = {"median": median, "low": median * 0.9, "high": median * 1.1} if median else None
    return KeptLine(
        folder / profile / f"2026112{number}-{host}", f"2026-11-2{number}", profile, host, said, speedup, ""
    )


def test_a_trend_is_of_one_box_and_of_numbers_that_hold(tmp_path: Path) -> None:
    newest_first = [
        line(tmp_path, 5, "pays", 2.0),
        line(tmp_path, 4, "invalid", 9.0),
        line(tmp_path, 3, "does not pay", 0.9),
        line(tmp_path, 2, "pays", 3.0, "other"),
        line(tmp_path, 1, "pays", 1.5),
    ]
    (section,) = sections(newest_first, tmp_path)
    (trend,) = section.trends  # one report of the other box is no trend
    assert (trend.host, trend.left_out) == ("box", 1)
    told = re.search(r"<desc[^>]*>(.*?)</desc>", trend.svg)
    assert told
    assert told[1].replace(TIMES, "x") == "1.50x (2026-11-21), 0.90x (2026-11-23) and 2.00x (2026-11-25)"
    assert [row.line.said for row in section.rows] == ["pays", "invalid", "does not pay", "pays", "pays"]


def test_higher_is_faster_and_a_full_point_pays() -> None:
    svg = trend_svg("t", [Point("a", 0.9, 0.8, 1.0, pays=False), Point("b", 2.0, 1.9, 2.1, pays=True)])
    points = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="4.5" fill="([^"]+)"', svg)
    (slow, fast) = points
    assert float(fast[0]) > float(slow[0])
    assert float(fast[1]) < float(slow[1])
    assert (slow[2], fast[2]) == ("var(--card)", "var(--speculative)")


@pytest.mark.parametrize("median", [0.001, 1.0, 1.0001, 40.0, 3000.0])
def test_labels_of_the_axis_stay_apart(median: float) -> None:
    svg = trend_svg("t", [Point("a", median, median, median, pays=True)] * 2)
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)" text-anchor="end" style="font: 400 13px', svg)[:-1])
    assert all(low - high >= 14 for high, low in itertools.pairwise(heights))
    assert len(heights) <= 8


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
