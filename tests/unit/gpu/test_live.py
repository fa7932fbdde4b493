"""What level 1 asks of a server under load, and when that is wrong."""

from __future__ import annotations

import json
from typing import Any

from tests.gpu.live import LEVELS, TRAFFIC, WATCHDOG, problems, settings, sweep_of


def live(**given: Any) -> Any:
    levels = [
        {"level": level, "tokens_per_s": {"baseline": 9.0, "speculative": 18.0}, "speedup": 2.0, "verdict": "pays"}
        for level in LEVELS
    ]
    seen = [
        {"traffic": kind, "due": one.due, "codes": ["few", one.due], "acceptance": sum(one.acceptance) / 2}
        for kind, one in TRAFFIC.items()
    ]
    right = {
        "levels": levels, "crossover": "pays", "pays_until": None, "watchdog": seen,
        "checks": {"ok": 20, "warn": 1, "fail": 0}, "not_ok": ["warn: persistence"],
    }  # fmt: skip
    return {**right, **given}


def test_a_server_that_was_watched_and_is_well_is_right() -> None:
    assert problems(live()) == []


def test_each_check_can_fail() -> None:
    levels, seen = live()["levels"], live()["watchdog"]
    nothing = {**levels[0], "tokens_per_s": {"baseline": 9.0, "speculative": None}}
    for given, said in (
        ({"not_ok": ["fail: served"]}, "the doctor: fail: served"),
        ({"checks": {}}, "no check is ok"),
        ({"levels": levels[:2]}, "the levels [1, 2] of [1, 2, 4]"),
        ({"levels": [nothing, *levels[1:]]}, "1 at a time, speculative: nothing measured"),
        ({"crossover": None}, "no crossover"),
        ({"watchdog": [seen[0], {**seen[1], "codes": ["patience"]}]}, "hardly drafts: patience"),
        ({"watchdog": [{**seen[0], "codes": []}, seen[1]]}, "drafts well: no word"),
        ({"watchdog": [seen[0], {**seen[1], "acceptance": 0.9}]}, "hardly drafts: acceptance rate 0.9"),
        ({"watchdog": [{**seen[0], "acceptance": None}, seen[1]]}, "drafts well: acceptance rate None"),
    ):
        (wrong,) = problems(live(**given))
        assert said in wrong


def test_on_a_cpu_the_watchdog_may_decide_anything_and_must_have_read_the_traffic() -> None:
    well, hardly = live()["watchdog"]
    assert problems(live(watchdog=[{**well, "codes": ["does_not_pay"]}, hardly]), on_gpu=False) == []
    (wrong,) = problems(live(watchdog=[{**well, "acceptance": None}, hardly]), on_gpu=False)
    assert "drafts well: acceptance rate None" in wrong


def test_a_report_without_a_sweep_has_no_levels() -> None:
    kept: Any = type("Kept", (), {"report": {"load": None}})
    assert sweep_of(kept) == {"levels": [], "crossover": None, "pays_until": None}


def test_the_watchdog_only_reports() -> None:
    assert WATCHDOG["mode"] == "report"
    assert json.loads(settings()[-1])["drafthouse_watchdog"] == WATCHDOG
