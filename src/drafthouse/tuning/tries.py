"""State of the tuner's search: results and ranking of the candidates, and the time that a further trial takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..bench.stats import median, paired_ratios
from ..core.errors import DrafthouseError, one_problem
from .paired_stats import CandidateRecord, speeds_of
from .types import OK, SEARCH, SPECULATIVE, STOPPED, Candidate, Outcome, Space, Task, Trial

#: Seconds at the end of the budget for stopping the last server.
STOP_S = 25.0
#: Seconds before that for ending a playbook that is over its time: half for SIGINT, half for SIGKILL.
KILL_S = 10.0
#: All trials end at least this many seconds before the budget does.
RESERVE_S = STOP_S + KILL_S
# How the search can end.
ALL = "nothing more to try"
TIME = "no time for more"

#: Factor on every planned time, since a server start or an answer may take longer than measured.
CAUTION = 1.15
# Planned time of a baseline answer over a speculative one; the real factor is not known before.
_BASELINE_SLOWER = 2.0
#: Advice in errors: how to discard the outcomes that the journal holds.
ANEW = "AGAIN=1 (--again) discards the journal and starts again"

Log = Callable[[str], None]


class SearchState:
    """State of a search within a time budget. The leader is the fastest candidate that can still win."""

    def __init__(self, space: Space, trial: Trial, budget_s: float, log: Log) -> None:
        self.space = space
        self.trial = trial
        self.log = log
        self.budget_s = budget_s
        self.spent_s = 0.0
        self.tried: dict[str, CandidateRecord] = {}  # by candidate id
        self.alive: list[CandidateRecord] = []  # candidates that can still win and are compared further
        self.overhead_s = 0.0  # planned time of a server start and stop
        self.answer_s = 0.0  # planned time of an answer
        self.size = min(space.first_prompts, space.prompts)  # prompts in the next trial
        self.ended = ALL
        self.unrefined = False  # True: no time was left for K close to the leader's
        self.failures = 0  # trials that failed in a row, up to the last one

    # --- time -----------------------------------------------------------------------------------

    def cost_s(self, answers: int) -> float:
        """Expected seconds of a trial with this number of answers."""
        return CAUTION * (self.overhead_s + answers * self.answer_s)

    def final_s(self, rounds: int) -> float:
        """Expected seconds of the final measurement: per round a baseline, the winner and the original profile."""
        answers_s = self.space.final_prompts * self.space.final_weight * self.answer_s
        return rounds * CAUTION * (3 * self.overhead_s + (2 + _BASELINE_SLOWER) * answers_s)

    @property
    def left_s(self) -> float:
        """Seconds left for the search, after a reserve for the final measurement and the last stop."""
        # Two rounds, unless they would take more than a third of the budget from the search.
        rounds = 2 if self.final_s(2) <= self.budget_s / 3 else 1
        return self.budget_s - self.spent_s - RESERVE_S - self.final_s(rounds)

    def fits(self, trials: int, answers: int) -> bool:
        """True if this number of trials, each with this number of answers, fits in the time left."""
        return trials * self.cost_s(answers) <= self.left_s

    def affords(self, trials: int, answers: int) -> bool:
        """Return `fits`; if it is False, also record that the search ended for lack of time."""
        fits = self.fits(trials, answers)
        if not fits:
            self.ended = TIME
        return fits

    # --- one trial ------------------------------------------------------------------------------

    def measure(self, candidate: Candidate, first: int, count: int, seconds: float | None = None) -> Outcome:
        """Run a trial on ``count`` prompts from index ``first`` on for at most ``seconds``, and record its outcome."""
        record = self.tried.setdefault(candidate.id, CandidateRecord(candidate))
        leader = record
        if self.alive:
            leader = self.ranked(self.alive)[0]
        if seconds is None:
            seconds = self._limit_s(record, count)
        record.starts += 1
        task = Task(
            candidate,
            arm=SPECULATIVE,
            part=SEARCH,
            first=first,
            count=count,
            turn=record.starts,
            reference=leader.medians() if leader is not record else {},  # the leader does not race itself
            seconds=seconds,
        )
        outcome = self.run(task)
        for prompt, value in outcome.tpot_ms.items():
            record.tpot_ms.setdefault(prompt, []).append(value)
        record.facts = outcome.facts or record.facts
        if outcome.status != OK:
            record.out = outcome.why or outcome.status
        elif len(outcome.tpot_ms) < count:
            record.out = f"only {len(outcome.tpot_ms)} of {count} answers have a time per token"
        record.failed = bool(record.out) and outcome.status != STOPPED
        if record.failed:
            self.failures += 1
        else:
            self.failures = 0
        self.log(f"{candidate.id}: {self.outcome_text(record, outcome)}")
        return outcome

    def _limit_s(self, record: CandidateRecord, count: int) -> float:
        """The time limit of a candidate's trial with ``count`` prompts, in seconds."""
        family = record.candidate.family
        if all(other is record or other.candidate.family != family for other in self.tried.values()):
            # A family's first trial may fetch weights: limit it to half of the time left.
            return self.left_s / 2
        return min(self.left_s, 3 * self.cost_s(count) + STOP_S)  # three times the usual time is a failure

    def run(self, task: Task) -> Outcome:
        """Run the trial of a task and count its time as spent."""
        outcome = self.trial(task)
        self.spent_s += outcome.elapsed_s
        if outcome.status == OK:
            # Plan with the slowest start so far, so that the final measurement does not run out of time.
            self.overhead_s = max(self.overhead_s, outcome.overhead_s)
        return outcome

    def outcome_text(self, record: CandidateRecord, outcome: Outcome) -> str:
        """Text of the progress line after a trial."""
        if record.out:
            return f"out: {record.out}"
        ratios = list(paired_ratios(self.tried[self.space.original.id].tpot_ms, record.tpot_ms).values())
        text = f"{median(list(outcome.tpot_ms.values())):.2f} ms per token on {len(outcome.tpot_ms)} prompts"
        if record.candidate != self.space.original:
            text += f", {median(ratios):.2f} x the profile's own speed"
        return text

    def leader(self) -> Candidate:
        """The fastest candidate of `alive`."""
        return self.ranked(self.alive)[0].candidate

    def ranked(self, records: Sequence[CandidateRecord]) -> list[CandidateRecord]:
        """The candidates, the fastest first; among equals the smaller K first."""
        return [record for _, record in self._by_speed(records)]

    def _by_speed(self, records: Sequence[CandidateRecord]) -> list[tuple[float, CandidateRecord]]:
        """The candidates with their relative speeds, in the order of `ranked`."""
        speeds = speeds_of([record.medians() for record in records])
        return sorted(zip(speeds, records, strict=True), key=lambda pair: (-pair[0], pair[1].candidate.tokens))

    def near_leader(self, factor: float) -> list[CandidateRecord]:
        """The leader, then the candidates whose speed times ``factor`` reaches the leader's."""
        ranking = self._by_speed(self.alive)
        leader_speed, _ = ranking[0]
        return [record for speed, record in ranking if leader_speed <= factor * speed]

    def survivors(self, more: Sequence[Candidate] = ()) -> list[CandidateRecord]:
        """The candidates of `alive` and of ``more`` that are not out.

        If there are none, all tried candidates that are not out: they were dropped only because they were slower.
        Raises DrafthouseError if there are none of these either, not even the original profile: then the host is at
        fault.
        """
        by_id = {record.candidate.id: record for record in self.alive if not record.out}
        for candidate in more:
            record = self.tried.get(candidate.id)
            if record and not record.out:
                by_id[candidate.id] = record
        by_id = by_id or {name: record for name, record in self.tried.items() if not record.out}
        if not by_id:
            raise self.nothing_runs_error()
        return list(by_id.values())

    def nothing_runs_error(self) -> DrafthouseError:
        """The error for a host on which the original profile ran before and fails now."""
        original = self.tried[self.space.original.id]
        return one_problem(
            "no-candidate-runs",
            f"no candidate runs any more, not even the profile as it stands ({original.candidate.id}): {original.out}",
            "a box that still runs the profile",
            f"check the log; {ANEW}",
        )
