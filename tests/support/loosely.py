"""Judgements as tests ask for them: of parts of results, ladders and profiles, and with parts that must be there.

The functions are the product's own. Their types say of each part that it may be missing, which a test that made the
results knows better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drafthouse.analysis import (
    break_even_results,
    cost,
    crossover,
    legacy_metrics,
    output_equality,
    verdict,
)
from drafthouse.operate.checks import registry
from drafthouse.serving import history, releases

judge: Callable[..., Any] = verdict.judge
fill: Callable[..., Any] = crossover.crossovers_of
agreed: Callable[..., Any] = crossover.with_settled_levels
compare_outputs: Callable[..., Any] = output_equality.compare_outputs
points_of_ladder: Callable[..., Any] = break_even_results.points_of_ladder
old_table: Callable[..., Any] = legacy_metrics.old_table
costs: Callable[..., Any] = cost.costs
bandwidth_share: Callable[..., Any] = cost.bandwidth_share
cost_table: Callable[..., Any] = cost.cost_table
cost_rows: Callable[..., Any] = cost.cost_rows
memory_used: Callable[..., Any] = cost.memory_used
saving_of: Callable[..., Any] = cost.saving_of
preflight_problems: Callable[..., Any] = registry.preflight_problems
current_server: Callable[..., Any] = releases.current_server
read_history: Callable[..., Any] = history.read_history
