"""Write a report's folder: the results of both arms, report.json, and the report as Markdown and as HTML.

Jinja2 renders Markdown and HTML. Its autoescape keeps text of models and prompts from becoming markup of the page.
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

from ..analysis.crossover_text import load_text
from ..bench.result_types import ACCEPTANCE_SOURCES, ArmResult
from ..bench.sweep.ladder_types import Ladder
from ..core import format as wording
from ..core.files import replace_file
from ..core.plain_text import printable, printable_lines
from ..profiles.expected_speed import expected_words
from ..profiles.resolved_types import ExpectedSpeed
from ..report.answers import Shown, shown_of
from ..report.data.build import build_report
from ..report.data.checks import measured_gates
from ..report.data.measures import MEASURES
from ..report.data.setup import MADE_WITH
from ..report.glossary import TERMS
from ..report.headline import below, headline_of
from ..report.report_types import ARMS, KeptProfile, Report

# The templates of the HTML page and of the Markdown text.
PAGE = "report.html.j2"
TEXT = "report.md.j2"
# The names of these two and of the templates that they include.
PARTS = "report*.j2"
# Latencies at a load level: key in report.json, title.
LATENCIES = (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("itl_ms", "ITL"), ("e2el_ms", "Whole answer"))
# The headings in the page's table of contents, in order; each is also the id of its heading.
CONTENTS = (
    *("Speed over load", "By kind of prompt", "Acceptance", "Latency", "Gates and outputs", "Cost", "What was run"),
    *("Versions and machine", "Not measured", "As in the articles"),
)
# Source files that determine how a page looks: after a change of one the page is rendered again.
SOURCES = (
    "report/plots/style.py",
    "report/plots/by_category.py",
    "report/plots/load.py",
    "report/writer.py",
    "report/answers.py",
    "report/glossary.py",
    "core/format.py",
)
# The stamp in a page, see `_stamp`.
STAMP = re.compile(r'<meta name="drafthouse-stamp" content="([0-9a-f]+)">')


@dataclass(frozen=True)
class Written:
    """A report that was written."""

    path: Path  # its folder
    changed: bool  # False: all files had this content already
    report: Report


def report_directory(reports: Path, report: Report) -> Path:
    """The report's folder, ``<reports>/<profile>/<time>-<host>``; the same for the same results."""
    name = f"{wording.folder_date(report['date'])}-{wording.name_of(report['host']) or 'box'}"
    return reports / (wording.name_of(report["profile"]) or "no-profile") / name


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
    """Judge two results and write their report below ``reports``; unchanged files are not written again.

    A continued run has the same start time as before, and so replaces its report. Parameters without a note are those
    of `build_report`; ``templates`` is the folder of the templates.

    The files are baseline.json, speculative.json, report.json (with the resolved profile), report.md and
    report.html, plus stock.json if that arm was measured and ladder.json if loads were. Each file is replaced
    atomically. Raises OSError if the folder cannot be written, and jinja2.TemplateError for an error in a
    template.
    """
    report = build_report(baseline, speculative, resolved, host=host, stock=stock, ladder=ladder)
    return write_files(
        report_directory(reports, report),
        report=report,
        baseline=baseline,
        speculative=speculative,
        resolved=resolved,
        templates=templates,
        stock=stock,
        ladder=ladder,
    )


def write_files(
    folder: Path,
    report: Report,
    baseline: ArmResult,
    speculative: ArmResult,
    resolved: KeptProfile,
    templates: Path,
    stock: ArmResult | None = None,
    ladder: Ladder | None = None,
) -> Written:
    """Write the files of a report into ``folder``, like `write_report`."""
    folder.mkdir(parents=True, exist_ok=True)
    data = to_json({**report, "resolved": resolved})
    changed = [
        _write_if_changed(folder / "baseline.json", to_json(baseline)),
        _write_if_changed(folder / "speculative.json", to_json(speculative)),
        _write_if_changed(folder / "report.json", data),
    ]
    if stock:
        changed.append(_write_if_changed(folder / "stock.json", to_json(stock)))
    if ladder:
        changed.append(_write_if_changed(folder / "ladder.json", to_json(ladder)))
    # Drawing takes seconds, so keep the page if its stamp shows that nothing has changed.
    stamp = _stamp(data, templates)
    page = folder / "report.html"
    markdown = folder / "report.md"
    if not (markdown.is_file() and _stamp_of(page) == stamp):
        changed.append(_write_if_changed(markdown, render_markdown(report, templates)))
        shown = shown_of({"baseline": baseline, "speculative": speculative}, resolved)
        changed.append(_write_if_changed(page, render_html(report, templates, stamp, shown)))
    return Written(folder, any(changed), report)


def to_json(data: object) -> str:
    """Data as indented JSON with a final newline; keys keep their order.

    A lone surrogate (half a character, as in some answers) cannot be encoded in UTF-8 and is written as an escape.
    """
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode()


def _write_if_changed(path: Path, content: str) -> bool:
    """Write a file unless it already has this content; return whether it was written."""
    data = content.encode("utf-8", "backslashreplace")
    if path.is_file() and path.read_bytes() == data:
        return False
    replace_file(path, data, 0o644)
    return True


def _stamp(data: str, templates: Path) -> str:
    """A hash of all that determines a page: data, templates, source files and versions of libraries."""
    parts = [data]
    for path in sorted(templates.glob(PARTS)):
        parts.append(f"{path.name}\n{path.read_text('utf-8')}")
    for name in SOURCES:
        parts.append((Path(__file__).parents[1] / name).read_text("utf-8"))
    for name in MADE_WITH:
        parts.append(f"{name} {_version(name)}")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _version(library: str) -> str | None:
    """The version of an installed library; None if it is not installed."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None  # part of the stamp, so that a page without plots is redrawn once matplotlib is there


def _stamp_of(page: Path) -> str | None:
    """The stamp in a page that was written before; None if there is no page, or no stamp in its head."""
    if not page.is_file():
        return None
    match = STAMP.search(page.read_text("utf-8", errors="replace")[:2000])
    return match.group(1) if match else None


# --- rendering --------------------------------------------------------------------------------------


def markdown_cell(value: object) -> str:
    """Text for a cell of a Markdown table: on one line, with Markdown and HTML escaped."""
    text = re.sub(r"\s+", " ", printable(value)).strip()
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", text)


def code_fence(text: str) -> str:
    """A code fence that is longer than any run of backticks in the text, so that the text cannot end it."""
    longest_run = max(map(len, re.findall(r"`+", text)), default=0)
    return "`" * max(3, longest_run + 1)


def unbreakable(text: str) -> str:
    """Text with its intervals and percentages protected from line breaks."""
    unbroken = re.sub(rf"(?<=\d){wording.DASH}(?=\d)", f"\u2060{wording.DASH}\u2060", text)
    return unbroken.replace(" %", "\u00a0%")


def moments_text(value: object) -> str:
    """A fact of the machine as text: its value, or ``before → after`` if it changed while the arm ran."""
    if not isinstance(value, Mapping):
        return "" if value is None else str(value)
    if "before" in value or "after" in value:
        before, after = _value_text(value.get("before")), _value_text(value.get("after"))
        return before if before == after else f"{before} → {after}"
    return _value_text(value.get("value"))


def _value_text(value: object) -> str:
    """A value as text: yes or no, a formatted number, or a dash for None."""
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
    """A sentence on the expected speed-up, with a leading space; "" if none was computed."""
    if expected and (words := expected_words(expected)):
        return f" Before the measurement {words} was expected."
    return ""


@functools.cache  # compiling templates is slower than rendering them; Jinja reloads a changed file itself
def environment(templates: Path, *, escape: bool) -> jinja2.Environment:
    """The Jinja environment of all pages. Undefined names are errors; ``escape`` is False for Markdown."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=escape,  # noqa: S701 (off for Markdown alone, whose values go through the filter `cell`)
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
        "clock": wording.shown_date,
        "level": wording.shown_level,
        "expected": _expected,
        "headline": headline_of,
        "below": below,
        "measured": measured_gates,
        "load": load_text,
        "moments": moments_text,
        "plain": _value_text,
        "tight": unbreakable,
        "cell": markdown_cell,
        "fence": code_fence,
        "code": printable_lines,
    }
    env.globals |= {
        "arms": ARMS,
        "measures": [entry[:4] for entry in MEASURES],
        "latencies": LATENCIES,
        "contents": CONTENTS,
        "terms": TERMS,
        "sources": ACCEPTANCE_SOURCES,
        "limit_names": dict(LATENCIES),
    }
    return env


def render_html(report: Report, templates: Path, stamp: str = "", shown: Shown | None = None) -> str:
    """The report as an HTML page without external resources.

    ``stamp`` shows in a later run whether the page has to be rendered again ("": always). ``shown`` has the data of
    single requests; None: the page shows none.
    """
    from ..report.plots.by_category import draw  # noqa: PLC0415 (imports matplotlib)

    plots = {
        # Mark the SVG as safe: `to_svg` has escaped all text from outside.
        name: {**plot, "svg": Markup(plot["svg"])}  # noqa: S704
        for name, plot in draw(report).items()
    }
    template = environment(templates, escape=True).get_template(PAGE)
    requests_shown = shown or Shown()
    return template.render(report=report, verdict=report["verdict"], plots=plots, stamp=stamp, shown=requests_shown)


def render_markdown(report: Report, templates: Path) -> str:
    """The report as Markdown, such as for an issue or a blog."""
    template = environment(templates, escape=False).get_template(TEXT)
    return template.render(report=report, verdict=report["verdict"])
