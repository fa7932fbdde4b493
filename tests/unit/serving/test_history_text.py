"""The history of a box as a person reads it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from drafthouse.serving.history_text import history_text, spans

DAY = 1_800_000_000.0
ONE = {"release": "0001", "profile": "small", "arm": "speculative", "engine": "vllm", "version": "0.32.0"}
TWO = {**ONE, "release": "0002", "version": "0.33.0"}


def event(minutes: float, kind: str, **fields: Any) -> Any:
    return {"at": DAY + 60 * minutes, "event": kind, **fields}


HISTORY = [
    event(0, "served", **ONE, why="pays: 1.4"),
    event(10, "refused", profile="small", engine="vllm", version="0.34.0", why="the baseline arm died"),
    event(20, "served", **TWO, why="pays: 1.5"),
    event(30, "switched", **{**TWO, "arm": "baseline"}, why="acceptance 8 %"),
    event(40, "rolled_back", **ONE, why="make rollback"),
    event(50, "served", **ONE, why="the box started: nothing runs"),
    event(60, "ended", **ONE, why="make stop"),
]


def test_each_span_has_its_end_and_the_reason_for_it() -> None:
    found = [(span.facts.get("release"), span.facts.get("arm"), span.refused, span.why) for span in spans(HISTORY)]
    assert found == [
        ("0001", "speculative", False, "replaced by release 0002: pays: 1.5"),
        (None, None, True, "the baseline arm died"),
        ("0002", "speculative", False, "to the baseline arm: acceptance 8 %"),
        ("0002", "baseline", False, "back to release 0001: make rollback"),
        ("0001", "speculative", False, "it stopped and came back: the box started: nothing runs"),
        ("0001", "speculative", False, "make stop"),
    ]
    times = [(span.since - DAY, None if span.until is None else span.until - DAY) for span in spans(HISTORY)]
    assert times == [(0, 1200), (600, 600), (1200, 1800), (1800, 2400), (2400, 3000), (3000, 3600)]


def test_what_serves_now_has_no_end() -> None:
    (span,) = spans(HISTORY[:1])
    assert (span.until, span.why) == (None, "")
    # A switch says its arm alone: the rest is what was switched.
    last = spans([*HISTORY[:1], event(5, "switched", arm="baseline", why="x")])[-1]
    assert (last.facts["release"], last.facts["arm"], last.until) == ("0001", "baseline", None)


def test_a_start_without_an_end_and_an_end_without_a_start() -> None:
    assert spans([event(0, "ended", why="make stop")]) == []
    assert [span.until for span in spans([event(0, "refused", why="x")])] == [DAY]


def test_the_table_has_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    text = history_text(HISTORY[:3], local=time.gmtime)
    lines = text.splitlines()
    assert lines[0].split() == ["from", "until", "release", "profile", "arm", "engine", "why", "it", "ended"]
    assert lines[2].startswith("2027-01-15 08:20  serves")
    assert "vllm 0.33.0" in lines[2]
    assert lines[3].startswith("2027-01-15 08:10  refused")
    assert "the baseline arm died" in lines[3]
    assert lines[4].startswith("2027-01-15 08:00  2027-01-15 08:20")


def test_what_is_no_event_is_named() -> None:
    assert history_text([], [3, 9]) == (
        "nothing has served here yet\n\nserved/history.jsonl: no event in line 3, 9; remove it"
    )


@pytest.mark.parametrize("why", ["a\x1b[31mred", "two\nlines"])
def test_nothing_of_a_reason_moves_the_cursor(why: str) -> None:
    text = history_text([event(0, "refused", why=why)], local=time.gmtime)
    assert "\x1b" not in text
    assert len(text.splitlines()) == 3
