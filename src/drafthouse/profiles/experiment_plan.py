"""The experiment of a profile: check what the profile asks for, and plan the steps as plain data.

An arm is a server of the comparison: baseline, speculative or stock. A step is one start of servers and the requests to
them. In a round each arm is measured once. Anchors are prompts that every round sends; fresh ones are sent in one round
only (`prompts/prompt_plan.py`). A gate checks that speculation did not change the answers.
"""

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
    """Add to ``findings`` what ``experiment`` wants and cannot have. ``suites``: by suite, the kinds of its prompts."""
    available: list[str] = []
    if not experiment["suites"]:
        needed = f"at least one of: {', '.join(sorted(suites))}"
        findings.add("no-prompts", "experiment.suites", "no suite", needed, "name the prompts to send")
    for index, suite in enumerate(experiment["suites"]):
        if suite in suites:
            available += suites[suite]
        else:
            findings.add(
                "no-such-suite",
                f"experiment.suites[{index}]",
                f"no suite '{suite}'",
                f"one of: {', '.join(sorted(suites))}",
                did_you_mean(suite, suites),
            )
    for index, name in enumerate(experiment.get("once", [])):
        if name not in (choices := [*experiment["suites"], *available]):
            findings.add(
                "no-such-suite",
                f"experiment.once[{index}]",
                f"'{name}'",
                f"a suite of experiment.suites, or a kind in one of them: {', '.join(choices)}",
                did_you_mean(name, choices),
            )
    check_kinds(findings, "experiment.kinds", experiment.get("kinds", []), available)
    _check_rounds(findings, experiment)
    if (ladder := experiment.get("ladder")) is not None:
        check_ladder(findings, ladder, experiment.get("rounds", 2), available)


def _check_rounds(findings: Findings, experiment: ExperimentWishes) -> None:
    """Add problems of a budget that is none, and of `most_rounds` below `rounds`."""
    try:
        parse_budget(experiment.get("budget", DEFAULT_BUDGET))
    except ValueError:
        findings.add("wrong-format", "experiment.budget", f"{experiment['budget']!r}", NEEDED, "correct the value")
    rounds = experiment.get("rounds", 2)
    most = experiment.get("most_rounds", MOST_ROUNDS)
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
    slots: int = 1,
) -> PlannedExperiment:
    """The experiment with its steps: which arms are served at the same time, at which ports, with which prompts.

    ``fits``: the memory of each arm. ``temperature``: at which answers are measured besides 0; None or 0: only at 0.
    ``slots``: concurrent requests of a server. Unless the profile says otherwise, arms are served side by side, from
    ``port`` on, if one device holds all of them; otherwise, and over several hosts, they take turns. ``steps`` are
    those of the first ``rounds``; `steps_of_round` plans any further round.
    """
    arms = tuple(fits)
    rounds = experiment.get("rounds", 2)
    schedule = experiment.get("schedule", "auto")
    if schedule == "auto":
        reserved = sum(fit["reserved"] for fit in fits.values())
        schedule = "alternated"
        if reserved <= fits["baseline"]["memory"] and not several_hosts:
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
        # Further concurrent requests would only wait for a slot.
        "gates_at_once": max(1, min(GATES_AT_ONCE, slots)),
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
    # Without a ladder there is no key at all, not even null: the key of kept results must not change.
    if (ladder := experiment.get("ladder")) is not None:
        planned["ladder"] = plan_ladder(ladder, planned["kinds"])
    return planned


def _turns(schedule: str, arms: Sequence[str], port: int) -> list[Ports]:
    """The arms that are served at the same time, with their ports, in the order of an odd round."""
    if schedule == "interleaved":
        return [{arm: port + offset for offset, arm in enumerate(arms)}]
    return [{arm: port} for arm in arms]


def fresh_planned(experiment: PlannedExperiment, round_number: int, fresh: Sequence[int] = ()) -> list[int]:
    """The number of fresh prompts of each round up to ``round_number``: ``fresh`` where decided, else a default.

    The first rounds are always included, because they share the prompts if there are too few.
    """
    rounds = max(round_number, FIRST_ROUNDS)
    undecided = [experiment["fresh"]] * FIRST_ROUNDS + [FRESH_LATER["few"]] * (rounds - FIRST_ROUNDS)
    return [*fresh[:rounds], *undecided[len(fresh) :]]


def steps_of_round(experiment: PlannedExperiment, round_number: int, fresh: Sequence[int] = ()) -> list[PlannedStep]:
    """The steps of round ``round_number`` (from 1) in the order of their measurement.

    ``fresh``: the decided numbers of fresh prompts, by round. Arms that take turns change their order with the round:
    B,S,S,B,B,S,S,B. Over two rounds the mean place of both arms is equal, so a box that becomes steadily faster or
    slower favours neither (counterbalancing, ABBA). A step's ``file`` does not depend on that order.
    """
    turns = list(enumerate(experiment["turns"], start=(round_number - 1) * len(experiment["turns"]) + 1))
    first = turns[0][0]
    if round_number % 2 == 0:
        turns.reverse()
    steps: list[PlannedStep] = []
    for place, (file_number, arms) in enumerate(turns, start=first):
        prompts: PlannedPrompts = {
            "anchors": experiment["anchors"],
            "fresh": fresh_planned(experiment, round_number, fresh),
            "others": experiment["prompts_per_kind"].get("others", OTHERS),
            "gates_at_once": experiment["gates_at_once"],
        }
        steps.append(
            {
                "round": round_number,
                "suites": suites_of_round(experiment, round_number),
                "arms": dict(arms),
                "number": place,
                "file": f"steps/{file_number:02d}.json",
                "prompts": prompts,
            }
        )
    return steps


def measured_part(experiment: PlannedExperiment) -> object:
    """The part of a planned experiment that decides what is measured; the key of kept results is made of it.

    Neither the time budget nor the order of the arms changes a result. The steps are in the order of earlier versions,
    B,S,B,S, so that the results of these are still used.
    """
    relevant = {name: value for name, value in experiment.items() if name not in ("budget", "most_rounds", "turns")}
    by_file = sorted(experiment["steps"], key=lambda step: step["file"])
    return {**relevant, "steps": [{**step, "number": place} for place, step in enumerate(by_file, start=1)]}


def suites_of_round(experiment: PlannedExperiment, round_number: int) -> list[str]:
    """The suites of a round; those under `once` are in the first round only."""
    if round_number == 1:
        return list(experiment["suites"])
    once = experiment.get("once", [])
    return [suite for suite in experiment["suites"] if suite not in once]


def asking_of(experiment: PlannedExperiment, step: PlannedStep) -> Asking:
    """Which prompts of its suites a step sends."""
    prompts = step["prompts"]
    return Asking(
        kinds=tuple(experiment["kinds"]),
        anchors=prompts["anchors"],
        fresh=tuple(prompts["fresh"]),
        others=prompts["others"],
        gates_at_once=prompts["gates_at_once"],
    )
