"""What a sweep through a front says of its fleet: one sentence, and what each replica did."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.analysis.fleet import fleet_report, fleet_sentence
from drafthouse.core.format import DASH
from tests.support.ladders import KIND, known_ladder
from tests.support.loosely import fill

QUICK = 500
FALLING: dict[float, float] = {4: 1.8, 16: 1.5, 32: 1.26, 64: 0.8}


def sentence(gains: dict[float, float], boxes: int = 4, **fields: Any) -> str:
    return fleet_sentence(boxes, fill(known_ladder(gains, **fields), QUICK)[KIND])


@pytest.mark.parametrize(
    ("gains", "fields", "said"),
    [
        (FALLING, {}, f"with 4 boxes speculation pays up to about 45 concurrent requests (42{DASH}48)"),
        (FALLING, {"boxes": 1}, f"with 1 box speculation pays up to about 45 concurrent requests (42{DASH}48)"),
        (
            {4: 1.8, 64: 1.5},
            {},
            "with 4 boxes speculation pays up to 64 concurrent requests, the most that was measured",
        ),
        ({4: 0.8, 64: 0.7}, {}, "with 4 boxes speculation does not pay at 4 to 64 concurrent requests"),
        (FALLING, {"prompts": 2}, "with 4 boxes: cannot say up to which load speculation pays"),
        (
            {0.5: 1.8, 2: 1.5},
            {"unit": "requests a second", "load": "open"},
            "with 4 boxes speculation pays up to 2 requests a second, the most that was measured",
        ),
    ],
)
def test_the_sentence_of_a_fleet(gains: dict[float, float], fields: dict[str, Any], said: str) -> None:
    assert sentence(gains, **fields) == said


def replica(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "requests": 10,
        "output_tokens": 1000,
        "output_throughput": 100.0,
        "draft_tokens": 300,
        "accepted_tokens": 150,
        "failed": 0,
        "said": None,
        **fields,
    }


def measured(*replicas: list[dict[str, Any]], arm: str = "speculative") -> Any:
    ladder = known_ladder(FALLING)
    ladder["notes"] = []
    ladder["steps"] = [step for step in ladder["steps"] if step["arm"] == arm][: len(replicas)]
    for step, own in zip(ladder["steps"], replicas, strict=True):
        step.update({"replicas": own, "completed": 20, "failed": 0, "duration_s": 10.0})
    return ladder


def test_a_column_per_replica() -> None:
    ladder = measured(
        [replica("a"), replica("b", draft_tokens=100, accepted_tokens=10)],
        [replica("a", output_tokens=3000, failed=2), replica("b", accepted_tokens=30)],
    )
    report = fleet_report(ladder)
    assert (report["boxes"], report["sentences"]) == (2, {})
    assert report["notes"] == ["no crossover: only speculative was measured"]
    (arm,) = report["arms"]
    assert (arm["arm"], arm["steps"], arm["completed"]) == ("speculative", 2, 40)
    a, b = arm["replicas"]
    assert (a["requests"], a["output_tokens"], a["output_throughput"], a["failed"]) == (20, 4000, 200.0, 2)
    # Of all tokens that were drafted, not a mean of rates.
    assert (a["acceptance_rate"], b["acceptance_rate"]) == (50.0, 10.0)


def test_a_replica_that_was_not_counted_once_has_no_sum() -> None:
    gone = replica("b", requests=None, output_tokens=None, draft_tokens=None, accepted_tokens=None, said="HTTP 502")
    (arm,) = fleet_report(measured([replica("a"), replica("b")], [replica("a"), gone]))["arms"]
    b = arm["replicas"][1]
    assert (b["requests"], b["output_throughput"], b["acceptance_rate"]) == (None, None, None)
    assert b["notes"] == ["HTTP 502"]


def test_a_broken_step_is_in_no_number_but_its_failures() -> None:
    ladder = measured([replica("a")], [replica("a", requests=None, failed=7, said="its engine was restarted")])
    ladder["steps"][1].update({"status": "broken", "failed": 7, "notes": ["a: restarted during this step"]})
    report = fleet_report(ladder)
    (arm,) = report["arms"]
    assert (arm["steps"], arm["completed"], arm["failed"]) == (1, 20, 7)
    assert (arm["replicas"][0]["requests"], arm["replicas"][0]["failed"]) == (10, 7)
    assert report["notes"][-1] == "16, copy-edit, speculative, round 1 (broken): a: restarted during this step"
