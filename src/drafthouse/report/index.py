"""One page over all kept reports: what each profile's newest one says, the trend of its speed-ups, and every report."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from ..analysis.verdict_text import DOES_NOT_PAY, PAYS
from ..core.files import replace_file
from .archive import KeptLine
from .plots.trend import Point, trend_svg
from .writer import environment

PAGE = "index.html.j2"


@dataclass(frozen=True)
class Trend:
    """A profile's speed-ups on one box; ``left_out``: reports there without a valid one."""

    host: str
    svg: Markup
    left_out: int


@dataclass(frozen=True)
class Row:
    """A report in its table; ``link`` is its page from the folder of the index, empty where it has none."""

    line: KeptLine
    link: str


@dataclass(frozen=True)
class Section:
    """What is kept of a profile, the newest report first."""

    profile: str
    rows: Sequence[Row]
    trends: Sequence[Trend]


def write_index(page: Path, lines: Iterable[KeptLine], templates: Path) -> None:
    """Write the page, whose links are relative to its folder. OSError where it cannot be written."""
    page.parent.mkdir(parents=True, exist_ok=True)
    text = render_index(sections(lines, page.parent), templates)
    replace_file(page, text.encode("utf-8", "backslashreplace"), 0o644)


def render_index(found: Sequence[Section], templates: Path) -> str:
    """Return the page: one file that loads nothing."""
    return environment(templates, escape=True).get_template(PAGE).render(sections=found)


def sections(lines: Iterable[KeptLine], start: Path) -> list[Section]:
    """Return the profiles by name, each with its reports; ``lines`` are the newest first."""
    by_profile = sorted(lines, key=lambda line: line.profile)  # stable: the newest stays first
    found: list[Section] = []
    for profile, kept in groupby(by_profile, key=lambda line: line.profile):
        own = list(kept)
        trends = [one for host in dict.fromkeys(line.host for line in own) if (one := _trend(host, own, len(found)))]
        found.append(Section(profile, [Row(line, _link(line, start)) for line in own], trends))
    return found


def _trend(host: str, lines: Sequence[KeptLine], number: int) -> Trend | None:
    """Return the trend of one box, None for fewer than two points: another box's numbers are no trend of this one."""
    own = [line for line in reversed(lines) if line.host == host]
    points = [
        Point(line.date, line.speedup["median"], line.speedup["low"], line.speedup["high"], line.said == PAYS)
        for line in own
        if line.speedup and line.said in (PAYS, DOES_NOT_PAY)
    ]
    if len(points) < 2:
        return None
    hosts = list(dict.fromkeys(line.host for line in lines))
    svg = trend_svg(f"trend-{number}-{hosts.index(host)}", points)
    # Ours: what came from outside was escaped when it was drawn.
    return Trend(host, Markup(svg), len(own) - len(points))  # noqa: S704


def _link(line: KeptLine, start: Path) -> str:
    page = line.folder / "report.html"
    return urllib.parse.quote(os.path.relpath(page.resolve(), start.resolve())) if page.is_file() else ""
