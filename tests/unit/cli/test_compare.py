"""Two reports side by side: right changes, refusals where conditions differ, regressions that CI can see."""

from __future__ import annotations

import copy
import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.upgrade_diff import OLD, decide
from drafthouse.report.archive import Kept, read_kept
from drafthouse.report.compare.diff import compare
from drafthouse.report.compare.text import compared_markdown, compared_text
from drafthouse.report.data.build import build_report
from tests.support.report_builders import Change, full_report_input, keep, make_ladder, with_crossover
from tests.support.verb import called

pytestmark = pytest.mark.processes


def pair_of(reports: Path, change: Change | None = None, **second: Any) -> tuple[Kept, Kept]:
    """Two kept reports of the same work; the second one as ``change`` and the builder's arguments make it."""
    one = keep(reports, "20261120-100000")
    two = keep(reports, "20261121-100000", change, **{"seed": 8, **second})
    return read_kept(one), read_kept(two)


def slower(factor: float, arm: str = "speculative", field: str = "tpot_ms", kind: str | None = None) -> Change:
    def change(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
        for request in (base if arm == "baseline" else spec)["requests"]:
            if kind in (None, request["kind"]):
                request[field] *= factor

    return change


def setting(place: str, *path: str, value: object) -> Change:
    def change(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
        for data in {"results": [base, spec], "resolved": [resolved]}[place]:
            inner = data
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value

    return change


# --- numbers ----------------------------------------------------------------------------------------------


def test_a_change_is_found_prompt_by_prompt_with_its_interval(tmp_path: Path) -> None:
    found = compare(*pair_of(tmp_path, slower(1.25), seed=7))
    (row,) = [
        row
        for row in found["rows"]
        if (row["arm"], row["kind"], row["measure"]) == ("speculative", "copy-edit", "tpot_ms")
    ]
    # The second report's requests are the first one's, a quarter slower: only what starts differ by is not known.
    assert row["change"]["gain"] == pytest.approx(0.8)
    assert 0.75 < row["change"]["low"] < 0.79
    assert 0.81 < row["change"]["high"] < 0.85
    assert row["b"] == pytest.approx(1.25 * row["a"])
    assert row["word"] == "slower"
    assert row["declared"] is True
    assert {row["word"] for row in found["rows"] if row["arm"] == "baseline"} == {"no clear difference"}


def test_the_same_report_is_no_difference(tmp_path: Path) -> None:
    kept = read_kept(keep(tmp_path, "20261120-100000"))
    found: Any = compare(kept, kept, 0.0)
    assert found["differs"] == found["against"] == found["regressions"] == found["marks"] == []
    assert {row["word"] for row in found["rows"]} == {"no clear difference"}


@pytest.mark.parametrize(
    ("change", "what", "values"),
    [
        (setting("results", "engine", "version", value="11600"), "engine version", ("11549", "11600")),
        (setting("results", "engine", "id", value="vllm"), "engine", ("llamacpp", "vllm")),
        (setting("results", "machine", "before", "host", value="box-2"), "box", ("buildbox", "box-2")),
        (setting("resolved", "method", "num_speculative_tokens", value=4), "draft tokens", (16, 4)),
    ],
)
def test_what_one_compares_may_differ_and_is_named(
    tmp_path: Path, change: Change, what: str, values: tuple[object, object]
) -> None:
    found = compare(*pair_of(tmp_path, change))
    assert found["against"] == []
    assert {"what": what, "a": values[0], "b": values[1]} in found["differs"]


def test_a_box_and_an_engine_at_once_are_marked(tmp_path: Path) -> None:
    def change(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
        for result in (base, spec):
            result["engine"]["version"] = "11600"
            result["machine"]["before"]["host"] = "box-2"

    (mark,) = compare(*pair_of(tmp_path, change))["marks"]
    assert mark == "the box and the engine differ at once: a change cannot be attributed to one of them"


# --- conditions -------------------------------------------------------------------------------------------


def fewer_tokens(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
    for request in spec["requests"]:
        request["input_tokens"] -= 5


def thinking(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
    for request in spec["requests"]:
        request["reasoning_text"] = "Let me think."


def drafting_baseline(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
    base["spec_decode_draft_tokens"] = 7


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (setting("resolved", "target", "id", value="other"), "the target is smollm2 in A and other in B"),
        (setting("resolved", "target", "revision", value="abc"), "the target (revision) is None in A and abc in B"),
        (setting("results", "settings", "concurrency", value=8), "requests at a time: 1 in A and 8 in B"),
        (setting("results", "settings", "temperatures", value=[0.7]), "the temperatures: [0.0] in A and [0.7] in B"),
        (setting("results", "settings", "ignore_eos", value=True), "ignoring the end of sequence (ignore_eos)"),
        (setting("results", "request_rate", value=4.0), "the request rate: 'inf' in A and 4.0 in B"),
        (setting("resolved", "experiment", "max_output_tokens", value=64), "the output length limit"),
        (fewer_tokens, "speculative: the servers counted different input tokens for 24 prompts (first copy-edit-1)"),
        (thinking, "the model reasons before it answers in B only"),
        (drafting_baseline, "B is invalid, so its numbers prove nothing: the baseline drafted (7 tokens)"),
    ],
)
def test_conditions_that_differ_forbid_the_comparison(tmp_path: Path, change: Change, said: str) -> None:
    against = compare(*pair_of(tmp_path, change))["against"]
    assert [sentence for sentence in against if sentence.startswith(said)], against


def test_no_prompt_in_common_forbids_it_and_fewer_are_marked(tmp_path: Path) -> None:
    def other_prompts(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
        for result in (base, spec):
            for request in result["requests"]:
                request["prompt_id"] += "-new"

    assert "speculative: no prompt was sent in both" in compare(*pair_of(tmp_path / "x", other_prompts))["against"]
    found = compare(*pair_of(tmp_path / "y", prompts=6))
    assert found["against"] == []
    assert "speculative: 18 prompts in both, of 24 in A and 18 in B: only these compare" in found["marks"]
    assert all(row["change"]["n"] == 6 for row in found["rows"])


def test_a_start_token_more_is_marked_and_not_refused(tmp_path: Path) -> None:
    def one_more(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
        for result in (base, spec):
            for request in result["requests"]:
                request["input_tokens"] += 1

    found = compare(*pair_of(tmp_path, one_more))
    assert found["against"] == []
    assert [mark for mark in found["marks"] if "one or two tokens apart" in mark]


# --- regressions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "threshold", "named"),
    [
        (slower(1.25), 0.05, "speculative, copy-edit: TPOT is 25.0 % longer"),
        (slower(1.25, "baseline"), 0.05, "baseline, copy-edit: TPOT is 25.0 % longer"),
        (slower(1.5, field="ttft_ms"), 0.05, "speculative, copy-edit: TTFT is 50.0 % longer"),
        (slower(1.25), 0.3, None),  # worse, and less than was asked about
        (slower(1.3), 0.25, "speculative, copy-edit: TPOT is 30.0 % longer"),
        (slower(1.3), 0.299, "speculative, copy-edit: TPOT is 30.0 % longer"),
        (slower(1.3), 0.301, None),
        (slower(0.8), 0.0, None),  # better
        (slower(1.25, kind="chat"), 0.05, None),  # not the work that the verdict is about
        (slower(3.5), 0.0, "the verdict was “pays” and is now “does not pay”"),
    ],
)
def test_a_regression_is_worse_by_more_than_the_threshold_and_clearly_so(
    tmp_path: Path, change: Change, threshold: float, named: str | None
) -> None:
    found = compare(*pair_of(tmp_path, change, seed=7), threshold)
    lines = found["regressions"]
    assert [line for line in lines if line.startswith(named)] if named else lines == []


def test_noise_alone_is_no_regression(tmp_path: Path) -> None:
    def noisy(seed: int) -> Change:
        def change(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
            chance = random.Random(seed)
            for request in base["requests"] + spec["requests"]:
                request["tpot_ms"] *= chance.lognormvariate(0, 0.04)
                request["ttft_ms"] *= chance.lognormvariate(0, 0.04)

        return change

    found = [compare(*pair_of(tmp_path / str(seed), noisy(seed), seed=7), 0.05) for seed in range(20)]
    assert [one["regressions"] for one in found if one["regressions"]] == []
    # And it is noise: the medians did move.
    assert all(row["change"]["gain"] != 1.0 for one in found for row in one["rows"])


def test_a_box_that_was_too_noisy_for_a_verdict_is_no_regression_and_no_proof_of_none(tmp_path: Path) -> None:
    one, two = pair_of(tmp_path, seed=7)
    noisy = Kept(two.path, {**two.report, "verdict": {**two.report["verdict"], "word": "cannot say"}}, two.results)
    found = compare(one, noisy, 0.05)
    assert one.report["verdict"]["word"] == "pays"
    assert found["regressions"] == []
    assert found["unjudged"] == ["the verdict was “pays”, but B could not give one"]
    assert decide(found).keep == OLD


@pytest.mark.parametrize("word", ["cannot say", "does not pay"])
def test_words_of_two_rules_are_shown_and_not_compared(tmp_path: Path, word: str) -> None:
    one, two = pair_of(tmp_path, seed=7)
    before: Any = copy.deepcopy(one.report)
    del before["verdict"]["rule"]
    before["load"] = {"kinds": [{"kind": "copy-edit", "word": "pays", "declared": True}]}
    old = Kept(one.path, before, one.results)
    new = Kept(two.path, {**two.report, "verdict": {**two.report["verdict"], "word": word}}, two.results)
    found = compare(old, new, 0.05)
    assert old.report["verdict"]["word"] == "pays"
    assert found["regressions"] == found["unjudged"] == []
    assert any("by an earlier rule" in mark for mark in found["marks"])
    assert "(by an earlier rule) pays" in compared_text(found)
    # Prompts are compared all the same.
    assert found["judged"]


def test_a_gate_that_no_longer_passes_is_a_regression(tmp_path: Path) -> None:
    one, two = pair_of(tmp_path)
    gate = {"name": "json", "title": "JSON by schema"}
    before, after = (changed(kept, gates=[{**gate, "word": word}]) for kept, word in ((one, "passed"), (two, "failed")))
    assert "the gate JSON by schema passed and is now failed" in compare(before, after, 0.5)["regressions"]
    assert not compare(after, before, 0.5)["regressions"]


def test_a_crossover_that_comes_earlier_is_a_regression(tmp_path: Path) -> None:
    ladder = make_ladder(("copy-edit",))
    early = copy.deepcopy(ladder)
    for step in early["steps"]:
        # The gain is gone at once where it was gone at twenty-four.
        if step["arm"] == "speculative" and step["level"] > 2:
            step["tpot_by_prompt"] = {
                name: [1.4 * value for value in values] for name, values in step["tpot_by_prompt"].items()
            }
    one = keep(tmp_path, "20261120-100000", ladder=ladder)
    two = keep(tmp_path, "20261121-100000", ladder=with_crossover(early))
    found: Any = compare(read_kept(one), read_kept(two), 0.05)
    assert [line for line in found["regressions"] if line.startswith("copy-edit: speculation paid until ")]
    assert found["load"]["rows"][0]["speculative"]["a"]
    assert compare(read_kept(two), read_kept(one), 0.05)["regressions"] == []


def test_too_few_prompts_are_not_judged_and_said_so(tmp_path: Path) -> None:
    one = keep(tmp_path, "20261120-100000", prompts=4)
    two = keep(tmp_path, "20261121-100000", slower(2.0), prompts=4)
    found = compare(read_kept(one), read_kept(two), 0.05)
    assert found["judged"] == 0
    assert "speculative, copy-edit: TPOT: too few prompts or rounds in both (4 prompts)" in found["unjudged"]


def changed(kept: Kept, **report: Any) -> Kept:
    whole: Any = {**kept.report, **report}
    return Kept(kept.path, whole, kept.results)


@pytest.fixture(scope="module")
def laddered(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A kept report with a ladder of one kind, measured at 1 to 32 requests."""
    reports = tmp_path_factory.mktemp("reports")
    return read_kept(keep(reports, "20261120-100000", ladder=make_ladder(("copy-edit",))))


def until(low: float | None, middle: float, high: float | None) -> dict[str, Any]:
    return {"word": "pays", "pays_until": middle, "reaches_top": False, "interval": [low, high]}


def to_the_top(surely: float | None = None) -> dict[str, Any]:
    return {"word": "pays", "pays_until": None, "reaches_top": True, "interval": [surely, None]}


NEVER = {"word": "does not pay", "pays_until": None, "reaches_top": False, "interval": None}
UNTOLD = {**NEVER, "word": "cannot say"}


def under_load(kept: Kept, ends: dict[str, Any], levels: tuple[int, ...] = (1, 2, 4, 8, 16, 32)) -> Kept:
    """The report with other ends of its kind, and only some of its levels judged."""
    load: Any = kept.report["load"]
    (kind,) = load["kinds"]
    rows = [row if row["level"] in levels else {**row, "speedup": None} for row in load["rows"]]
    return changed(kept, load={**load, "kinds": [{**kind, **ends}], "rows": rows})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (until(10, 12, 14), until(2, 3, 4), "paid until 10 concurrent requests or more, and now pays until 4 or fewer"),
        (until(10, 12, 14), NEVER, "paid until 10 concurrent requests or more, and now pays at no level"),
        (to_the_top(), until(2, 3, 4), "paid until 32 concurrent requests or more, and now pays until 4 or fewer"),
        (to_the_top(), NEVER, "paid until 32 concurrent requests or more, and now pays at no level"),
        (to_the_top(12), until(2, 3, 4), "paid until 12 concurrent requests or more, and now pays until 4 or fewer"),
        # The intervals touch.
        (to_the_top(12), until(10, 13, 15), None),
        (until(10, 12, 14), until(8, 9, 11), None),
        (until(None, 2, 4), NEVER, None),
        (until(10, 12, 14), until(8, 9, None), None),
        # No worse.
        (until(2, 3, 4), until(10, 12, 14), None),
        (until(10, 12, 14), to_the_top(), None),
        (NEVER, NEVER, None),
        (NEVER, to_the_top(), None),
        (UNTOLD, NEVER, None),
    ],
)
def test_speculation_that_stops_paying_earlier_is_a_regression(
    laddered: Kept, before: dict[str, Any], after: dict[str, Any], said: str | None
) -> None:
    found = compare(under_load(laddered, before), under_load(laddered, after), 0.05)
    assert found["regressions"] == ([f"copy-edit: speculation {said}"] if said else [])
    assert found["unjudged"] == []


def test_a_shorter_ladder_is_held_to_the_levels_it_has(laddered: Kept) -> None:
    top, short = under_load(laddered, to_the_top()), under_load(laddered, to_the_top(), (1, 2, 4, 8))
    assert compare(top, short, 0.05)["regressions"] == []
    fewer = under_load(laddered, until(3, 4, 6), (1, 2, 4, 8))
    (line,) = compare(top, fewer, 0.05)["regressions"]
    assert line.startswith("copy-edit: speculation paid until 8 concurrent requests or more")
    # It looked only where A does not pay either.
    late = under_load(laddered, NEVER, (16, 32))
    found = compare(under_load(laddered, until(10, 12, 14)), late, 0.05)
    assert found["regressions"] == []
    assert found["unjudged"] == ["copy-edit under load: B measured no load at which it pays in A"]


def test_a_load_of_which_the_second_report_says_nothing_is_named(laddered: Kept) -> None:
    paid = under_load(laddered, until(10, 12, 14))
    load: Any = paid.report["load"]
    no_kind = changed(paid, load={**load, "kinds": [], "rows": []})
    for after, said in (
        (under_load(laddered, UNTOLD), "it pays in A, and B cannot say"),
        (under_load(laddered, NEVER, ()), "it pays in A, and B cannot say"),
        (no_kind, "it pays in A and is not in B's ladder"),
        (changed(paid, load=None), "it pays in A, and B has no load ladder"),
    ):
        found = compare(paid, after, 0.05)
        assert (found["regressions"], found["unjudged"]) == ([], [f"copy-edit under load: {said}"])
        assert compare(after, paid, 0.05)["unjudged"] == []


# --- what cannot be judged ----------------------------------------------------------------------------------


def without(kind: str) -> Change:
    def change(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
        for result in (base, spec):
            result["requests"] = [request for request in result["requests"] if request["kind"] != kind]
            result["groups"].pop(kind)
        resolved["experiment"]["kinds"] = ["chat" if kind == "copy-edit" else "copy-edit"]

    return change


def test_a_declared_kind_that_is_gone_is_named(tmp_path: Path) -> None:
    found = compare(*pair_of(tmp_path, without("copy-edit"), seed=7), 0.05)
    names = [f"{arm}, copy-edit: {what}" for arm in ("baseline", "speculative") for what in ("TPOT", "TTFT")]
    assert [line for line in found["unjudged"] if "verdict" not in line] == [f"{name}: not in B" for name in names]
    # A kind that the verdict is not about may go.
    assert compare(*pair_of(tmp_path / "x", without("chat"), seed=7), 0.05)["unjudged"] == []


def test_a_declared_kind_of_other_prompts_is_named(tmp_path: Path) -> None:
    def renamed(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
        for request in base["requests"] + spec["requests"]:
            if request["kind"] == "copy-edit":
                request["prompt_id"] += "-new"

    found = compare(*pair_of(tmp_path, renamed, seed=7), 0.05)
    assert "speculative, copy-edit: TPOT: no prompt in common with A" in found["unjudged"]


@pytest.mark.parametrize(
    ("word", "said"), [("not measured", "is not measured in B"), (None, "is not in B"), ("passed", None)]
)
def test_a_gate_that_passed_and_is_not_measured_is_named(laddered: Kept, word: str | None, said: str | None) -> None:
    gate = {"name": "json", "title": "JSON by schema"}
    before = changed(laddered, gates=[{**gate, "word": "passed"}])
    after = changed(laddered, gates=[{**gate, "word": word}] if word else [])
    found = compare(before, after, 0.05)
    assert found["regressions"] == []
    assert found["unjudged"] == ([f"the gate JSON by schema: it passed in A and {said}"] if said else [])
    assert compare(before, after)["unjudged"] == []


def test_what_cannot_be_judged_does_not_end_in_0(tmp_path: Path) -> None:
    keep(tmp_path, "20261118-100000")
    keep(tmp_path, "20261119-100000", without("copy-edit"))
    words = ("cpu-smollm2-ngram~1", "cpu-smollm2-ngram", "--reports", tmp_path)
    assert run(*words).returncode == 0
    done = run(*words, "--regression", "5")
    assert done.returncode == 4
    assert "found: speculative, copy-edit: TPOT: not in B\nneeded: " in done.stderr
    assert "\n  - baseline, copy-edit: TPOT: not in B" in done.stdout.partition("Not judged")[2]


# --- the prompts themselves ---------------------------------------------------------------------------------


def hashed(key: str, **prompts: str) -> Change:
    def change(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
        base["key"] = spec["key"] = resolved["key"] = key
        if prompts:
            resolved["prompts"] = {"copy-edit": prompts}

    return change


def two_of(reports: Path, one: Change, two: Change) -> tuple[Kept, Kept]:
    return read_kept(keep(reports, "20261120-100000", one)), read_kept(keep(reports, "20261121-100000", two))


def test_an_edited_prompt_forbids_the_comparison_by_its_name(tmp_path: Path) -> None:
    one = hashed("k1", one="a" * 12, two="b" * 12, three="c" * 12)
    found = compare(*two_of(tmp_path, one, hashed("k2", one="a" * 12, two="f" * 12, four="d" * 12)))
    (reason,) = found["against"]
    assert reason.startswith("1 prompt is not the same in A and B (two): ")
    assert compare(*two_of(tmp_path / "x", one, hashed("k2", one="a" * 12, two="b" * 12)))["against"] == []


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        (hashed("k1"), hashed("k2", one="a" * 12), "A keeps no hashes of the prompts"),
        (hashed("k1", one="a" * 12), hashed("k2"), "B keeps no hashes of the prompts"),
        (hashed("k1"), hashed("k2"), "A and B keep no hashes of the prompts"),
        # One key: the same prompts, they are in it.
        (hashed("k1"), hashed("k1", one="a" * 12), None),
    ],
)
def test_prompts_that_cannot_be_seen_are_marked(tmp_path: Path, one: Change, two: Change, said: str | None) -> None:
    found = compare(*two_of(tmp_path, one, two))
    assert found["against"] == []
    marks = [mark for mark in found["marks"] if "hashes of the prompts" in mark]
    assert marks == ([f"{said}: an edit in between would not be noticed"] if said else [])


# --- as text, and as a command ------------------------------------------------------------------------------


def test_the_text_holds_what_differs_and_nothing_moves_the_cursor(tmp_path: Path) -> None:
    base, spec, resolved, host, stock, ladder = full_report_input()
    resolved["title"] = "x"
    for result in (base, spec):
        result["engine"]["version"] = "\x1b[2J|11600"
    report = build_report(base, spec, resolved, host, stock, ladder)
    one = Kept(tmp_path, {**report, "resolved": resolved}, {"baseline": base, "speculative": spec})
    found = compare(read_kept(keep(tmp_path, "20261120-100000", ladder=ladder)), one, 0.05)
    text, markdown = compared_text(found, 100), compared_markdown(found)
    assert "\x1b" not in text
    for words in ("What differs", "B against A", "Until which load it pays", "Gates", "What speculation gains"):
        assert words in text
        assert words in markdown
    rows = [line.replace("\\|", "") for line in markdown.splitlines() if line.startswith("|")]
    heads = [place for place, line in enumerate(rows) if set(line) <= set("|:- ")]
    for start, end in zip(heads, [*heads[1:], None], strict=True):
        block = rows[start - 1 : (end - 1) if end else None]
        assert len({line.count("|") for line in block}) == 1


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return called("compare", *words, **environment)


def test_the_command_ends_in_0_2_and_3(tmp_path: Path) -> None:
    keep(tmp_path, "20261119-100000")
    keep(tmp_path, "20261120-100000", slower(1.25))
    keep(tmp_path, "20261121-100000", setting("results", "settings", "seed", value=5))
    name = "cpu-smollm2-ngram"
    done = run(f"{name}~2", f"{name}~1", "--reports", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "slower" in done.stdout
    worse = run(f"{name}~2", f"{name}~1", "--reports", tmp_path, "--regression", "5")
    assert worse.returncode == 2
    assert "speculative, copy-edit: TPOT is 25.0 % longer" in " ".join(worse.stdout.split())
    assert run(f"{name}~1", f"{name}~2", "--reports", tmp_path, "--regression", "5%").returncode == 0
    refused = run(f"{name}~2", name, "--reports", tmp_path)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "found: the seed: 0 in A and 5 in B\nneeded: " in refused.stderr
    assert "--anyway" in refused.stderr
    marked = run(f"{name}~2", name, "--reports", tmp_path, "--anyway")
    assert marked.returncode == 0
    assert "Not comparable\n  - the seed: 0 in A and 5 in B" in marked.stdout


def test_too_few_prompts_do_not_pass_as_no_regression(tmp_path: Path) -> None:
    for date in ("20261119-100000", "20261120-100000"):
        keep(tmp_path, date, prompts=4)
    name = "cpu-smollm2-ngram"
    assert run(f"{name}~1", name, "--reports", tmp_path, "--anyway", "--regression", "5").returncode == 4


def test_json_and_markdown_come_out_whole(tmp_path: Path) -> None:
    keep(tmp_path, "20261119-100000")
    keep(tmp_path, "20261120-100000")
    words = ("cpu-smollm2-ngram~1", "cpu-smollm2-ngram", "--reports", tmp_path, "--format")
    assert json.loads(run(*words, "json").stdout)["schema"] == "drafthouse.comparison/1"
    assert run(*words, "markdown").stdout.startswith("# A against B\n")


@pytest.mark.parametrize("words", [[], ["a"], ["a", "b", "--regression", "x"], ["a", "b", "--regression", "-1"]])
def test_half_a_command_line_is_refused(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert re.search(r"^(usage|found): ", done.stderr)


def test_a_name_that_means_nothing_ends_in_2(tmp_path: Path) -> None:
    done = run("x", "y", "--reports", tmp_path)
    assert done.returncode == 2
    assert "do: measure a profile first" in done.stderr
