"""What an arm costs, by hand: energy, money, memory, and the share of the bandwidth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafthouse.analysis.cost import memory_in_log
from drafthouse.profiles.memory_fit import GB
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.support.loosely import bandwidth_share, cost_rows, cost_table, costs, memory_used, saving_of

POWER = {
    "source": "NVML's energy counter", "why": None, "devices": ["a"], "gpus": 1, "seconds": 100.0,
    "energy_j": 36_000.0, "mean_w": 360.0, "idle_w": 60.0, "energy_above_idle_j": 30_000.0,
}  # fmt: skip


def request(ttft_ms: float | None = 250.0, e2el_ms: float = 1000.0, **more: Any) -> Any:
    return {"status": "ok", "ttft_ms": ttft_ms, "e2el_ms": e2el_ms, **more}


def result(**more: Any) -> Any:
    return {
        "duration": 100.0, "completed": 4, "max_concurrency": 1, "total_input_tokens": 2000,
        "total_output_tokens": 6000, "median_tpot_ms": 20.0, "requests": [request(), request()], **more,
    }  # fmt: skip


def test_energy_of_a_token_with_and_without_idle() -> None:
    energy = costs(result(), POWER)["energy"]
    assert energy["j_per_output_token"] == 6.0
    assert energy["j_per_output_token_above_idle"] == 5.0
    assert energy["kwh_per_million_output_tokens"] == pytest.approx(6e6 / 3.6e6)
    without = costs(result(), {**POWER, "energy_above_idle_j": None})["energy"]
    assert (without["j_per_output_token"], without["j_per_output_token_above_idle"]) == (6.0, None)


def test_money_is_shared_by_the_time_before_and_after_the_first_token() -> None:
    money = costs(result(), None, 3.6, "EUR")["money"]
    # 100 s of 3.60 an hour are 0.10; a quarter of the time went by before first tokens.
    assert money["per_million_output_alone"] == pytest.approx(0.10 / 6000 * 1e6)
    assert money["per_million_input"] == pytest.approx(0.025 / 2000 * 1e6)
    assert money["per_million_output"] == pytest.approx(0.075 / 6000 * 1e6)
    assert money["currency"] == "EUR"
    paid = money["per_million_input"] * 2000 + money["per_million_output"] * 6000
    assert paid == pytest.approx(0.10 * 1e6)


def test_a_free_box_costs_nothing_and_no_price_is_no_number() -> None:
    assert costs(result(), None, 0.0)["money"]["per_million_output"] == 0
    found = costs(result(), {"source": None, "why": "no GPU here", "energy_j": None})
    assert (found["energy"], found["money"]) == (None, None)
    assert found["why"] == [
        "energy: no GPU here",
        "money: this box has no price; set drafthouse_price_per_hour, and drafthouse_currency as its label, in "
        "the inventory (group_vars/all.yml, or the host's entry)",
    ]


def saving(before_s: float, after_s: float, price: float | None = 3.6, currency: str | None = "EUR") -> Any:
    seconds = {"baseline": before_s, "speculative": after_s}
    return saving_of({arm: costs(result(duration=one), None, price, currency) for arm, one in seconds.items()})


def test_what_speculation_saves_of_the_price() -> None:
    # 100 s and 60 s of 3.60 an hour, for 6,000 tokens each.
    found = saving(100.0, 60.0)
    assert found["share"] == pytest.approx(0.4)
    assert found["per_hour"] == pytest.approx(1.44)
    assert found["per_million_output"] == pytest.approx(0.04 / 6000 * 1e6)
    assert found["said"] == (
        "At 3.60 EUR an hour a million output tokens cost 16.7 EUR without speculation and 10.0 EUR with it: 40.0 % "
        "less, or 1.44 EUR less per hour of the baseline's work"
    )
    dearer = saving(100.0, 125.0, currency=None)
    assert dearer["per_hour"] == pytest.approx(-0.9)
    assert "cost 16.7 without speculation and 20.8 with it: 25.0 % more, or 0.900 more" in dearer["said"]


def test_a_count_that_lies_moves_no_price_of_text() -> None:
    texts = [request(text="x" * 2000), request(text="y" * 1000, reasoning_text="z" * 1000)]
    told = {tokens: costs(result(requests=texts, total_output_tokens=tokens), POWER, 3.6) for tokens in (6000, 9000)}
    assert told[9000]["money"]["per_million_output_alone"] < told[6000]["money"]["per_million_output_alone"]
    for found in told.values():
        assert found["money"]["per_million_bytes_of_text"] == pytest.approx(0.10 / 4000 * 1e6)
        assert found["energy"]["j_per_byte_of_text"] == pytest.approx(9.0)
    by_tokens, by_text = (
        saving_of({"baseline": told[6000], "speculative": told[9000]}, by_text=by_text) for by_text in (False, True)
    )
    assert by_tokens["share"] == pytest.approx(1 / 3)
    assert by_text["share"] == pytest.approx(0.0)
    assert "a million bytes of text cost 25.0" in by_text["said"]


def test_nothing_is_saved_where_no_price_is_known() -> None:
    assert saving(100.0, 60.0, None) is None
    assert saving(100.0, 60.0, 0.0) is None
    assert saving_of({"baseline": costs(result(), None, 3.6)}) is None


def test_nothing_was_answered() -> None:
    found = costs({"requests": []}, POWER, 1.0)
    assert found["why"] == ["energy: no tokens were counted", "money: no tokens were counted"]
    # Requests without times: the price cannot be shared, the whole of it still can be said.
    money = costs(result(requests=[request(None), request(status="failed")]), POWER, 3.6)["money"]
    assert money["per_million_input"] is money["per_million_output"] is None
    assert money["per_million_output_alone"] > 0


def resolved(**expectation: Any) -> Any:
    return {
        "site": {"price_per_hour": 3.6, "currency": "EUR"},
        "hardware": {"bandwidth_gb_s": 1000.0, "kind": "gpu"},
        "expectation": {
            "bandwidth_bytes_s": 1000e9, "bytes_per_token": 10e9, "draft_cost": 0.1, **expectation,
        },
        "method": {"num_speculative_tokens": 5},
        "arms": {
            arm: {"fit": {"weights": 10 * GB, "draft": GB, "kv_needed": 2 * GB, "overhead": GB, "reserved": 14 * GB,
                          "kv_per_token": 1_000_000}}
            for arm in ("baseline", "speculative")
        },
    }  # fmt: skip


def test_the_baselines_share_of_the_bandwidth() -> None:
    found = bandwidth_share(result(), resolved(), "baseline")
    assert found is not None
    # 50 steps/s; a step reads 10 GB of weights and, for one stream, (500 + 750) tokens of 1 MB.
    assert found["steps_per_s"] == 50
    assert found["bytes_per_step"] == pytest.approx(10e9 + 1.25e9)
    assert found["share"] == pytest.approx(50 * 11.25e9 / 1000e9)
    assert found["limit_tok_s"] == pytest.approx(1000 / 11.25)


def test_the_speculative_arm_takes_fewer_steps_and_reads_the_draft() -> None:
    counted = {"spec_decode_num_drafts": 1000, "spec_decode_draft_tokens": 4000}
    measured = result(spec_decode_acceptance_length=2.5, median_tpot_ms=10.0, **counted)
    found = bandwidth_share(measured, resolved(), "speculative")
    assert found is not None
    assert found["steps_per_s"] == 40
    # Four drafted tokens a step, as counted (the profile allows five), each a tenth of the target.
    assert found["bytes_per_step"] == pytest.approx(10e9 + 4 * 1e9 + 1.25e9)
    assert found["limit_tok_s"] == pytest.approx(1000 / 15.25 * 2.5)
    untold = {**measured, "spec_decode_draft_tokens": None}
    found = bandwidth_share(untold, resolved(), "speculative")
    assert found is not None
    assert found["bytes_per_step"] == pytest.approx(16.25e9)


def test_more_streams_share_the_weights_and_not_the_cache() -> None:
    found = bandwidth_share(result(max_concurrency=4), resolved(), "baseline")
    assert found is not None
    assert found["bytes_per_step"] == pytest.approx(10e9 + 4 * 1.25e9)


def test_two_devices_hold_half_the_cache_each() -> None:
    found = bandwidth_share(result(), resolved(bandwidth_bytes_s=2000e9), "baseline")
    assert found is not None
    assert found["bytes_per_step"] == pytest.approx(10e9 + 2 * 1.25e9)


def test_a_share_needs_its_parts() -> None:
    assert bandwidth_share(result(median_tpot_ms=None), resolved(), "baseline") is None
    assert bandwidth_share(result(), {**resolved(), "expectation": None}, "baseline") is None
    # The engine told no acceptance: nobody knows how many steps there were.
    assert bandwidth_share(result(), resolved(), "speculative") is None


VLLM = """
INFO 11-22 Initializing a V1 LLM engine
INFO 11-22 Model loading took 0.2500 GiB memory and 1.2 seconds
INFO 11-22 Available KV cache memory: 3.50 GiB
INFO 11-22 GPU KV cache size: 159,264 tokens
INFO:     Application startup complete.
"""
LLAMA = """
load_tensors:   CPU_Mapped model buffer size =   256.00 MiB
llama_kv_cache:        CPU KV buffer size =    90.00 MiB
load_tensors:   CPU_Mapped model buffer size =    64.00 MiB
llama_kv_cache:        CPU KV buffer size =    10.00 MiB
main: server is listening on http://127.0.0.1:8000
"""
MIB = 1024**2


@pytest.mark.parametrize("starts", [1, 3])
def test_what_the_engines_tell_of_memory_of_their_last_start(starts: int) -> None:
    assert memory_in_log(VLLM * starts) == {
        "weights_bytes": 256 * MIB, "kv_bytes": int(3.5 * 1024 * MIB), "kv_tokens": 159_264,
    }  # fmt: skip
    assert memory_in_log(LLAMA * starts) == {"weights_bytes": 320 * MIB, "kv_bytes": 100 * MIB}
    # As vLLM's build for CPUs and llama.cpp's wheel print it: less.
    bare = "CPU KV cache size: 46,592 tokens, Maximum concurrency: 22.75x\nI srv  init: listening on http://127.0.0.1\n"
    assert memory_in_log(bare * starts) == {"kv_tokens": 46_592}
    assert memory_in_log("") == memory_in_log("nothing of the kind") == {}


def test_memory_planned_told_and_shown() -> None:
    gpu = {"index": 0, "name": "A", "memory_total_bytes": 100}
    states = [{"gpus": [{**gpu, "memory_used_bytes": used}]} for used in (40, 70, None)]
    machine = {"before": states[0], "after": states[2], "groups": [{"before": states[0], "after": states[1]}]}
    used = memory_used(resolved(), "speculative", result(machine=machine, memory={"kv_bytes": 7}))
    assert used["planned"]["kv"] == 2 * GB
    assert used["told"] == {"kv_bytes": 7}
    assert used["gpus"] == [{"name": "A", "used": 70, "total": 100}]
    tokens = memory_used(resolved(), "baseline", result(memory={"kv_tokens": 3}))["told"]
    assert tokens == {"kv_tokens": 3, "kv_bytes": 3_000_000}
    assert memory_used({}, "speculative", {}) == {"planned": {}, "told": {}, "gpus": []}


def test_a_real_profile_gives_a_whole_table() -> None:
    site = {**site_of_inventory("local"), "price_per_hour": 0.25, "currency": "EUR"}
    profile = resolved_profile("cpu-smollm2-ngram", site)
    arms = {
        "baseline": result(engine={"ready_s": 3.0}, power=POWER),
        "speculative": result(
            engine={"ready_s": 4.5, "ready_at_most": True}, power=POWER, spec_decode_acceptance_length=3.0
        ),
    }
    table = cost_table(arms, profile)
    assert json.loads(json.dumps(table, allow_nan=False)) == table
    assert table["speculative"]["ready_at_most"] is True
    # A lookup drafts without reading weights.
    assert table["speculative"]["bandwidth"]["bytes_per_step"] == table["baseline"]["bandwidth"]["bytes_per_step"]
    rows = cost_rows(table)
    by_name = {(row["what"], row["unit"]): row for row in rows}
    assert by_name["Start-up to ready", "s"]["speculative"] == 4.5
    assert by_name["Price of output", "EUR per million"]["baseline"] > 0
    assert by_name["Share of the bandwidth", "%"]["baseline"] == pytest.approx(
        100 * table["baseline"]["bandwidth"]["share"]
    )
    assert all(row["note"] for row in rows)


def test_rows_that_nobody_fills_are_left_out() -> None:
    rows = cost_rows(cost_table({"baseline": {}, "speculative": {}}, {}))
    assert rows == []
