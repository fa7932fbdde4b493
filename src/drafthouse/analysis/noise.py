"""Whether something else than speculation reaches as far as the effect: then nobody can say whether it pays.

Four things are looked at: what the baseline differs from itself, what the starts of one arm differ by, what other work
(or the host, by steal) took of the CPU while one arm was measured and not the other, and how long a GPU was throttled
for heat or power. Each is turned into the factor by which it can have moved the speed-up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..bench.machine_types import Between
from ..bench.result_types import ArmResult
from ..bench.stats import Estimated, median
from ..core.format import count, listing, times, times_span
from .start_noise import Speedup
from .verdict_text import THRESHOLD, busy_processes, groups_of

#: A control that reaches that far hides a gain that somebody would want; one that reaches less far is the usual noise.
NOISY = 1.25
#: Starts of one arm that lie further apart are no longer the usual spread: one of them was odd.
APART = 1.15
#: Other work that can have moved the speed-up by less is not held against it.
LOADED = 1.10
#: An engine that answers takes at least this share of a core; where less was seen, it is another user's, and it is
#: itself among the others.
ENGINE_SEEN = 0.2
#: What a GPU's clock may fall to while it is throttled, as a share.
THROTTLED_CLOCK = 0.5

_WAIT = "let nothing else run on the box, or allow more rounds, and measure again"


@dataclass(frozen=True)
class Disturbance:
    """What disturbed the measurement, and what to do about it."""

    what: str
    do: str


def disturbed(
    speedup: Speedup | None,
    control: Estimated | None,
    results: Mapping[str, ArmResult],
    declared: Sequence[str],
) -> list[Disturbance]:
    """Return what keeps the speed-up from being told, the plainest first; nothing where the word stands."""
    if speedup is None:
        return []
    found, ahead = speedup.estimate, speedup.estimate.low > THRESHOLD
    if not ahead and found.high <= THRESHOLD:
        return []
    names = list(dict.fromkeys(name for result in results.values() for name in busy_processes(result.get("machine"))))
    wait = f"stop {listing(names[:3])}, or allow more rounds, and measure again" if names else _WAIT
    said = _by_load(found.median, ahead, results, declared, wait)
    said += _by_throttling(found.median, ahead, results, declared)
    reach = max(control["high"], 1 / control["low"]) if control else 1.0
    if control and reach >= (found.median if ahead else max(NOISY, found.median)):
        told = f"the baseline against itself gives {times_span(control)}"
        said.append(
            Disturbance(f"{told}, which reaches the speed-up of {times(found.median)}" if ahead else told, wait)
        )
    apart = f"two starts of {speedup.apart_arm} differ by {100 * (speedup.apart - 1):.0f} %"
    other_way = found.median / speedup.shift <= THRESHOLD if ahead else found.median * speedup.shift > THRESHOLD
    if not ahead and speedup.quiet_low > THRESHOLD:
        said.append(Disturbance(f"{apart}, and without that it would pay", wait))
    elif speedup.apart >= APART and other_way:
        said.append(Disturbance(f"{apart}, and which of the two is the outlier decides the verdict", wait))
    return said


def _between(result: ArmResult, declared: Sequence[str]) -> list[Between]:
    """Return what the machine did while the declared groups of an arm were measured."""
    groups = [group for group in groups_of(result) if group.get("group") in declared]
    return [between for group in groups if (between := group.get("between"))]


Share = Literal["other_cpu_percent", "cpu_steal_percent"]


def _taken(between: Sequence[Between], name: Share) -> float:
    """Return a share of the CPU that others took while an arm was measured: the median over its groups."""
    shares = []
    for one in between:
        seconds, own_s = one.get("seconds"), one.get("own_cpu_s")
        hidden = seconds and own_s is not None and own_s < ENGINE_SEEN * seconds
        share = one.get(name)
        if isinstance(share, int | float) and not hidden:
            shares.append(min(share / 100, 0.95))
    return median(shares) if shares else 0.0


def _throttled(result: ArmResult, declared: Sequence[str]) -> float:
    """Return in which share of the time of an arm's declared groups a GPU was throttled: the mean over the groups.

    Of a group with no sample (it was too short, or measured by an earlier version) it counts how it was at its end.
    """
    sampled = {(span["round"], span["group"]): span["gpus"] for span in result.get("gpus") or []}
    shares: list[float] = []
    for group in groups_of(result):
        if group.get("group") in declared:
            seen = sampled.get((group.get("round"), group.get("group"))) or []
            told = [share for gpu in seen if (share := gpu["throttled_share"]) is not None]
            if not told and (after := group.get("after")):
                told = [float(bool(gpu.get("throttled_by"))) for gpu in after.get("gpus") or []]
            shares += [max(told)] if told else []
    return math.fsum(shares) / len(shares) if shares else 0.0


def _slowed(speedup: float, ahead: bool, lost: Mapping[str, float]) -> tuple[str, str, float | None]:
    """Return the arm that has to be the slower one for the word to stand, the other, and what explains the speed-up.

    ``lost`` is the share of its speed that each arm lost; the factor is None where that explains nothing.
    """
    slowed, other = ("baseline", "speculative") if ahead else ("speculative", "baseline")
    factor = (1 - lost[other]) / (1 - lost[slowed])
    explains = factor >= speedup if ahead else speedup <= THRESHOLD < speedup * factor
    return slowed, other, factor if explains and factor >= LOADED else None


def _by_load(
    speedup: float, ahead: bool, results: Mapping[str, ArmResult], declared: Sequence[str], wait: str
) -> list[Disturbance]:
    """Return that other work can explain what was measured: a processor of which a share is taken is so much slower."""
    between = {arm: _between(result, declared) for arm, result in results.items()}
    taken = {arm: _taken(one, "other_cpu_percent") for arm, one in between.items()}
    slowed, other, factor = _slowed(speedup, ahead, taken)
    if factor is None:
        return []
    stolen = _taken(between[slowed], "cpu_steal_percent")
    who = "the host took (steal)" if stolen > taken[slowed] / 2 else "other work took"
    do = "measure again at another time, or on another machine" if stolen > taken[slowed] / 2 else wait
    return [
        Disturbance(
            f"{who} {100 * taken[slowed]:.0f} % of the CPU during {slowed} and {100 * taken[other]:.0f} % during "
            f"{other}, which can have shifted the speed-up by {times(factor)}",
            do,
        )
    ]


def _by_throttling(
    speedup: float, ahead: bool, results: Mapping[str, ArmResult], declared: Sequence[str]
) -> list[Disturbance]:
    """Return that a GPU which was throttled beside one arm can explain what was measured."""
    lost = {arm: (1 - THROTTLED_CLOCK) * _throttled(result, declared) for arm, result in results.items()}
    slowed, _, factor = _slowed(speedup, ahead, lost)
    if factor is None:
        return []
    told = 100 * lost[slowed] / (1 - THROTTLED_CLOCK)
    return [
        Disturbance(
            f"a GPU was throttled for heat or power for {told:.0f} % of the time in {slowed}, which can have shifted "
            f"the speed-up by {times(factor)}",
            "check its cooling and its power limit, then measure again",
        )
    ]


def odd_steps(speedup: Speedup | None) -> list[str]:
    """Return a sentence for each step that was left out because the other starts say something else."""
    if speedup is None:
        return []
    return [
        f"{arm}: round {number} was {_apart(level)} than its other rounds, and was left out "
        f"({count(len(speedup.levels[arm]) - 1, 'round')} remaining)"
        for arm, number, level in speedup.odd
    ]


def _apart(level: float) -> str:
    """Return how a time per token over the others' is said: slower or faster, in percent."""
    return f"{100 * (level - 1):.0f} % slower" if level > 1 else f"{100 * (1 / level - 1):.0f} % faster"
