"""A box whose speeds are known, as a `Trial` for the tuner: what it measures is the truth with noise, and takes time.

No engine and no clock: a trial's times are computed, so that a search of half an hour takes milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from drafthouse.tuning.paired_stats import hopeless
from drafthouse.tuning.types import (
    BASELINE,
    FAILED,
    FINAL,
    OK,
    STOPPED,
    TOO_LATE,
    Answer,
    Candidate,
    Facts,
    Family,
    Outcome,
    Space,
    Task,
)

Truth = Callable[[Candidate], float]
TOKENS = 96


def drafting(acceptance: float, cost: float, best: float = 1.0) -> Callable[[int], float]:
    """Speed by K as Leviathan, Kalman and Matias 2023 (theorem 3.8) have it, times ``best``."""

    def speed(tokens: int) -> float:
        return best * sum(acceptance**i for i in range(tokens + 1)) / (1 + cost * tokens)

    return speed


def peak(at: int, height: float = 2.0, fall: float = 0.06) -> Callable[[int], float]:
    """A speed by K with a clear peak: each K further away is slower by ``fall``."""
    return lambda tokens: height * (1 - fall) ** abs(tokens - at)


def space(
    own: int = 4,
    most: int = 16,
    families: Mapping[str, int] | None = None,
    options: tuple[tuple[str, tuple[object, ...]], ...] = (),
    prompts: int = 40,
    load: int = 0,
) -> Space:
    """A space with the profile's own family `draft`, and others by name and largest K."""
    all_families = [Family("draft", tuple(range(1, most + 1)), own)]
    all_families += [Family(name, tuple(range(1, k + 1)), min(4, k)) for name, k in (families or {}).items()]
    return Space(tuple(all_families), prompts, 20, 1.0, 4, options, load)


def _answer(prompt: str, word: str) -> Answer:
    """An answer as the outputs gate reads one: twelve tokens."""
    text = "".join(f"{word}{number:02d} " for number in range(12))
    return {"group": "final", "prompt_id": prompt, "status": "ok", "temperature": 0, "text": text, "output_tokens": 12,
            "pieces": [len(text) // 12] * 12, "reasoning_text": "", "tool_calls": None, "http_status": 200,
            "error": None, "finish_reason": "stop", "gate": None}  # fmt: skip


@dataclass
class KnownBox:
    """The box. ``truth`` is a candidate's speed over the baseline's; ``noise`` and ``drift`` are log-normal.

    ``noise`` is that of every answer, ``drift`` that of every start as a whole: no two starts are quite alike.
    In the last step a candidate answers with the baseline's texts, and one of ``wrong`` with texts of its own.
    ``loaded`` is the truth under load, where a token takes as many times longer as half of the streams.
    ``start_s`` may be a range. ``broken`` candidates do not start; ``dies`` says which tasks die, by key.
    """

    truth: Truth
    seed: int
    start_s: tuple[float, float] = (15.0, 25.0)
    noise: float = 0.03
    drift: float = 0.008
    token_ms: float = 15.0
    broken: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    dies: Callable[[Task], bool] = lambda task: False
    loaded: Truth = lambda candidate: 1.0
    tasks: list[Task] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        # Prompts differ, and alike for every candidate: what is compared is compared prompt by prompt.
        self.prompts = {
            (part, number): self.token_ms * self.chance.lognormvariate(0, 0.25)
            for part in ("search", FINAL)
            for number in range(64)
        }

    @property
    def spent_s(self) -> float:
        """All the time that its trials took."""
        return sum(outcome.elapsed_s for outcome in self.outcomes)

    def __call__(self, task: Task) -> Outcome:
        """Do a task."""
        self.tasks.append(task)
        outcome = self.outcome(task)
        if outcome.elapsed_s > task.seconds:
            outcome = Outcome(TOO_LATE, {}, task.seconds, why="its time was up")
        self.outcomes.append(outcome)
        return outcome

    def outcome(self, task: Task) -> Outcome:
        start_s = self.chance.uniform(*self.start_s)
        if task.candidate.id in self.broken or self.dies(task):
            return Outcome(FAILED, {}, start_s / 2, why="the engine died")
        truth = self.loaded if task.streams else self.truth
        speed = 1.0 if task.arm == BASELINE else truth(task.candidate)
        if task.streams:
            speed /= task.streams / 2
        speed *= self.chance.lognormvariate(0, self.drift)
        count = 40 if task.part != FINAL else 20
        tpot_ms: dict[str, float] = {}
        measured_s, ratios = 0.0, []
        for number in range(task.first, task.first + task.count):
            value = self.prompts[task.part, number % count] / speed * self.chance.lognormvariate(0, self.noise)
            prompt = f"{task.part}-{number % count}"
            tpot_ms[prompt] = value
            measured_s += TOKENS * value / 1000 / (task.streams or 1)
            if prompt in task.reference:
                ratios.append(task.reference[prompt] / value)
            if hopeless(ratios) and number + 1 < task.first + task.count:
                return Outcome(STOPPED, tpot_ms, start_s + measured_s, 0.0, measured_s, "far behind the leader")
        facts: Facts = {"drafted": task.arm != BASELINE, "output_tokens": TOKENS * task.count}
        if task.part == FINAL:
            own = task.arm != BASELINE and task.candidate.id in self.wrong
            facts["answers"] = [_answer(prompt, "other" if own else "same") for prompt in tpot_ms]
        return Outcome(OK, tpot_ms, start_s + measured_s, 0.0, measured_s, "", facts)
