"""What others published beside what was measured: which figure, which of ours, and when ours is well below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.published import check_published, published_of
from drafthouse.profiles.workspace import ROOT
from drafthouse.report.data.build import build_report
from drafthouse.report.data.published import WELL_BELOW, published_beside, published_warnings, usual_causes
from drafthouse.report.terminal import verdict_table
from drafthouse.report.writer import render_html, render_markdown
from tests.support.builders import make_pair, make_resolved

TEMPLATES = Path(__file__).resolve().parents[4] / "templates"
FILE: Any = {
    "sources": {"them": {"name": "Their table", "at": "their/place", "date": "2026-08-08"}},
    "figures": [
        {
            "source": "them",
            "target": {"name": "Plain-8B", "named": "(?i)plain-8b"},
            "draft": {"name": "their head", "named": "their-head"},
            "methods": ["eagle3"],
            "tokens": tokens,
            "lengths": {"gsm8k": 2.9, "MT-Bench": 2.5} if tokens == 3 else {"gsm8k": 3.6},
            "speedups": {"gsm8k": 1.8, "rag": 1.2},
        }
        for tokens in (7, 3)
    ],
}


def model(name: str) -> Any:
    return {"id": "a", "name": name, "source": {"hub": {"repo": name, "revision": "0"}}}


TARGET, HEAD = model("org/Plain-8B-Instruct"), model("org/their-head")


def figures(target: Any = TARGET, draft: Any = HEAD, method: str = "eagle3", tokens: int = 3) -> Any:
    return published_of(FILE, target, draft, method, tokens)


def resolved(**changes: Any) -> Any:
    whole = make_resolved()
    method = {"id": "eagle3", "name": "eagle3", "kind": "head", "num_speculative_tokens": 3}
    return {**whole, "method": method, "published": figures(), **changes}


def told(overall: float | None, **groups: float) -> Any:
    def block(length: float | None) -> Any:
        return {"length": length, "rate": None, "drafts": None}

    return {
        "source": "metrics",
        "overall": block(overall),
        "groups": {name: block(one) for name, one in groups.items()},
    }


def shown(overall: float | None, **groups: float) -> dict[str, Any]:
    rows = published_beside(resolved(), told(overall, **groups))
    return {f"{row['dataset']}, {row['tokens']}": row for row in rows}


# --- the lookup -------------------------------------------------------------------------------------------


def test_the_nearest_stands_first_and_every_data_set_has_a_row() -> None:
    assert [(one["tokens"], one["dataset"]) for one in figures()] == [
        (3, "gsm8k"), (3, "MT-Bench"), (3, "rag"), (7, "gsm8k"), (7, "rag"),
    ]  # fmt: skip
    assert [one["length"] for one in figures()] == [2.9, 2.5, None, 3.6, None]


@pytest.mark.parametrize(
    ("draft", "method", "same"),
    [(HEAD, "eagle3", True), (model("org/another"), "eagle3", False), (None, "eagle3", False), (HEAD, "mtp", False)],
)
def test_the_same_draft_is_the_same_method_too(draft: Any, method: str, same: bool) -> None:
    assert {one["same_draft"] for one in figures(draft=draft, method=method)} == {same}


def test_another_target_has_no_figures() -> None:
    assert figures(model("org/Plain-70B")) == []


def test_the_catalogue_names_its_sources_and_every_expression_can_be_read() -> None:
    published = load_catalog(ROOT).published
    assert check_published(published).problems == []
    assert {row["source"] for row in published["figures"]} == set(published["sources"])
    assert all(row.get("lengths") or row.get("speedups") for row in published["figures"])


@pytest.mark.parametrize("change", [{"source": "thm"}, {"target": {"name": "x", "named": "(open"}}])
def test_a_row_that_leads_nowhere_is_refused(change: Any) -> None:
    file: Any = {**FILE, "figures": [{**FILE["figures"][0], **change}]}
    assert len(check_published(file).problems) == 1


# --- beside ours ------------------------------------------------------------------------------------------


def test_the_same_data_set_is_compared_with_itself_and_others_with_all_prompts() -> None:
    rows = shown(2.2, gsm8k=2.8)
    assert (rows["gsm8k, 3"]["here"], rows["gsm8k, 3"]["same_prompts"]) == (2.8, True)
    assert (rows["MT-Bench, 3"]["here"], rows["MT-Bench, 3"]["same_prompts"]) == (2.2, False)


def test_a_kind_is_its_data_set_whatever_its_spelling() -> None:
    assert shown(2.2, mtbench=2.4)["MT-Bench, 3"]["here"] == 2.4


BOUND = 1 + WELL_BELOW * (2.9 - 1)


@pytest.mark.parametrize(("length", "below"), [(BOUND - 1e-6, True), (BOUND + 1e-6, False), (3.5, False)])
def test_well_below_on_the_same_data_set(length: float, below: bool) -> None:
    assert shown(2.5, gsm8k=length)["gsm8k, 3"]["well_below"] is below


LEAST = 1 + WELL_BELOW * (2.5 - 1)


@pytest.mark.parametrize(("length", "below"), [(LEAST - 1e-6, True), (LEAST + 1e-6, False), (None, False)])
def test_other_prompts_must_be_below_all_that_was_published(length: float | None, below: bool) -> None:
    rows = shown(length)
    assert [rows[name]["well_below"] for name in ("gsm8k, 3", "MT-Bench, 3")] == [below, below]


def test_another_k_or_another_draft_is_no_measure_of_ours() -> None:
    assert not shown(1.1)["gsm8k, 7"]["well_below"]
    others = published_beside(resolved(published=figures(draft=None)), told(1.1))
    assert not any(row["well_below"] for row in others)


# --- what is said of it -----------------------------------------------------------------------------------


def test_the_causes_come_in_order() -> None:
    causes = usual_causes(resolved(), [0.0, 0.7])
    assert [cause.split()[0] for cause in causes] == ["the", "temperature", "precision:", "the"]
    assert "chat template" in causes[0]
    assert "wrong head" in causes[-1]


def test_a_temperature_is_a_cause_only_where_one_was_asked_for() -> None:
    assert not any(cause.startswith("temperature") for cause in usual_causes(resolved(), [0.0]))


@pytest.mark.parametrize(
    ("name", "quantised"),
    [
        ("org/Plain-8B-FP8-dynamic", True),
        ("org/Plain-8B-AWQ", True),
        ("Plain-8B, Q4_K_M", True),
        ("org/Plain-8B", False),
    ],
)
def test_a_quantised_target_is_named(name: str, quantised: bool) -> None:
    causes = " ".join(usual_causes(resolved(target={"name": name}), [0.0]))
    assert (f"{name} is quantised" in causes) is quantised


def test_one_sentence_is_about_the_largest_difference() -> None:
    (sentence,) = published_warnings(published_beside(resolved(), told(1.6)), ["this", "that"])
    assert sentence.startswith("acceptance length 1.60 here, 2.90 published (gsm8k, K=3, Their table); ")
    assert sentence.endswith("usual causes in order: this; that")
    assert published_warnings(published_beside(resolved(), told(2.8)), ["this"]) == []


# --- where it is seen -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "below"), [(1.6, True), (2.8, False)])
def test_a_report_shows_it_in_every_form(length: float, below: bool) -> None:
    base, spec = make_pair()
    spec["spec_decode_acceptance_length"] = length
    report = build_report(base, spec, resolved())
    table = " ".join(verdict_table(report).split())
    assert f"acceptance length {length:.2f} here over all prompts, 2.90 published (gsm8k, K=3, Their table)" in table
    forms = [table, render_html(report, TEMPLATES), render_markdown(report, TEMPLATES)]
    assert all("Their table" in form for form in forms)
    assert [("usual causes in order" in form) for form in forms] == [below] * len(forms)
    assert [("well below" in form) for form in forms[1:]] == [below] * 2


def test_a_report_without_published_figures_says_nothing_of_them() -> None:
    report = build_report(*make_pair(), make_resolved())
    assert report["acceptance"]["published"] == []
    forms = [verdict_table(report), render_html(report, TEMPLATES), render_markdown(report, TEMPLATES)]
    assert not any("for this target" in form for form in forms)
