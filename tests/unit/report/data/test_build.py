"""report.json and the files of a report: right numbers, all there, nothing that can harm a reader."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from drafthouse.core.format import folder_date, number
from drafthouse.report.data.build import build_report, failures, lasting
from drafthouse.report.data.setup import flatten, machine_table
from drafthouse.report.schema import schema_page
from drafthouse.report.terminal import verdict_table
from drafthouse.report.writer import (
    code_fence,
    markdown_cell,
    moments_text,
    render_html,
    render_markdown,
    to_json,
    write_report,
)
from tests.support.builders import NOTHING, make_pair, make_resolved

pytestmark = pytest.mark.processes

TEMPLATES = Path(__file__).resolve().parents[4] / "templates"
HOSTILE = "<script>alert('x')</script> | `code` ``` \"quoted\" $x^2$ \x1b[31m"


@pytest.fixture(scope="module")
def report() -> Any:
    return build_report(*make_pair(articles=True), make_resolved(suites=["mixed", "articles"]))


def test_the_report_round_trips_as_json(report: Any) -> None:
    assert report["schema"] == "drafthouse.report/1"
    assert json.loads(to_json(report)) == report


def test_the_same_results_give_the_same_report(report: Any) -> None:
    assert build_report(*make_pair(articles=True), make_resolved(suites=["mixed", "articles"])) == report


def test_the_articles_rows_are_the_medians_of_their_own_suite() -> None:
    base, spec = make_pair(articles=True)
    for result, tpot, first in ((base, 1000 / 22.96, 25_620.0), (spec, 1000 / 41.88, 15_980.0)):
        for request in result["requests"]:
            if request["suite"] == "articles":
                request.update(tpot_ms=tpot, ttft_ms=50.0, ttfat_ms=first, input_tokens=78)
    table = build_report(base, spec, make_resolved(suites=["mixed", "articles"]))["articles"]
    assert table["suite"] == "articles"
    assert table["requests"] == {"baseline": 20, "speculative": 20}
    # The numbers of the first article, from a request that takes as long as its requests did.
    shown = [(row["normal"], row["speculative"], row["speedup"]) for row in table["rows"]]
    assert shown == [
        pytest.approx((22.96, 41.88, 1.824), abs=0.005),
        pytest.approx((25.62, 15.98, 1.603), abs=0.005),
        pytest.approx((3.04, 4.88, 1.603), abs=0.005),
    ]


def test_without_their_suite_the_articles_rows_are_over_all_requests_and_say_so() -> None:
    pair, resolved = make_pair(), make_resolved()
    report = build_report(*pair, resolved)
    assert report["articles"]["suite"] is None
    assert report["articles"]["requests"] == {"baseline": 48, "speculative": 48}
    for text in (render_html(report, TEMPLATES), render_markdown(report, TEMPLATES)):
        assert "own prompt was not sent" in text


def test_a_row_whose_answers_repeat_themselves_is_marked_where_its_acceptance_is_shown() -> None:
    verse = "The lamp is low, the night is long, the river hums its only song. "
    pair = make_pair()
    for request in pair[1]["requests"]:
        request["text"] = verse * 9 if request["group"] == "chat" else "".join(map(str, range(200)))
    report: Any = build_report(*pair, make_resolved())
    marked = {row["group"]: row["acceptance"]["repeats"] for row in report["kinds"]}
    assert marked == {"copy-edit": False, "chat": True, "creative": False}
    pages = render_markdown(report, TEMPLATES), render_html(report, TEMPLATES)
    assert [page.count("repeats itself") for page in pages] == [2, 4]
    chat = next(line for line in verdict_table(report).splitlines() if line.startswith("chat"))
    assert re.search(r"![0-9.]+ %", chat)
    assert "! repeats itself" in verdict_table(report)


def test_a_kinds_row_holds_both_arms_with_intervals_and_what_was_accepted(report: Any) -> None:
    rows = {row["group"]: row for row in report["kinds"]}
    assert list(rows) == ["copy-edit", "chat", "creative", "vacation"]
    row = rows["copy-edit"]
    assert row["declared"] is True
    assert row["concurrency"] == 1
    assert row["prompts"] == 8
    assert row["speedup"]["gain"] == pytest.approx(3.0, rel=0.1)
    assert row["tpot_ms"]["speedup"]["gain"] == pytest.approx(row["speedup"]["gain"])
    assert row["tok_s"]["speedup"]["gain"] == pytest.approx(row["speedup"]["gain"], rel=0.01)
    for arm in ("baseline", "speculative"):
        found = row["tok_s"][arm]
        assert found["low"] <= found["median"] <= found["high"]
        assert found["median"] == pytest.approx(1000 / row["tpot_ms"][arm]["median"], rel=0.02)
    assert row["acceptance"]["rate"] == pytest.approx(0.9)
    assert rows["vacation"]["ttfat_ms"]["speculative"]["median"] > 500
    assert rows["vacation"]["ttft_ms"]["speculative"]["median"] < 60


def test_acceptance_is_overall_per_group_and_by_position(report: Any) -> None:
    found = report["acceptance"]
    assert found["source"] == "metrics"
    assert "Source: the engine&#39;s counters." in render_html(report, TEMPLATES)
    assert "Source: the engine's counters." in render_markdown(report, TEMPLATES)
    assert found["overall"]["draft_tokens"] == 6400
    assert found["overall"]["by_position"][0] == pytest.approx(0.98)
    assert set(found["groups"]) == {"copy-edit", "chat", "creative", "vacation"}


def test_failures_stand_before_everything_but_the_verdict() -> None:
    base, spec = make_pair()
    base["requests"][2].update(status="cut_off", tpot_ms=None, error="the stream ended")
    rows = failures({"baseline": base, "speculative": spec})
    assert [(row["arm"], row["words"], row["count"], row["of"]) for row in rows] == [("baseline", "cut off", 1, 48)]
    report = build_report(base, spec, make_resolved())
    for text, first, second in (
        (render_html(report, TEMPLATES), "requests cut off.", "By kind of prompt</h2>"),
        (render_markdown(report, TEMPLATES), "requests cut off.", "## By kind of prompt"),
    ):
        assert text.index("invalid") < text.index(first) < text.index(second)


def test_commands_hold_both_arms_and_only_speculation_differs(report: Any) -> None:
    changed = [
        line
        for line in report["commands"]["diff"].splitlines()
        if line[:1] in "+-" and not line.startswith(("+++", "---"))
    ]
    assert changed == ["+  --spec-type ngram-map-k \\", "+  --spec-ngram-map-k-size-m 16 \\"]
    assert "llama-server" in report["commands"]["baseline"][0]["content"]


def test_what_the_engine_changed_by_itself_is_listed(report: Any) -> None:
    assert report["engine_changes"] == [{"what": "model_runner", "baseline": "V2", "speculative": "V1"}]


def test_versions_and_machine_are_side_by_side(report: Any) -> None:
    versions = {row["what"]: row for row in report["versions"]}
    assert versions["engine.version"]["baseline"] == "11549"
    assert versions["report.matplotlib"]["baseline"]
    machine = {row["what"]: row for row in report["machine"]}
    assert moments_text(machine["cpu.load_1m"]["baseline"]) == "0.210 → 1.71"
    assert moments_text(machine["cpu.clock_mean_mhz"]["baseline"]) == "2,600"
    assert moments_text(machine["cpu.cores"]["speculative"]) == "2"
    assert moments_text(machine["while measuring: other_cpu_percent, highest"]["baseline"]) == "1.50"
    assert not any("groups" in what for what in machine)


def test_a_state_of_several_gpus_keeps_them_apart() -> None:
    machine: Any = {
        "before": {"gpus": [{"clock": 1}, {"clock": 2}]},
        "after": {"gpus": [{"clock": 3}, {"clock": 2}]},
    }
    rows = machine_table({"baseline": NOTHING | {"machine": machine}, "speculative": NOTHING})
    assert [(row["what"], moments_text(row["baseline"])) for row in rows] == [
        ("gpus[0].clock", "1 → 3"),
        ("gpus[1].clock", "2"),
    ]
    assert flatten({"a": {"b": [1, 2], "c": []}}) == {"a.b": "1, 2"}


def test_what_the_gpus_did_while_an_arm_answered_stands_beside_the_machine() -> None:
    gpu: Any = {
        "index": 3, "uuid": "GPU-3", "name": "H100", "samples": 30, "sm_clock_median_mhz": 1980.0,
        "sm_clock_min_mhz": 900.0, "memory_clock_median_mhz": None, "temperature_max_c": 84.0, "power_median_w": 410.0,
        "utilization_median_percent": 97.0, "memory_used_max_bytes": 10, "throttled_share": 0.4,
        "reasons": {"power brake": 0.4}, "error": None,
    }  # fmt: skip
    cool = gpu | {
        "samples": 10,
        "sm_clock_median_mhz": 2000.0,
        "sm_clock_min_mhz": 1990.0,
        "throttled_share": 0.0,
        "reasons": {},
    }
    spans = [{"round": 1, "group": "a", "gpus": [gpu]}, {"round": 2, "group": "a", "gpus": [cool]}]
    machine: Any = {"before": {}, "after": {}, "groups": []}
    rows = machine_table({"baseline": NOTHING | {"machine": machine, "gpus": spans}, "speculative": NOTHING})
    shown = {row["what"]: moments_text(row["baseline"]) for row in rows}
    assert shown["while measuring: GPU 3.sm_clock_median_mhz"] == "1,990"
    assert shown["while measuring: GPU 3.sm_clock_min_mhz"] == "900"
    assert shown["while measuring: GPU 3.samples"] == "40"
    assert shown["while measuring: GPU 3.reasons.power brake"] == "0.300"
    assert not any("memory_clock" in what or "error" in what for what in shown)


def test_what_was_not_measured_follows_from_the_run() -> None:
    base, spec = make_pair(rounds=1)
    told = " ".join(build_report(base, spec, make_resolved(rounds=1))["not_measured"])
    assert "one request at a time" in told
    assert "against itself" in told
    assert "GPU" in told


# --- HTML and Markdown ------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a browser would make of the page: its tags, what it would load, its ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster") and value is not None:
                self.loads.append(value)
            if name == "id" and value:
                self.ids.append(value)
            if name == "aria-labelledby" and value:
                self.references += value.split()


@pytest.mark.usefixtures("drawn")
def test_the_page_loads_nothing_and_its_ids_are_its_own(report: Any) -> None:
    text = render_html(report, TEMPLATES)
    page = Page(text)
    assert [load for load in page.loads if not load.startswith("#")] == []
    assert [tag for tag in page.tags if tag in ("link", "iframe", "img", "object", "embed", "base")] == []
    assert re.findall(r"url\((?!#)|@import|\bfetch\(|XMLHttpRequest|\bimport\(", text) == []
    assert len(page.ids) == len(set(page.ids))
    assert {load[1:] for load in page.loads} <= set(page.ids)
    assert set(page.references) <= set(page.ids)
    assert page.tags.count("svg") == 5
    assert "<!DOCTYPE svg" not in text
    assert text.startswith("<!doctype html>")


@pytest.mark.usefixtures("drawn")
def test_hostile_text_stays_text() -> None:
    base, spec = make_pair()
    resolved = make_resolved(synthetic=HOSTILE)
    resolved["title"] = HOSTILE
    resolved["target"]["name"] = HOSTILE
    for arm in ("baseline", "speculative"):
        resolved["arms"][arm]["files"][0]["content"] += f"# {HOSTILE}\n```\n</pre>{HOSTILE}\n"
    for result in (base, spec):
        result["machine"]["before"]["kernel"] = HOSTILE
        result["groups"][HOSTILE] = result["groups"].pop("chat")
        for request in result["requests"]:
            request["text"] = HOSTILE
            request["prompt_id"] = f"{HOSTILE}{request['prompt_id']}"
            if request["kind"] == "chat":
                request.update(kind=HOSTILE, group=HOSTILE)
    spec["requests"][0].update(status="failed", error=HOSTILE, tpot_ms=None)
    report = build_report(base, spec, resolved)
    page = render_html(report, TEMPLATES)
    assert Page(page).tags.count("script") == 1
    assert "alert('x')</script>" not in page
    assert "alert(&#39;x&#39;)" in page
    text = render_markdown(report, TEMPLATES)
    outside = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<script>" not in outside
    assert "&lt;script&gt;" in outside
    heads = {
        line.count("|") - line.count("\\|") for line in outside.splitlines() if HOSTILE[9:14] in line and line[0] == "|"
    }
    widths = {line.count("|") - line.count("\\|") for line in outside.splitlines() if line.startswith("| :--")}
    assert heads <= widths


def test_markdown_cells_and_fences_hold_what_they_are_given() -> None:
    assert markdown_cell("a|b\n<i>*x*") == "a\\|b &lt;i&gt;\\*x\\*"
    assert code_fence("plain") == "```"
    assert code_fence("a ```` b") == "`````"


def test_too_few_prompts_are_marked_in_the_tables() -> None:
    report = build_report(*make_pair(prompts=4), make_resolved())
    assert "too few for a verdict" in render_html(report, TEMPLATES)
    assert "too few prompts" in render_markdown(report, TEMPLATES)


@pytest.mark.usefixtures("drawn")
def test_a_report_of_nothing_is_still_a_page() -> None:
    report = build_report(NOTHING, NOTHING, NOTHING)
    assert report["verdict"]["word"] == "invalid"
    assert "invalid" in render_html(report, TEMPLATES)
    assert "invalid" in render_markdown(report, TEMPLATES)
    assert json.loads(to_json(report)) == report


# --- the prompts ------------------------------------------------------------------------------------------

ASKED = {"id": "c1", "messages": [{"role": "user", "content": "Say hello"}]}


def with_suite(kind: Any | None = None, **prompt: Any) -> Any:
    kinds = {"chat": {"output_tokens": 20, "prompts": [{**ASKED, **prompt}, {**ASKED, "id": "c2"}], **(kind or {})}}
    suites = {"small": {"name": "small", "description": "one kind", "kinds": kinds}}
    return {**make_resolved(), "suites": suites, "box": {"free": 1}, "lease": {"time": 1.0}}


def test_a_report_keeps_hashes_of_the_prompts_and_not_their_text() -> None:
    resolved = with_suite()
    kept = lasting(resolved)
    assert set(kept) - set(make_resolved()) == {"prompts"}
    assert "Say hello" not in json.dumps(kept)
    assert list(kept["prompts"]["chat"]) == ["c1", "c2"]
    assert re.fullmatch(r"[0-9a-f]{12}", kept["prompts"]["chat"]["c1"])
    # Made again from what it keeps, it stays what it is.
    assert lasting(kept) == kept
    assert lasting(make_resolved()) == make_resolved()
    assert list(lasting(with_suite({"repeat": 2}))["prompts"]["chat"]) == ["c1#1", "c2#1", "c1#2", "c2#2"]
    schema = json.loads((TEMPLATES.parent / "docs" / "report.schema.json").read_text("utf-8"))
    resolved_schema = {**schema["properties"]["resolved"], "$defs": schema["$defs"]}
    jsonschema.validate(kept, resolved_schema, cls=jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**kept, "prompts": {"chat": {"c1": "Say hello"}}}, resolved_schema)


@pytest.mark.parametrize(
    "edit",
    [
        {"messages": [{"role": "user", "content": "Say hello."}]},
        {"messages": [{"role": "system", "content": "Be brief"}, *ASKED["messages"]]},
        {"output_tokens": 21},
        {"tools": [{"type": "function", "function": {"name": "look"}}]},
        {"response_format": {"type": "json_object"}},
        {"request": {"top_p": 0.9}},
    ],
)
def test_what_a_prompt_asks_for_changes_its_hash_and_no_other(edit: Any) -> None:
    before, after = (lasting(resolved)["prompts"]["chat"] for resolved in (with_suite(), with_suite(**edit)))
    assert before["c1"] != after["c1"]
    assert before["c2"] == after["c2"]
    if "messages" not in edit:
        # What a kind asks for is asked of all of its prompts.
        assert lasting(with_suite(edit))["prompts"]["chat"] == {"c1": after["c1"], "c2": after["c1"]}


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("drawn")
def test_writing_twice_changes_nothing_the_second_time(tmp_path: Path) -> None:
    pair, resolved = make_pair(), make_resolved()
    first = write_report(tmp_path, *pair, resolved, TEMPLATES)
    assert first.changed
    assert first.path == tmp_path / "cpu-smollm2-ngram" / "20261121-111742-buildbox"
    names = {"baseline.json", "speculative.json", "report.json", "report.md", "report.html"}
    assert {path.name for path in first.path.iterdir()} == names
    times = {path.name: path.stat().st_mtime_ns for path in first.path.iterdir()}
    second = write_report(tmp_path, *make_pair(), make_resolved(), TEMPLATES)
    assert (second.path, second.changed) == (first.path, False)
    assert {path.name: path.stat().st_mtime_ns for path in first.path.iterdir()} == times
    kept = json.loads((first.path / "report.json").read_text())
    assert kept["resolved"] == resolved
    assert kept["verdict"] == first.report["verdict"]
    assert json.loads((first.path / "baseline.json").read_text()) == pair[0]


def test_a_report_that_stands_is_not_drawn_again(tmp_path: Path) -> None:
    pair, resolved = make_pair({"copy-edit": 2.0}), make_resolved()
    place = write_report(tmp_path, *pair, resolved, TEMPLATES).path
    code = (
        "import json, sys; from pathlib import Path\n"
        "from drafthouse.report.writer import write_report\n"
        "reports, templates, place = map(Path, sys.argv[1:])\n"
        "data = [json.loads((place / f'{name}.json').read_text()) for name in ('baseline', 'speculative')]\n"
        "resolved = json.loads((place / 'report.json').read_text())['resolved']\n"
        "changed = write_report(reports, *data, resolved, templates).changed\n"
        "print(changed, 'matplotlib' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(TEMPLATES), str(place)],
        env={"PYTHONPATH": str(TEMPLATES.parent / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False False\n"


@pytest.mark.parametrize("name", ["report.md", "report.html", "report.json", "baseline.json"])
def test_a_file_that_is_gone_comes_back_the_same(tmp_path: Path, name: str) -> None:
    pair, resolved = make_pair({"copy-edit": 2.0}), make_resolved()
    place = write_report(tmp_path, *pair, resolved, TEMPLATES).path
    before = (place / name).read_bytes()
    (place / name).unlink()
    assert write_report(tmp_path, *pair, resolved, TEMPLATES).changed
    assert (place / name).read_bytes() == before


def test_another_template_redraws_the_page(tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    templates.mkdir()
    for path in TEMPLATES.glob("report*.j2"):
        (templates / path.name).write_text(path.read_text("utf-8"), "utf-8")
    pair, resolved = make_pair({"copy-edit": 2.0}), make_resolved()
    write_report(tmp_path / "r", *pair, resolved, templates)
    page = templates / "report.html.j2"
    page.write_text(page.read_text("utf-8").replace("Not measured", "Left out"), "utf-8")
    again = write_report(tmp_path / "r", *pair, resolved, templates)
    assert again.changed
    assert "Left out" in (again.path / "report.html").read_text("utf-8")


def test_a_write_that_fails_leaves_the_old_file_and_no_scraps(tmp_path: Path) -> None:
    pair, resolved = make_pair({"copy-edit": 2.0}), make_resolved()
    place = write_report(tmp_path, *pair, resolved, TEMPLATES).path
    (place / "report.json").unlink()
    (place / "report.json").mkdir()  # a rename onto a folder fails
    (place / "report.json" / "in-the-way").touch()
    with pytest.raises(OSError):
        write_report(tmp_path, *pair, resolved, TEMPLATES)
    assert [path.name for path in place.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("host", ["../../etc", "a b/c", "...", ""])
def test_names_cannot_lead_out_of_the_reports(tmp_path: Path, host: str) -> None:
    base, spec = make_pair({"copy-edit": 2.0})
    resolved = make_resolved()
    resolved["profile"] = "../outside"
    for result in (base, spec):
        result["profile"] = "../outside"
        result["machine"]["before"]["host"] = ""
    place = write_report(tmp_path / "reports", base, spec, resolved, TEMPLATES, host).path
    assert place.resolve().parent.parent == (tmp_path / "reports").resolve()


@pytest.mark.parametrize(
    ("date", "name"),
    [
        ("20261121-111600", "20261121-111600"),
        ("2026-11-21T11:16:00.25+00:00", "20261121-111600"),
        ("2026-11-21 11:16:00", "20261121-111600"),
        ("some/day", "some-day"),
        ("", "undated"),
    ],
)
def test_dates_make_names(date: str, name: str) -> None:
    assert folder_date(date) == name


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0.000"), (0.0417, "0.042"), (3.14159, "3.14"), (41.88, "41.9"), (1234.5, "1,234")],  # noqa: RUF001
)
def test_numbers_are_written_for_people(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_nightly_build_is_marked_on_every_page() -> None:
    resolved: Any = {**make_resolved(), "unpinned": "another version every day"}
    report = build_report(*make_pair(), resolved)
    assert report["marks"] == {"unpinned": "another version every day"}
    for page in (render_html(report, TEMPLATES), render_markdown(report, TEMPLATES)):
        assert "another version every day" in page
    assert "unpinned, pays" in verdict_table(report)


def test_the_engine_as_an_article_starts_it_stands_beside_the_arms(tmp_path: Path) -> None:
    baseline, speculative = make_pair({"copy-edit": 2.0})
    stock = json.loads(json.dumps(baseline))
    for request in stock["requests"]:
        request["tpot_ms"] *= 0.8
    resolved = make_resolved()
    written = write_report(tmp_path, baseline, speculative, resolved, TEMPLATES, stock=stock | {"arm": "stock"})
    assert (written.path / "stock.json").is_file()
    found: Any = written.report["stock"]
    assert found["baseline"]["gain"] == pytest.approx(0.8, rel=0.01)
    assert found["speculative"]["gain"] == pytest.approx(1.6, rel=0.05)
    for text in ((written.path / "report.html").read_text(), (written.path / "report.md").read_text()):
        assert "without our settings" in text
    assert re.search(r"\(stock\): +baseline 0.80.", verdict_table(written.report).replace("\n", " "))
    # Without that arm nothing speaks of it.
    assert "stock" not in verdict_table(build_report(baseline, speculative, resolved))


def test_a_length_without_counts_is_on_the_page_and_any_source_is_in_the_schema(report: Any) -> None:
    changed = copy.deepcopy(report)
    nothing = dict.fromkeys(("draft_tokens", "accepted_tokens", "drafts", "rate"))
    changed["acceptance"] |= {"source": "gauge", "overall": report["acceptance"]["overall"] | nothing | {"length": 2.5}}
    page = render_html(changed, TEMPLATES)
    assert "no counts of drafts, but a mean acceptance length of 2.50 tokens per step. Source: an engine gauge" in page
    jsonschema.validate(json.loads(to_json(changed)), json.loads(schema_page()))
