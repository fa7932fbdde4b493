"""The search of the tuner: what is tried, in which order, on how many prompts, and what wins. Pure.

It starts nothing itself: a `Trial` does, and says how long it took. The clock of the search is the sum of these
times, so the same outcomes lead to the same decisions, which is how a search that was killed goes on from its
journal. The way (docs/tune.md says it for people):

1. the profile as it stands, which shows what a trial costs here;
2. successive halving over methods, drafts and a coarse row of K: all on a few prompts, the better half on as many
   more, and so on (Jamieson and Talwalkar 2016, "Non-stochastic Best Arm Identification");
3. between the leader's K and its tried neighbours, until nothing is; what step 2 had no time for; tunable options;
4. those close to the leader once more; the decision; the re-measurement on prompts that the search never saw.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import zip_longest

from ..core.errors import one_problem
from .paired_stats import SAME, Tried
from .tries import ALL, ANEW, CAUTION, RESERVE_S, TIME, Say, Tries
from .types import BASELINE, FAILED, FINAL, OK, SPECULATIVE, Candidate, Outcome, Space, Task, Trial

#: Those this near are measured once more before the decision.
CLOSE = 1.04

_RUNGS = 3
# Of the time that the search has, how much goes into the coarse halving.
_COARSE_SHARE = 0.6
# How often those close to the leader are measured once more, and how many of them.
_PLAYOFFS, _PLAYERS = 2, 3


@dataclass
class Found:
    """What a search found.

    ``final`` holds the outcomes of the re-measurement, one a round, by arm and candidate's id; ``unconfirmed`` says
    why there is none, where the winner is not the profile as it stands. ``ended`` is `ALL` or `TIME`.
    """

    own: Candidate
    winner: Candidate
    why: str
    tried: list[Tried]
    ended: str
    spent_s: float
    final: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)
    unconfirmed: str = ""


def tune(space: Space, trial: Trial, budget_s: float, say: Say = lambda text: None) -> Found:
    """Search ``space`` within ``budget_s`` seconds and return what was found.

    ``say`` gets a line for each phase and each trial. Raises DrafthouseError when the profile's own settings do not
    run, when nothing runs any more, when all that was set beside the profile failed for one reason, or when the budget
    is too short to try anything beside it.
    """
    search = _Search(space, trial, budget_s, say)
    search.begin()
    search.halve()
    search.refine()
    search.go_on()
    search.vary()
    search.play_off()
    winner, why = search.decide()
    if winner == space.own and search.look_again():
        winner, why = search.decide()
    search.check_compared(winner)
    say(f"chosen: {winner.id}, {why}")
    if winner == space.own:
        return Found(space.own, winner, why, list(search.tried.values()), search.ended, search.spent_s)
    final, unconfirmed = search.confirm(winner)
    tried = list(search.tried.values())
    return Found(space.own, winner, why, tried, search.ended, search.spent_s, final, unconfirmed)


def middle(low: int, high: int) -> int:
    """The K between two, as many times the lower one as the higher one is of it; ``low`` where there is none."""
    if high - low <= 1:
        return low
    return min(max(round(math.sqrt(max(low, 1) * high)), low + 1), high - 1)


class _Search(Tries):
    """A search while it runs."""

    # --- the phases -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Measure the profile as it stands. Raises DrafthouseError when that fails, or shows the budget too short."""
        outcome = self.measure(self.space.own, 0, self.size, self.budget_s - RESERVE_S)
        own = self.tried[self.space.own.id]
        if own.out:
            raise one_problem(
                "no-candidate-runs",
                f"the profile as it stands ({own.candidate.id}) could not be measured: {own.out}",
                "a profile that runs, and a budget long enough to start it and get answers",
                "run it alone first (make with its name), or give a larger BUDGET; the same command retries "
                f"while there is time, and {ANEW}",
            )
        self.answer_s = outcome.measured_s / self.size
        self.alive = [own]
        needed_s = self.spent_s + RESERVE_S + self.cost_s(self.size) + self.final_s(1)
        if needed_s > self.budget_s:
            raise one_problem(
                "budget-too-small",
                f"a budget of {self.budget_s:.0f} s, of which the profile as it stands took {self.spent_s:.0f} s",
                f"{needed_s:.0f} s or more: one more candidate, and three arms measured again at the end",
                f"give BUDGET={math.ceil(2 * needed_s / 60)}m, which is enough for several",
            )

    def coarse(self) -> list[Candidate]:
        """Every family's first K and the powers of two around it, the families in turns."""
        rows = [family.row() for family in self.space.families]
        rows[0].pop(0)  # the profile as it stands is measured already
        candidates: list[Candidate] = []
        for turn in zip_longest(*rows):
            candidates += filter(None, turn)
        return candidates

    def halve(self) -> None:
        """Try as many of the coarse row as time allows, then the better half on more prompts, and so on."""
        row = self.coarse()
        number = self.fitting(len(row))
        if number < len(row):
            self.ended = TIME
        self.say(f"{number} of {len(row)} candidates on {self.size} prompts each")
        for candidate in row[:number]:
            if self.dead(candidate.family):
                continue
            if not self.affords(1, self.size):
                return
            self.measure(candidate, 0, self.size)
            self.alive = self.still_in([candidate])
        for _ in range(1, _RUNGS):
            self.alive = self.better_half()
            more = min(self.size, self.space.prompts)
            if len(self.alive) <= 2 or not self.affords(len(self.alive), more):
                return
            self.say(f"the better {len(self.alive)} on {more} more prompts")
            for known in list(self.alive):
                self.measure(known.candidate, self.size, more)
            self.alive = self.still_in()
            self.size += more

    def better_half(self) -> list[Tried]:
        """The faster half, two at least; the profile as it stands too, as long as it is close to the fastest."""
        half = self.ranked(self.alive)[: max(2, math.ceil(len(self.alive) / 2))]
        own = self.tried[self.space.own.id]
        if own in half or own not in self.near(CLOSE):
            return half
        return [*half, own]

    def dead(self, family: str) -> bool:
        """Tell whether two candidates of a family brought not one answer, and none of them did."""
        own = [known for known in self.tried.values() if known.candidate.family == family]
        return len(own) >= 2 and not any(known.tpot_ms for known in own)

    def fitting(self, most: int) -> int:
        """How many candidates, ``most`` at most, can go through the halving in its share of the time."""
        time_s = _COARSE_SHARE * self.left_s
        for number in range(most, 1, -1):
            rungs = [
                (number, self.size),
                (math.ceil((number + 1) / 2), self.size),
                (math.ceil(number / 4), 2 * self.size),
            ]
            if sum(trials * self.cost_s(answers) for trials, answers in rungs) <= time_s:
                return number
        return min(1, most)

    def refine(self) -> None:
        """Try what lies between the leader's K and its tried neighbours, until nothing does."""
        count = min(self.size, self.space.prompts)
        while between := self.between(self.ranked(self.alive)[0].candidate):
            self.say(f"around {self.ranked(self.alive)[0].candidate.id}")
            for candidate in between:
                if not self.affords(1, count):
                    self.unrefined = True
                    return
                self.measure(candidate, 0, count)
            self.alive = self.still_in(between)
        self.unrefined = False

    def go_on(self) -> None:
        """Try what the halving had no time for, one by one; where a new leader appears, what lies around it too."""
        count = min(self.size, self.space.prompts)
        for candidate in self.coarse():
            if candidate.id in self.tried or self.dead(candidate.family):
                continue
            if not self.affords(1, count):
                return
            self.measure(candidate, 0, count)
            self.alive = self.still_in([candidate])
            if self.ranked(self.alive)[0].candidate == candidate:
                self.refine()
        self.ended = TIME if self.unrefined else ALL

    def between(self, leader: Candidate) -> list[Candidate]:
        """The middle of the gap below the leader's K and of the one above, where there is one to try.

        Where the gaps are a quarter of K or less and both neighbours are as fast as the leader there is nothing to
        gain between them.
        """
        family = self.space.family(leader.family)
        known = {
            tried.candidate.tokens: tried
            for tried in self.tried.values()
            if (tried.candidate.family, tried.candidate.settings) == (leader.family, leader.settings)
        }
        below, above = family.tokens[0] - 1, family.tokens[-1] + 1
        for tokens in known:
            if below < tokens < leader.tokens:
                below = tokens
            elif leader.tokens < tokens < above:
                above = tokens
        if 2 * (above - below) <= leader.tokens:
            flat = self.near(SAME)
            if known.get(below) in flat and known.get(above) in flat:
                return []
        middles = (middle(below, leader.tokens), middle(leader.tokens, above))
        return [family.candidate(k, leader.settings) for k in middles if k in family.tokens and k not in known]

    def vary(self) -> None:
        """Try the values of each tunable option on the leader, one option after the other."""
        count = min(self.size, self.space.prompts)
        for path, values in self.space.options:
            leader = self.ranked(self.alive)[0].candidate
            if path.startswith("speculation.") and leader.family != self.space.own.family:
                continue  # the options of another method
            self.say(f"{path}: {', '.join(map(str, values))}")
            for value in values:
                settings = dict(leader.settings)
                settings.pop(path, None)
                settings[path] = value
                candidate = self.space.family(leader.family).candidate(leader.tokens, tuple(settings.items()))
                if not self.affords(1, count):
                    return
                self.measure(candidate, 0, count)
                self.alive = self.still_in([candidate])

    def play_off(self) -> None:
        """Measure those close to the leader once more, on all prompts, where time allows."""
        for _ in range(_PLAYOFFS):
            near = self.near(CLOSE)
            own = self.tried[self.space.own.id]
            close = near[:_PLAYERS]
            if own in near[_PLAYERS:]:
                close.append(own)
            # Measuring once more tries nothing new: without the time for it nothing is left untried.
            if len(close) < 2 or not self.fits(len(close), self.space.prompts):
                return
            self.say(f"{len(close)} within {100 * (CLOSE - 1):.0f} % of each other, measured again")
            for known in close:
                self.measure(known.candidate, 0, self.space.prompts)
            self.alive = self.still_in()

    def decide(self) -> tuple[Candidate, str]:
        """The winner and why: of those as fast as the fastest, the profile's own or the smallest change."""
        equal = self.near(SAME)
        best, own = equal[0].candidate, self.space.own
        percent = f"{100 * (SAME - 1):.0f} %"
        if any(known.candidate == own for known in equal) and own.family != best.family:
            return own, f"the profile as it stands, which is within {percent} of the fastest ({best.id})"
        alike = [known.candidate for known in equal if known.candidate.family == best.family]
        winner = min(alike, key=lambda candidate: (len(candidate.settings), candidate.tokens))
        if winner == best:
            return winner, "the fastest"
        return winner, f"within {percent} of the fastest ({best.id}), with fewer drafted tokens or fewer changes"

    def look_again(self) -> bool:
        """Measure the profile as it stands once more where the last trials failed; return whether that was done.

        It may be the box that no longer runs anything, and not they. Raises DrafthouseError where it fails too.
        """
        count = min(self.size, self.space.prompts)
        if self.failures < 2 or not self.fits(1, count):
            return False
        self.say("the last trials failed: measuring the profile as it stands again")
        self.measure(self.space.own, 0, count)
        if self.tried[self.space.own.id].out:
            raise self.nothing_runs()
        return True

    def check_compared(self, winner: Candidate) -> None:
        """Raise DrafthouseError where the profile as it stands wins because everything else failed, and all alike."""
        others = [known for known in self.tried.values() if known.candidate != self.space.own]
        # Numbers may differ in one and the same reason: seconds, ports, bytes.
        reasons = {re.sub(r"\d+(\.\d+)?", "#", known.out) for known in others}
        if winner != self.space.own or len(reasons) != 1 or not all(known.failed for known in others):
            return
        raise one_problem(
            "no-candidate-runs",
            f"nothing to compare the profile with: all {len(others)} candidates failed, "
            f"the last one with: {others[-1].out}",
            "at least one candidate that runs",
            f"check the log and fix what stops them; {ANEW}",
        )

    # --- the re-measurement -----------------------------------------------------------------------

    def confirm(self, winner: Candidate) -> tuple[dict[tuple[str, str], list[Outcome]], str]:
        """Measure baseline, winner and the profile as it stands on the prompts that the search never saw.

        Returns the outcomes of whole rounds by arm and candidate's id, and why there is none where there is none.
        """
        arms = [(BASELINE, winner), (SPECULATIVE, winner), (SPECULATIVE, self.space.own)]
        kept: dict[tuple[str, str], list[Outcome]] = {}
        for number in (1, 2):
            begun_s = self.spent_s
            outcomes = {}
            for place, (arm, candidate) in enumerate(arms):
                self.say(f"round {number} on prompts the search did not see: {arm}, {candidate.id}")
                outcome = self.final_trial(arm, candidate, number, len(arms) - place)
                if outcome.status != OK and kept:
                    return kept, ""
                if outcome.status != OK:
                    return {}, f"{arm}, {candidate.id}: {outcome.why or outcome.status}"
                outcomes[arm, candidate.id] = outcome
            for key, outcome in outcomes.items():
                kept.setdefault(key, []).append(outcome)
            if CAUTION * (self.spent_s - begun_s) > self.budget_s - self.spent_s - RESERVE_S:
                break
            arms.reverse()  # the second round goes backwards
        return kept, ""

    def final_trial(self, arm: str, candidate: Candidate, number: int, arms_left: int) -> Outcome:
        """Measure one arm of the re-measurement; an engine that died is started once more where time allows."""
        for attempt in (1, 2):
            seconds = self.budget_s - self.spent_s - RESERVE_S
            count = self.space.final_prompts
            outcome = self.run(Task(candidate, arm, FINAL, 0, count, number, {}, seconds, attempt))
            if outcome.status == OK and len(outcome.tpot_ms) < count:
                outcome = Outcome(FAILED, why=f"only {len(outcome.tpot_ms)} of {count} answers have a time per token")
            again_s = (arms_left * self.cost_s(0)) + self.final_s(1) * arms_left / 3
            if outcome.status != FAILED or self.budget_s - self.spent_s - RESERVE_S < again_s:
                return outcome
        return outcome
