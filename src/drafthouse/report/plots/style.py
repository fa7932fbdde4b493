"""How the report's plots look: colours that are the page's own, text that is text, SVG for the inside of a page.

matplotlib, because its axes, ticks and labels are right without our help. It takes a second to import, so
only drawing imports it. Text stays text, so that it can be read aloud, searched and enlarged, and colours
are the page's own CSS variables, so that one drawing serves light, dark and paper.
"""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from drafthouse.report.report_types import Arm

# Colours nothing else uses, by the CSS variable that takes their place in the finished drawing.
INK, MUTED, GRID, BASELINE, SPECULATIVE, ACCENT = (
    "#010203",
    "#010204",
    "#010205",
    "#010206",
    "#010207",
    "#010208",
)
VARIABLES = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    BASELINE: "var(--baseline)",
    SPECULATIVE: "var(--speculative)",
    ACCENT: "var(--threshold)",
}
NAMES: dict[Arm, str] = {"baseline": "Baseline", "speculative": "Speculative"}
# A dashed line tells the arms apart where a printer or an eye shows no colours.
LINES: dict[Arm, Any] = {"baseline": (0, (5, 2)), "speculative": "solid"}
COLOURS: dict[Arm, str] = {"baseline": BASELINE, "speculative": SPECULATIVE}
# A phone shows a page 360 px wide: at 5 inches a drawing shrinks little there, and its text stays readable.
WIDTH = 5.0
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    # The ids inside are made from this: the same data gives the same bytes.
    "svg.hashsalt": "drafthouse",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "xtick.color": MUTED,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.major.size": 0,
}


def new_figure(height: float) -> Figure:
    """An empty figure as wide as the page's column and ``height`` inches high."""
    from matplotlib.figure import Figure as MakeFigure  # noqa: PLC0415

    return MakeFigure(figsize=(WIDTH, height), layout="constrained")


def new_axes(height: float) -> tuple[Figure, Axes]:
    """A figure of ``height`` inches with one pair of axes."""
    figure = new_figure(height)
    return figure, figure.add_subplot()


def to_svg(figure: Figure, name: str, title: str, text: str) -> str:
    """A figure as SVG for the inside of a page: no prolog, own ids, the page's colours and font.

    ``name`` begins every id and must be another one for every drawing of a page; ``title`` and ``text`` are what
    is read aloud.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    # Two drawings in one page must not share ids, or one clips with the other's shapes.
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"font: ((?:[\w.]+ )*?[\d.]+px) [^;\"]+", r"font: \1 var(--plot-font)", svg)
    svg = re.sub(r"font-family: [^;\"]+", "font-family: var(--plot-font)", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, variable)
    opening = svg[: svg.index(">") + 1]
    box = re.search(r'viewBox="[^"]+"', opening)
    labelled = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{box.group(0) if box else ""} role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{html.escape(title)}</title>'
        f'<desc id="{name}-desc">{html.escape(text)}</desc>'
    )
    return labelled + svg[len(opening) :].rstrip()


def plain(text: object) -> str:
    """Text that matplotlib shows as it stands: ``$`` would start mathematics."""
    return str(text).replace("$", r"\$")


def short(name: object, most: int = 22) -> str:
    """A name that fits beside a plot."""
    text = plain(name)
    if len(text) <= most:
        return text
    return text[: most - 1] + "…"
