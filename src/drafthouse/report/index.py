"""One page over all kept reports: what each profile's newest one says, and every report."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ..core.files import replace_file
from .archive import KeptLine
from .writer import environment

PAGE = "index.html.j2"


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


def write_index(page: Path, lines: Iterable[KeptLine], templates: Path) -> None:
    """Write the page, whose links are relative to its folder. OSError where it cannot be written."""
    page.parent.mkdir(parents=True, exist_ok=True)
    text = render_index(sections(lines, page.parent), templates)
    replace_file(page, text.encode("utf-8", "backslashreplace"), 0o644)


def render_index(found: Sequence[Section], templates: Path) -> str:
    """The page: one file that loads nothing."""
    return environment(templates, escape=True).get_template(PAGE).render(sections=found)


def sections(lines: Iterable[KeptLine], start: Path) -> list[Section]:
    """The profiles by name, each with its reports; ``lines`` are the newest first."""
    by_profile = sorted(lines, key=lambda line: line.profile)  # stable: the newest stays first
    found: list[Section] = []
    for profile, kept in groupby(by_profile, key=lambda line: line.profile):
        found.append(Section(profile, [Row(line, _link(line, start)) for line in kept]))
    return found


def _link(line: KeptLine, start: Path) -> str:
    page = line.folder / "report.html"
    return urllib.parse.quote(os.path.relpath(page.resolve(), start.resolve())) if page.is_file() else ""
