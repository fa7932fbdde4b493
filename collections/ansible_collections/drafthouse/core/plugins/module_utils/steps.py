"""The experiment of a profile: what it may ask for, and its steps, which are plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .fit import Fit
from .levels import check_kinds, check_ladder, plan_ladder
from .problems import did_you_mean
from .shape import Findings

Data = dict[str, Any]


def check_experiment(findings: Findings, experiment: Data, suites: Mapping[str, Sequence[str]]) -> None:
    """Add to ``findings`` what ``experiment`` asks for and no suite has. ``suites`` are the kinds of every suite."""
    available: list[str] = []
    for number, suite in enumerate(experiment["suites"]):
        if suite in suites:
            available += suites[suite]
        else:
            findings.add(
                f"experiment.suites[{number}]",
                f"no suite '{suite}'",
                f"one of: {', '.join(sorted(suites))}",
                did_you_mean(suite, suites),
            )
    for number, suite in enumerate(experiment.get("once", [])):
        if suite not in experiment["suites"]:
            findings.add(
                f"experiment.once[{number}]",
                f"'{suite}'",
                f"one of experiment.suites: {', '.join(experiment['suites'])}",
                did_you_mean(suite, experiment["suites"]),
            )
    check_kinds(findings, "experiment.kinds", experiment.get("kinds", []), available)
    check_ladder(findings, experiment, available)


def plan_experiment(experiment: Data, fits: Mapping[str, Fit], port: int, temperature: float | None) -> Data:
    """Return the experiment with its steps: which arms are served together, on which ports, and what they are asked.

    ``fits`` has an entry for each arm, ``temperature`` is the model's own. Arms are served side by side where the
    device holds all of them, the first on ``port``.
    """
    arms = tuple(fits)
    rounds = experiment.get("rounds", 2)
    schedule = experiment.get("schedule", "auto")
    if schedule == "auto":
        together = sum(fit.reserved for fit in fits.values())
        schedule = "interleaved" if together <= fits["baseline"].memory else "alternated"
    turns = [arms] if schedule == "interleaved" else [(arm,) for arm in arms]
    steps = [
        {
            "round": number,
            "suites": _suites_of(experiment, number),
            "arms": {arm: port + place for place, arm in enumerate(turn)},
        }
        for number in range(1, rounds + 1)
        for turn in turns
    ]
    for number, step in enumerate(steps, start=1):
        step.update({"number": number, "file": f"steps/{number:02d}.json"})
    # The model's own temperature, beside 0, where it has one.
    own = float(temperature) if temperature is not None else 0.0
    planned: Data = {
        "suites": list(experiment["suites"]),
        "once": list(experiment.get("once", [])),
        "prompts_per_kind": dict(experiment.get("prompts_per_kind", {})),
        "max_output_tokens": experiment.get("max_output_tokens"),
        "kinds": list(experiment.get("kinds", [])),
        "concurrency": experiment.get("concurrency", 1),
        "rounds": rounds,
        "schedule": schedule,
        "temperatures": [0.0] if own == 0 else [0.0, own],
        "steps": steps,
    }
    # Not even as null without one: the key of a kept result must not change.
    if (ladder := plan_ladder(experiment)) is not None:
        planned["ladder"] = ladder
    return planned


def _suites_of(experiment: Data, number: int) -> list[str]:
    """Return the suites of a round: those that are wanted once are in the first only."""
    once = experiment.get("once", [])
    return [suite for suite in experiment["suites"] if number == 1 or suite not in once]
