"""The verdict: known speed-ups, and a good pair broken in every way that makes it invalid."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from drafthouse.analysis.speedup import FEWEST_PROMPTS
from drafthouse.core.format import DASH, TIMES
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.report.data.build import against_stock
from tests.support.builders import NOTHING, make_pair, make_resolved, make_result
from tests.support.loosely import judge

Data = Any
Break = Callable[[Data, Data, Data], Any]


def test_a_known_speed_up_pays() -> None:
    verdict = judge(*make_pair({"copy-edit": 2.31}), make_resolved())
    assert verdict["word"] == "pays"
    speedup, seconds = verdict["speedup"], verdict["seconds"]
    assert speedup["low"] <= 2.31 <= speedup["high"]
    assert speedup["n"] == 8
    clock = verdict["user_clock"]
    assert verdict["sentence"] == (
        f"pays: {speedup['gain']:.2f}{TIMES} ({speedup['low']:.2f}{DASH}{speedup['high']:.2f}) "
        "faster per token on copy-edit, one request at a time, "
        f"{seconds['ratio']:.2f}{TIMES} over the seconds of all answers; "
        f"TTFT {clock['ttft_ms']['speculative']:.1f} ms (baseline {clock['ttft_ms']['baseline']:.1f}), "
        f"end to end at 160 tokens {clock['e2el_ms']['speculative']:,.0f} ms "
        f"(baseline {clock['e2el_ms']['baseline']:,.0f})"
    )
    assert f"above 1.03{TIMES}" in verdict["reasons"][0]
    assert (verdict["rule"], verdict["next_round"], verdict["slower_share"]) == (2, None, 0.0)


def test_equal_arms_do_not_pay() -> None:
    words = [judge(*make_pair({"copy-edit": 1.0}, rounds=3, seed=seed), make_resolved())["word"] for seed in range(20)]
    assert words == ["does not pay"] * 20


def test_a_slower_arm_says_slower() -> None:
    verdict = judge(*make_pair({"copy-edit": 0.8}), make_resolved())
    assert verdict["word"] == "does not pay"
    assert verdict["speedup"]["high"] < 1.0
    assert verdict["said"].startswith(f"slower, {verdict['speedup']['gain']:.2f}")


def flat(gain: float, rounds: int = 2, **more: Any) -> tuple[Data, Data]:
    """Two arms of which every prompt gains the same, with nothing to wait for but the tokens."""
    base, spec = make_pair({"copy-edit": 1.0}, noise=0.0, rounds=rounds, **more)
    for result in (base, spec):
        for request in result["requests"]:
            tpot_ms = 10.0 * gain if result["arm"] == "baseline" else 10.0
            request.update(tpot_ms=tpot_ms, ttft_ms=0.1, ttfat_ms=0.1, e2el_ms=0.1 + 159 * tpot_ms)
    return base, spec


def test_a_gain_that_is_surely_below_a_tenth_does_not_pay() -> None:
    verdict = judge(*flat(1.045, rounds=6), make_resolved())
    assert verdict["word"] == "does not pay"
    assert verdict["speedup"]["low"] > 1.0
    assert f"is below 1.10{TIMES}" in verdict["said"]


@pytest.mark.parametrize(
    ("gain", "rounds", "word"),
    [
        (1.5, 2, "cannot say"),
        (1.5, 3, "pays"),
        (1.7, 2, "pays"),
        # Whether it is worth anything is no easier to say; that it is slower is.
        (1.02, 2, "cannot say"),
        (1.02, 3, "does not pay"),
        (0.9, 2, "does not pay"),
    ],
)
def test_a_gain_below_1_60_needs_three_rounds(gain: float, rounds: int, word: str) -> None:
    verdict = judge(*flat(gain, rounds), make_resolved())
    assert verdict["word"] == word, verdict["sentence"]
    if word == "cannot say":
        assert verdict["next_round"]["fresh"] == "few"
        assert verdict["said"].startswith(f"too few rounds: a gain below 1.60{TIMES} needs 3 rounds, and there were 2")


def test_two_starts_of_an_arm_that_differ_need_four_rounds() -> None:
    def word(rounds: int) -> Any:
        base, spec = flat(2.5, rounds)
        for request in base["requests"]:
            request["tpot_ms"] *= 1.12 if request["round"] == 1 else 1.0
        resolved = make_resolved()
        resolved["experiment"]["schedule"] = "alternated"
        return judge(base, spec, resolved)

    found = word(3)
    assert found["word"] == "cannot say"
    assert "two starts of baseline differ by 12 %, which needs 4 rounds" in found["said"]
    assert word(4)["word"] == "pays"


def test_one_start_of_each_arm_says_nothing() -> None:
    verdict = judge(*flat(2.5, rounds=1), make_resolved(rounds=1))
    assert verdict["word"] == "cannot say"
    assert "one start of each arm does not show how much starts differ" in verdict["said"]


def test_gains_that_differ_much_ask_for_prompts() -> None:
    base, spec = make_pair({"copy-edit": 1.0}, noise=0.0, prompts=8)
    gains = [0.7, 0.8, 0.9, 1.4, 1.5, 1.6, 1.7, 1.8]
    for request in spec["requests"]:
        request["tpot_ms"] /= gains[int(request["prompt_id"].split("-")[-1]) - 1]
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] == "cannot say"
    assert verdict["said"].startswith("too few prompts: 8 prompts differ so much in what they gain")
    assert verdict["next_round"]["fresh"] == "many"
    assert verdict["slowest"][0]["gain"] == pytest.approx(0.7)
    assert verdict["slower_share"] == 3 / 8


def test_a_few_prompts_that_are_ten_times_slower_are_not_forgotten() -> None:
    # 13 of 16 prompts gain 15 %, three are ten times slower: a median says 1.15.
    base, spec = flat(1.15, rounds=6, prompts=16)
    for request in spec["requests"]:
        request["tpot_ms"] *= 11.5 if request["prompt_id"] in ("copy-edit-2", "copy-edit-5", "copy-edit-11") else 1.0
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] != "pays"
    assert verdict["seconds"]["ratio"] < 0.5
    assert {one["prompt_id"] for one in verdict["slowest"]} == {"copy-edit-2", "copy-edit-5", "copy-edit-11"}


def test_faster_on_most_prompts_and_slower_over_all_does_not_pay() -> None:
    base, spec = flat(1.3, rounds=3, prompts=16)
    for request in [*base["requests"], *spec["requests"]]:
        # Three long prompts take most of the time, and they are slower.
        if request["prompt_id"] in ("copy-edit-2", "copy-edit-5", "copy-edit-11"):
            request["tpot_ms"] *= 20.0 * (1.8 if request in spec["requests"] else 1.0)
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] == "does not pay", verdict["sentence"]
    assert verdict["said"].startswith("faster on most prompts, slower over all: 0.7")
    assert "the slowest: copy-edit-11" in verdict["said"] or "the slowest: copy-edit-2" in verdict["said"]


def test_a_lower_bound_inside_the_control_is_in_the_sentence() -> None:
    base, spec = flat(2.2, rounds=4)
    for request in base["requests"]:
        request["tpot_ms"] *= 1.35 if request["round"] % 2 else 1 / 1.35
    verdict = judge(base, spec, make_resolved())
    if verdict["word"] == "pays":
        assert "its lower bound lies within the range of the baseline against itself" in verdict["said"]
    assert verdict["control"]["high"] > 1.5


def test_outputs_that_could_not_be_checked_are_in_the_sentence() -> None:
    base, spec = flat(2.0, rounds=3)
    for request in [*base["requests"], *spec["requests"]]:
        if request["prompt_id"] in ("copy-edit-1", "copy-edit-2"):
            request["temperature"] = 0.6
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] == "pays"
    assert "; outputs not checked at 0.6; " in verdict["sentence"]


def test_only_the_declared_kinds_count() -> None:
    pair = make_pair({"copy-edit": 3.0, "creative": 0.7})
    assert judge(*pair, make_resolved(kinds=["copy-edit"]))["word"] == "pays"
    creative = judge(*pair, make_resolved(kinds=["creative"]))
    assert creative["word"] == "does not pay"
    assert creative["speedup"]["n"] == 8
    every = judge(*pair, make_resolved(kinds=[]))
    assert every["speedup"]["n"] == 16
    assert "all kinds of prompt" in every["sentence"]
    assert [name for name, group in creative["groups"].items() if group["declared"]] == ["creative"]


def test_nothing_is_left_out_by_its_value() -> None:
    base, spec = make_pair({"copy-edit": 2.0}, rounds=3, noise=0.0)
    for request in spec["requests"]:
        if request["round"] == 2:  # one bad round in three: nobody can say which start is the usual one
            request["tpot_ms"] *= 50
    verdict = judge(base, spec, make_resolved(rounds=3))
    assert verdict["word"] != "pays"
    assert verdict["speedup"]["n"] == 8


def heated(pair: tuple[Data, Data], gain: float = 1.0, temperature: float = 0.7) -> tuple[Data, Data]:
    """A pair whose prompts were asked at a second temperature too, where the speculative arm is ``gain`` times faster
    than at 0."""
    for result in pair:
        faster = gain if result["arm"] == "speculative" else 1.0
        result["requests"] += [
            {
                **r,
                "group": f"{r['kind']}@{temperature:g}",
                "temperature": temperature,
                "tpot_ms": r["tpot_ms"] / faster,
            }
            for r in result["requests"]
        ]
        result["groups"] |= {f"{name}@{temperature:g}": dict(block) for name, block in result["groups"].items()}
    return pair


def test_a_prompt_at_two_temperatures_is_one_prompt() -> None:
    alone = judge(*make_pair({"copy-edit": 2.0}), make_resolved())
    twice = judge(*heated(make_pair({"copy-edit": 2.0})), make_resolved())
    assert twice["word"] == "pays"
    assert twice["scope"]["groups"] == ["copy-edit", "copy-edit@0.7"]
    for figure in ("speedup", "control"):
        # The same answers once more say nothing new: the interval gets no narrower.
        assert twice[figure]["n"] == alone[figure]["n"] == 8
        assert [twice[figure][end] for end in ("low", "high")] == pytest.approx(
            [alone[figure][end] for end in ("low", "high")]
        )
    assert "over 8 prompts" in twice["reasons"][0]
    base, spec = heated(make_pair({"copy-edit": 2.0}))
    stock: Any = against_stock(base, {"baseline": base, "speculative": spec}, twice["scope"]["groups"])
    assert stock["speculative"]["n"] == stock["baseline"]["n"] == 8
    # A group is of one temperature, and its figures stay its own.
    assert {name: group["speedup"] for name, group in twice["groups"].items()} == dict.fromkeys(
        ("copy-edit", "copy-edit@0.7"), alone["speedup"]
    )


def test_the_speed_ups_of_a_prompt_at_several_temperatures_are_multiplied() -> None:
    pair = heated(make_pair({"copy-edit": 2.0}, noise=0.0), gain=1 / 4)
    for result in pair:
        for request in result["requests"]:
            request["tpot_ms"] = {"baseline": 20.0, "speculative": 10.0 if request["temperature"] == 0 else 40.0}[
                result["arm"]
            ]
    # Twice as fast at 0 and half as fast at 0.7: no gain; their arithmetic mean would say 1.25.
    assert judge(*pair, make_resolved())["speedup"]["gain"] == pytest.approx(1.0)


def test_temperatures_do_not_stand_in_for_prompts() -> None:
    few = judge(*heated(make_pair({"copy-edit": 3.0}, prompts=3)), make_resolved())
    assert few["word"] == "cannot say"
    assert few["said"].startswith("too few prompts: 3 prompts, and 6 are needed")
    assert judge(*heated(make_pair({"copy-edit": 3.0}, prompts=6)), make_resolved())["word"] == "pays"
    # Two kinds with a prompt of the same name have two prompts.
    base, spec = make_pair({"copy-edit": 3.0, "chat": 2.0}, prompts=3)
    for request in base["requests"] + spec["requests"]:
        request["prompt_id"] = request["prompt_id"].rpartition("-")[2]
    assert judge(base, spec, make_resolved(kinds=["copy-edit", "chat"]))["speedup"]["n"] == 6


@pytest.mark.parametrize("name", list(load_catalog(ROOT).profiles))
def test_every_profile_of_the_house_has_prompts_enough_for_a_verdict(name: str) -> None:
    site = site_of_inventory("workstation")
    resolved = resolved_profile(name, site)
    declared = resolved["experiment"]["kinds"]
    prompts = {
        (kind, prompt["id"])
        for suite in resolved["suites"].values()
        for kind, entry in suite["kinds"].items()
        if kind in declared
        for prompt in entry["prompts"]
    }
    assert len(prompts) >= FEWEST_PROMPTS


def test_the_control_sets_the_baseline_against_itself() -> None:
    base, spec = make_pair({"copy-edit": 2.0}, noise=0.0)
    assert judge(base, spec, make_resolved())["control"]["gain"] == pytest.approx(1.0)
    for request in base["requests"]:
        if request["round"] == 1:
            request["tpot_ms"] *= 1.5
    verdict = judge(base, spec, make_resolved())
    assert verdict["control"]["gain"] == pytest.approx(1.5)
    assert any("not steady" in warning for warning in verdict["warnings"])


def test_one_round_has_no_control_and_says_so() -> None:
    verdict = judge(*make_pair({"copy-edit": 2.0}, rounds=1), make_resolved(rounds=1))
    assert verdict["control"] is None
    assert any("no A/A control" in warning for warning in verdict["warnings"])


def test_unpinned_is_said_wherever_the_verdict_is() -> None:
    resolved = {**make_resolved(), "unpinned": "another version every day", "warnings": ["unpinned: said twice"]}
    verdict = judge(*make_pair({"copy-edit": 2.0}), resolved)
    assert verdict["sentence"].startswith("unpinned, pays:")
    assert verdict["warnings"].count("unpinned profile: another version every day") == 1
    assert "unpinned: said twice" not in verdict["warnings"]


def test_synthetic_is_said_wherever_the_verdict_is() -> None:
    verdict = judge(*make_pair({"copy-edit": 2.0}), make_resolved(synthetic="padded with identity blocks"))
    assert verdict["sentence"].startswith("synthetic, pays:")
    assert "padded with identity blocks" in verdict["warnings"][0]


def test_declared_kinds_without_drafts_do_not_pay_but_a_gain_there_is_invalid() -> None:
    for gain, word, said in (
        (1.0, "does not pay", "proposed nothing on creative"),
        (2.0, "invalid", "without drafting"),
    ):
        base, spec = make_pair({"copy-edit": 3.0, "creative": gain}, rounds=3)
        spec["groups"]["creative"].update(spec_decode_num_drafts=0, spec_decode_draft_tokens=0)
        verdict = judge(base, spec, make_resolved(kinds=["creative"]))
        assert verdict["word"] == word
        assert any(said in reason for reason in verdict["reasons"])


def test_repeats_of_one_prompt_are_warned_about() -> None:
    pair = make_pair(articles=True)
    verdict = judge(*pair, make_resolved(suites=["mixed", "articles"]))
    assert verdict["word"] == "pays"
    assert any(warning.startswith("vacation repeats one prompt") for warning in verdict["warnings"])


def test_traffic_in_a_kind_that_is_not_declared_is_a_warning() -> None:
    base, spec = make_pair({"copy-edit": 2.0, "chat": 1.2})
    found = {"polluted": True, "said": "another client used the server: 900 output tokens"}
    base["counters"] = [{"round": 2, "group": "chat", "before": {}, "after": {}, "foreign": found}]
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] == "pays"
    assert any(warning.startswith("baseline: chat is polluted in round 2") for warning in verdict["warnings"])
    base["counters"][0]["group"] = "copy-edit"
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] == "invalid"
    assert verdict["reasons"][0].startswith("baseline: copy-edit is polluted in round 2: another client")


# --- a good pair, broken ------------------------------------------------------------------------------


def status(arm: int, word: str, **more: Any) -> Break:
    def broken(*parts: Data) -> None:
        parts[arm]["requests"][3].update(status=word, tpot_ms=None, **more)

    return broken


def files(edit: Callable[[str], str]) -> Break:
    def broken(base: Data, spec: Data, resolved: Data) -> None:
        file = resolved["arms"]["speculative"]["files"][0]
        before = file["content"]
        file["content"] = edit(before)
        assert file["content"] != before

    return broken


def each(arm: int, **values: Any) -> Break:
    def broken(*parts: Data) -> None:
        for request in parts[arm]["requests"]:
            request.update(values)

    return broken


def without_counters(base: Data, spec: Data, resolved: Data) -> None:
    spec["spec_decode_source"] = None
    for block in (spec, *spec["groups"].values()):
        for name in [name for name in block if name.startswith("spec_decode_") and name != "spec_decode_source"]:
            block[name] = None


def still_counters(base: Data, spec: Data, resolved: Data) -> None:
    fresh = make_result("speculative", spec["requests"], drafted=0)
    spec.update({name: fresh[name] for name in fresh if name.startswith("spec_decode") or name == "groups"})


BROKEN: dict[str, tuple[Break, str]] = {
    "baseline failed": (
        status(0, "failed", error="HTTP 500", http_status=500),
        "baseline: 1 of 48 requests failed (first copy-edit-4, round 1: HTTP 500)",
    ),
    "speculative failed": (status(1, "failed"), "speculative: 1 of 48 requests failed"),
    "cut off": (status(1, "cut_off"), "speculative: 1 of 48 requests cut off"),
    "empty": (status(0, "empty"), "baseline: 1 of 48 requests empty"),
    "no usage": (status(1, "no_usage"), "speculative: 1 of 48 requests without a token count (usage)"),
    "unknown status": (status(1, "odd"), "speculative: requests with the unknown status odd"),
    "failures in the summary alone": (
        lambda base, spec, resolved: spec.update(failed=2),
        "speculative: its summary counts 2 requests failed, but its requests show none",
    ),
    "no requests": (lambda base, spec, resolved: spec.update(requests=[]), "speculative has no requests"),
    "a missing pair": (
        lambda base, spec, resolved: spec["requests"].pop(5),
        "1 pair missing: speculative has no request for copy-edit-6 in round 1",
    ),
    "a pair missing in the baseline": (
        lambda base, spec, resolved: base["requests"].pop(0),
        "1 pair missing: baseline has no request for copy-edit-1 in round 1",
    ),
    "a request twice": (
        lambda base, spec, resolved: spec["requests"].append(copy.deepcopy(spec["requests"][0])),
        "speculative: 1 request repeating the round and prompt of another",
    ),
    "no TPOT": (
        lambda base, spec, resolved: spec["requests"][0].update(tpot_ms=0.0),
        "speculative: 1 answer without a TPOT (first copy-edit-1)",
    ),
    "the kind is not there": (
        lambda base, spec, resolved: resolved["experiment"].update(kinds=["json"]),
        "the profile declares json, but the results have only copy-edit, chat and creative",
    ),
    "the baseline drafted by its counters": (
        lambda base, spec, resolved: base.update(spec_decode_draft_tokens=120, spec_decode_num_drafts=30),
        "the baseline drafted (120 tokens): it is not a baseline",
    ),
    "the baseline drafted in one group": (
        lambda base, spec, resolved: base["groups"]["chat"].update(spec_decode_num_drafts=1),
        "the baseline drafted (by its counters)",
    ),
    "the baseline drafted by its answers": (
        each(0, timings={"draft_n": 5, "draft_n_accepted": 2}),
        "the baseline drafted (240 tokens)",
    ),
    "the baseline decoded several tokens at once": (
        each(0, avg_decoded_tokens_per_iter=2.4),
        "the baseline drafted (in 48 answers with several tokens per step)",
    ),
    "still counters": (
        still_counters,
        "the speculative arm did not draft: its counters (source: metrics) did not move over 48 requests",
    ),
    "no counters": (without_counters, "nothing shows that the speculative arm drafted"),
    "another context": (
        files(lambda text: text.replace("4096", "8192")),
        "serve.sh has '--ctx-size 4096' in baseline and '--ctx-size 8192' in speculative",
    ),
    "one more flag": (
        files(lambda text: text.replace("--port 8000", "--port 8000 --flash-attn on")),
        "serve.sh has 'nothing' in baseline and '--flash-attn on' in speculative",
    ),
    "another file": (
        lambda base, spec, resolved: resolved["arms"]["baseline"]["files"].append(
            {"path": "extra.yml", "mode": "0644", "content": "a: 1\n"}
        ),
        "only baseline has the file extra.yml",
    ),
    "another mode": (
        lambda base, spec, resolved: resolved["arms"]["baseline"]["files"][0].update(mode="0700"),
        "the mode of serve.sh is 0700 in baseline and 0755 in speculative",
    ),
    "another environment": (
        lambda base, spec, resolved: resolved["arms"]["speculative"].update(environment={}),
        "the environment variable OMP_NUM_THREADS is '2' in baseline and 'not set' in speculative",
    ),
    "no files": (
        lambda base, spec, resolved: resolved["arms"]["baseline"].update(files=[]),
        "the rendered files of both arms are needed",
    ),
    "another engine version": (
        lambda base, spec, resolved: spec["engine"].update(version="11600"),
        "engine version is '11549' in baseline and '11600' in speculative",
    ),
    "another model": (
        lambda base, spec, resolved: spec.update(model_id="other"),
        "model_id is 'smollm2' in baseline and 'other' in speculative",
    ),
    "another machine": (
        lambda base, spec, resolved: spec["machine"]["before"].update(host="elsewhere"),
        "machine host is 'buildbox' in baseline and 'elsewhere' in speculative",
    ),
    "another GPU": (
        lambda base, spec, resolved: spec["machine"]["before"].update(gpus=[{"uuid": "GPU-2", "power_w": 9}]),
        "machine gpus[0].uuid is None in baseline and 'GPU-2' in speculative",
    ),
    "another load": (
        lambda base, spec, resolved: spec.update(max_concurrency=4),
        "max_concurrency is 1 in baseline and 4 in speculative",
    ),
    "a load the profile does not ask for": (
        lambda base, spec, resolved: resolved["experiment"].update(concurrency=8),
        "baseline was measured with concurrency 1, but the profile asks for 8",
    ),
    "too few rounds": (
        lambda base, spec, resolved: resolved["experiment"].update(rounds=3),
        "speculative was measured with rounds 2, but the profile asks for 3",
    ),
    "another suite": (
        each(1, suite="other"),
        "suite, kind or temperature of 24 prompts (chat-1, chat-2, chat-3, …) is not the same in both",
    ),
    "a suite left out": (
        lambda base, spec, resolved: resolved["experiment"].update(suites=["mixed", "articles"]),
        "baseline has no request of suite articles",
    ),
    "another sampling temperature": (each(1, temperature=0.7), "suite, kind or temperature of 24 prompts"),
    "another seed": (
        lambda base, spec, resolved: spec["settings"].update(seed=5),
        "setting seed is 0 in baseline and 5 in speculative",
    ),
    "another prompt text": (
        each(1, input_tokens=79),
        "the servers counted different input tokens for 24 prompts",
    ),
    "the arms swapped": (
        lambda base, spec, resolved: base.update(arm="speculative"),
        "the result given as baseline is from the arm 'speculative'",
    ),
    "another profile's result": (
        lambda base, spec, resolved: spec.update(key="ffff"),
        "speculative was measured for key 'ffff', not for '0123456789abcdef'",
    ),
    "another schema": (
        lambda base, spec, resolved: base.update(schema="drafthouse.result/9"),
        "baseline has the schema 'drafthouse.result/9'",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_pair_is_invalid_with_its_reason(name: str) -> None:
    base, spec, resolved = *make_pair(), make_resolved()
    assert judge(base, spec, resolved)["word"] == "pays"
    breaks, reason = BROKEN[name]
    breaks(base, spec, resolved)
    verdict = judge(base, spec, resolved)
    assert verdict["word"] == "invalid"
    assert any(reason in found for found in verdict["reasons"]), verdict["reasons"]
    assert verdict["sentence"].startswith("invalid: ")


def test_too_few_prompts_say_nothing() -> None:
    verdict = judge(*make_pair({"copy-edit": 3.0}, prompts=5), make_resolved())
    assert verdict["word"] == "cannot say"
    assert verdict["reasons"][0] == "5 prompts, and 6 are needed"
    assert judge(*make_pair({"copy-edit": 3.0}, prompts=6), make_resolved())["word"] == "pays"


def test_all_reasons_are_collected() -> None:
    base, spec, resolved = *make_pair(), make_resolved()
    for name in (
        "baseline failed",
        "the baseline drafted by its counters",
        "another machine",
        "another context",
    ):
        BROKEN[name][0](base, spec, resolved)
    verdict = judge(base, spec, resolved)
    assert len(verdict["reasons"]) == 4
    assert verdict["sentence"].endswith("(and 3 more reasons)")


def test_results_with_nothing_in_them_are_invalid_and_raise_nothing() -> None:
    verdict = judge(NOTHING, NOTHING, NOTHING)
    assert verdict["word"] == "invalid"
    assert verdict["speedup"] is None


def test_a_source_in_the_answers_alone_is_enough() -> None:
    base, spec, resolved = *make_pair(), make_resolved()
    without_counters(base, spec, resolved)
    each(1, avg_decoded_tokens_per_iter=2.2)(base, spec, resolved)
    assert judge(base, spec, resolved)["word"] == "pays"


def test_state_of_the_machine_and_order_of_the_arms_may_differ() -> None:
    base, spec = make_pair()
    spec["machine"]["before"]["cpu"]["load_1m"] = 1.9
    spec["machine"]["after"] = {}
    spec["settings"]["first_round"] = 2
    assert judge(base, spec, make_resolved())["word"] == "pays"


def test_requests_that_were_told_to_come_back_later_are_a_warning() -> None:
    base, spec = make_pair()
    spec["requests"][0].update(throttled=2, throttled_s=4.0)
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] == "pays"
    assert (
        "speculative: 1 of 48 requests were answered HTTP 429 first, 2 times in all, and retried after the wait "
        "it asked for (4.0 s)" in verdict["warnings"]
    )


def test_other_work_on_the_machine_is_told() -> None:
    base, spec = make_pair()
    for group in spec["machine"]["groups"]:
        group["between"] = {"other_cpu_percent": 34.0, "busy_processes": [{"name": "cc1plus"}]}
    told = [warning for warning in judge(base, spec, make_resolved())["warnings"] if "other work" in warning]
    assert told == ["speculative: other work took 34 % of the machine's CPU while it was measured (median): cc1plus"]
