"""Experiments by a law: results of the shape that the steps of a real run give, judged as a report judges them.

A round is simulated, the judgement is asked whether it wants another one, and so on up to the budget: the loop of a
real run with an engine whose truth is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from drafthouse.analysis.rounds import FIRST_LOOK, wants_more
from drafthouse.analysis.verdict import judge
from drafthouse.bench.results import assemble
from drafthouse.report.data.build import lasting
from tests.support.builders import machine_state, make_request, make_resolved
from tests.truth.laws import Law

Data = Any
ARMS = ("baseline", "speculative")
KIND = "copy-edit"
TPOT_MS = 14.0
STARTED_UNIX_S = 1_800_000_000
#: What prompts differ by in their time per token, whatever the arm.
PROMPT_SD = 0.10


@dataclass(frozen=True)
class Layout:
    """What a profile asks for: the layout of the GPU profiles unless said otherwise."""

    prompts: int = 16
    temperatures: tuple[float, ...] = (0.0, 0.6)
    most_rounds: int = 8


@dataclass(frozen=True)
class Outcome:
    """What an experiment came to: the word, the rounds that it took, the whole judgement."""

    word: str
    rounds: int
    judgement: Data


class Experiment:
    """One experiment of a law, measured round by round."""

    def __init__(self, law: Law, gain: float, chance: np.random.Generator, layout: Layout) -> None:
        self.law, self.chance, self.layout = law, chance, layout
        self.steps: list[Data] = []
        self.course = law.course(chance, law.span)
        self.prompts = chance.normal(0.0, PROMPT_SD, layout.prompts)
        spread = law.gain_sd if gain != 1.0 else 0.0
        self.gains = np.log(gain) + chance.normal(0.0, spread, layout.prompts)

    def measure_round(self) -> None:
        """Add the two steps of another round: B,S in the odd ones and S,B in the even ones."""
        number = len(self.steps) // 2 + 1
        turned = number % 2 == 0 and not self.law.alternated
        for arm in reversed(ARMS) if turned else ARMS:
            self.steps.append(self._step(arm, number))

    def pair(self) -> tuple[Data, Data]:
        """Return the results of both arms, of the rounds so far."""
        baseline, speculative = (
            assemble(
                self.steps,
                arm,
                profile="cpu-smollm2-ngram",
                key="0123456789abcdef",
                engine={"id": "llamacpp", "name": "llama.cpp", "version": "11549", "runtime": "process"},
            )
            for arm in ARMS
        )
        return baseline, speculative

    def resolved(self) -> Data:
        """Return the resolved profile of the experiment."""
        found = make_resolved(kinds=[KIND])
        found["experiment"] |= {
            "schedule": "alternated",
            "temperatures": list(self.layout.temperatures),
            "rounds": min(FIRST_LOOK, self.layout.most_rounds),
            "most_rounds": self.layout.most_rounds,
        }
        return lasting(found)

    def _step(self, arm: str, number: int) -> Data:
        place, law = len(self.steps), self.law
        start = self.chance.normal(0.0, law.start_sd)
        shape = len(self.layout.temperatures), self.layout.prompts
        # Scaled to the same middle: half of the values of t with three degrees of freedom lie within 0.765.
        draws = self.chance.standard_t(3, shape) * (0.6745 / 0.7649) if law.heavy else self.chance.normal(size=shape)
        moments = place + (np.arange(draws.size) / draws.size).reshape(shape)
        course = np.array([[self.course(float(t)) for t in row] for row in moments])
        gain = self.gains if arm == "speculative" else 0.0
        tpot_ms = TPOT_MS * np.exp(self.prompts - gain + start + course + law.noise_sd * draws)
        requests = [
            make_request(f"{KIND}-{n + 1}", KIND, number, float(tpot_ms[t, n]), temperature=temperature)
            | {"cached_tokens": 0, "started_s": float(moments[t, n] - place)}
            for t, temperature in enumerate(self.layout.temperatures)
            for n in range(self.layout.prompts)
        ]
        groups = list(dict.fromkeys(one["group"] for one in requests))
        drafted = 1600 if arm == "speculative" else 0
        return {
            "arms": {
                arm: {
                    "model_id": "smollm2",
                    "requests": requests,
                    "spans": [{"round": number, "group": group, "duration_s": 30.0} for group in groups],
                    "counters": [
                        {"round": number, "group": group, "before": _counted(0), "after": _counted(drafted)}
                        for group in groups
                    ],
                    "warmup": [],
                }
            },
            "started_unix_s": STARTED_UNIX_S + 60 * place,
            "settings": {"concurrency": 1, "temperatures": list(self.layout.temperatures), "seed": 0},
            "suites": ["mixed"],
            "machine": {
                "before": machine_state(0.2),
                "after": machine_state(1.7),
                "groups": [{"round": number, "group": group, "between": {}} for group in groups],
            },
        }


def _counted(drafted: int) -> Data:
    return {
        "dialect": "llamacpp",
        "error": None,
        "present": True,
        "num_drafts": drafted // 16,
        "draft_tokens": drafted,
        "accepted_tokens": drafted * 9 // 10,
        "per_position": [],
    }


def run(law: Law, gain: float, chance: np.random.Generator, layout: Layout | None = None) -> Outcome:
    """Measure and judge one experiment until the judgement wants no more rounds."""
    layout = layout or Layout()
    experiment = Experiment(law, gain, chance, layout)
    done = 0
    while True:
        experiment.measure_round()
        done += 1
        if done < min(FIRST_LOOK, layout.most_rounds):
            continue
        judgement = judge(*experiment.pair(), experiment.resolved())
        if wants_more(judgement, done, layout.most_rounds) is None:
            return Outcome(judgement["word"], done, judgement)
