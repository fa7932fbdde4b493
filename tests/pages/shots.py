"""Write pictures of a report for a person to look at: wide, phone, dark, paper; or those of docs/.

PYTHONPATH=src:. python -m tests.pages.shots FOLDER [report.html]; without a page, one of made numbers.
make pictures REPORT=NAME writes docs/report.png, report-dark.png and report-phone.png from a kept report: docs/ shows
measured numbers alone.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from drafthouse.cli.parser import run
from drafthouse.cli.report import page_of
from drafthouse.core.places import WORK
from drafthouse.report.answers import shown_of
from drafthouse.report.data.build import build_report
from drafthouse.report.writer import render_html, render_markdown
from tests.pages.browser import PHONE, WIDE, a_page
from tests.support.report_builders import differing, full_report_input

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
#: The first screen of docs/'s pictures, in CSS pixels: the verdict, and the speed-ups below it.
DESKTOP = (1100, 1250)


async def shots(folder: Path, file: Path) -> None:
    """Write wide.png, dark.png, phone.png and paper.pdf of a page into ``folder``."""
    async with a_page() as page:
        for name, size, scheme in (("wide", WIDE, "light"), ("dark", WIDE, "dark"), ("phone", PHONE, "light")):
            await page.look(size, scheme)
            await page.open(file)
            await page.picture(folder / f"{name}.png")
        await page.look()
        await page.open(file)
        await page.paper(folder / "paper.pdf")


async def pictures(folder: Path, file: Path) -> None:
    """Write the pictures that docs/ shows: what a reader sees first."""
    looks = (("report", DESKTOP, "light"), ("report-dark", DESKTOP, "dark"), ("report-phone", PHONE, "light"))
    async with a_page() as page:
        for name, size, scheme in looks:
            await page.look(size, scheme)
            await page.open(file)
            await page.picture(folder / f"{name}.png", whole=False)


def main() -> int:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("page", type=Path, nargs="?")
    parser.add_argument("--kept", metavar="REPORT", help="write docs/'s pictures of this kept report into the folder")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.kept is not None:
        asyncio.run(pictures(given.folder, page_of(WORK / "reports", given.kept)))
        return 0
    file = given.page
    if not file:
        report = build_report(*full_report_input())
        file = given.folder / "report.html"
        file.write_text(render_html(report, TEMPLATES, shown=shown_of(*differing())), "utf-8")
        (given.folder / "report.md").write_text(render_markdown(report, TEMPLATES), "utf-8")
    asyncio.run(shots(given.folder, file))
    return 0


if __name__ == "__main__":
    run(main)
