"""What level 0 masks, and when its checks fail."""

from __future__ import annotations

from typing import Any

from drafthouse.host.nvidia_smi import gpu_uuids, read_smi, rows
from tests.gpu.level0 import STATE, load_problems, masked, state_problems

UUIDS = ("GPU-6ba7b810-9dad-11d1-80b4-00c04fd430c8", "GPU-11112222-3333-4444-5555-666677778888")


def test_uuids_serial_numbers_and_addresses_are_masked_and_stay_readable() -> None:
    text = "".join(f"GPU {n}: NVIDIA L4 (UUID: {uuid})\n" for n, uuid in enumerate(UUIDS))
    text += f"1324923012345, 00000000:17:00.0, {UUIDS[0]}\n"
    clean = masked(text)
    assert not any(word in clean for word in (*UUIDS, "1324923012345", ":17:"))
    assert gpu_uuids(clean) == ["GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001"]
    assert clean.count(gpu_uuids(clean)[0]) == 2
    assert masked(clean) == clean
    assert masked("NVIDIA L4, 23034, 580.95.05, 8.9") == "NVIDIA L4, 23034, 580.95.05, 8.9"


def test_what_is_masked_is_still_read() -> None:
    answer: Any = {"status": 0, "output": masked(f"NVIDIA L4, {UUIDS[0]}, 580.95.05\n"), "error": ""}
    assert read_smi(answer).version == "580.95.05"
    assert rows(answer, "name", "uuid", "driver")[0]["name"] == "NVIDIA L4"


def load(**given: Any) -> Any:
    gpu = {"index": 0, "samples": 20, "error": None, "utilization_median_percent": 99.0}
    found = {
        "bandwidth_gb_s": 3000.0, "catalogue_gb_s": 3350.0, "seconds": 10.0, "counter_j": 5000.0, "power_j": 5100.0,
        "mean_power_w": 510.0, "during": [gpu],
    }  # fmt: skip
    return {**found, **given}


def test_a_load_that_fits_together_is_right() -> None:
    assert load_problems(load()) == []
    assert load_problems(load(catalogue_gb_s=None)) == []


def test_each_check_can_fail() -> None:
    gpu = load()["during"][0]
    for given, said in (
        ({"bandwidth_gb_s": 1000.0}, "bandwidth"),
        ({"bandwidth_gb_s": 4000.0}, "bandwidth"),
        ({"counter_j": None}, "no counter"),
        ({"power_j": 3000.0}, "energy"),
        ({"during": [{**gpu, "samples": 0}]}, "0 samples"),
        ({"during": [{**gpu, "error": "lost"}]}, "lost"),
        ({"during": [{**gpu, "utilization_median_percent": 3.0}]}, "3.0 % busy"),
    ):
        (wrong,) = load_problems(load(**given))
        assert said in wrong


def test_a_gpu_that_ends_otherwise_than_it_began_is_said() -> None:
    before = [dict.fromkeys(STATE, "Enabled")]
    assert state_problems(before, [dict(before[0])]) == []
    assert state_problems(before, [{**before[0], "persistence_mode": "Disabled"}]) == [
        "GPU 0: persistence_mode was Enabled, is Disabled"
    ]
    assert state_problems(before, []) == ["1 GPUs before, 0 after"]
