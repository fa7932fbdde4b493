"""Write the HTML index of all kept reports, by profile, with the newest report of each profile first."""

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

#: The name of the page's template.
PAGE = "index.html.j2"


@dataclass(frozen=True)
class Row:
    """A report of the index."""

    line: KeptLine
    link: str  # URL of its page, relative to the index; "" if it has none


@dataclass(frozen=True)
class Section:
    """The kept reports of a profile, the newest first."""

    profile: str
    rows: Sequence[Row]


def write_index(page: Path, lines: Iterable[KeptLine], templates: Path) -> None:
    """Write the index to ``page``, with links relative to its folder. Raises OSError if it cannot be written."""
    page.parent.mkdir(parents=True, exist_ok=True)
    text = render_index(sections(lines, page.parent), templates)
    replace_file(page, text.encode("utf-8", "backslashreplace"), 0o644)


def render_index(profile_sections: Sequence[Section], templates: Path) -> str:
    """The HTML of the index, a single file without external resources."""
    return environment(templates, escape=True).get_template(PAGE).render(sections=profile_sections)


def sections(lines: Iterable[KeptLine], start: Path) -> list[Section]:
    """A section per profile, by name; ``lines`` must have the newest report first.

    ``start`` is the folder of the index, from which the links lead.
    """
    by_profile = sorted(lines, key=lambda line: line.profile)  # a stable sort keeps the newest first
    profile_sections: list[Section] = []
    for profile, profile_lines in groupby(by_profile, key=lambda line: line.profile):
        profile_sections.append(Section(profile, [Row(line, _link(line, start)) for line in profile_lines]))
    return profile_sections


def _link(line: KeptLine, start: Path) -> str:
    page = line.folder / "report.html"
    return urllib.parse.quote(os.path.relpath(page.resolve(), start.resolve())) if page.is_file() else ""
