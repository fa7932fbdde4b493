"""Combine the GPU summaries of an arm's groups, and describe them in sentences for the terminal and the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from ..core.format import count, listing, percent
from .nvml import THROTTLE_REASONS

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

#: A GPU that was throttled in at least this fraction of the samples gets a warning.
REPORTED_SHARE = 0.05
#: For each figure, the function that combines its values in several groups into one.
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
    """The summary of each GPU over all of these groups; a median is the median of the groups' medians."""
    by_uuid: dict[str, list[GpuMeasured]] = {}
    for span in spans:
        for gpu in span["gpus"]:
            by_uuid.setdefault(gpu["uuid"], []).append(gpu)
    return [_combined(summaries) for summaries in by_uuid.values()]


def _combined(summaries: Sequence[GpuMeasured]) -> GpuMeasured:
    """One summary from a GPU's summaries by group; shares are weighted by the samples of the groups that have them."""
    total = summaries[0].copy()  # keeps index, uuid and name; all figures are replaced below
    for field, combine in _COMBINED.items():
        values = [value for summary in summaries if (value := summary[field]) is not None]
        total[field] = combine(values) if values else None
    samples_with_reasons = 0
    throttled: list[float] = []  # throttled samples of each summary
    samples_by_reason: dict[str, list[float]] = {}
    total["samples"] = 0
    total["error"] = None
    for summary in summaries:
        total["samples"] += summary["samples"]
        total["error"] = total["error"] or summary["error"]
        if summary["throttled_share"] is None:  # the driver gave no clock reasons
            continue
        samples_with_reasons += summary["samples"]
        throttled.append(summary["samples"] * summary["throttled_share"])
        for name, share in summary["reasons"].items():
            samples_by_reason.setdefault(name, []).append(summary["samples"] * share)
    total["error"] = total["error"] or None
    total["throttled_share"] = math.fsum(throttled) / samples_with_reasons if samples_with_reasons else None
    total["reasons"] = {
        name: math.fsum(weighted) / samples_with_reasons for name, weighted in samples_by_reason.items()
    }
    return total


def gpu_lines(result: ArmResult) -> list[str]:
    """A line for each GPU whose clock is known: its SM clock while requests were answered, and what limited it."""
    lines = []
    for gpu in over_groups(result.get("gpus") or []):
        if gpu["sm_clock_median_mhz"] is not None:
            reasons = [f"{name} in {percent(share)}" for name, share in gpu["reasons"].items()]
            limited_by = f"; {listing(reasons)}" if reasons else ""
            lines.append(
                f"GPU {gpu['index']}: SM clock {gpu['sm_clock_median_mhz']:,.0f} MHz (median; lowest "
                f"{gpu['sm_clock_min_mhz']:,.0f}) in {count(gpu['samples'], 'sample')}{limited_by}."
            )
    return lines


def gpu_warnings(results: Mapping[str, ArmResult]) -> list[str]:
    """A sentence for each GPU that was throttled for heat or power, or lost by the driver, during a measurement."""
    warnings = []
    for arm, result in results.items():
        for gpu in over_groups(result.get("gpus") or []):
            name = f"{arm}: GPU {gpu['index']} ({gpu['name']})"
            share = gpu["throttled_share"] or 0.0  # unknown: no warning
            if share >= REPORTED_SHARE:
                slowest = gpu["sm_clock_min_mhz"]
                fell = f", and its SM clock fell to {slowest:,.0f} MHz" if slowest is not None else ""
                reasons = listing(throttle_reasons(gpu))
                warnings.append(
                    f"{name} was throttled {percent(share)} of the time ({reasons}){fell}: check "
                    "its cooling and its power supply"
                )
            if gpu["error"]:
                warnings.append(f"{name} was lost during the measurement: {gpu['error']}")
    return warnings


def throttle_reasons(gpu: GpuMeasured) -> list[str]:
    """The reasons for which a GPU was throttled (too much heat, too little power), the most frequent first."""
    return sorted(THROTTLE_REASONS & gpu["reasons"].keys(), key=lambda name: (-gpu["reasons"][name], name))
