"""What a page shows of the requests: a pair of answers of each kind, and the tails of the latencies."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.places import ROOT
from drafthouse.prompts.loader import load_suite
from drafthouse.prompts.suites import prompt_hashes
from drafthouse.report.answers import shown_of
from drafthouse.report.data.build import build_report
from drafthouse.report.glossary import TERMS
from drafthouse.report.report_types import ARMS, Arm
from drafthouse.report.writer import render_html, write_report
from tests.support.builders import make_pair, make_resolved
from tests.support.report_builders import differing, full_report_input

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"


def test_of_each_kind_the_first_pair_that_differs_is_shown_from_where_it_does() -> None:
    shown = shown_of(*differing()).answers
    assert [(pair.prompt_id, pair.at, pair.equal) for pair in shown] == [
        ("creative-2", 40, False),
        ("chat-1", 90, False),
        ("copy-edit-1", 300, False),
    ]
    line, ended, middle = shown
    assert (line.sides["speculative"].mark, line.sides["baseline"].mark) == ("\n", "<")
    assert (ended.sides["speculative"].mark, ended.sides["speculative"].rest) == ("", "")
    assert middle.sides["speculative"].mark == "X"
    assert middle.same.startswith("…")
    assert len(middle.same) == 201
    assert middle.sides["baseline"].rest[:20] == middle.sides["speculative"].rest[:20]


def test_equal_answers_are_shown_once_a_kind_and_a_page_stays_small(tmp_path: Path) -> None:
    base, spec = make_pair(text=lambda *_: "word " * 20_000)
    shown = shown_of({"baseline": base, "speculative": spec}, make_resolved()).answers
    assert [pair.equal for pair in shown] == [True] * 3
    assert max(len(pair.same) for pair in shown) < 600
    written = write_report(tmp_path, base, spec, make_resolved(), TEMPLATES)
    assert (written.path / "report.html").stat().st_size < 400_000
    # Support bundles carry this file.
    assert "word word" not in (written.path / "report.json").read_text("utf-8")


def test_the_page_marks_the_difference_and_escapes_the_answers() -> None:
    results, resolved = differing()
    report = build_report(results["baseline"], results["speculative"], resolved)
    page = render_html(report, TEMPLATES, shown=shown_of(results, resolved))
    assert "<mark>X</mark>" in page
    assert "<mark>∅</mark>" in page
    assert "<mark>↵\n</mark>" in page
    assert "<b>wait" not in page
    assert "&lt;b&gt;wait" in page


def test_a_prompt_is_shown_while_its_suite_has_it_as_it_was_sent() -> None:
    suite = load_suite("mixed", ROOT / "benchmarks")
    base, spec = make_pair()
    for result in (base, spec):
        result["requests"][0]["prompt_id"] = "copy-edit-bakery"
    resolved = make_resolved()
    resolved["experiment"] |= {"prompts_per_kind": {}, "max_output_tokens": None}
    kept = copy.deepcopy(resolved) | {"prompts": prompt_hashes([suite])}
    results: Any = {"baseline": base, "speculative": spec}

    def prompt(profile: Any) -> list[str | None]:
        shown = shown_of(
            {arm: result | {"requests": result["requests"][:1]} for arm, result in results.items()}, profile
        )
        return [pair.prompt for pair in shown.answers]

    (said,) = prompt(kept)
    assert said
    assert said.startswith("Copy this paragraph exactly")
    assert prompt(resolved) == [None]
    kept["prompts"]["copy-edit"]["copy-edit-bakery"] = "0" * 12
    assert prompt(kept) == [None]


def _with_times(answers: int) -> dict[Arm, Any]:
    """Both arms' results with so many answers each; in ms the first token of answer n came after n, then after 2 n."""
    results: dict[Arm, Any] = dict(zip(ARMS, make_pair(), strict=True))
    for factor, result in enumerate(results.values(), start=1):
        first = result["requests"][0]
        result["requests"] = [{**first, "ttft_ms": factor * n, "ttfat_ms": factor * n + 1} for n in range(answers)]
    return results


def test_the_tails_are_percentiles_of_whole_answers() -> None:
    results = _with_times(201)
    results["baseline"]["requests"][-1].update(status="failed")
    shown = shown_of(results, make_resolved())
    tails = {tail.title: tail for tail in shown.tails}
    assert list(shown.shares) == [50, 95, 99]
    assert set(tails) == {"TTFT", "First answer", "Whole answer"}
    assert tails["TTFT"].requests == {"baseline": 200, "speculative": 201}
    assert tails["TTFT"].values["speculative"] == pytest.approx([200, 380, 396])


@pytest.mark.parametrize(("answers", "shares"), [(39, []), (40, [50, 95]), (199, [50, 95]), (200, [50, 95, 99])])
def test_no_percentile_is_shown_that_one_answer_decides(answers: int, shares: list[int]) -> None:
    shown = shown_of(_with_times(answers), make_resolved())
    assert list(shown.shares) == shares
    assert bool(shown.tails) == bool(shares)


def test_the_first_answer_is_no_row_where_nothing_was_thought() -> None:
    results = _with_times(200)
    for result in results.values():
        for request in result["requests"]:
            request["ttfat_ms"] = request["ttft_ms"]
    assert [tail.title for tail in shown_of(results, make_resolved()).tails] == ["TTFT", "Whole answer"]


def test_every_term_of_the_glossary_stands_over_a_column() -> None:
    report = build_report(*full_report_input())
    page = render_html(report, TEMPLATES, shown=shown_of(_with_times(200), make_resolved()))
    page += (TEMPLATES / "report_kinds.html.j2").read_text("utf-8")  # published figures, which this report has none of
    assert [term for term in TERMS if f">{term}</button>" not in page and f'sort_head("{term}")' not in page] == []
