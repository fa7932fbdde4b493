"""The verdict where the truth is known: a sample of `make truth`, and each way to fool it that once worked."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drafthouse.analysis.rounds import FIRST_LOOK, tail_of
from drafthouse.analysis.verdict_text import CANNOT_SAY, DOES_NOT_PAY, PAYS
from drafthouse.cli import report
from drafthouse.profiles.workspace import ROOT
from tests.support.builders import make_pair, make_resolved
from tests.support.loosely import judge, wants_more
from tests.truth.attacks import ATTACKS
from tests.truth.coverage import BAR, covered
from tests.truth.coverage import LAWS as MEDIAN_LAWS
from tests.truth.laws import LAWS, Law
from tests.truth.simulator import Experiment, Layout
from tests.truth.table import outcomes, row_of

BY_NAME = {law.name: law for law in LAWS}
TWO = Layout(most_rounds=2)
#: What a kept result of an older version is: two rounds, the baseline first in both.
OLD = [
    ("starts differ, sd 3 %", 1),
    pytest.param("one step 20 % slower", 1, marks=pytest.mark.soak),
    ("drift, 20 % faster, B,S,B,S", 1),
    pytest.param("a quarter of the run 20 % slower", 1, marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("name", "most"), OLD)
def test_two_rounds_of_a_box_that_moves_are_no_gain(name: str, most: int) -> None:
    law = replace(BY_NAME[name], alternated=True)
    words = Counter(one.word for one in outcomes(law, 1.0, 40, 1, TWO))
    assert words[PAYS] <= most, words
    assert not words["invalid"]


@pytest.mark.parametrize(
    "name",
    [
        "starts differ, sd 3 %",
        *[pytest.param(name, marks=pytest.mark.soak) for name in ("one step 20 % slower", "cold start 15 %")],
    ],
)
def test_more_rounds_are_bought_without_more_false_gains(name: str) -> None:
    words = Counter(one.word for one in outcomes(BY_NAME[name], 1.0, 40, 2))
    assert words[PAYS] <= 1, words


def test_a_gain_of_a_fifth_is_found_among_starts_that_differ() -> None:
    found = outcomes(BY_NAME["starts differ, sd 2 %"], 1.2, 40, 3)
    assert sum(one.word == PAYS for one in found) >= 38
    assert {one.word for one in outcomes(BY_NAME["starts differ, sd 2 %"], 1.5, 20, 3)} == {PAYS}


def test_a_large_gain_ends_after_two_rounds() -> None:
    assert {(one.word, one.rounds) for one in outcomes(BY_NAME["starts differ, sd 2 %"], 2.0, 20, 4)} == {(PAYS, 2)}


def test_a_quiet_box_can_always_say() -> None:
    for gain in (1.0, 1.2, 1.5):
        assert all(one.word != CANNOT_SAY for one in outcomes(BY_NAME["noise 5 %"], gain, 20, 5))


def test_an_odd_step_is_named_and_outvoted() -> None:
    found = outcomes(BY_NAME["one step 60 % slower"], 1.2, 20, 6)
    assert sum(one.word == PAYS for one in found) >= 19
    named = [one for one in found if one.judgement["starts"]["odd"]]
    assert named
    for one in named:
        assert any(
            re.search(r"round \d was \d+ % slower than its other rounds", said) for said in one.judgement["reasons"]
        )


def test_an_odd_step_that_nobody_can_outvote_leaves_nothing_to_say() -> None:
    words = Counter(one.word for one in outcomes(BY_NAME["one step 60 % slower"], 1.2, 20, 6, TWO))
    assert words[CANNOT_SAY] >= 15, words
    assert not words[PAYS]


@pytest.mark.parametrize("swings", [[0.3, 0.5, 0.7, 1, 1, 1.5, 2.6, 3.3], [0.72, 0.8, 1.2, 1.6, 2, 2.25, 2.6, 3.04]])
def test_a_control_as_wide_as_the_gain_leaves_nothing_to_say(swings: list[float]) -> None:
    base, spec = make_pair({"copy-edit": 2.1}, noise=0.0)
    for request in base["requests"]:
        swing = swings[int(request["prompt_id"].rpartition("-")[2]) - 1] ** 0.5
        request["tpot_ms"] *= swing if request["round"] == 1 else 1 / swing
    verdict = judge(base, spec, make_resolved())
    assert verdict["control"]["high"] > verdict["speedup"]["median"] > 1.5
    assert verdict["word"] == CANNOT_SAY
    told = r"cannot say: too noisy: the baseline against itself gives .+; do: .+ measure again$"
    assert re.match(told, str(verdict["sentence"]))


def loaded(arm: str, percent: float, steal: float = 0.0, own_s: float = 30.0, gain: float = 1.5) -> Any:
    base, spec = make_pair({"copy-edit": gain})
    for group in (base if arm == "baseline" else spec)["machine"]["groups"]:
        group["between"] = {
            "seconds": 30.0, "own_cpu_s": own_s, "other_cpu_percent": percent, "cpu_steal_percent": steal,
            "busy_processes": [{"name": "cc1plus", "cpu_percent": 100.0}],
        }  # fmt: skip
    return judge(base, spec, make_resolved())


def test_other_work_beside_one_arm_leaves_nothing_to_say() -> None:
    verdict = loaded("baseline", 60.0)
    assert verdict["word"] == CANNOT_SAY
    assert "other work took 60 % of the CPU during baseline" in str(verdict["sentence"])
    assert "stop cc1plus" in str(verdict["sentence"])
    assert "steal" in str(loaded("baseline", 60.0, steal=55.0)["sentence"])
    # It slows the arm that is faster all the same; it explains too little; or it is the engine of another user.
    assert loaded("speculative", 60.0)["word"] == PAYS
    assert loaded("baseline", 20.0)["word"] == PAYS
    assert loaded("baseline", 90.0, own_s=1.0)["word"] == PAYS
    assert loaded("speculative", 40.0, gain=1.0)["word"] == CANNOT_SAY


def test_a_gpu_that_was_throttled_beside_one_arm_leaves_nothing_to_say() -> None:
    base, spec = make_pair({"copy-edit": 1.5})
    for result in (base, spec):
        for group in result["machine"]["groups"]:
            hot = ["hardware thermal slowdown"] if result is base else []
            group["after"] = {"gpus": [{"index": 0, "throttled_by": hot}, {"index": 1, "throttled_by": []}]}
    verdict = judge(base, spec, make_resolved())
    assert verdict["sentence"].startswith(
        "cannot say: too noisy: a GPU was throttled for heat or power for 100 % of the"
    )
    assert judge(*make_pair({"copy-edit": 3.0}), make_resolved())["word"] == PAYS


def throttled_gpu(index: int, share: float | None) -> dict[str, Any]:
    """Return what a GPU did that was throttled in this share of an arm's time; None: nobody looked."""
    return {
        "index": index, "uuid": f"GPU-{index}", "name": "GPU", "samples": 0 if share is None else 100,
        "sm_clock_median_mhz": 1980.0, "sm_clock_min_mhz": 900.0, "memory_clock_median_mhz": None,
        "temperature_max_c": None, "power_median_w": None, "utilization_median_percent": None,
        "memory_used_max_bytes": None, "throttled_share": share,
        "reasons": {"power cap": 1.0, "power brake": share} if share else {}, "error": None,
    }  # fmt: skip


def test_how_long_a_gpu_was_throttled_counts_and_not_how_it_was_at_the_end() -> None:
    def word(share: float | None) -> str:
        base, spec = make_pair({"copy-edit": 1.5})
        for result in (base, spec):
            for group in result["machine"]["groups"]:
                group["after"] = {"gpus": [{"index": 0, "throttled_by": ["power brake"] if result is base else []}]}
        cool, warm = (throttled_gpu(index, one) for index, one in ((0, 0.0), (1, share)))
        base["gpus"] = [
            {"round": group["round"], "group": group["group"], "gpus": [cool, warm] if share is not None else [warm]}
            for group in base["machine"]["groups"]
        ]
        verdict = judge(base, spec, make_resolved())
        told = "baseline: GPU 1 (GPU) was throttled 90.0 % of the time (power brake), and its SM clock fell to 900 MHz"
        assert any(one.startswith(told) for one in verdict["warnings"]) == (share == 0.9)
        return str(verdict["word"])

    assert (word(0.04), word(0.9)) == (PAYS, CANNOT_SAY)
    assert word(None) == CANNOT_SAY  # no sample: the group was too short


# --- when to stop ------------------------------------------------------------------------------------


def test_the_error_rate_is_spent_over_the_looks() -> None:
    for most in (2, 3, 5, 8, 20):
        assert sum(tail_of(done, most) for done in range(FIRST_LOOK, most + 1)) == pytest.approx(0.025)
        assert tail_of(2, most) >= max(tail_of(done, most) for done in range(FIRST_LOOK, most + 1))


def test_one_more_round_is_wanted_only_where_it_may_change_the_word() -> None:
    judged = {
        "word": DOES_NOT_PAY, "said": "no clear difference", "wrong_output": False,
        "speedup": {"median": 1.08, "low": 1.0, "high": 1.16}, "starts": {"may_pay_yet": True},
    }  # fmt: skip
    assert "lies within" in str(wants_more(judged, 2, 8))
    assert wants_more(judged, 8, 8) is None
    assert wants_more(judged | {"starts": {"may_pay_yet": False}}, 2, 8) is None
    assert wants_more(judged | {"word": PAYS}, 2, 8) is None
    assert wants_more(judged | {"word": "invalid"}, 2, 8) is None
    assert wants_more(judged | {"wrong_output": True}, 2, 8) is None
    noisy = judged | {"word": CANNOT_SAY, "said": "too noisy: two starts of baseline differ by 20 %; do: wait"}
    assert wants_more(noisy, 2, 8) == "too noisy: two starts of baseline differ by 20 %"


# --- the door ----------------------------------------------------------------------------------------


def test_a_simulated_experiment_goes_through_the_reports_own_door(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = Experiment(BY_NAME["starts differ, sd 2 %"], 1.5, np.random.default_rng(1), Layout())
    for _ in range(FIRST_LOOK):
        experiment.measure_round()
    base, spec = experiment.pair()
    files = {"baseline": base, "speculative": spec, "resolved": experiment.resolved()}
    for name, data in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(data), "utf-8")
    arguments = [word for name in files for word in (f"--{name}", str(tmp_path / f"{name}.json"))]
    assert report.main([*arguments, "--reports", str(tmp_path / "reports")]) == 0
    kept = json.loads(next((tmp_path / "reports").rglob("report.json")).read_text("utf-8"))["verdict"]
    assert kept == json.loads(json.dumps(judge(base, spec, experiment.resolved()) | {"load": None}))
    assert "pays" in capsys.readouterr().out


def test_another_seed_changes_every_draw_and_the_same_none() -> None:
    law = BY_NAME["noise 5 %"]
    speeds = [[one.judgement["speedup"]["median"] for one in outcomes(law, 1.2, 2, seed, TWO)] for seed in (1, 1, 2)]
    assert speeds[0] == speeds[1]
    assert not set(speeds[0]) & set(speeds[2])


def test_a_row_that_misses_its_bar_is_a_problem() -> None:
    # Prompts that gain 10 % "without a gain" are what a broken rule looks like.
    broken = Law("broken", course=lambda chance, span: lambda t: 0.5 if int(t) % 4 in (0, 3) else 0.0)
    row = row_of(broken, 4, 1, (1.0,))
    assert row.problems() == ["broken: 100.0% false `pays`, more than 5 of 400"]


@pytest.mark.parametrize("n", [6, 7, 13, 23, 60])
@pytest.mark.parametrize("name", MEDIAN_LAWS)
def test_the_interval_of_a_median_covers_it(name: str, n: int) -> None:
    # Three standard errors of 1,500 runs are 0.017; 0.925 is what a percentile bootstrap of 7 values is far below.
    assert covered(n, MEDIAN_LAWS[name], 1500, np.random.default_rng(n)) >= BAR - 0.017


def test_every_attack_has_its_tests() -> None:
    """`make truth` runs them; one that was renamed would be missed there, and not before."""
    assert [attack.number for attack in ATTACKS] == list(range(1, 15))
    for attack in ATTACKS:
        for test in attack.tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / "tests" / file).read_text("utf-8"), test
