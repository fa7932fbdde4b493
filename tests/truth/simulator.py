"""Experiments by a law: measured round by round as the plan asks, and judged by the verdict's own estimator and table.

The loop of a real run with an engine whose truth is known. `Experiment.pair` gives the same measurements as results of
the shape that a real run leaves, for the whole judgement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from drafthouse.analysis.decision import FIRST_LOOK, Decision, Measured, decide
from drafthouse.analysis.speedup import BASELINE, SPECULATIVE, estimate_speedup, sum_ratio
from drafthouse.bench.results import assemble
from drafthouse.profiles.budget import MOST_ROUNDS
from drafthouse.prompts.prompt_plan import FRESH_LATER, Asking, TimedPrompt, prompt_order, round_prompts
from drafthouse.report.data.build import lasting
from tests.support.builders import machine_state, make_request, make_resolved
from tests.truth.laws import Law

Data = Any
ARMS = (BASELINE, SPECULATIVE)
KINDS = ("chat", "code")
STARTED_UNIX_S = 1_800_000_000
#: What prompts differ by in their time per token, whatever the arm.
PROMPT_SD = 0.10
#: The answers that a stall meets.
STALLED = 0.05
TOKENS = 120


@dataclass(frozen=True)
class Layout:
    """What a profile asks for: that of the GPU profiles unless said otherwise."""

    prompts: int = 106
    anchors: int = 6
    fresh: int = 10
    temperatures: tuple[float, ...] = (0.0, 0.6)
    most_rounds: int = MOST_ROUNDS


@dataclass(frozen=True)
class Outcome:
    """What an experiment came to: its word, rounds and answers, and the decision with what was measured."""

    word: str
    rounds: int
    answers: int
    decision: Decision
    measured: Measured


@dataclass
class Experiment:
    """One experiment of a law, measured round by round."""

    law: Law
    gain: float
    chance: np.random.Generator
    layout: Layout = field(default_factory=Layout)

    def __post_init__(self) -> None:
        """Draw the prompts: their time, length and gain."""
        size = self.layout.prompts
        sizes = {kind: (size + 1 - place) // 2 for place, kind in enumerate(KINDS)}
        self.order = prompt_order(sizes, dict.fromkeys(KINDS, self.layout.temperatures))
        kinds = np.array([float(KINDS.index(prompt.kind)) for prompt in self.order])
        self.number = {prompt: place for place, prompt in enumerate(self.order)}
        self.times = self.chance.normal(0.0, PROMPT_SD, size)
        self.lengths = TOKENS * np.exp(self.chance.normal(0.0, self.law.length_sd, size))
        places = np.array([float(prompt.place) for prompt in self.order])
        self.gains = math.log(self.gain) + self.law.gains(self.chance, kinds, places)
        self.fresh: list[int] = []
        self.log_tpot: dict[str, dict[TimedPrompt, dict[int, float]]] = {arm: {} for arm in ARMS}
        self.steps: list[tuple[str, int, list[TimedPrompt]]] = []

    def measure_round(self, fresh: int) -> None:
        """Measure another round with so many fresh prompts: B,S in the odd ones and S,B in the even ones."""
        self.fresh.append(fresh)
        number = len(self.fresh)
        wanted = (*self.fresh, *[fresh] * (2 - number))
        asking = Asking(KINDS, self.layout.anchors, wanted, 0)
        prompts = round_prompts(self.order, asking, number)
        for arm in ARMS if number % 2 else ARMS[::-1]:
            self._measure_step(arm, number, prompts)

    def measured(self) -> Measured:
        """What was measured so far, as the verdict's estimator takes it."""
        baseline, speculative = (self.log_tpot[arm] for arm in ARMS)
        kinds = {prompt: prompt.kind for prompt in baseline}
        seconds = []
        for arm in ARMS:
            own = self.log_tpot[arm].items()
            seconds.append(
                {p: self.lengths[self.number[p]] * sum(map(math.exp, logs.values())) / len(logs) for p, logs in own}
            )
        by_temperature = {}
        for temperature in self.layout.temperatures:
            parts = [{p: value for p, value in own.items() if p.temperature == temperature} for own in seconds]
            if part := sum_ratio(*parts):
                by_temperature[temperature] = part
        return Measured(estimate_speedup(baseline, speculative, kinds), sum_ratio(*seconds), by_temperature)

    def run(self) -> Outcome:
        """Measure and judge until the word stands or the rounds are spent."""
        fresh = self.layout.fresh
        while True:
            self.measure_round(fresh)
            rounds = len(self.fresh)
            if rounds < min(FIRST_LOOK, self.layout.most_rounds):
                continue
            measured = self.measured()
            decision = decide(measured)
            if decision.fresh is None or rounds >= self.layout.most_rounds:
                answers = sum(len(prompts) for _, _, prompts in self.steps)
                return Outcome(str(decision.word), rounds, answers, decision, measured)
            fresh = FRESH_LATER[decision.fresh]

    @property
    def true_sum(self) -> float:
        """The true ratio of the sums of seconds over all prompts."""
        seconds = self.lengths * np.exp(self.times)
        return float(seconds.sum() / (seconds * np.exp(-self.gains)).sum())

    def _measure_step(self, arm: str, number: int, prompts: list[TimedPrompt]) -> None:
        law, count = self.law, len(prompts)
        places = np.array([self.number[prompt] for prompt in prompts])
        logs = self.times[places] + self.chance.normal(0.0, law.start_sd) + self._noise(count)
        logs = logs + law.box(self.chance, len(self.steps), count)
        if arm == SPECULATIVE:
            logs = logs - self.gains[places]
        # In units of the average time per token.
        tpot = np.exp(logs)
        if law.stall_s:
            stalled = self.chance.random(count) < STALLED
            tpot = tpot + stalled * law.stall_s / law.answer_s * TOKENS / self.lengths[places]
        if arm == SPECULATIVE and number == 1 and law.slow_answer != 1.0:
            tpot[int(self.chance.integers(count))] *= law.slow_answer
        for prompt, value in zip(prompts, np.log(tpot).tolist(), strict=True):
            self.log_tpot[arm].setdefault(prompt, {})[number] = value
        self.steps.append((arm, number, prompts))

    def _noise(self, count: int) -> Any:
        law = self.law
        if law.heavy:
            # Scaled to the same middle: half of the values of t with three degrees of freedom lie within 0.765.
            return law.noise_sd * self.chance.standard_t(3, count) * (0.6745 / 0.7649)
        draws = self.chance.normal(0.0, law.noise_sd, count)
        for place in range(1, count) if law.noise_ar else ():
            draws[place] = law.noise_ar * draws[place - 1] + math.sqrt(1 - law.noise_ar**2) * draws[place]
        return draws

    # --- as a real run leaves it ----------------------------------------------------------------------

    def pair(self) -> tuple[Data, Data]:
        """The results of both arms, of the rounds so far."""
        steps = [self._step(place, *step) for place, step in enumerate(self.steps)]
        engine: Data = {"id": "llamacpp", "name": "llama.cpp", "version": "11549", "runtime": "process"}
        baseline, speculative = (
            assemble(steps, arm, profile="cpu-smollm2-ngram", key="0123456789abcdef", engine=engine) for arm in ARMS
        )
        return baseline, speculative

    def resolved(self) -> Data:
        """The resolved profile of the experiment."""
        found = make_resolved(kinds=KINDS)
        found["experiment"] |= {
            "schedule": "alternated",
            "temperatures": list(self.layout.temperatures),
            "rounds": min(FIRST_LOOK, self.layout.most_rounds),
            "most_rounds": self.layout.most_rounds,
        }
        return lasting(found)

    def _step(self, place: int, arm: str, number: int, prompts: list[TimedPrompt]) -> Data:
        requests = []
        for at, prompt in enumerate(prompts):
            tpot_ms = 14.0 * math.exp(self.log_tpot[arm][prompt][number])
            name, length = f"{prompt.kind}-{prompt.place}", round(float(self.lengths[self.number[prompt]]))
            made = make_request(
                name, prompt.kind, number, tpot_ms,
                temperature=prompt.temperature, ttft_ms=tpot_ms, output_tokens=length,
                text=" ".join([f"The answer to {name}, as always."] * 200)[: 5 * length],
            )  # fmt: skip
            made |= {"output_tokens": length, "max_tokens": length, "cached_tokens": 0, "started_s": float(at)}
            requests.append(made)
        groups = list(dict.fromkeys(str(one["group"]) for one in requests))
        drafted = 1600 if arm == SPECULATIVE else 0
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
