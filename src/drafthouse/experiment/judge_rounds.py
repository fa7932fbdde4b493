"""Judge the rounds that were measured so far, and decide what comes next. The controller's part: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..analysis.rounds import wants_more
from ..analysis.verdict import judge
from .more_rounds import decide


def judge_rounds(
    resolved: Mapping[str, Any],
    results: Mapping[str, Mapping[str, Any]],
    costs: Mapping[int, float],
    left_s: float | None = None,
) -> dict[str, Any]:
    """Return what was decided after the rounds in ``costs`` (seconds by round), over the arms' results of those rounds.

    ``left_s`` is how long a box that ends by itself still lives.
    """
    judgement = judge(results["baseline"], results["speculative"], resolved)
    wanted = wants_more(judgement, max(costs), resolved["experiment"]["most_rounds"])
    return decide(resolved["experiment"], costs, judgement, wanted, left_s)
