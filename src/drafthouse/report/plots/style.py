"""Style of the report's plots, and their conversion to SVG for inclusion in the HTML page.

matplotlib draws them. It takes a second to import, so only drawing imports it. Text stays text in the SVG, so that it
can be read aloud, searched and enlarged. Colours become the page's CSS variables, so that the same drawing fits the
light and dark themes and print.
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

# Placeholder colours that nothing else uses; `to_svg` replaces them by CSS variables.
INK = "#010203"
MUTED = "#010204"
GRID = "#010205"
BASELINE = "#010206"
SPECULATIVE = "#010207"
ACCENT = "#010208"
# The CSS value of each placeholder.
VARIABLES = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    BASELINE: "var(--baseline)",
    SPECULATIVE: "var(--speculative)",
    ACCENT: "var(--threshold)",
}
NAMES: dict[Arm, str] = {"baseline": "Baseline", "speculative": "Speculative"}
# A dashed line distinguishes the arms in print without colour and for colour-blind readers.
LINES: dict[Arm, Any] = {"baseline": (0, (5, 2)), "speculative": "solid"}
COLOURS: dict[Arm, str] = {"baseline": BASELINE, "speculative": SPECULATIVE}
# Width of a figure in inches. A phone's page is 360 px wide, to which 5 inches shrink little: the text stays readable.
WIDTH = 5.0
# Settings of matplotlib.
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    # The ids in the SVG depend on this salt: the same data gives the same bytes.
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
    """An empty figure, `WIDTH` by ``height`` inches."""
    from matplotlib.figure import Figure as MakeFigure  # noqa: PLC0415

    return MakeFigure(figsize=(WIDTH, height), layout="constrained")


def new_axes(height: float) -> tuple[Figure, Axes]:
    """A figure of ``height`` inches with a single plot."""
    figure = new_figure(height)
    return figure, figure.add_subplot()


def to_svg(figure: Figure, name: str, title: str, text: str) -> str:
    """A figure as SVG for inclusion in a page: no prolog, and the page's colours and font.

    ``name`` prefixes all ids and must be unique in the page. Screen readers read ``title`` and ``text``.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    # Make ids unique: a drawing with another's ids would use its clipping shapes.
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"font: ((?:[\w.]+ )*?[\d.]+px) [^;\"]+", r"font: \1 var(--plot-font)", svg)
    svg = re.sub(r"font-family: [^;\"]+", "font-family: var(--plot-font)", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, variable)
    opening = svg[: svg.index(">") + 1]
    view_box = re.search(r'viewBox="[^"]+"', opening)
    opening_with_text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{view_box.group(0) if view_box else ""} role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{html.escape(title)}</title>'
        f'<desc id="{name}-desc">{html.escape(text)}</desc>'
    )
    return opening_with_text + svg[len(opening) :].rstrip()


def escape_dollar(text: object) -> str:
    """Text with ``$`` escaped, which would start a formula in matplotlib."""
    return str(text).replace("$", r"\$")


def cut_label(name: object, most: int = 22) -> str:
    """A name cut to ``most`` characters, to fit beside a plot."""
    text = escape_dollar(name)
    if len(text) <= most:
        return text
    return text[: most - 1] + "…"
