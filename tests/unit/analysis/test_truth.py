"""The verdict where the truth is known: a sample of `make truth`, and each way to fool it that once worked."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from drafthouse.analysis.decision import FIRST_LOOK
from drafthouse.analysis.words import CANNOT_SAY, DOES_NOT_PAY, PAYS
from drafthouse.profiles.workspace import ROOT
from drafthouse.report.data.build import build_report
from tests.support.builders import make_pair, make_resolved
from tests.support.loosely import judge
from tests.truth.attacks import ATTACKS
from tests.truth.laws import LAWS, Law, by_kind, normal
from tests.truth.simulator import Layout
from tests.truth.table import experiment_of, outcomes, row_of

BY_NAME = {law.name: law for law in LAWS}
TWO = Layout(most_rounds=2)


def words_of(name: str, gain: float, runs: int = 100, layout: Layout | None = None) -> Counter[str]:
    return Counter(outcome.word for outcome in outcomes(BY_NAME[name], gain, runs, 11, layout))


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("gains sd 24 %", 1),
        ("gains sd 41 %", 1),
        ("sd 24 %, noise 15 %", 1),
        ("starts sd 3 %", 1),
        ("starts sd 5 %", 6),
        ("one start in 4 slower by 1.3", 7),
        ("half a step 40 % slower, in a quarter of the steps", 7),
        ("drift, 20 % slower at the end", 0),
        ("first step cold by 50 %", 1),
        ("stalls of 2 s in one answer of 20, answers of 6 s", 1),
    ],
)
def test_without_a_gain_it_seldom_pays(name: str, most: int) -> None:
    assert words_of(name, 1.0)[PAYS] <= most


@pytest.mark.parametrize(
    ("name", "gain", "least"),
    [("gains sd 5 %", 1.1, 95), ("gains sd 24 %", 1.15, 93), ("gains sd 32 %", 1.3, 97), ("gains sd 41 %", 1.3, 95)],
)
def test_a_gain_is_found_although_prompts_gain_differently(name: str, gain: float, least: int) -> None:
    assert words_of(name, gain)[PAYS] >= least


def test_a_large_gain_ends_after_two_rounds() -> None:
    found = outcomes(BY_NAME["gains sd 24 %"], 2.0, 20, 4)
    assert {(one.word, one.rounds, one.answers) for one in found} == {(PAYS, 2, 64)}


def test_no_experiment_asks_more_than_its_plan() -> None:
    found = outcomes(BY_NAME["gains sd 41 %"], 1.1, 40, 5)
    assert max(one.answers for one in found) <= 2 * (6 * 6 + 2 * 10 + 4 * 20)
    assert {one.rounds for one in found} <= set(range(FIRST_LOOK, 7))


def test_prompts_enough_for_nothing_but_two_rounds_say_so() -> None:
    found = outcomes(BY_NAME["gains sd 32 %"], 1.15, 20, 6, TWO)
    assert {one.word for one in found} <= {CANNOT_SAY, DOES_NOT_PAY}


def test_what_the_kinds_differ_by_is_no_noise() -> None:
    """Kinds are declared, not drawn."""
    law = Law("kinds", by_kind(2.5), noise_sd=0.01)
    assert Counter(one.word for one in outcomes(law, 1.3, 20, 7))[PAYS] >= 18


@pytest.mark.parametrize("gain", [1.0, 1.2, 1.7])
@pytest.mark.parametrize("name", ["gains sd 24 %", "starts sd 5 %"])
def test_the_whole_judgement_says_what_its_arithmetic_says(name: str, gain: float) -> None:
    for number in range(3):
        experiment = experiment_of(BY_NAME[name], gain, 8, number)
        outcome = experiment.run()
        judgement = judge(*experiment.pair(), experiment.resolved())
        assert judgement["word"] == outcome.word, judgement["sentence"]
        assert outcome.measured.speedup is not None
        assert judgement["speedup"]["n"] == len(outcome.measured.speedup.prompt_gains)
        expected = outcome.measured.speedup.as_dict()
        assert judgement["speedup"] == pytest.approx(expected, rel=1e-9)


def test_a_control_as_wide_as_the_gain_is_in_the_sentence() -> None:
    swings = [0.3, 0.5, 0.7, 1, 1, 1.5, 2.6, 3.3]
    base, spec = make_pair({"copy-edit": 2.1}, noise=0.0)
    for request in base["requests"]:
        swing = swings[int(request["prompt_id"].rpartition("-")[2]) - 1] ** 0.5
        request["tpot_ms"] *= swing if request["round"] == 1 else 1 / swing
    verdict = judge(base, spec, make_resolved())
    assert verdict["control"]["high"] > verdict["speedup"]["low"]
    assert verdict["word"] == CANNOT_SAY or "within the range of the baseline against itself" in verdict["said"]


def half_busy(chance: Any, step: int, answers: int) -> Any:
    """A program takes half of a CPU: some steps more than others, every second answer up to twice as slow."""
    share = chance.uniform(0.2, 0.8)
    return np.log(chance.uniform(1.2, 2.0, answers)) * (chance.random(answers) < share)


@pytest.mark.parametrize("gain", [2.6, 1.6])
def test_ten_demos_beside_a_program_do_not_contradict_each_other(gain: float) -> None:
    law = Law("half of a CPU", normal(0.25), noise_sd=0.1, box=half_busy)
    demo = Layout(prompts=12, anchors=4, fresh=4, temperatures=(0.0,))
    words, wide = set(), 0
    for number in range(30):
        experiment = experiment_of(law, gain, 3, number, demo)
        experiment.run()
        verdict = judge(*experiment.pair(), experiment.resolved())
        words.add(verdict["word"])
        control, low = verdict["control"], verdict["speedup"]["low"]
        within = low <= max(control["high"], 1 / control["low"])
        said = "its lower bound lies within the range of the baseline against itself" in verdict["said"]
        assert said == (within and verdict["word"] == PAYS), verdict["sentence"]
        wide += said
    # Of any ten of them: what some say no other denies.
    assert PAYS in words
    assert DOES_NOT_PAY not in words
    assert wide


def loaded(arm: str, percent: float, steal: float = 0.0, own_s: float = 30.0, gain: float = 1.5) -> Any:
    base, spec = make_pair({"copy-edit": gain}, rounds=3)
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
    base, spec = make_pair({"copy-edit": 1.5}, rounds=3)
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
    """What a GPU did that was throttled in this share of an arm's time; None: nobody looked."""
    return {
        "index": index, "uuid": f"GPU-{index}", "name": "GPU", "samples": 0 if share is None else 100,
        "sm_clock_median_mhz": 1980.0, "sm_clock_min_mhz": 900.0, "memory_clock_median_mhz": None,
        "temperature_max_c": None, "power_median_w": None, "utilization_median_percent": None,
        "memory_used_max_bytes": None, "throttled_share": share,
        "reasons": {"power cap": 1.0, "power brake": share} if share else {}, "error": None,
    }  # fmt: skip


def test_how_long_a_gpu_was_throttled_counts_and_not_how_it_was_at_the_end() -> None:
    def word(share: float | None) -> str:
        base, spec = make_pair({"copy-edit": 1.5}, rounds=3)
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


# --- the door ----------------------------------------------------------------------------------------


def test_a_simulated_experiment_goes_through_the_reports_own_door() -> None:
    experiment = experiment_of(BY_NAME["gains sd 24 %"], 1.7, 1, 1)
    experiment.run()
    base, spec = experiment.pair()
    kept = build_report(base, spec, experiment.resolved())["verdict"]
    assert kept == judge(base, spec, experiment.resolved()) | {"load": None}
    assert kept["word"] == PAYS


def test_another_seed_changes_every_draw_and_the_same_none() -> None:
    law = BY_NAME["gains sd 24 %"]
    speeds = []
    for seed in (1, 1, 2):
        found = [one.measured.speedup for one in outcomes(law, 1.2, 2, seed, TWO)]
        speeds.append([one.log_gain for one in found if one])
    assert speeds[0] == speeds[1]
    assert not set(speeds[0]) & set(speeds[2])


def test_a_row_that_misses_its_bar_is_a_problem() -> None:
    # Every prompt gains 40 % "without a gain": what a broken rule looks like.
    broken = Law("broken", lambda chance, kinds, places: 0.33 + 0.0 * kinds)
    (problem,) = row_of(broken, 4, [1], (1.0,)).problems()
    assert problem == "broken: 100.0% false `pays`, more than 1.0%"


def test_every_attack_has_its_tests() -> None:
    """`make truth` runs them; one that was renamed would be missed there, and not before."""
    assert [attack.number for attack in ATTACKS] == list(range(1, len(ATTACKS) + 1))
    for attack in ATTACKS:
        for test in attack.tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / "tests" / file).read_text("utf-8"), test
