"""Judge the rounds that were measured so far, and decide what comes next. The controller's part: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..analysis.rounds import wants_more
from ..analysis.verdict import judge
from .more_rounds import decide

if TYPE_CHECKING:
    from drafthouse.bench.result_types import ArmResult
    from drafthouse.experiment.more_rounds import Decision, Judged
    from drafthouse.profiles.resolved_types import ResolvedProfile


def judge_rounds(
    resolved: ResolvedProfile,
    results: Mapping[str, ArmResult],
    costs: Mapping[int, float],
    left_s: float | None = None,
) -> Decision:
    """Return what was decided after the rounds in ``costs`` (seconds by round), over the arms' results of those rounds.

    ``left_s`` is how long a box that ends by itself still lives.
    """
    judgement = judge(results["baseline"], results["speculative"], resolved)
    wanted = wants_more(judgement, max(costs), resolved["experiment"]["most_rounds"])
    judged: Judged = {"word": judgement["word"], "sentence": judgement["sentence"]}
    return decide(resolved["experiment"], costs, judged, wanted, left_s)
