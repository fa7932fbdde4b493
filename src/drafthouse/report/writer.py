"""Write a report: the two results, report.json, and the same as Markdown and as one page of HTML.

Jinja2, because the page is mostly text with values in it, and its autoescape keeps what a model or a
prompt says from becoming part of the page.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import jinja2
from markupsafe import Markup

from ..analysis.crossover_text import load
from ..bench.result_types import ACCEPTANCE_SOURCES, ArmResult
from ..bench.sweep.ladder_types import Ladder
from ..core import format as wording
from ..core.files import replace_file
from ..core.plain_text import printable, printable_lines
from ..profiles.expected_speed import expected_words
from ..profiles.resolved_types import ExpectedSpeed
from ..report.answers import SHARES, Shown, shown_of
from ..report.data.build import build_report
from ..report.data.measures import MEASURES
from ..report.data.setup import MADE_WITH
from ..report.glossary import TERMS
from ..report.headline import below, headline_of
from ..report.report_types import ARMS, KeptProfile, Report

PAGE, TEXT = "report.html.j2", "report.md.j2"
# What the page is put together from, beside the two.
PARTS = "report*.j2"
# Of a step of load: name in the data, title.
LATENCIES = (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("itl_ms", "ITL"), ("e2el_ms", "Whole answer"))
# The headings that the contents name, in the page's order; each is its heading's id.
CONTENTS = (
    *("Speed over load", "By kind of prompt", "Acceptance", "Latency", "Gates and outputs", "Cost", "What was run"),
    *("Versions and machine", "Not measured", "As in the articles"),
)
# The sources that a page is made of, beside its data and templates: a change of them must redraw it.
SOURCES = (
    "report/plots/style.py",
    "report/plots/by_category.py",
    "report/plots/load.py",
    "report/writer.py",
    "report/answers.py",
    "report/glossary.py",
    "core/format.py",
)
STAMP = re.compile(r'<meta name="drafthouse-stamp" content="([0-9a-f]+)">')


@dataclass(frozen=True)
class Written:
    """Where a report is, whether writing it changed any file, and what it says."""

    path: Path
    changed: bool
    report: Report


def report_directory(reports: Path, report: Report) -> Path:
    """``<reports>/<profile>/<time>-<host>``, the same for the same results."""
    place = f"{wording.time_of(report['date'])}-{wording.name_of(report['host']) or 'box'}"
    return reports / (wording.name_of(report["profile"]) or "no-profile") / place


def write_report(
    reports: Path,
    baseline: ArmResult,
    speculative: ArmResult,
    resolved: KeptProfile,
    templates: Path,
    host: str = "",
    stock: ArmResult | None = None,
    ladder: Ladder | None = None,
) -> Written:
    """Judge two results and write their report below ``reports``; the same results write nothing twice.

    A run that goes on has more results at the same time, and replaces its report.

    Five files: baseline.json, speculative.json, report.json (with the resolved profile), report.md and
    report.html; stock.json where that arm was measured, and ladder.json where loads were. Each is written
    beside its place and renamed, so a reader never sees half a file. OSError says that the folder cannot be
    written, jinja2.TemplateError that a template is wrong.
    """
    report = build_report(baseline, speculative, resolved, host, stock, ladder)
    place = report_directory(reports, report)
    return write_files(place, report, baseline, speculative, resolved, templates, stock, ladder)


def write_files(
    place: Path,
    report: Report,
    baseline: ArmResult,
    speculative: ArmResult,
    resolved: KeptProfile,
    templates: Path,
    stock: ArmResult | None = None,
    ladder: Ladder | None = None,
) -> Written:
    """Write the files of a report into ``place``, as :func:`write_report` does."""
    place.mkdir(parents=True, exist_ok=True)
    data = to_json({**report, "resolved": resolved})
    changed = [
        _put(place / "baseline.json", to_json(baseline)),
        _put(place / "speculative.json", to_json(speculative)),
        _put(place / "report.json", data),
    ]
    if stock:
        changed.append(_put(place / "stock.json", to_json(stock)))
    if ladder:
        changed.append(_put(place / "ladder.json", to_json(ladder)))
    # Drawing takes seconds, and a second run wants none of them: a page made of the same things stays.
    stamp = _stamp(data, templates)
    page, text = place / "report.html", place / "report.md"
    if not (text.is_file() and _stamp_of(page) == stamp):
        changed.append(_put(text, render_markdown(report, templates)))
        shown = shown_of({"baseline": baseline, "speculative": speculative}, resolved)
        changed.append(_put(page, render_html(report, templates, stamp, shown)))
    return Written(place, any(changed), report)


def to_json(data: object) -> str:
    """Data as JSON for people and programs: indented, in its own order, ending in a newline.

    Half a character, as an engine may answer with, cannot be written as UTF-8 and stands there as JSON's escape of it.
    """
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode()


def _put(path: Path, content: str) -> bool:
    """Write a file unless it says just that already; return whether it was written."""
    new = content.encode("utf-8", "backslashreplace")
    if path.is_file() and path.read_bytes() == new:
        return False
    replace_file(path, new, 0o644)
    return True


def _stamp(data: str, templates: Path) -> str:
    """A hash of all that a page is made of: data, templates, drawing code, libraries."""
    parts = [data]
    for path in sorted(templates.glob(PARTS)):
        parts.append(f"{path.name}\n{path.read_text('utf-8')}")
    for name in SOURCES:
        parts.append((Path(__file__).parents[1] / name).read_text("utf-8"))
    for name in MADE_WITH:
        parts.append(f"{name} {_version(name)}")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None  # a page without plots is made anew where they can be drawn


def _stamp_of(page: Path) -> str | None:
    if not page.is_file():
        return None
    found = STAMP.search(page.read_text("utf-8", errors="replace")[:2000])
    return found.group(1) if found else None


# --- rendering --------------------------------------------------------------------------------------


def cell(value: object) -> str:
    """Text for a cell of a Markdown table: one line, nothing in it starts markup or HTML."""
    text = re.sub(r"\s+", " ", printable(value)).strip()
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", text)


def fence(text: str) -> str:
    """A code fence longer than any in the text, which therefore cannot end it."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    return "`" * max(3, longest + 1)


def tight(text: str) -> str:
    """Text whose intervals and percentages do not break at the end of a line."""
    joined = re.sub(rf"(?<=\d){wording.DASH}(?=\d)", f"\u2060{wording.DASH}\u2060", text)
    return joined.replace(" %", "\u00a0%")


def moments(value: object) -> str:
    """A machine's fact: one value, or ``before → after`` where it was read twice and moved."""
    if not isinstance(value, Mapping):
        return "" if value is None else str(value)
    if "before" in value or "after" in value:
        before, after = _plain(value.get("before")), _plain(value.get("after"))
        return before if before == after else f"{before} → {after}"
    return _plain(value.get("value"))


def _plain(value: object) -> str:
    if value is None:
        return wording.NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return wording.number(value)
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:,}"
    return str(value)


def _expected(expected: ExpectedSpeed | None) -> str:
    """The sentence on what was expected before it was measured, with a space before it; "" where nothing was."""
    if expected and (words := expected_words(expected)):
        return f" Before the measurement {words} was expected."
    return ""


@functools.cache  # compiling a page's parts takes longer than filling them in; a file that changes is read again
def environment(templates: Path, *, escape: bool) -> jinja2.Environment:
    """What renders the templates: strict, with the filters of every page; ``escape`` is off for Markdown."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=escape,  # noqa: S701 (off for Markdown alone, whose values go through `cell`)
    )
    env.filters |= {
        "number": wording.number,
        "whole": wording.whole,
        "times": wording.times,
        "times_span": wording.times_span,
        "number_span": wording.number_span,
        "span_of": wording.span,
        "percent": wording.percent,
        "accepted": wording.accepted,
        "counted": wording.count,
        "clock": wording.clock,
        "level": wording.shown_level,
        "expected": _expected,
        "headline": headline_of,
        "below": below,
        "load": load,
        "moments": moments,
        "plain": _plain,
        "tight": tight,
        "cell": cell,
        "fence": fence,
        "code": printable_lines,
    }
    env.globals |= {
        "arms": ARMS,
        "measures": [entry[:4] for entry in MEASURES],
        "latencies": LATENCIES,
        "shares": SHARES,
        "contents": CONTENTS,
        "terms": TERMS,
        "sources": ACCEPTANCE_SOURCES,
        "limit_names": dict(LATENCIES),
    }
    return env


def render_html(report: Report, templates: Path, stamp: str = "", shown: Shown | None = None) -> str:
    """The report as one HTML page that loads nothing; ``shown`` is what it shows of the requests themselves."""
    from ..report.plots.by_category import draw  # noqa: PLC0415 (brings matplotlib along)

    plots = {
        # The drawings are ours; what came from outside was escaped when they were made.
        name: {**plot, "svg": Markup(plot["svg"])}  # noqa: S704
        for name, plot in draw(report).items()
    }
    template = environment(templates, escape=True).get_template(PAGE)
    more = shown or Shown()
    return template.render(report=report, verdict=report["verdict"], plots=plots, stamp=stamp, shown=more)


def render_markdown(report: Report, templates: Path) -> str:
    """The report as Markdown, for an issue or a blog."""
    template = environment(templates, escape=False).get_template(TEXT)
    return template.render(report=report, verdict=report["verdict"])
