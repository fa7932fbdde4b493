"""The new release on one box, beside the box's own last report and its peers': reports of known numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.operate.roll.judge import Judged, judge
from drafthouse.operate.roll.reports import Reports, read, reports_of, shelf_of
from drafthouse.operate.roll.steps import Word
from drafthouse.report.archive import Kept, read_kept
from tests.support.report_builders import keep

Changed = Callable[..., Kept]


@pytest.fixture
def report(tmp_path: Path) -> Changed:
    """Keep a report of a box: how much ``slower`` it is, the accepted tokens of a draft, the most of one, a version."""
    made: list[int] = []

    def make(
        host: str = "box1",
        slower: float = 1.0,
        accepted: float = 14.4,
        tokens: int = 16,
        version: str = "1",
        **other: Any,
    ) -> Kept:
        def change(base: Any, spec: Any, resolved: Any) -> None:
            for request in spec["requests"]:
                request["tpot_ms"] *= slower
            spec["spec_decode_acceptance_length"] = 1 + accepted
            resolved["method"]["num_speculative_tokens"] = tokens
            for result in (base, spec):
                result["engine"]["version"] = version
                result["machine"]["before"]["host"] = host
            resolved["engine"]["version"] = version
            resolved["key"] = base["key"] = spec["key"] = other.get("key", f"{host}-{version}")
            if other.get("prompts"):
                resolved["prompts"] = other["prompts"]

        made.append(1)
        folder = keep(tmp_path, f"20261101-1000{len(made):02}", change)
        data = json.loads((folder / "report.json").read_text())
        data["host"] = host
        (folder / "report.json").write_text(json.dumps(data))
        return read_kept(folder)

    return make


def judged(new: Kept, own: Kept | None, *peers: Kept) -> Judged:
    return judge(new, own, peers, 0.05)


def test_as_good_as_before_and_as_its_peers(report: Changed) -> None:
    found = judged(report(version="2"), report(), report("box2"), report("box3"))
    assert found.word is Word.FINE
    assert found.notes == ()


def test_worse_than_before_by_how_much(report: Changed) -> None:
    found = judged(report(version="2", slower=1.2), report(), report("box2", slower=1.2))
    assert found.word is Word.WORSE
    assert any("TPOT is 20.0 % longer" in said for said in found.why), found.why


def test_as_before_and_yet_behind_its_peers_was_so_before(report: Changed) -> None:
    """A box that is slower than others has not become so by the change."""
    found = judged(report(version="2", slower=1.3), report(slower=1.3), report("box2"), report("box3"))
    assert found.word is Word.FINE
    assert [note for note in found.notes if "before the change" in note]


def test_no_worse_than_before_where_its_peers_got_faster(report: Changed) -> None:
    """The change took on the others and not here: the median of three peers, of which one did not gain either."""
    peers = [report("box2", version="2", slower=0.7), report("box3", version="2", slower=0.7), report("box4")]
    # Beside these its old report was behind as well: what counts is that the new one brought nothing.
    found = judged(report(version="2"), report(slower=0.65), *peers)
    assert found.word is Word.WORSE


def test_fewer_tokens_of_a_draft_than_its_peers(report: Changed) -> None:
    found = judged(report(version="2", accepted=7.2), report(), report("box2"), report("box3"))
    assert found.word is Word.WORSE
    (said,) = found.why
    assert "7.20 tokens accepted per draft; its peers' median is 14.4 (50.0 % fewer)" in said


def test_who_drafts_otherwise_is_no_peer_in_that(report: Changed) -> None:
    """A canary of another K, or of another setting of its lookup: whether it is faster tells."""
    found = judged(report(version="2", accepted=7.2, tokens=8), report(), report("box2"), report("box3"))
    assert found.word is Word.FINE
    new = report(version="2", accepted=7.2)
    new.resolved["arms"]["speculative"]["speculation_flags"] = [["--spec-type", "ngram-mod"]]
    assert judged(new, report(), report("box2"), report("box3")).word is Word.FINE


def test_peers_of_other_prompts_are_named_and_left_out(report: Changed) -> None:
    mine = {"copy-edit": {"copy-edit-1": "a"}}
    other = report("box2", slower=0.5, prompts={"copy-edit": {"copy-edit-1": "b"}})
    found = judged(report(version="2", prompts=mine), report(prompts=mine), other)
    assert found.word is Word.FINE
    assert [note for note in found.notes if "cannot be compared" in note]
    assert "no peer has a report to compare with" in found.why


def test_without_a_report_from_before_nobody_can_say(report: Changed) -> None:
    assert judged(report(version="2"), None, report("box2")).word is Word.UNSURE


def test_a_result_of_too_few_prompts_cannot_be_judged(report: Changed) -> None:
    new, own = report(version="2"), report()
    for kept in (new, own):
        for result in kept.results.values():
            result["requests"] = [one for one in result["requests"] if str(one.get("prompt_id")).endswith(("-1", "-2"))]
    assert judged(new, own).word is Word.UNSURE


# --- which reports ----------------------------------------------------------------------------------


def test_before_is_what_served_and_not_what_was_refused(report: Changed, tmp_path: Path) -> None:
    served, refused, new = report(version="1"), report(version="2"), report(version="3")
    report("box2", version="1", key="box1-1")
    shelf = shelf_of(tmp_path, "cpu-smollm2-ngram")
    # It serves version 1; 2 was measured and refused, later.
    assert reports_of(shelf, "box1", "box1-3", ["box1-1", "box1-0"]) == Reports(new.path, served.path)
    # It was killed when it served 3 already.
    assert reports_of(shelf, "box1", "box1-3", ["box1-3", "box1-1"]) == Reports(new.path, served.path)
    assert reports_of(shelf, "box1", "box1-4", []) == Reports()
    assert refused.path not in reports_of(shelf, "box1", "box1-3", ["box1-1"]).__dict__.values()
    assert read(served.path).report["key"] == "box1-1"


def test_an_invalid_report_is_none(report: Changed, tmp_path: Path) -> None:
    kept = report(version="5")
    data = json.loads((kept.path / "report.json").read_text())
    data["verdict"]["word"] = "invalid"
    (kept.path / "report.json").write_text(json.dumps(data))
    (tmp_path / "cpu-smollm2-ngram" / "20261102-000000-box1").mkdir()
    (tmp_path / "cpu-smollm2-ngram" / "20261102-000000-box1" / "report.json").write_text("[1")
    assert reports_of(shelf_of(tmp_path, "cpu-smollm2-ngram"), "box1", "box1-5", []) == Reports()
