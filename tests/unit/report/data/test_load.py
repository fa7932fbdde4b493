"""Loads, gates and cost in a report: the numbers, the sentence, the plots, the page without any of them."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from drafthouse.core.exit_codes import WARNED
from drafthouse.report.data.build import build_report
from drafthouse.report.data.load import load_of, troubles, with_load
from drafthouse.report.plots.by_category import draw
from drafthouse.report.terminal import verdict_table
from drafthouse.report.writer import render_html, render_markdown, to_json, write_report
from tests.support.builders import make_pair, make_resolved
from tests.support.report_builders import LEVELS, LIMITS, full_report_input, make_ladder, with_crossover
from tests.support.verb import called

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[4]
TEMPLATES = ROOT / "templates"
SVG = "{http://www.w3.org/2000/svg}"
PAYS: Any = {"word": "pays", "sentence": "pays: x"}


@pytest.fixture(scope="module")
def report() -> Any:
    return build_report(*full_report_input())


@pytest.fixture(scope="module")
def schema() -> Any:
    found: Any = json.loads((ROOT / "docs" / "report.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def row_of(load: Any, kind: str, level: int) -> Any:
    (row,) = [row for row in load["rows"] if (row["kind"], row["level"]) == (kind, level)]
    return dict(row)


def run_report(*words: object) -> subprocess.CompletedProcess[str]:
    return called("report", *words)


# --- the numbers ------------------------------------------------------------------------------------------


def test_a_row_is_the_median_over_the_rounds_of_either_arm(report: Any) -> None:
    ladder = make_ladder(limits=LIMITS)
    row = row_of(report["load"], "copy-edit", 8)
    steps = [s for s in ladder["steps"] if (s["arm"], s["kind"], s["level"]) == ("speculative", "copy-edit", 8)]
    speeds = [step["output_throughput"] for step in steps]
    assert row["speculative"]["output_throughput"] == pytest.approx(sum(speeds) / 2)
    assert row["speculative"]["acceptance_rate"] == pytest.approx(0.81)
    assert row["speculative"]["ttft_ms"] == pytest.approx({"median": 64.0, "p90": 83.2, "p99": 121.6})
    assert row["speculative"]["steps"] == row["speculative"]["kept"] == 2
    assert row["speculative"]["seconds"] == pytest.approx(40.0)
    assert row["baseline"]["acceptance_rate"] is None
    assert row["speedup"]["low"] <= row["speedup"]["gain"] <= row["speedup"]["high"]
    assert row["word"] == "pays"
    assert report["load"]["levels"] == list(LEVELS)
    assert report["load"]["limits"] == LIMITS


@pytest.mark.parametrize("status", ["polluted", "broken", "incomplete"])
def test_a_step_that_is_not_whole_enters_no_number_and_is_named(status: str) -> None:
    ladder = make_ladder()
    step = next(s for s in ladder["steps"] if (s["arm"], s["kind"], s["level"]) == ("speculative", "copy-edit", 4))
    step.update(status=status, output_throughput=1e9, notes=["seen at 11:16"], restarted=status == "broken")
    load = load_of(with_crossover(ladder), ["copy-edit"])
    assert load
    arm = row_of(load, "copy-edit", 4)["speculative"]
    assert (arm["status"], arm["steps"], arm["kept"]) == ("ok", 2, 1)
    assert arm["output_throughput"] < 1e6
    (trouble,) = load["troubles"]
    assert trouble.startswith("speculative, copy-edit at 4, round 1: ")
    assert "seen at 11:16" in trouble
    assert ("its server was restarted" in trouble) is (status == "broken")


def test_what_disturbed_a_step_is_said_by_its_note_alone() -> None:
    ladder = make_ladder()
    said = "the machine was suspended for 8.0 s during the measurement"
    ladder["steps"][3].update(status="polluted", notes=[said])
    (trouble,) = troubles(ladder["steps"])
    assert "client" not in trouble
    assert trouble.endswith(f": disturbed while it ran, so its numbers are left out ({said})")


def test_a_level_without_one_whole_step_says_why_in_place_of_numbers() -> None:
    ladder = make_ladder()
    for step in ladder["steps"]:
        if step["level"] == 16 and step["arm"] == "speculative":
            step.update(status="broken", ended_by="died")
    report = build_report(*make_pair(), make_resolved(), ladder=with_crossover(ladder))
    row = row_of(report["load"], "copy-edit", 16)
    assert row["speculative"]["status"] == "broken"
    assert row["speculative"]["output_throughput"] is None
    assert row["speedup"] is None
    assert "broken</small>" in render_html(report, TEMPLATES)
    assert "| broken |" in render_markdown(report, TEMPLATES)
    assert re.search(r"copy-edit +16 .* broken ", verdict_table(report))


def test_failed_requests_of_a_step_are_told() -> None:
    ladder = make_ladder()
    ladder["steps"][0].update(failed=3)
    load = load_of(ladder, [])
    assert load
    assert load["troubles"] == ["baseline, copy-edit at 1, round 1: 3 of 36 requests failed"]


def test_notes_of_good_steps_are_told_once_with_their_number() -> None:
    ladder = make_ladder()
    for step in ladder["steps"][:3]:
        step["notes"] = ["its time was short"]
    ladder["notes"] = ["the clock jumped"]
    report: Any = build_report(*make_pair(), make_resolved(), ladder=ladder)
    assert report["load"]["remarks"] == ["the clock jumped", "its time was short (3 steps)"]
    for text in (render_html(report, TEMPLATES), render_markdown(report, TEMPLATES)):
        assert "its time was short (3 steps)" in text


def test_energy_of_a_token_follows_from_power_and_speed() -> None:
    ladder = make_ladder()
    for step in ladder["steps"]:
        # 6,000 tokens under full load and after it, in the 10 s that the energy was read for.
        step["power"] = {"mean_w": 300.0, "energy_j": 3000.0, "energy_above_idle_j": 2400.0, "output_tokens": 6000}
        step["output_throughput"] = 900.0
    load: Any = load_of(ladder, [])
    assert load
    arm = load["rows"][0]["baseline"]
    assert arm["mean_w"] == pytest.approx(300.0)
    assert arm["joules_per_token"] == pytest.approx(0.5)
    assert arm["joules_per_token_above_idle"] == pytest.approx(0.4)


def test_no_energy_of_a_token_where_not_all_tokens_are_known() -> None:
    ladder = make_ladder()
    for step in ladder["steps"]:
        step["power"] = {"mean_w": 300.0, "energy_j": 3000.0, "energy_above_idle_j": 2400.0, "output_tokens": None}
    load: Any = load_of(ladder, [])
    assert load
    arm = load["rows"][0]["baseline"]
    assert (arm["mean_w"], arm["joules_per_token"], arm["joules_per_token_above_idle"]) == (300.0, None, None)


def test_the_verdicts_kind_comes_first() -> None:
    load = load_of(make_ladder(("creative", "copy-edit")), ["copy-edit"])
    assert load
    assert [(kind["kind"], kind["declared"]) for kind in load["kinds"]] == [("copy-edit", True), ("creative", False)]


# --- the sentence -----------------------------------------------------------------------------------------


def test_the_verdict_says_until_which_load_it_pays(report: Any) -> None:
    verdict, kind = report["verdict"], report["load"]["kinds"][0]
    assert verdict["word"] == "pays"
    assert 8 <= kind["pays_until"] <= 32
    assert verdict["sentence"].startswith("pays: ")
    assert verdict["sentence"].endswith(f"; under load: {kind['sentence']}")
    for text, behind in (
        (render_html(report, TEMPLATES), "Response Tok/s"),
        (render_markdown(report, TEMPLATES), "Response Tok/s"),
        (verdict_table(report), "kind of prompt"),
    ):
        flat = " ".join(text.split()).replace("\u2060", "").replace("\u00a0", " ")
        assert "concurrent requests (" in flat[: flat.index(behind)]
    assert kind["reasons"][0].startswith("the lower bound for one user is ")


def test_kinds_that_the_verdict_does_not_know_are_named_in_its_sentence() -> None:
    verdict = with_load(PAYS, load_of(make_ladder(), ["chat"]))
    assert verdict["sentence"].startswith("pays: x; under load, on copy-edit: pays ")
    assert "; on creative: does not pay" in verdict["sentence"]


def test_kinds_of_which_the_same_is_said_are_named_together() -> None:
    load: Any = load_of(make_ladder(), [])
    assert load is not None
    kinds = [{**kind, "sentence": "cannot say up to which load it pays"} for kind in load["kinds"]]
    verdict = with_load(PAYS, load | {"kinds": kinds})
    assert verdict["sentence"] == "pays: x; under load, on copy-edit and creative: cannot say up to which load it pays"


@pytest.mark.parametrize(
    "verdict", [{"word": "invalid"}, {"word": "cannot say"}, {"word": "does not pay", "wrong_output": True}]
)
def test_an_invalid_comparison_and_wrong_output_claim_nothing_about_loads(verdict: Any) -> None:
    found = with_load(verdict | {"sentence": "x"}, load_of(make_ladder(), ["copy-edit"]))
    assert (found["sentence"], found["load"]) == ("x", None)


def test_wrong_output_keeps_the_speeds_and_no_word_about_them() -> None:
    pair = make_pair(text=lambda arm, prompt, number: f"{'Yes' if arm == 'baseline' else 'No'}, {prompt} " * 30)
    report: Any = build_report(*pair, make_resolved(), ladder=make_ladder())
    assert report["verdict"]["sentence"].startswith("does not pay: wrong output: ")
    assert [gate["word"] for gate in report["gates"] if gate["name"] == "outputs"] == ["failed"]
    assert {row["word"] for row in report["load"]["rows"]} == {None}
    assert {kind["sentence"] for kind in report["load"]["kinds"]} == {None}
    assert report["load"]["rows"][0]["speculative"]["output_throughput"]
    page = render_html(report, TEMPLATES)
    assert "output is wrong" in page
    assert "Pays until" not in page
    assert "pays until about" not in page


# --- old results ------------------------------------------------------------------------------------------


def test_without_a_ladder_the_report_says_what_is_lacking_and_shows_no_empty_parts() -> None:
    report = build_report(*make_pair(), make_resolved())
    assert report["load"] is None
    assert "Any load other than one request at a time" in report["not_measured"][0]
    for text in (render_html(report, TEMPLATES), render_markdown(report, TEMPLATES)):
        assert "Speed over load" not in text
    assert "under load" not in verdict_table(report)


@pytest.mark.parametrize(
    ("ladder", "found"),
    [
        (None, "asks for a load ladder, but none was measured"),
        ({"schema": "drafthouse.ladder/9", "steps": [{"level": 1}]}, "'drafthouse.ladder/9'"),
    ],
)
def test_a_ladder_that_is_lacking_or_unknown_is_a_warning(ladder: Any, found: str) -> None:
    resolved = make_resolved()
    resolved["experiment"]["ladder"] = {"levels": [1, 2]}
    report = build_report(*make_pair(), resolved, ladder=ladder)
    assert report["load"] is None
    assert [warning for warning in report["warnings"] if found in warning]


def test_a_ladder_that_was_never_begun_is_none() -> None:
    ladder: Any = {"schema": "drafthouse.ladder/1", "levels": [1, 2], "steps": []}
    assert load_of(ladder) is None


@pytest.mark.usefixtures("drawn")
def test_a_ladder_of_one_arm_is_still_shown() -> None:
    ladder = make_ladder()
    ladder["steps"] = [step for step in ladder["steps"] if step["arm"] == "baseline"]
    report: Any = build_report(*make_pair(), make_resolved(), ladder=ladder)
    assert "(only baseline was measured)" in report["verdict"]["load"]
    assert report["load"]["rows"][0]["speculative"] is None
    assert render_html(report, TEMPLATES)
    assert render_markdown(report, TEMPLATES)
    assert verdict_table(report)


# --- plots ------------------------------------------------------------------------------------------------


def test_each_kind_has_a_plot_with_its_crossover_marked(report: Any) -> None:
    plots = draw(report)
    assert [name for name in plots if name.startswith("load-")] == ["load-0", "load-1"]
    first, second = plots["load-0"], plots["load-1"]
    shown = ["".join(text.itertext()) for text in ElementTree.fromstring(first["svg"]).iter(f"{SVG}text")]
    assert any(text.startswith("pays until about ") for text in shown)
    assert {"1", "2", "4", "8", "16", "32", "concurrent requests", "Baseline", "Speculative"} <= set(shown)
    assert "var(--threshold)" in first["svg"]
    assert "pays until" not in second["svg"]
    assert "at 8: " in first["text"]
    assert report["load"]["kinds"][0]["sentence"] in first["text"]


def test_the_drawings_are_the_same_bytes_twice(report: Any) -> None:
    assert draw(copy.deepcopy(report)) == draw(report)


def test_open_ends_of_the_interval_and_gaps_are_drawn(report: Any) -> None:
    changed = copy.deepcopy(report)
    changed["load"]["kinds"][0]["interval"] = [None, None]
    changed["load"]["rows"][2]["speculative"] = None
    assert ElementTree.fromstring(draw(changed)["load-0"]["svg"]).tag == f"{SVG}svg"


def test_one_level_and_rates_below_one_are_drawn() -> None:
    ladder = make_ladder(("copy-edit",), (2,))
    for step in ladder["steps"]:
        step["level"] = 0.5
    ladder |= {"levels": [0.5], "load": "open", "unit": "requests a second"}
    report = build_report(*make_pair(), make_resolved(), ladder=with_crossover(ladder))
    assert "load-0" in draw(report)
    assert "at random moments" in render_html(report, TEMPLATES)


# --- the page, the schema, the files ------------------------------------------------------------------------


def test_gates_and_cost_are_on_the_page(report: Any) -> None:
    assert {gate["name"] for gate in report["gates"]} == {
        "outputs",
        "json",
        "tools",
        "needle",
        "scores",
        "texts",
        "sampled",
    }
    rows = {(row["what"], row["unit"]): row for row in report["cost"]["rows"]}
    assert rows["Mean power", "W"]["baseline"] == pytest.approx(310.0)
    assert rows["Start-up to ready", "s"]["speculative"] == pytest.approx(48.25)
    for text in (render_html(report, TEMPLATES), render_markdown(report, TEMPLATES)):
        for words in ("Mean power", "EUR per million", "EUR an hour a million output tokens", "Equal outputs at"):
            assert words in text.replace("\u00a0", " ")
    # Of a comparison that proves nothing no saving follows.
    doubtful: Any = {**report, "verdict": {**report["verdict"], "word": "cannot say"}}
    for text in (render_html(doubtful, TEMPLATES), render_markdown(doubtful, TEMPLATES)):
        assert "million output tokens cost" not in text.replace("\u00a0", " ")
    assert not [sentence for sentence in report["not_measured"] if "nergy" in sentence]


def test_what_no_gate_tried_and_no_meter_read_is_said() -> None:
    told = " ".join(build_report(*make_pair(), make_resolved())["not_measured"])
    for words in ("JSON schema", "tool calls", "long context", "Energy per token and money per token"):
        assert words in told


def test_start_up_seconds_are_no_change_of_the_engine(report: Any) -> None:
    assert [row["what"] for row in report["engine_changes"]] == ["model_runner"]


@pytest.mark.parametrize("what", ["full", "plain", "nothing"])
def test_the_published_schema_describes_the_report(what: str, schema: Any) -> None:
    given = {"full": full_report_input(), "plain": (*make_pair(), make_resolved()), "nothing": ({}, {}, {})}[what]
    report = json.loads(to_json({**build_report(*given), "resolved": given[2]}))
    jsonschema.validate(report, schema, cls=jsonschema.Draft202012Validator)


def test_the_schema_refuses_what_is_no_report(report: Any, schema: Any) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    spoilt: list[Any] = [{key: value for key, value in report.items() if key != name} for name in report]
    spoilt += [{**report, "other": 1}, {**report, "schema": "drafthouse.report/2"}]
    for path, value in (
        (("verdict", "word"), "perhaps"),
        (("load", "levels"), [0]),
        (("kinds", 0, "speedup", "gain"), "2.3"),
        (("gates", 0, "word"), "ok"),
        (("acceptance", "overall", "rate"), 81.0),
    ):
        changed: Any = copy.deepcopy(report)
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        spoilt.append(changed)
    for data in spoilt:
        assert not validator.is_valid(json.loads(json.dumps(data)))


@pytest.mark.usefixtures("drawn")
def test_the_folder_keeps_the_ladder_and_makes_the_same_page_of_it(tmp_path: Path) -> None:
    base, spec, resolved, host, stock, ladder = full_report_input()
    first = write_report(tmp_path, base, spec, resolved, TEMPLATES, host, stock, ladder)
    assert json.loads((first.path / "ladder.json").read_text("utf-8"))["steps"] == ladder["steps"]
    again = write_report(tmp_path, base, spec, resolved, TEMPLATES, host, stock, ladder)
    assert (again.path, again.changed) == (first.path, False)
    done = run_report("--again", first.path)
    assert (done.returncode, done.stderr) == (WARNED, "")
    assert done.stdout.endswith("(unchanged)\n")


def test_no_line_of_the_terminal_is_wider_than_it(report: Any) -> None:
    text = verdict_table(report, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "under load" in text
    assert "\ngates\n" in text


@pytest.mark.usefixtures("drawn")
def test_a_ladder_over_contexts_has_a_part_of_its_own_in_page_and_text() -> None:
    names = {"copy-edit": "copy-edit at 512 tokens", "creative": "copy-edit at 4096 tokens"}
    ladder = make_ladder(levels=[1])
    ladder["kinds"] = list(names.values())
    ladder["steps"] = [{**step, "kind": names[step["kind"]]} for step in ladder["steps"]]
    report = build_report(*make_pair(), make_resolved(), ladder=ladder)
    contexts = report["contexts"]
    assert contexts is not None
    assert (contexts["unit"], contexts["levels"]) == ("tokens of context", [512, 4096])
    assert [kind["kind"] for kind in contexts["kinds"]] == ["copy-edit at load 1"]
    assert (report["verdict"]["load"] or "").startswith("over context")
    for text in (render_markdown(report, TEMPLATES), render_html(report, TEMPLATES)):
        assert "Speed over context" in text
        assert "tokens of context" in text
