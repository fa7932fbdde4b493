"""Pages for the browser: written once, skipped by name where the browser or axe is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from drafthouse.report.answers import shown_of
from drafthouse.report.archive import kept_lines
from drafthouse.report.data.build import build_report
from drafthouse.report.index import write_index
from drafthouse.report.writer import render_html
from tests.pages.browser import AXE, Page, a_page, chromium
from tests.support.builders import NOTHING, make_pair, make_resolved
from tests.support.report_builders import differing, full_report_input, keep, make_ladder, with_crossover

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
REPORTS = ("full", "plain", "invalid", "nothing")
NAMES = (*REPORTS, "index")


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports with everything, with no load as before there were ladders, with failures, and of nothing."""
    base, spec = make_pair()
    base["requests"][0].update(status="failed", error="HTTP 500", http_status=500, tpot_ms=None)
    base["spec_decode_draft_tokens"] = 7
    ladder = make_ladder()
    ladder["steps"][3].update(status="polluted", notes=["another client's 2,112 tokens"])
    reports = {
        "full": build_report(*full_report_input()),
        "plain": build_report(*make_pair(), make_resolved()),
        "invalid": build_report(base, spec, make_resolved(synthetic="a padded model"), ladder=with_crossover(ladder)),
        "nothing": build_report(NOTHING, NOTHING, NOTHING),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, report in reports.items():
        shown = shown_of(*differing()) if name in ("full", "invalid") else None
        (folder / f"{name}.html").write_text(render_html(report, TEMPLATES, shown=shown), "utf-8")
    for number, gain in enumerate((1.4, 0.9, 1.3)):
        keep(folder / "kept", f"2026112{number}-090000", speedups={"copy-edit": gain})
    keep(folder / "kept", "20261125-090000", lambda _, __, resolved: resolved.update(profile="a-long-name" * 4))
    (folder / "kept" / "cpu-smollm2-ngram" / "20261119-000000-box").mkdir()
    (folder / "kept" / "cpu-smollm2-ngram" / "20261119-000000-box" / "report.json").write_text("{", "utf-8")
    write_index(folder / "index.html", kept_lines(folder / "kept"), TEMPLATES)
    return {name: folder / f"{name}.html" for name in NAMES}


@pytest_asyncio.fixture
async def page() -> AsyncIterator[Page]:
    """An empty page of a browser."""
    if not chromium():
        pytest.skip("no Chromium (apt-get install chromium)")
    async with a_page() as found:
        yield found


@pytest.fixture
def axe() -> None:
    """axe-core, as package.json pins it."""
    if not AXE.is_file():
        pytest.skip("no axe-core (make test-pages installs it, or npm ci --prefix tests/pages)")
