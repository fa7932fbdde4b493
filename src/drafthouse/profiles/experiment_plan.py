"""The experiment of a profile: what it may ask for, and its steps, which are plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.errors import did_you_mean
from ..core.schema import Findings
from ..prompts.load_levels import check_kinds, check_ladder, plan_ladder
from ..prompts.prompt_plan import ANCHORS, FIRST_ROUNDS, FRESH, FRESH_LATER, GATES_AT_ONCE, OTHERS, Asking
from .budget import DEFAULT_BUDGET, MOST_ROUNDS, NEEDED, parse_budget

if TYPE_CHECKING:
    from drafthouse.profiles.planned_types import PlannedExperiment, PlannedStep
    from drafthouse.profiles.profile_types import ExperimentWishes
    from drafthouse.profiles.resolved_types import Fit, Ports
    from drafthouse.prompts.prompt_plan import PlannedPrompts


def check_experiment(findings: Findings, experiment: ExperimentWishes, suites: Mapping[str, Sequence[str]]) -> None:
    """Add to ``findings`` what ``experiment`` asks for and no suite has. ``suites`` are the kinds of every suite."""
    available: list[str] = []
    if not experiment["suites"]:
        needed = f"at least one of: {', '.join(sorted(suites))}"
        findings.add("no-prompts", "experiment.suites", "no suite", needed, "name the prompts to send")
    for number, suite in enumerate(experiment["suites"]):
        if suite in suites:
            available += suites[suite]
        else:
            findings.add(
                "no-such-suite",
                f"experiment.suites[{number}]",
                f"no suite '{suite}'",
                f"one of: {', '.join(sorted(suites))}",
                did_you_mean(suite, suites),
            )
    for number, name in enumerate(experiment.get("once", [])):
        if name not in (may := [*experiment["suites"], *available]):
            findings.add(
                "no-such-suite",
                f"experiment.once[{number}]",
                f"'{name}'",
                f"a suite of experiment.suites, or a kind in one of them: {', '.join(may)}",
                did_you_mean(name, may),
            )
    check_kinds(findings, "experiment.kinds", experiment.get("kinds", []), available)
    _check_rounds(findings, experiment)
    if (ladder := experiment.get("ladder")) is not None:
        check_ladder(findings, ladder, experiment.get("rounds", 2), available)


def _check_rounds(findings: Findings, experiment: ExperimentWishes) -> None:
    try:
        parse_budget(experiment.get("budget", DEFAULT_BUDGET))
    except ValueError:
        findings.add("wrong-format", "experiment.budget", f"{experiment['budget']!r}", NEEDED, "correct the value")
    rounds, most = experiment.get("rounds", 2), experiment.get("most_rounds", MOST_ROUNDS)
    if "most_rounds" in experiment and most < rounds:
        findings.add(
            "out-of-range",
            "experiment.most_rounds",
            f"{most} rounds at most, but {rounds} at first (experiment.rounds)",
            f"{rounds} or more",
            "raise it, or lower experiment.rounds",
        )


def plan_experiment(
    experiment: ExperimentWishes,
    fits: Mapping[str, Fit],
    port: int,
    temperature: float | None,
    *,
    several_hosts: bool = False,
    room: int = 1,
) -> PlannedExperiment:
    """The experiment with its steps: which arms are served together, on which ports, and what they are asked.

    ``fits`` has an entry for each arm, ``temperature`` is the model's own. Arms are served side by side where the
    device holds all of them, the first on ``port``; over several hosts they take turns. ``room`` is how many requests a
    server takes at once. ``steps`` are those of the
    ``rounds`` to begin with; `steps_of_round` has those of any further one, of which there are at most ``most_rounds``
    together.
    """
    arms = tuple(fits)
    rounds = experiment.get("rounds", 2)
    schedule = experiment.get("schedule", "auto")
    if schedule == "auto":
        together = sum(fit["reserved"] for fit in fits.values())
        schedule = "alternated"
        if together <= fits["baseline"]["memory"] and not several_hosts:
            schedule = "interleaved"
    temperatures = [0.0]
    if temperature:
        temperatures.append(float(temperature))
    budget = parse_budget(experiment.get("budget", DEFAULT_BUDGET))
    most_rounds = rounds
    if not budget.nothing:
        most_rounds = max(rounds, experiment.get("most_rounds", MOST_ROUNDS))
    planned: PlannedExperiment = {
        "suites": list(experiment["suites"]),
        "once": list(experiment.get("once", [])),
        "prompts_per_kind": {**experiment.get("prompts_per_kind", {})},
        "anchors": experiment.get("anchors", ANCHORS),
        "fresh": experiment.get("fresh", FRESH),
        "gates_at_once": max(1, min(GATES_AT_ONCE, room)),
        "max_output_tokens": experiment.get("max_output_tokens"),
        "kinds": list(experiment.get("kinds", [])),
        "concurrency": experiment.get("concurrency", 1),
        "rounds": rounds,
        "most_rounds": most_rounds,
        "budget": budget.as_dict(),
        "schedule": schedule,
        "turns": _turns(schedule, arms, port),
        "temperatures": temperatures,
        "steps": [],
    }
    for number in range(1, rounds + 1):
        planned["steps"] += steps_of_round(planned, number)
    # Not even as null without one: the key of a kept result must not change.
    if (ladder := experiment.get("ladder")) is not None:
        planned["ladder"] = plan_ladder(ladder, planned["kinds"])
    return planned


def _turns(schedule: str, arms: Sequence[str], port: int) -> list[Ports]:
    """Which arms are served together, in the order of an odd round: the port of each."""
    if schedule == "interleaved":
        return [{arm: port + place for place, arm in enumerate(arms)}]
    return [{arm: port} for arm in arms]


def fresh_planned(experiment: PlannedExperiment, number: int, fresh: Sequence[int] = ()) -> list[int]:
    """The fresh prompts of the rounds up to ``number``: those decided (``fresh``), few for one that is not.

    Of the first rounds always: they share what prompts there are.
    """
    rounds = max(number, FIRST_ROUNDS)
    undecided = [experiment["fresh"]] * FIRST_ROUNDS + [FRESH_LATER["few"]] * (rounds - FIRST_ROUNDS)
    return [*fresh[:rounds], *undecided[len(fresh) :]]


def steps_of_round(experiment: PlannedExperiment, number: int, fresh: Sequence[int] = ()) -> list[PlannedStep]:
    """The steps of a planned experiment's round ``number`` (from 1), in the order they are measured.

    ``fresh`` are the fresh prompts of each round as far as they were decided.
    Arms that take turns change their order with the round: B,S,S,B,B,S,S,B. Over two rounds each arm's mean place is
    the same, so that a box that becomes steadily faster or slower favours neither (counterbalancing, ABBA). A step's
    ``file`` names its round and arm, whatever the order they are measured in.
    """
    turns = list(enumerate(experiment["turns"], start=(number - 1) * len(experiment["turns"]) + 1))
    first = turns[0][0]
    if number % 2 == 0:
        turns.reverse()
    steps: list[PlannedStep] = []
    for place, (file, turn) in enumerate(turns, start=first):
        prompts: PlannedPrompts = {
            "anchors": experiment["anchors"],
            "fresh": fresh_planned(experiment, number, fresh),
            "others": experiment["prompts_per_kind"].get("others", OTHERS),
            "gates_at_once": experiment["gates_at_once"],
        }
        steps.append(
            {
                "round": number,
                "suites": suites_of_round(experiment, number),
                "arms": dict(turn),
                "number": place,
                "file": f"steps/{file:02d}.json",
                "prompts": prompts,
            }
        )
    return steps


def measured_part(experiment: PlannedExperiment) -> object:
    """What of a planned experiment changes what is measured, as it stands in the key of a kept result.

    How long may be measured changes no number that is there, and a balanced order asks the same. In this form a result
    that an earlier version measured, in turns B,S,B,S, is still found.
    """
    kept = {name: value for name, value in experiment.items() if name not in ("budget", "most_rounds", "turns")}
    by_file = sorted(experiment["steps"], key=lambda step: step["file"])
    return {**kept, "steps": [{**step, "number": place} for place, step in enumerate(by_file, start=1)]}


def suites_of_round(experiment: PlannedExperiment, number: int) -> list[str]:
    """The suites of a round: those that are wanted once are in the first only."""
    if number == 1:
        return list(experiment["suites"])
    once = experiment.get("once", [])
    return [suite for suite in experiment["suites"] if suite not in once]


def asking_of(experiment: PlannedExperiment, step: PlannedStep) -> Asking:
    """Which prompts a step asks."""
    prompts = step["prompts"]
    return Asking(
        kinds=tuple(experiment["kinds"]),
        anchors=prompts["anchors"],
        fresh=tuple(prompts["fresh"]),
        others=prompts["others"],
        gates_at_once=prompts["gates_at_once"],
    )
