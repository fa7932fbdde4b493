"""The planned experiment as types: its steps, and for how long may be measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.profiles.profile_types import PromptCounts
    from drafthouse.profiles.resolved_types import Ports
    from drafthouse.prompts.load_levels import PlannedLadder
    from drafthouse.prompts.prompt_plan import PlannedPrompts


class PlannedBudget(TypedDict):
    """For how long may be measured: a factor of the first rounds (None: no factor), at most so many seconds."""

    factor: float | None
    most_s: float


class PlannedStep(TypedDict):
    """A step: suites on arms served together, with how many prompts; ``file`` is below the result's folder."""

    round: int
    suites: list[str]
    arms: Ports
    number: int
    file: str
    prompts: PlannedPrompts


class PlannedExperiment(TypedDict):
    """The experiment (`experiment_plan.plan_experiment`)."""

    suites: list[str]
    once: list[str]
    prompts_per_kind: PromptCounts
    anchors: int
    fresh: int
    gates_at_once: int
    max_output_tokens: int | None
    kinds: list[str]
    concurrency: int
    rounds: int
    most_rounds: int
    budget: PlannedBudget
    schedule: Literal["interleaved", "alternated"]
    turns: list[Ports]
    temperatures: list[float]
    steps: list[PlannedStep]
    ladder: NotRequired[PlannedLadder]
