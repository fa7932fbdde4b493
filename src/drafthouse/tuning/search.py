"""The search of the tuner: which candidates to try, in which order, on how many prompts, and which one wins.

A `Trial` starts the servers and reports its time. The search reads no clock but sums these times, so the same outcomes
lead to the same decisions. A killed search therefore continues from the outcomes in its journal. Steps (docs/tune.md):

1. Measure the original profile, which shows what a trial costs on this host.
2. Successive halving over methods, drafts and a few K: all on few prompts, then the better half on as many more, and
   so on (Jamieson and Talwalkar 2016, "Non-stochastic Best Arm Identification").
3. Try K between the leader's and its tried neighbours, then the candidates left over by step 2, then tunable options
   jointly with K and draft.
4. Measure candidates close to the leader once more and decide.
5. Measure the best candidates under load, if the profile asks for it (`under_load.py`).
6. Measure the winner again on prompts that the search did not use.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import zip_longest

from ..core.errors import one_problem
from .paired_stats import SAME, CandidateRecord
from .tries import ALL, ANEW, CAUTION, RESERVE_S, STOP_S, TIME, Log, SearchState
from .types import BASELINE, FAILED, FINAL, OK, SEARCH, SPECULATIVE, Candidate, Outcome, Space, Task, Trial
from .under_load import WITHOUT_SPECULATION, LoadedServer, loaded_server

#: Candidates within this factor of the leader's speed are measured once more before the decision.
CLOSE = 1.04

_RUNGS = 3  # sizes of trial in the halving, the first one included
_COARSE_SHARE = 0.6  # fraction of the search's time for the halving
_PLAYOFFS = 2  # most play-offs before the decision
_PLAYERS = 3  # most candidates in a play-off; the original profile may come on top
_OPTION_PASSES = 2  # most passes over the tunable options
# A family whose best candidate is within this factor of the leader's speed may win with the leader's options.
_WITHIN_REACH = 1.25
_LOADED = 6  # most candidates that are measured under load


@dataclass
class SearchResult:
    """The result of a search."""

    original: Candidate  # the profile as it stands
    winner: Candidate
    why: str  # the reason for the choice of the winner
    tried: list[CandidateRecord]  # in the order in which they were first tried
    ended: str  # `ALL` or `TIME`
    spent_s: float  # seconds of the budget, final measurement included
    #: Outcomes of the final measurement by (arm, candidate id), one per round; empty without one.
    final: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)
    unconfirmed: str = ""  # the reason why the final measurement failed, or ""
    loaded: list[LoadedServer] = field(default_factory=list)  # empty: nothing was measured under load


def tune(space: Space, trial: Trial, budget_s: float, log: Log = lambda text: None) -> SearchResult:
    """Search ``space`` within ``budget_s`` seconds.

    ``log`` receives a line per phase and trial. Raises DrafthouseError if the original profile does not run, if no
    candidate runs any more, if all other candidates failed for the same reason, or if the budget is too short to try
    another candidate.
    """
    search = _Search(space, trial, budget_s, log)
    search.measure_original()
    search.halve()
    search.refine()
    search.try_remaining()
    search.tune_options()
    search.play_off()
    winner, why = search.decide()
    if winner == space.original and search.remeasure_original():
        winner, why = search.decide()
    search.check_compared(winner)
    log(f"chosen: {winner.id}, {why}")
    loaded = search.measure_under_load(winner) if space.load else []
    final: dict[tuple[str, str], list[Outcome]] = {}
    unconfirmed = ""
    if winner != space.original:
        final, unconfirmed = search.confirm(winner)
    return SearchResult(
        original=space.original,
        winner=winner,
        why=why,
        tried=list(search.tried.values()),
        ended=search.ended,
        spent_s=search.spent_s,
        final=final,
        unconfirmed=unconfirmed,
        loaded=loaded,
    )


def middle(low: int, high: int) -> int:
    """The K nearest to the geometric mean of two K and strictly between them, or ``low`` if there is none."""
    if high - low <= 1:
        return low
    return min(max(round(math.sqrt(max(low, 1) * high)), low + 1), high - 1)


class _Search(SearchState):
    """The phases of a search, in the order in which `tune` calls them."""

    def measure_original(self) -> None:
        """Measure the original profile. Raises DrafthouseError if that fails or shows that the budget is too short."""
        outcome = self.measure(self.space.original, first=0, count=self.size, seconds=self.budget_s - RESERVE_S)
        original = self.tried[self.space.original.id]
        if original.out:
            raise one_problem(
                "no-candidate-runs",
                f"the profile as it stands ({original.candidate.id}) could not be measured: {original.out}",
                "a profile that runs, and a budget long enough to start it and get answers",
                "run it alone first (make with its name), or give a larger BUDGET; the same command retries "
                f"while there is time, and {ANEW}",
            )
        self.answer_s = outcome.measured_s / self.size
        self.alive = [original]
        needed_s = self.spent_s + RESERVE_S + self.cost_s(self.size) + self.final_s(1)
        if needed_s > self.budget_s:
            raise one_problem(
                "budget-too-small",
                f"a budget of {self.budget_s:.0f} s, of which the profile as it stands took {self.spent_s:.0f} s",
                f"{needed_s:.0f} s or more: one more candidate, and three arms measured again at the end",
                f"give BUDGET={math.ceil(2 * needed_s / 60)}m, which is enough for several",
            )

    def coarse_candidates(self) -> list[Candidate]:
        """Each family's first K and powers of two, the families interleaved, without the original profile."""
        by_family = [family.coarse_candidates() for family in self.space.families]
        by_family[0].pop(0)  # the original profile is already measured
        candidates: list[Candidate] = []
        for same_rank in zip_longest(*by_family):
            candidates += filter(None, same_rank)
        return candidates

    def halve(self) -> None:
        """Try as many coarse candidates as time allows, then the faster half on more prompts, and so on."""
        candidates = self.coarse_candidates()
        affordable = self.number_that_fit(len(candidates))
        if affordable < len(candidates):
            self.ended = TIME
        self.log(f"{affordable} of {len(candidates)} candidates on {self.size} prompts each")
        for candidate in candidates[:affordable]:
            if self.is_dead(candidate.family):
                continue
            if not self.affords(1, self.size):
                return
            self.measure(candidate, first=0, count=self.size)
            self.alive = self.survivors([candidate])
        for _ in range(1, _RUNGS):
            self.alive = self.better_half()
            count = min(self.size, self.space.prompts)
            if len(self.alive) <= 2 or not self.affords(len(self.alive), count):
                return
            self.log(f"the better {len(self.alive)} on {count} more prompts")
            for record in list(self.alive):
                self.measure(record.candidate, first=self.size, count=count)
            self.alive = self.survivors()
            self.size += count

    def better_half(self) -> list[CandidateRecord]:
        """The faster half, at least two candidates, plus the original profile while it is close to the leader."""
        half = self.ranked(self.alive)[: max(2, math.ceil(len(self.alive) / 2))]
        original = self.tried[self.space.original.id]
        if original in half or original not in self.near_leader(CLOSE):
            return half
        return [*half, original]

    def is_dead(self, family: str) -> bool:
        """True if at least two candidates of a family were tried and none of them got an answer."""
        members = [record for record in self.tried.values() if record.candidate.family == family]
        return len(members) >= 2 and not any(record.tpot_ms for record in members)

    def number_that_fit(self, most: int) -> int:
        """Number of candidates, at most ``most``, for which the halving fits in its share of the time."""
        time_s = _COARSE_SHARE * self.left_s
        for candidates in range(most, 1, -1):
            # For each rung of the halving: how many candidates are left, and how many answers each gives.
            trials_and_answers = [
                (candidates, self.size),
                (math.ceil((candidates + 1) / 2), self.size),
                (math.ceil(candidates / 4), 2 * self.size),
            ]
            if sum(trials * self.cost_s(answers) for trials, answers in trials_and_answers) <= time_s:
                return candidates
        return min(1, most)

    def refine(self) -> None:
        """Try K between the leader's and its tried neighbours until none is left."""
        count = min(self.size, self.space.prompts)
        while candidates := self.between(self.leader()):
            self.log(f"around {self.leader().id}")
            for candidate in candidates:
                if not self.affords(1, count):
                    self.unrefined = True
                    return
                self.measure(candidate, first=0, count=count)
            self.alive = self.survivors(candidates)
        self.unrefined = False

    def try_remaining(self) -> None:
        """Try the candidates that the halving had no time for; after a new leader, refine around it."""
        count = min(self.size, self.space.prompts)
        for candidate in self.coarse_candidates():
            if candidate.id in self.tried or self.is_dead(candidate.family):
                continue
            if not self.affords(1, count):
                return
            self.measure(candidate, first=0, count=count)
            self.alive = self.survivors([candidate])
            if self.leader() == candidate:
                self.refine()
        self.ended = TIME if self.unrefined else ALL

    def between(self, leader: Candidate) -> list[Candidate]:
        """Candidates in the middle between the leader's K and its tried neighbours below and above.

        Empty if the neighbours are at most K/2 apart and both as fast as the leader: then there is nothing to gain.
        """
        family = self.space.family(leader.family)
        by_tokens = {
            record.candidate.tokens: record
            for record in self.tried.values()
            if (record.candidate.family, record.candidate.settings) == (leader.family, leader.settings)
        }
        # The nearest tried K below and above; where none is tried, the first K that is not in the family.
        below = family.tokens[0] - 1
        above = family.tokens[-1] + 1
        for tokens in by_tokens:
            if below < tokens < leader.tokens:
                below = tokens
            elif leader.tokens < tokens < above:
                above = tokens
        if 2 * (above - below) <= leader.tokens:
            flat = self.near_leader(SAME)
            if by_tokens.get(below) in flat and by_tokens.get(above) in flat:
                return []
        candidates = (middle(below, leader.tokens), middle(leader.tokens, above))
        return [family.candidate(k, leader.settings) for k in candidates if k in family.tokens and k not in by_tokens]

    def tune_options(self) -> None:
        """Tune the options jointly with K and draft: an option may change which K and which draft are the best.

        Each pass tries the options on the leader, then K around a new leader, then other families with its options.
        """
        for _ in range(_OPTION_PASSES if self.space.options else 0):
            leader = self.ranked(self.alive)[0].candidate
            self.try_values()
            if self.ranked(self.alive)[0].candidate == leader:
                return
            self.refine()
            self.try_other_families()

    def try_other_families(self) -> None:
        """Try the leader's server options on the best candidate of each other family that is not far slower."""
        count = min(self.size, self.space.prompts)
        leader = self.ranked(self.alive)[0].candidate
        server_options = tuple(setting for setting in leader.settings if setting[0].startswith("serve."))
        families = {leader.family}
        for record in self.near_leader(_WITHIN_REACH):
            family = record.candidate.family
            if family in families:
                continue
            families.add(family)
            candidate = self.space.family(family).candidate(record.candidate.tokens, server_options)
            if candidate.id in self.tried:
                continue
            if not self.affords(1, count):
                return
            self.measure(candidate, first=0, count=count)
            self.alive = self.survivors([candidate])

    def try_values(self) -> None:
        """Try each value of each tunable option on the leader, option by option."""
        count = min(self.size, self.space.prompts)
        for path, values in self.space.options:
            leader = self.leader()
            if path.startswith("speculation.") and leader.family != self.space.original.family:
                continue  # these options belong to the original method
            self.log(f"{path}: {', '.join(map(str, values))}")
            for value in values:
                settings = dict(leader.settings)
                settings.pop(path, None)
                settings[path] = value
                candidate = self.space.family(leader.family).candidate(leader.tokens, tuple(settings.items()))
                if candidate.id in self.tried:
                    continue
                if not self.affords(1, count):
                    return
                self.measure(candidate, first=0, count=count)
                self.alive = self.survivors([candidate])

    def play_off(self) -> None:
        """Measure the candidates close to the leader once more, on all prompts, if time allows."""
        for _ in range(_PLAYOFFS):
            near = self.near_leader(CLOSE)
            original = self.tried[self.space.original.id]
            close = near[:_PLAYERS]
            if original in near[_PLAYERS:]:
                close.append(original)
            # Use `fits` instead of `affords`: a repeated measurement that is skipped leaves nothing untried.
            if len(close) < 2 or not self.fits(len(close), self.space.prompts):
                return
            self.log(f"{len(close)} within {100 * (CLOSE - 1):.0f} % of each other, measured again")
            for record in close:
                self.measure(record.candidate, first=0, count=self.space.prompts)
            self.alive = self.survivors()

    def decide(self) -> tuple[Candidate, str]:
        """The winner and the reason.

        It is the original profile if that is as fast as the leader (`SAME`) and of another family. Else it is, of the
        candidates of the leader's family that are as fast, the one with the fewest changed options and then the
        smallest K.
        """
        equal = self.near_leader(SAME)  # the fastest first
        fastest = equal[0].candidate
        original = self.space.original
        percent = f"{100 * (SAME - 1):.0f} %"
        # So small a gain does not justify another method or draft.
        if any(record.candidate == original for record in equal) and original.family != fastest.family:
            return original, f"the profile as it stands, which is within {percent} of the fastest ({fastest.id})"
        same_family = [record.candidate for record in equal if record.candidate.family == fastest.family]
        winner = min(same_family, key=lambda candidate: (len(candidate.settings), candidate.tokens))
        if winner == fastest:
            return winner, "the fastest"
        return winner, f"within {percent} of the fastest ({fastest.id}), with fewer drafted tokens or fewer changes"

    def remeasure_original(self) -> bool:
        """Measure the original profile once more if the last two trials failed; return whether that was done.

        The host may be at fault and not the candidates. Raises DrafthouseError if the original profile fails too.
        """
        count = min(self.size, self.space.prompts)
        if self.failures < 2 or not self.fits(1, count):
            return False
        self.log("the last trials failed: measuring the profile as it stands again")
        self.measure(self.space.original, first=0, count=count)
        if self.tried[self.space.original.id].out:
            raise self.nothing_runs_error()
        return True

    def check_compared(self, winner: Candidate) -> None:
        """Raise DrafthouseError if the original wins only because all other candidates failed for one reason."""
        others = [record for record in self.tried.values() if record.candidate != self.space.original]
        # Mask numbers, since the same reason may name different seconds, ports or bytes.
        reasons = {re.sub(r"\d+(\.\d+)?", "#", record.out) for record in others}
        if winner != self.space.original or len(reasons) != 1 or not all(record.failed for record in others):
            return
        raise one_problem(
            "no-candidate-runs",
            f"nothing to compare the profile with: all {len(others)} candidates failed, "
            f"the last one with: {others[-1].out}",
            "at least one candidate that runs",
            f"check the log and fix what stops them; {ANEW}",
        )

    # --- under load ---------------------------------------------------------------------------------

    def measure_under_load(self, winner: Candidate) -> list[LoadedServer]:
        """Measure the original profile, the same server without speculation, and the best candidates under load.

        A server that fails is left out. Empty if the original profile is: the others are compared with it.
        """
        original = self.space.original
        arms = [(SPECULATIVE, candidate) for candidate in self.candidates_for_load(winner)]
        arms.insert(1, (BASELINE, original))
        loaded: list[LoadedServer] = []
        for arm, candidate in arms:
            if not self.fits(2, self.space.prompts):
                self.log("no time for more servers under load")
                break
            # Two starts: a lookup that has seen the answers would find them again.
            alone = self.load_trial(arm, candidate, streams=0)
            under_load = self.load_trial(arm, candidate, streams=self.space.load)
            if alone.status == under_load.status == OK:
                name = candidate.id if arm == SPECULATIVE else WITHOUT_SPECULATION
                loaded.append(loaded_server(name, alone, under_load))
            elif not loaded:
                break
        return loaded

    def candidates_for_load(self, winner: Candidate) -> list[Candidate]:
        """The original and the winner, then the fastest with other options and the smallest K, which wastes least."""
        chosen = [self.space.original, winner]
        ranking = [record.candidate for record in self.ranked(self.alive)]
        # Also a small K that was too slow for one user: under load it may be the best.
        of_family = []
        for record in self.tried.values():
            if record.candidate.family == winner.family and not record.failed:
                of_family.append(record.candidate)
        chosen.append(min(of_family, key=lambda candidate: candidate.tokens))
        options = [winner.settings]
        for candidate in ranking:
            if candidate.settings not in options:
                options.append(candidate.settings)
                chosen.append(candidate)
        by_id = {candidate.id: candidate for candidate in (*chosen, *ranking)}
        return list(by_id.values())[:_LOADED]

    def load_trial(self, arm: str, candidate: Candidate, *, streams: int) -> Outcome:
        """Measure an arm on all prompts of the search, with ``streams`` concurrent requests (0: the profile's)."""
        at = f"{streams} concurrent requests" if streams else "the profile's concurrency"
        self.log(f"for the plot under load, at {at}: {arm}, {candidate.id}")
        seconds = min(self.left_s, 3 * self.cost_s(self.space.prompts) + STOP_S)
        task = Task(
            candidate,
            arm,
            SEARCH,
            first=0,
            count=self.space.prompts,
            turn=0,  # which no trial of the search has
            seconds=seconds,
            streams=streams,
        )
        return self.run(task)

    # --- the final measurement ----------------------------------------------------------------------

    def confirm(self, winner: Candidate) -> tuple[dict[tuple[str, str], list[Outcome]], str]:
        """Measure baseline, winner and original profile on prompts that the search did not use, for 1 or 2 rounds.

        Returns the outcomes of complete rounds by (arm, candidate id), and "" or the reason why there is no such round.
        There is a second round if the time allows; it is dropped if a trial of it fails.
        """
        arms = [(BASELINE, winner), (SPECULATIVE, winner), (SPECULATIVE, self.space.original)]
        rounds: dict[tuple[str, str], list[Outcome]] = {}
        for round_number in (1, 2):
            begun_s = self.spent_s
            outcomes = {}
            for index, (arm, candidate) in enumerate(arms):
                self.log(f"round {round_number} on prompts the search did not see: {arm}, {candidate.id}")
                outcome = self.final_trial(arm, candidate, round_number, arms_left=len(arms) - index)
                if outcome.status != OK and rounds:
                    return rounds, ""
                if outcome.status != OK:
                    return {}, f"{arm}, {candidate.id}: {outcome.why or outcome.status}"
                outcomes[arm, candidate.id] = outcome
            for arm_and_candidate, outcome in outcomes.items():
                rounds.setdefault(arm_and_candidate, []).append(outcome)
            if CAUTION * (self.spent_s - begun_s) > self.budget_s - self.spent_s - RESERVE_S:
                break  # a second round, as long as the first, does not fit
            arms.reverse()  # so that a drift of the host's speed cancels out over two rounds
        return rounds, ""

    def final_trial(self, arm: str, candidate: Candidate, round_number: int, *, arms_left: int) -> Outcome:
        """Measure one of the last ``arms_left`` arms of a round; retry a failure once if the time allows."""
        count = self.space.final_prompts
        for attempt in (1, 2):
            task = Task(
                candidate,
                arm=arm,
                part=FINAL,
                count=count,
                turn=round_number,
                seconds=self.budget_s - self.spent_s - RESERVE_S,
                attempt=attempt,
            )
            outcome = self.run(task)
            if outcome.status == OK and len(outcome.tpot_ms) < count:
                outcome = Outcome(FAILED, why=f"only {len(outcome.tpot_ms)} of {count} answers have a time per token")
            # The time that this arm and those after it take, a third of a round each.
            retry_s = (arms_left * self.cost_s(0)) + self.final_s(1) * arms_left / 3
            if outcome.status != FAILED or self.budget_s - self.spent_s - RESERVE_S < retry_s:
                return outcome
        return outcome
