"""What a person reads of a ladder: the lines, the table, the terminal while it runs, and Ansible's log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafthouse.bench.sweep.plan import LadderPlan, heading
from drafthouse.bench.sweep.text import ENDED, ladder_lines, live_lines, step_line
from drafthouse.core.plain_text import printable
from drafthouse.core.progress import shown_together


def step(level: float = 4, **given: Any) -> Any:
    spread = {"median": 50.0, "p90": 60.0, "p99": 71.25}
    return {
        "level": level, "arm": "single", "round": 1, "kind": "chat", "status": "ok", "ended_by": "narrow",
        "restarted": False, "duration_s": 20.4, "num_prompts": 40, "completed": 39, "failed": 1,
        "output_throughput": 1812.04, "per_user_tok_s": 80.0, "goodput": None, "ttft_ms": spread,
        "tpot_ms": {"median": 12.5, "p90": 13.0, "p99": 14.0},
        "tpot_interval": {"median": 12.5, "low": 12.25, "high": 12.75, "n": 39},
        "spec_decode_acceptance_rate": None, "notes": [],
        **given,
    }  # fmt: skip


def ladder(*steps: Any, load: str = "closed", **given: Any) -> Any:
    plan = LadderPlan(load, (4, 8), ("chat", "code"), rounds=(1,), of_rounds=1)
    return {**heading(plan, None, "k"), "steps": list(steps), **given}


EVENT: Any = {"done": 1, "total": 4, "phase": "ladder", "text": "8, chat, single, round 1: 17 requests", "eta_s": 95.0}


def test_a_step_in_a_line() -> None:
    assert step_line(step(), "closed") == (
        "4 concurrent requests, chat, single, round 1: 1,812.0 tok/s, 80.00 a user, TTFT 50.00 ms, "
        "TPOT 12.50 ms (+- 2.0 %), 39 of 40 requests in 20 s, sharp enough"
    )
    nothing = dict.fromkeys(("median", "p90", "p99"))
    empty = step(
        0.5, output_throughput=None, per_user_tok_s=None, ttft_ms=nothing, tpot_ms=nothing, tpot_interval=None,
        completed=0, status="broken", ended_by="died", restarted=True,
    )  # fmt: skip
    assert step_line(empty, "open") == (
        "0.5 requests a second, chat, single, round 1: - tok/s, - a user, TTFT - ms, TPOT - ms, "
        "0 of 40 requests in 20 s, the engine died, restarted"
    )


def test_the_table_has_the_columns_that_tell_something() -> None:
    lines = ladder_lines(ladder(step(8), step(4)))
    assert lines[0].split() == [
        "at", "once", "kind", "requests", "tok/s", "a", "user", "TTFT", "ms", "p99", "TPOT", "ms", "+-", "p99", "ended",
    ]  # fmt: skip
    # In the order of the levels, however they were measured.
    assert [line.split()[0] for line in lines[1:3]] == ["4", "8"]
    assert "39/40" in lines[1]
    assert lines[-2].startswith("tok/s of all concurrent requests together")
    more = ladder_lines(
        ladder(
            step(4, goodput=1.5, spec_decode_acceptance_rate=81.25),
            step(4, arm="other", goodput=0.0, status="polluted", ended_by="time"),
            limits={"ttft_ms": 1000.0, "tpot_ms": 50.0}, rounds=2,
        )
    )  # fmt: skip
    for word in ("arm", "round", "good/s", "accepted"):
        assert word in more[0]
    assert "81.2 %" in more[1]
    assert more[2].endswith("polluted (time was up)")
    assert "within TPOT 50 ms, TTFT 1000 ms" in more[5]
    widths = {len(line.rstrip()) for line in lines[:3]}
    assert max(widths) < 130


def test_notes_are_told_with_their_step() -> None:
    lines = ladder_lines(ladder(step(4, notes=["1 of 40 requests did not succeed"]), notes=["a: given up"]))
    assert lines[-2:] == ["4, chat, single: 1 of 40 requests did not succeed", "a: given up"]
    assert ladder_lines(ladder()) == ["No step was measured."]


def test_an_open_ladder_says_so() -> None:
    assert ladder_lines(ladder(step(0.5), load="open"))[0].startswith("a second")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 6), (20, 3), (200, 60)])
def test_the_live_table_never_outgrows_the_terminal(width: int, height: int) -> None:
    lines = live_lines(ladder(*(step(level) for level in range(1, 40))), EVENT, width, height)
    assert len(lines) < height
    assert max(map(len, lines)) < width
    assert lines[-2].startswith("1 of 4 steps, about 95 s left"[: width - 1])
    if height > 8:
        # The head stays, and the newest steps with it.
        assert lines[0].startswith("at once")
        assert lines[-3].split()[0] == "39"


def test_before_the_first_step_there_is_no_table() -> None:
    assert live_lines(ladder(), EVENT | {"eta_s": None}, 80, 24) == [
        "1 of 4 steps",
        "now: 8, chat, single, round 1: 17 requests",
    ]


def test_a_users_own_names_move_no_cursor() -> None:
    assert printable("a\x1b[2Jb\n") == "a?[2Jb "
    text = "\n".join(ladder_lines(ladder(step(kind="code", arm="\x1b[31m", notes=["\x07"]), step(4))))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_every_way_to_end_has_words() -> None:
    from drafthouse.bench.sweep import level as load

    words = (load.NARROW, load.TIME, load.PROMPTS, load.DIED, load.FAILED_IN_A_ROW, load.OVERLOAD, load.STOPPED)
    assert set(ENDED) == set(words)


def test_rows_stay_in_the_log_of_ansible() -> None:
    lines = [
        json.dumps(event)
        for event in ({"text": "old"}, {"line": "row 1"}, {"text": "new", "done": 1, "total": 2}, {"line": "row 2"})
    ]
    assert shown_together(lines) == "row 1\n    row 2\n    new, 1 of 2 (50%)"
    assert shown_together(lines[1:2]) == "row 1"
    assert shown_together(lines[:1]) == "old"
