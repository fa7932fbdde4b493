"""Write pictures of a report for a person to look at: wide, phone, dark, paper.

PYTHONPATH=src:. python -m tests.pages.shots FOLDER [report.html]; without a page, one of made numbers.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from drafthouse.report.data.build import build_report
from drafthouse.report.writer import render_html, render_markdown
from tests.pages.browser import PHONE, WIDE, a_page
from tests.support.report_builders import full_report_input

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"


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


def main() -> None:
    """Make the pictures."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 2:
        file = Path(sys.argv[2])
    else:
        report = build_report(*full_report_input())
        file = folder / "report.html"
        file.write_text(render_html(report, TEMPLATES), "utf-8")
        (folder / "report.md").write_text(render_markdown(report, TEMPLATES), "utf-8")
    asyncio.run(shots(folder, file))


if __name__ == "__main__":
    main()
