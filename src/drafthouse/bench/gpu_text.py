"""What the GPUs did, over all groups of an arm and in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from ..core.format import count, listing, percent
from .nvml import SLOWED_BY

if TYPE_CHECKING:
    from typing import Literal

    from drafthouse.bench.machine_types import GpuMeasured
    from drafthouse.bench.result_types import ArmResult, GpuSpan

    _Figure = Literal[
        "sm_clock_median_mhz",
        "sm_clock_min_mhz",
        "memory_clock_median_mhz",
        "temperature_max_c",
        "power_median_w",
        "utilization_median_percent",
        "memory_used_max_bytes",
    ]

#: Of a throttled GPU a reader is told from this share of the samples on.
TOLD_SHARE = 0.05
#: How the figures of a GPU's groups become the figure of all of them.
_COMBINED: Final[dict[_Figure, Callable[[list[float]], float]]] = {
    "sm_clock_median_mhz": median,
    "sm_clock_min_mhz": min,
    "memory_clock_median_mhz": median,
    "temperature_max_c": max,
    "power_median_w": median,
    "utilization_median_percent": median,
    "memory_used_max_bytes": max,
}


def over_groups(spans: Iterable[GpuSpan]) -> list[GpuMeasured]:
    """What each GPU did over all of these groups: medians are those of the groups' medians."""
    rows: dict[str, list[GpuMeasured]] = {}
    for span in spans:
        for gpu in span["gpus"]:
            rows.setdefault(gpu["uuid"], []).append(gpu)
    return [_together(of_gpu) for of_gpu in rows.values()]


def _together(spans: Sequence[GpuMeasured]) -> GpuMeasured:
    """What one GPU did over its spans; shares are weighted by the samples of the spans that know them."""
    gpu = spans[0].copy()
    for field, combine in _COMBINED.items():
        known = [value for span in spans if (value := span[field]) is not None]
        gpu[field] = combine(known) if known else None
    samples = 0
    throttled: list[float] = []
    reasons: dict[str, list[float]] = {}
    gpu["samples"], gpu["error"] = 0, None
    for span in spans:
        gpu["samples"] += span["samples"]
        gpu["error"] = gpu["error"] or span["error"]
        if span["throttled_share"] is None:
            continue
        samples += span["samples"]
        throttled.append(span["samples"] * span["throttled_share"])
        for name, share in span["reasons"].items():
            reasons.setdefault(name, []).append(span["samples"] * share)
    gpu["error"] = gpu["error"] or None
    gpu["throttled_share"] = math.fsum(throttled) / samples if samples else None
    gpu["reasons"] = {name: math.fsum(held_back) / samples for name, held_back in reasons.items()}
    return gpu


def gpu_lines(result: ArmResult) -> list[str]:
    """A line for each GPU: its clocks while it answered, and what held them."""
    lines = []
    for gpu in over_groups(result.get("gpus") or []):
        if gpu["sm_clock_median_mhz"] is not None:
            reasons = [f"{name} in {percent(share)}" for name, share in gpu["reasons"].items()]
            held_back = f"; {listing(reasons)}" if reasons else ""
            lines.append(
                f"GPU {gpu['index']}: SM clock {gpu['sm_clock_median_mhz']:,.0f} MHz (median; lowest "
                f"{gpu['sm_clock_min_mhz']:,.0f}) in {count(gpu['samples'], 'sample')}{held_back}."
            )
    return lines


def gpu_trouble(results: Mapping[str, ArmResult]) -> list[str]:
    """A sentence for each GPU that was throttled for heat or power, or was lost, while an arm was measured."""
    found = []
    for arm, result in results.items():
        for gpu in over_groups(result.get("gpus") or []):
            name = f"{arm}: GPU {gpu['index']} ({gpu['name']})"
            if (share := gpu["throttled_share"] or 0.0) >= TOLD_SHARE:
                slowest = gpu["sm_clock_min_mhz"]
                fell = f", and its SM clock fell to {slowest:,.0f} MHz" if slowest is not None else ""
                found.append(
                    f"{name} was throttled {percent(share)} of the time ({listing(slowing(gpu))}){fell}: check "
                    "its cooling and its power supply"
                )
            if gpu["error"]:
                found.append(f"{name} was lost during the measurement: {gpu['error']}")
    return found


def slowing(gpu: GpuMeasured) -> list[str]:
    """What kept a GPU's clocks down for heat or for want of power, most of the time first."""
    return sorted(SLOWED_BY & gpu["reasons"].keys(), key=lambda name: (-gpu["reasons"][name], name))
