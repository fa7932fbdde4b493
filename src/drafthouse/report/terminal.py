"""Show a report as plain text of 80 to 100 columns, for a terminal or a log, optionally with ANSI colours."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Literal

from ..analysis.gates import OUTPUTS, PASSED
from ..analysis.verdict_types import EqualOutputs
from ..analysis.words import CANNOT_SAY, DOES_NOT_PAY, INVALID, PAYS
from ..bench.stats import CONFIDENCE, Estimated, Gain
from ..core.format import NOTHING, accepted, listing, number, percent, shown_date, shown_level, times, times_span
from ..core.plain_text import printable
from ..core.table import aligned
from ..profiles.expected_speed import expected_words
from .data.checks import measured_gates
from .data.published import conditions
from .headline import below, headline_of
from .report_types import ARMS, GateRow, KindRow, Load, LoadedArm, PublishedBeside, Report

#: The ANSI code of a verdict's word.
COLOURS = {PAYS: "\033[1;32m", DOES_NOT_PAY: "\033[1;33m", CANNOT_SAY: "\033[1;36m", INVALID: "\033[1;31m"}
#: The fewest columns of the text.
NARROWEST = 80
#: The most columns of the text, in a wider terminal too.
WIDEST = 100
#: The most published figures in a terminal; the HTML page has all.
PUBLISHED = 3
# ANSI codes that begin a colour; PLAIN ends it.
AMBER = "\033[33m"
DIM = "\033[2m"
PLAIN = "\033[0m"


def _shorten(text: str, width: int) -> str:
    """The text, cut to ``width`` characters with an ellipsis."""
    if len(text) <= width:
        return text
    return text[: width - 1] + "…"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], widest_first: int) -> list[str]:
    """A table as lines; the first column is left-aligned and at most ``widest_first`` wide, the others right."""
    cells = []
    for row in (head, *rows):
        first, *numbers = map(printable, row)
        cells.append([_shorten(first, widest_first), *numbers])
    return aligned(cells)


def _wrap(text: str, width: int, indent: str = "  ") -> list[str]:
    """The text as a list item, wrapped to ``width`` columns."""
    return textwrap.wrap(printable(text), width, initial_indent=f"{indent}- ", subsequent_indent=f"{indent}  ")


def verdict_table(report: Report, *, width: int = 80, colour: bool = False) -> str:
    """The report as text: verdict, warnings, numbers by kind of prompt, loads, gates and outputs.

    ``width`` is the number of columns, at least 80; ``colour`` adds ANSI codes.
    """

    def paint(text: str, code: str) -> str:
        return f"{code}{text}{PLAIN}" if colour else text

    rule = "─" * width
    lines = [paint(rule, DIM), *_verdict_lines(report, width, paint)]
    lines += _kind_lines(report["kinds"], width, paint)
    lines += _load_lines(report.get("load"), width)
    lines += _gate_lines(report.get("gates"), width)

    if report["stock"]:
        ratios = "; ".join(f"{arm} {times_span(ratio)}" for arm, ratio in report["stock"].items())
        lines += ["", *textwrap.wrap(f"against the engine started without our settings (stock): {ratios}", width)]

    lines += _output_lines(report, width)
    if "files" in report:
        lines += _file_lines(report, width)
    return "\n".join([*lines, paint(rule, DIM)]) + "\n"


def _verdict_lines(report: Report, width: int, paint: Callable[[str, str], str]) -> list[str]:
    """The title, the failed requests, the verdict with its reasons, and the warnings.

    ``paint`` adds the colour of an ANSI code to a text, if the terminal shows colours.
    """
    verdict = report["verdict"]
    title = filter(None, (report["profile"], report["host"], shown_date(report["date"])))
    lines = [_shorten(printable(" · ".join(title)), width)]
    for failure in report["failures"]:
        sentence = f"{failure['arm']}: {failure['count']} of {failure['of']} requests {failure['words']}"
        lines.append(paint(printable(sentence), COLOURS[INVALID]))
    lines.append("")
    for line in textwrap.wrap(printable(headline_of(verdict)), width):
        lines.append(paint(line, COLOURS[verdict["word"]]))
    lines += textwrap.wrap(printable(below(verdict, load=True)), width)
    reasons = verdict["reasons"]
    if verdict["word"] in (INVALID, CANNOT_SAY):
        reasons = reasons[1:]  # the sentence of such a verdict already contains the first reason
    for reason in reasons:
        lines += _wrap(reason, width)
    if report["warnings"]:
        lines += ["", paint("what weakens this verdict", AMBER)]
        for warning in report["warnings"]:
            lines += _wrap(warning, width)
    return lines


def _kind_lines(kinds: Sequence[KindRow], width: int, paint: Callable[[str, str], str]) -> list[str]:
    """A table of the speed per request by kind of prompt in both arms, and an explanation of its marks."""
    if not kinds:
        return []
    head = ["kind of prompt", "baseline", "speculative", "speed-up", "accepted", "A/A"]
    rows = []
    any_repeats = False
    any_too_few = False
    for row in kinds:
        speedup = times_span(row["speedup"])
        if row["speedup"] and row["speedup"]["reach"] < CONFIDENCE:
            any_too_few = True
            speedup += " ?"
        rate = percent(row["acceptance"]["rate"])
        if row["acceptance"].get("repeats"):
            any_repeats = True
            rate = f"!{rate}"
        declared = " *" if row["declared"] else ""
        rows.append(
            [
                f"{row['group']}{declared}",
                number(_median_of(row["tok_s"]["baseline"])),
                number(_median_of(row["tok_s"]["speculative"])),
                speedup,
                rate,
                times(_gain_of(row["control"])),
            ]
        )
    lines = ["", *_table(head, rows, width - 62)]  # the other columns take 62
    if any_repeats:
        lines.append(paint("! repeats itself: such answers draft easily", DIM))
    lines.append(paint("tok/s for one request; * kinds of the verdict; A/A baseline against itself", DIM))
    if any_too_few:
        lines.append(paint("? too few prompts for a verdict", DIM))
    return lines


def _output_lines(report: Report, width: int) -> list[str]:
    """Lines on equal answers, draft tokens and acceptance, and the expected and published acceptance."""
    lines: list[str] = []
    outputs = report["verdict"]["outputs"]
    passed = any(gate["name"] == OUTPUTS and gate["word"] == PASSED for gate in report["gates"] or [])
    # A passed gate has said it already.
    if outputs["speculative"] and not passed:
        equal = _equal_count(outputs["speculative"])
        control = _equal_count(outputs["control"])
        lines.append(f"equal outputs at temperature 0: {equal}; baseline against itself: {control}")
    overall = report["acceptance"]["overall"]
    if overall["draft_tokens"] is not None:
        drafted = f"drafted {overall['draft_tokens']:,.0f} tokens, accepted {accepted(overall)}"
        lines += textwrap.wrap(f"{drafted}, mean acceptance length {number(overall['length'])}", width)
    expectation = report.get("expectation")
    expected = expected_words(expectation) if expectation else ""
    if expected:
        lines += textwrap.wrap(f"expected before: {expected}", width)
    for published in _published_lines(report):
        lines += textwrap.wrap(printable(published), width)
    return ["", *lines] if lines else []


def _file_lines(report: Report, width: int) -> list[str]:
    """Lines of a report on other people's files: runs, pairing, the author's figures, and what is not known."""
    files = report["files"]
    lines = [""]
    for arm in ARMS:
        runs = f"{arm}: {', '.join(files['runs'][arm])} ({', '.join(files['forms'][arm])})"
        lines += textwrap.wrap(printable(runs), width)
    paired = f"paired by {files['paired_by']}"
    if files["clocks"]:
        paired += f"; time per token from {listing(files['clocks'])}"
    lines += textwrap.wrap(printable(paired), width)
    for title, sentences in (
        ("as said by its author", files["author"]),
        ("Not known from these files", report["not_measured"]),
    ):
        if sentences:
            lines += ["", title]
        for sentence in sentences:
            lines += _wrap(sentence, width)
    return lines


def _published_lines(report: Report) -> list[str]:
    """Published acceptance lengths of the same draft beside the measured ones, those on the same prompts first."""
    same_prompts: list[PublishedBeside] = []
    other_prompts: list[PublishedBeside] = []
    for figure in report["acceptance"].get("published") or []:
        if figure["same_draft"] and figure["length"]:
            (same_prompts if figure["same_prompts"] else other_prompts).append(figure)
    lines = []
    for figure in [*same_prompts, *other_prompts][:PUBLISHED]:
        measured = f"{number(figure['here'])} here"
        if not figure["same_prompts"]:
            measured += " over all prompts"
        lines.append(f"acceptance length {measured}, {number(figure['length'])} published ({conditions(figure)})")
    return lines


def _median_of(estimate: Estimated | None) -> float | None:
    return estimate["median"] if estimate else None


def _gain_of(estimate: Gain | None) -> float | None:
    return estimate["gain"] if estimate else None


def _equal_count(outputs: EqualOutputs | None) -> str:
    """How many pairs of answers are equal, as text; a dash if none were compared."""
    if not outputs:
        return NOTHING
    return f"{outputs['equal']} of {outputs['pairs']}"


def _load_lines(load: Load | None, width: int) -> list[str]:
    """A table of the load levels: speed of the server and per user in both arms, and the word of each level."""
    if not load:
        return []
    head = ["under load", "at", "server", "with", "user", "with", "speed-up", "says"]
    rows = []
    for row in load["rows"]:
        baseline, speculative = row["baseline"], row["speculative"]
        server = _speed_or_status(baseline, "output_throughput"), _speed_or_status(speculative, "output_throughput")
        user = _speed_or_status(baseline, "per_user_tok_s"), _speed_or_status(speculative, "per_user_tok_s")
        gain = times(_gain_of(row["speedup"]))
        rows.append([row["kind"], shown_level(row["level"]), *server, *user, gain, row["word"] or NOTHING])
    lines = ["", *_table(head, rows, width - 60)]  # the other columns take 60
    legend = f"at: {load['unit']}; tok/s of the whole server and per user, without and with speculation"
    lines += textwrap.wrap(printable(legend), width)
    for trouble in load["troubles"]:
        lines += _wrap(trouble, width)
    return lines


def _gate_lines(gates: Sequence[GateRow] | None, width: int) -> list[str]:
    """A line for each measured gate, i.e. check that speculation did not change the answers."""
    measured = measured_gates(gates)
    if not measured:
        return []
    lines = ["", "gates"]
    for gate in measured:
        sentence = f"{gate['title']}: {gate['word']}"
        # ``said`` may only repeat the word.
        if gate["said"] and gate["said"] != gate["word"]:
            sentence += f": {gate['said']}"
        lines += _wrap(sentence, width)
    return lines


def _speed_or_status(arm: LoadedArm | None, name: Literal["output_throughput", "per_user_tok_s"]) -> str:
    """A speed of an arm at a load level, or the arm's status if it was disturbed or incomplete."""
    if not arm:
        return NOTHING
    if arm["status"] != "ok":
        return arm["status"]
    return number(arm[name])
