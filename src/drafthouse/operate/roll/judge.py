"""Whether a new release is good enough on one box of a fleet: beside the box's own last report, and beside its peers'.

Its own report says whether the change made it worse. The peers say what one box alone cannot: that the change took on
it otherwise than on the others, which is a sick box as a rule. What it lacked beside them before the change already is
told and does not count against the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...bench.samples import Prompt, measured_tpot, requests_of
from ...bench.stats import CONFIDENCE, Estimate, estimate, median, paired_ratios
from ...core.format import count, number, percent, span
from ...profiles.upgrade_diff import NEW, decide
from ...report.archive import Kept
from ...report.compare.conditions import differences
from ...report.compare.diff import compare
from ...report.data.measures import by_prompt
from .steps import Word

#: How far behind the median of its peers a box may be, as a fraction: boxes of one kind differ by some per cent.
BEHIND = 0.10


@dataclass(frozen=True)
class Judged:
    """The word for a box, why, a sentence each, and what a reader should know beside it."""

    word: Word
    why: tuple[str, ...]
    notes: tuple[str, ...] = ()


def judge(new: Kept, own: Kept | None, peers: Sequence[Kept], threshold: float, behind: float = BEHIND) -> Judged:
    """Judge the new report of a box by ``own``, its last one before, and by the last ones of its ``peers``.

    ``threshold`` and ``behind`` are fractions: worse than before, or than the peers' median, by more than that.
    """
    if own is None:
        return Judged(Word.UNSURE, ("the box has no report from before the change",))
    decision = decide(compare(own, new, threshold), "release")
    if decision.keep != NEW:
        return Judged(Word.WORSE if decision.judged else Word.UNSURE, decision.why)
    known = [peer for peer in peers if not differences(peer, new)[0]]
    notes = [f"{peer.label} cannot be compared with this box" for peer in peers if peer not in known]
    if not known:
        return Judged(Word.FINE, (*decision.why, "no peer has a report to compare with"), tuple(notes))
    lacking, before = (dict(_lacking(kept, known, behind)) for kept in (new, own))
    worse = [said for what, said in lacking.items() if what not in before]
    notes += [f"{said}; this was so before the change" for what, said in lacking.items() if what in before]
    if worse:
        return Judged(Word.WORSE, tuple(worse), tuple(notes))
    beside = f"not more than {percent(behind)} behind the median of {count(len(known), 'peer')}"
    return Judged(Word.FINE, (*decision.why, beside), tuple(notes))


def _lacking(kept: Kept, peers: Sequence[Kept], behind: float) -> Iterator[tuple[str, str]]:
    """Yield what a report is behind its peers in, and the sentence that says by how much."""
    scope = kept.report["verdict"].get("scope")
    for group in (scope.get("groups") if scope else None) or []:
        change = _beside(kept, peers, group)
        # How many times faster it is: clearly slower, and by more than may be.
        slower = change is not None and change.reach >= CONFIDENCE and change.high < 1.0
        if change and slower and change.median < 1.0 / (1.0 + behind):
            yield (
                group,
                f"speculative, {group}: TPOT is {percent(1 / change.median - 1)} longer than its peers' median "
                f"({span(change.as_dict())} of their speed, over {change.n} prompts)",
            )
    own = _accepted(kept)
    alike = [found for peer in peers if _drafting(peer) == _drafting(kept) and (found := _accepted(peer)) is not None]
    if own is not None and alike and own < median(alike) * (1 - behind):
        yield (
            "acceptance",
            f"{number(own)} tokens accepted per draft; its peers' median is {number(median(alike))} "
            f"({percent(1 - own / median(alike))} fewer)",
        )


def _beside(kept: Kept, peers: Sequence[Kept], group: str) -> Estimate | None:
    """Return how many times faster a box is than the median of its peers, prompt by prompt, with speculation."""
    mine, *others = (_times(one, group) for one in (kept, *peers))
    fleet = {
        prompt: [median([median(side[prompt]) for side in others if side.get(prompt)])]
        for prompt in {prompt for side in others for prompt in side if side[prompt]}
    }
    return estimate(list(paired_ratios(fleet, mine).values()))


def _times(kept: Kept, group: str) -> dict[Prompt, list[float]]:
    requests = requests_of(kept.results["speculative"])
    return by_prompt([one for one in requests if str(one.get("group")) == group], measured_tpot)


def _accepted(kept: Kept) -> float | None:
    """Return the accepted tokens of a draft; every engine counts those, and not every one the drafted ones."""
    acceptance = kept.report.get("acceptance")
    length = acceptance["overall"].get("length") if acceptance else None
    return None if length is None else length - 1.0


def _drafting(kept: Kept) -> tuple[object, ...]:
    """Return how a report's speculative arm drafts: with other settings another acceptance is no sign of a sick box."""
    method, draft, arms = kept.resolved.get("method"), kept.resolved.get("draft"), kept.resolved.get("arms")
    arm = arms.get("speculative") if arms else None
    return (
        (method["id"], method.get("num_speculative_tokens")) if method else None,
        draft["id"] if draft else None,
        arm.get("speculation_flags") if arm else None,
    )
