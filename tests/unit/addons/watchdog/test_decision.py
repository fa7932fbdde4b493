"""The watchdog's decisions: what it does, and above all what it does not do."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import pytest

from drafthouse.addons.watchdog.decision import (
    HOLD,
    OFF,
    ON,
    TRIAL,
    Decision,
    Memory,
    Rules,
    Window,
    after_decision,
    decide,
    memory_of,
)
from drafthouse.analysis.break_even import Point

K = 4
#: Cheap alone, dear with eight at once.
POINTS = [Point(1, 0.1, 0.08, 0.12, 1000), Point(8, 0.4, 0.35, 0.45, 1000)]
RULES = Rules(look_s=60, patience_s=60, dwell_s=300, least_drafted=100, trial_after_s=3600, trial_at_most_s=20_000)


def traffic(rate: float, load: float = 1.0, seconds: float = 10.0, drafts: int = 50) -> Window:
    """Ten seconds of drafts in every step."""
    drafted = drafts * K
    accepted = round(drafted * rate)
    return Window(seconds, drafted, accepted, drafts, drafts + accepted, load)


GOOD, BAD = traffic(0.6), traffic(0.02)
IDLE, PLAIN = Window(10.0, drafts=0, tokens=0, load=0.0), Window(10.0, drafts=0, tokens=300, load=1.0)


class Run:
    """A watch whose decisions are carried out at once."""

    def __init__(self, rules: Rules = RULES, sees: bool = False, memory: Memory | None = None) -> None:
        self.rules, self.sees, self.memory = rules, sees, memory or Memory()
        self.decisions: list[Decision] = []
        self.changes: list[tuple[float, str]] = []

    def see(self, windows: Iterable[Window]) -> Decision:
        """Hand windows in, one after the other; while it is off nothing is drafted."""
        for window in windows:
            off = self.memory.phase == OFF and not self.sees
            seen = replace(window, drafted=0, accepted=0, drafts=0) if off else window
            self.memory, decision = decide(self.rules, POINTS, K, self.memory, seen, always_drafts=self.sees)
            self.decisions.append(decision)
            if decision.word != HOLD:
                if decision.word != ON:
                    self.changes.append((self.memory.clock_s, decision.word))
                # What is kept on the disk is what goes on.
                self.memory = memory_of(json.loads(json.dumps(asdict(after_decision(self.memory, decision)))))
        return self.decisions[-1]

    def words(self) -> list[str]:
        """What was decided beside holding still."""
        return [decision.word for decision in self.decisions if decision.word != HOLD]


def times(window: Window, seconds: float) -> list[Window]:
    return [window] * int(seconds / window.seconds)


def test_traffic_that_drafts_well_changes_nothing() -> None:
    run = Run()
    assert run.see(times(GOOD, 20_000)).code == "pays"
    assert run.words() == []


def test_traffic_that_does_not_is_switched_off_once_with_its_numbers() -> None:
    run = Run()
    run.see(times(GOOD, 1000))
    run.see(times(BAD, 600))
    assert run.words() == [OFF]
    (decision,) = [one for one in run.decisions if one.word == OFF]
    assert decision.code == "does_not_pay"
    numbers: Any = decision.numbers
    assert numbers["acceptance"] < numbers["break_even"] == pytest.approx(0.1)
    assert numbers["gain"] < 1
    assert (numbers["load"], numbers["load_measured"], numbers["phase"]) == (1.0, True, ON)
    assert "the acceptance rate 0.02 (break-even: 0.10)" in decision.why


def test_it_has_patience() -> None:
    run = Run()
    run.see(times(GOOD, 400))
    run.see(times(BAD, 50))
    run.see(times(GOOD, 400))
    assert run.words() == []


def test_drafts_that_are_counted_as_a_request_ends_belong_to_the_time_in_which_it_ran() -> None:
    """llama.cpp's counters stand still while a request runs."""
    run = Run()
    run.see(times(GOOD, 400))
    runs, ends = Window(10.0, drafts=0, tokens=0, load=1.0), traffic(0.02)
    run.see([runs, runs, runs, runs, ends] * 4)
    assert run.words() == [OFF]
    # Nor is a pause such a time.
    other = Run()
    other.see(times(GOOD, 400))
    other.see([IDLE, IDLE, IDLE, IDLE, ends] * 4)
    assert other.words() == []


def test_the_same_acceptance_pays_alone_and_not_in_a_crowd() -> None:
    alone, crowd = Run(), Run()
    alone.see(times(traffic(0.25, load=1), 2000))
    crowd.see(times(traffic(0.25, load=8), 2000))
    assert (alone.words(), crowd.words()[:1]) == ([], [OFF])


@pytest.mark.parametrize(
    ("windows", "code"),
    [
        (times(IDLE, 3000), "few"),
        (times(PLAIN, 3000), "few"),
        (times(traffic(0.0, drafts=1), 3000), "few"),
        ([Window(10.0, missing="no counters: HTTP 500")] * 300, "unknown"),
    ],
)
def test_what_says_nothing_decides_nothing(windows: list[Window], code: str) -> None:
    run = Run()
    run.see(times(BAD, 50))
    assert run.see(windows).code == code
    assert run.words() == []


def test_counters_that_began_anew_are_another_server_which_is_left_alone() -> None:
    run = Run()
    run.see(times(GOOD, 1000))
    run.see(times(BAD, 60))
    restarted = Window(10.0, restarted=True)
    assert run.see([restarted]).code == "restarted"
    run.see(times(BAD, 290))
    assert run.words() == []
    run.see(times(BAD, 100))
    assert run.words() == [OFF]


def test_between_the_two_bars_nothing_moves() -> None:
    """Four seconds in five below the lower bar and one between them: counted. One above the upper: not."""
    between, above = traffic(0.105), traffic(0.6, drafts=400)
    one, other = Run(replace(RULES, look_s=10)), Run(replace(RULES, look_s=10))
    one.see([*times(BAD, 50), between] * 20)
    other.see([*times(BAD, 50), above] * 20)
    assert (one.words()[:1], other.words()) == ([OFF], [])


def test_speculation_comes_back_after_a_trial_that_shows_it_pays() -> None:
    run = Run()
    run.see(times(BAD, 700))
    run.see(times(GOOD, 8000))
    assert run.words() == [OFF, TRIAL, ON]
    assert run.memory.failed_trials == 0
    trial = next(decision for decision in run.decisions if decision.word == TRIAL)
    assert trial.code == "time"


def test_a_trial_that_fails_ends_after_the_dwell_time_and_the_next_is_later() -> None:
    run = Run()
    run.see(times(BAD, 40_000))
    assert run.words()[:5] == [OFF, TRIAL, OFF, TRIAL, OFF]
    away = [later - at for (at, word), (later, _) in itertools.pairwise(run.changes) if word == OFF]
    assert away[0] == pytest.approx(3600, abs=20)
    assert away[1] == pytest.approx(7200, abs=20)
    assert max(away) <= 20_000 + 20


def test_a_trial_without_traffic_waits() -> None:
    run = Run()
    run.see(times(BAD, 700))
    assert run.see(times(IDLE, 8000)).code == "few"
    assert (run.memory.phase, run.words()) == (TRIAL, [OFF, TRIAL])


def test_when_the_load_falls_it_is_tried_before_its_time() -> None:
    run = Run()
    crowd, alone = traffic(0.25, load=8), traffic(0.25, load=1)
    run.see(times(crowd, 700))
    assert run.words() == [OFF]
    run.see(times(alone, 1000))
    assert run.words() == [OFF, TRIAL, ON]
    assert next(one for one in run.decisions if one.word == TRIAL).code == "load"


def test_where_it_is_only_watched_it_says_so_when_it_pays_again() -> None:
    run = Run(sees=True)
    run.see(times(BAD, 1000))
    run.see(times(GOOD, 1000))
    assert run.words() == [OFF, ON]


@pytest.mark.parametrize("period_s", [10, 60, 90, 200, 400, 900])
@pytest.mark.parametrize("sees", [False, True])
def test_a_flapping_input_does_not_flap_the_server(period_s: int, sees: bool) -> None:
    run = Run(sees=sees)
    run.see([*times(GOOD, period_s), *times(BAD, period_s)] * (20_000 // (2 * period_s)))
    check_dwell(run)


@pytest.mark.parametrize("seed", range(16))
def test_whatever_comes_there_is_at_most_one_change_in_a_dwell_time(seed: int) -> None:
    chance = random.Random(f"watchdog {seed}")
    rules = replace(RULES, dwell_s=chance.choice([30, 300, 1000]), trial_after_s=chance.choice([30, 600]))
    run = Run(rules, sees=bool(seed % 2))
    makers: list[Any] = [
        lambda: traffic(chance.random(), chance.uniform(0.5, 20), chance.uniform(1, 40), chance.randint(0, 400)),
        lambda: IDLE,
        lambda: Window(chance.uniform(0, 30), missing="nothing"),
        lambda: Window(5.0, 500, 0, None, None, None),
        lambda: Window(5.0, restarted=True) if chance.random() < 0.02 else GOOD,
    ]
    for _ in range(200):
        run.see([chance.choice(makers)() for _ in range(1)] * chance.randint(1, 30))
    check_dwell(run)


def check_dwell(run: Run) -> None:
    moments = [at for at, _ in run.changes]
    assert all(later - at >= run.rules.dwell_s for at, later in itertools.pairwise(moments)), run.changes
    assert not moments or moments[0] >= run.rules.dwell_s


def test_an_engine_that_counts_neither_drafts_nor_tokens_is_taken_to_draft_in_every_step() -> None:
    run = Run()
    run.see([Window(10.0, 200, 4, None, None, None)] * 60)
    assert run.words() == [OFF]


def test_a_broken_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="no phase"):
        memory_of({**asdict(Memory()), "phase": "sideways"})
    with pytest.raises((KeyError, TypeError)):
        memory_of({"phase": ON})
