"""What the GPUs did, over all groups of an arm and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from ..core.format import count, listing, percent
from .nvml import SLOWED_BY

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import GpuMeasured
    from drafthouse.bench.result_types import ArmResult, GpuSpan

#: Of a throttled GPU a reader is told from this share of the samples on.
TOLD_SHARE = 0.05


def over_groups(spans: Iterable[GpuSpan]) -> list[GpuMeasured]:
    """Return what each GPU did over all of these groups: medians are those of the groups' medians."""
    rows: dict[str, list[GpuMeasured]] = {}
    for span in spans:
        for gpu in span["gpus"]:
            rows.setdefault(gpu["uuid"], []).append(gpu)
    return [_together(of_gpu) for of_gpu in rows.values()]


def _together(rows: Sequence[GpuMeasured]) -> GpuMeasured:
    def known(values: Iterable[float | None]) -> list[float]:
        return [value for value in values if value is not None]

    def middle(values: Iterable[float | None]) -> float | None:
        return median(found) if (found := known(values)) else None

    seen = [row for row in rows if row["throttled_share"] is not None]
    samples = sum(row["samples"] for row in seen)

    def share(shares: Iterable[float]) -> float:
        return math.fsum(row["samples"] * one for row, one in zip(seen, shares, strict=True)) / samples

    names = dict.fromkeys(name for row in seen for name in row["reasons"])
    return {
        **rows[0],
        "samples": sum(row["samples"] for row in rows),
        "sm_clock_median_mhz": middle(row["sm_clock_median_mhz"] for row in rows),
        "sm_clock_min_mhz": min(known(row["sm_clock_min_mhz"] for row in rows), default=None),
        "memory_clock_median_mhz": middle(row["memory_clock_median_mhz"] for row in rows),
        "temperature_max_c": max(known(row["temperature_max_c"] for row in rows), default=None),
        "power_median_w": middle(row["power_median_w"] for row in rows),
        "utilization_median_percent": middle(row["utilization_median_percent"] for row in rows),
        "memory_used_max_bytes": max(known(row["memory_used_max_bytes"] for row in rows), default=None),
        "throttled_share": share(row["throttled_share"] or 0.0 for row in seen) if samples else None,
        "reasons": {name: share(row["reasons"].get(name, 0.0) for row in seen) for name in names},
        "error": next((row["error"] for row in rows if row["error"]), None),
    }


def gpu_lines(result: ArmResult) -> list[str]:
    """Return a line for each GPU: its clocks while it answered, and what held them."""
    lines = []
    for gpu in over_groups(result.get("gpus") or []):
        if gpu["sm_clock_median_mhz"] is not None:
            held = listing([f"{name} in {percent(one)}" for name, one in gpu["reasons"].items()])
            lines.append(
                f"GPU {gpu['index']}: SM clock {gpu['sm_clock_median_mhz']:,.0f} MHz (median; lowest "
                f"{gpu['sm_clock_min_mhz']:,.0f}) in {count(gpu['samples'], 'sample')}{f'; {held}' if held else ''}."
            )
    return lines


def gpu_trouble(results: Mapping[str, ArmResult]) -> list[str]:
    """Return a sentence for each GPU that was throttled for heat or power, or was lost, while an arm was measured."""
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
    """Return what kept a GPU's clocks down for heat or for want of power, most of the time first."""
    return sorted(SLOWED_BY & gpu["reasons"].keys(), key=lambda name: (-gpu["reasons"][name], name))
