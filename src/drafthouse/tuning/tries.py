"""What the search tries: each candidate's trials and times, what another one would cost, and who is ahead. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..bench.stats import median, paired_ratios
from ..core.errors import DrafthouseError, one_problem
from .paired_stats import Tried, speeds_of
from .types import OK, SEARCH, SPECULATIVE, STOPPED, Candidate, Outcome, Space, Task, Trial

#: Seconds at the end of the budget in which the last engine is stopped.
STOP_S = 25.0
#: Seconds before them in which a playbook ends whose time is up: asked to at first, killed then.
KILL_S = 10.0
#: No trial runs within so many seconds of the budget's end.
RESERVE_S = STOP_S + KILL_S
#: How the search can end.
ALL, TIME = "nothing more to try", "no time for more"

#: Plans are made longer by this much: a start or an answer may take longer than those before it.
CAUTION = 1.15
# A baseline is slower than the profile's own settings: the re-measurement is planned for this much.
_BASELINE_SLOWER = 2.0
#: What a person does about an outcome that the journal holds.
ANEW = "AGAIN=1 (--again) discards the journal and starts again"

Say = Callable[[str], None]


class Tries:
    """What was tried within a budget, and what another trial would cost."""

    def __init__(self, space: Space, trial: Trial, budget_s: float, say: Say) -> None:
        self.space, self.trial, self.say = space, trial, say
        self.budget_s, self.spent_s = budget_s, 0.0
        self.tried: dict[str, Tried] = {}
        self.alive: list[Tried] = []
        self.overhead_s, self.answer_s = 0.0, 0.0
        self.size = min(space.first_prompts, space.prompts)
        self.ended = ALL
        self.unrefined = False
        self.failures = 0
        """How many trials failed, one after the other, up to now."""

    # --- time -----------------------------------------------------------------------------------

    def cost_s(self, answers: int) -> float:
        """What one trial with so many answers is expected to take."""
        return CAUTION * (self.overhead_s + answers * self.answer_s)

    def final_s(self, rounds: int) -> float:
        """What the re-measurement is expected to take: baseline, winner and the profile as it stands."""
        answers_s = self.space.final_prompts * self.space.final_weight * self.answer_s
        return rounds * CAUTION * (3 * self.overhead_s + (2 + _BASELINE_SLOWER) * answers_s)

    @property
    def left_s(self) -> float:
        """What is left for the search, without what the re-measurement and the last stop need."""
        rounds = 2 if self.final_s(2) <= self.budget_s / 3 else 1
        return self.budget_s - self.spent_s - RESERVE_S - self.final_s(rounds)

    def fits(self, trials: int, answers: int) -> bool:
        """Tell whether so many trials of so many answers fit."""
        return trials * self.cost_s(answers) <= self.left_s

    def affords(self, trials: int, answers: int) -> bool:
        """Tell the same, and note that something was left untried where they do not."""
        fits = self.fits(trials, answers)
        if not fits:
            self.ended = TIME
        return fits

    # --- one trial ------------------------------------------------------------------------------

    def measure(self, candidate: Candidate, first: int, count: int, seconds: float | None = None) -> Outcome:
        """Let the trial measure a candidate on some prompts of the search, and keep what came of it."""
        known = self.tried.setdefault(candidate.id, Tried(candidate))
        leader = self.ranked(self.alive)[0] if self.alive else known
        if seconds is None:
            seconds = min(self.left_s, 3 * self.cost_s(count) + STOP_S)
            if all(other is known or other.candidate.family != candidate.family for other in self.tried.values()):
                # A family's first trial may have weights to fetch: half of what is left, lest it takes all of it.
                seconds = self.left_s / 2
        known.starts += 1
        reference = leader.medians() if leader is not known else {}
        task = Task(candidate, SPECULATIVE, SEARCH, first, count, known.starts, reference, seconds)
        outcome = self.run(task)
        for prompt, value in outcome.tpot_ms.items():
            known.tpot_ms.setdefault(prompt, []).append(value)
        known.facts = outcome.facts or known.facts
        if outcome.status != OK:
            known.out = outcome.why or outcome.status
        elif len(outcome.tpot_ms) < count:
            known.out = f"only {len(outcome.tpot_ms)} of {count} answers have a time per token"
        known.failed = bool(known.out) and outcome.status != STOPPED
        if known.failed:
            self.failures += 1
        else:
            self.failures = 0
        self.say(f"{candidate.id}: {self.outcome_text(known, outcome)}")
        return outcome

    def run(self, task: Task) -> Outcome:
        """Let the trial do a task, and pay for it."""
        outcome = self.trial(task)
        self.spent_s += outcome.elapsed_s
        if outcome.status == OK:
            # The slowest start so far: to plan with less would be to run out of time at the end.
            self.overhead_s = max(self.overhead_s, outcome.overhead_s)
        return outcome

    def outcome_text(self, known: Tried, outcome: Outcome) -> str:
        """What a trial showed, in words."""
        if known.out:
            return f"out: {known.out}"
        ratios = list(paired_ratios(self.tried[self.space.own.id].tpot_ms, known.tpot_ms).values())
        text = f"{median(list(outcome.tpot_ms.values())):.2f} ms per token on {len(outcome.tpot_ms)} prompts"
        if known.candidate != self.space.own:
            text += f", {median(ratios):.2f} x the profile's own speed"
        return text

    def ranked(self, among: Sequence[Tried]) -> list[Tried]:
        """The candidates, the fastest first; of equals the one with the smaller K."""
        return [known for _, known in self._by_speed(among)]

    def _by_speed(self, among: Sequence[Tried]) -> list[tuple[float, Tried]]:
        """The candidates with their speeds, in the order of `ranked`."""
        speeds = speeds_of([known.medians() for known in among])
        return sorted(zip(speeds, among, strict=True), key=lambda pair: (-pair[0], pair[1].candidate.tokens))

    def near(self, factor: float) -> list[Tried]:
        """The leader, and behind it those that are slower by ``factor`` at most."""
        order = self._by_speed(self.alive)
        return [known for speed, known in order if order[0][0] <= factor * speed]

    def still_in(self, more: Sequence[Candidate] = ()) -> list[Tried]:
        """The candidates that are alive, and those of ``more`` that are not out.

        Where nobody is left, those that were too slow come back. Raises DrafthouseError where these failed too, the
        profile as it stands among them: then it is the box that fails.
        """
        found = {known.candidate.id: known for known in self.alive if not known.out}
        for candidate in more:
            known = self.tried.get(candidate.id)
            if known and not known.out:
                found[candidate.id] = known
        found = found or {name: known for name, known in self.tried.items() if not known.out}
        if not found:
            raise self.nothing_runs()
        return list(found.values())

    def nothing_runs(self) -> DrafthouseError:
        """The problem of a box on which the profile ran, and runs no more."""
        own = self.tried[self.space.own.id]
        return one_problem(
            "no-candidate-runs",
            f"no candidate runs any more, not even the profile as it stands ({own.candidate.id}): {own.out}",
            "a box that still runs the profile",
            f"check the log; {ANEW}",
        )
