"""Types of the planned experiment: its steps, and the time that it may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.profiles.profile_types import PromptCounts
    from drafthouse.profiles.resolved_types import Ports
    from drafthouse.prompts.load_levels import PlannedLadder
    from drafthouse.prompts.prompt_plan import PlannedPrompts


class PlannedBudget(TypedDict):
    """The time for further rounds."""

    factor: float | None  # of the time of the first rounds; None: they do not matter
    most_s: float  # seconds at most


class PlannedStep(TypedDict):
    """A step: suites that are sent to arms which are served at the same time."""

    round: int  # from 1
    suites: list[str]
    arms: Ports  # port of each arm
    number: int  # its place in the order of measurement, from 1
    file: str  # its result, below the result folder; the name does not depend on the order
    prompts: PlannedPrompts  # how many prompts of each kind are sent


class PlannedExperiment(TypedDict):
    """The experiment (`experiment_plan.plan_experiment`): the profile's `experiment` with every default filled in."""

    suites: list[str]
    once: list[str]  # suites and kinds that only the first round sends
    prompts_per_kind: PromptCounts
    anchors: int  # prompts that every round sends
    fresh: int  # further prompts in each of the first two rounds, which no other round sends
    gates_at_once: int  # concurrent requests of a gate, a check that speculation did not change the answers
    max_output_tokens: int | None  # None: the suites' own limits
    kinds: list[str]  # the declared kinds; []: all without a gate
    concurrency: int  # requests at once
    rounds: int  # rounds that are always measured
    most_rounds: int  # with those that the budget adds while the verdict is uncertain
    budget: PlannedBudget
    schedule: Literal["interleaved", "alternated"]  # arms side by side, or in turn
    turns: list[Ports]  # the arms that are served at the same time, in the order of an odd round
    temperatures: list[float]  # 0, and the model's own if it has one
    steps: list[PlannedStep]  # of the first rounds
    ladder: NotRequired[PlannedLadder]  # a load sweep
