"""What a load ladder sends and in which order. Pure.

The arms take turns at every level and kind, and the other one begins the next time, so that a drift of the
machine meets both. Levels go up: a run that is stopped has the low ones whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...bench.ask import Ask
from ...bench.groups import StepOptions, plan_groups
from ...core.format import shown_level
from ...prompts.load_levels import NARROW, SECONDS, UNITS
from ...prompts.suites import expand

if TYPE_CHECKING:
    from drafthouse.bench.sweep.ladder_types import Ladder
    from drafthouse.prompts.load_levels import PlannedLadder
    from drafthouse.prompts.suite_types import Message, Suite

SCHEMA = "drafthouse.ladder/1"


@dataclass(frozen=True)
class LadderPlan:
    """A ladder as it is measured. ``rounds`` are the numbers of those measured now, of ``of_rounds`` in all."""

    load: str
    levels: tuple[float, ...]
    kinds: tuple[str, ...]
    rounds: tuple[int, ...] = (1,)
    of_rounds: int = 1
    seconds: float = SECONDS
    narrow: float | None = NARROW
    limits: Mapping[str, float] = field(default_factory=dict)
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False
    timeout_s: float = 600.0
    drain_s: float = 60.0


@dataclass(frozen=True)
class Rung:
    """One step of a ladder: one arm, one level, one kind of work, one round."""

    level: float
    arm: str
    round: int
    kind: str

    @property
    def name(self) -> str:
        """The step as people read it."""
        return f"{shown_level(self.level)}, {self.kind}, {self.arm}, round {self.round}"


def plan_of(
    ladder: PlannedLadder,
    suites: Sequence[Suite],
    once: Sequence[str],
    rounds: Sequence[int],
    timeout_s: float,
) -> LadderPlan:
    """The plan for the ladder of a resolved experiment; no kinds means all but those asked ``once``."""
    every = []
    for suite in suites:
        if suite["name"] not in once:
            every += [kind for kind in suite["kinds"] if kind not in once]
    return LadderPlan(
        load=ladder["load"],
        levels=tuple(ladder["levels"]),
        kinds=tuple(ladder["kinds"] or every),
        rounds=tuple(rounds),
        of_rounds=ladder["rounds"],
        seconds=ladder["seconds"],
        narrow=ladder["narrow"],
        limits=ladder["limits"],
        timeout_s=timeout_s,
    )


def heading(plan: LadderPlan, profile: str | None, key: str) -> Ladder:
    """What stands at the head of ladder.json, before any step."""
    return {
        "schema": SCHEMA,
        "profile": profile,
        "key": key,
        "load": plan.load,
        "unit": UNITS[plan.load],
        "levels": list(plan.levels),
        "limits": {**plan.limits},
        "rounds": plan.of_rounds,
        "kinds": list(plan.kinds),
        "seconds": plan.seconds,
        "narrow": plan.narrow,
        "notes": [],
        "steps": [],
        "crossover": None,
    }


def rungs(plan: LadderPlan, arms: Sequence[str]) -> list[Rung]:
    """The steps in the order they are measured."""
    steps = []
    for number in plan.rounds:
        for high, level in enumerate(plan.levels):
            for place, kind in enumerate(plan.kinds):
                turn = arms if (high + place + number) % 2 else arms[::-1]
                steps += [Rung(level, arm, number, kind) for arm in turn]
    return steps


def asks_by_kind(plan: LadderPlan, suites: Sequence[Suite]) -> dict[str, tuple[Ask, ...]]:
    """The requests of each kind, once through its prompts.

    Raises DrafthouseError for a kind that no suite has.
    """
    wanted: list[Suite] = []
    for suite in suites:
        kinds = {kind: suite["kinds"][kind] for kind in expand(suite) if kind in plan.kinds}
        wanted.append({**suite, "kinds": kinds})
    options = StepOptions(
        temperatures=(plan.temperature,), seed=plan.seed, ignore_eos=plan.ignore_eos, kinds=plan.kinds
    )
    asks: dict[str, tuple[Ask, ...]] = {}
    for group in plan_groups(wanted, options):
        # A kind may have temperatures of its own: its first one.
        if group.asks:
            asks.setdefault(group.asks[0].kind, group.asks)
    return asks


def endless(asks: Sequence[Ask], plan: LadderPlan, rung: Rung) -> Iterator[Ask]:
    """The requests of a step without end: the prompts again and again, no two requests alike.

    A later round begins at another prompt, so that a step whose time is short does not always reach the same
    ones. The arm does not matter: both get the very same requests.
    """
    first = (rung.round - 1) * len(asks) // plan.of_rounds
    place = f"{rung.round}.{shown_level(rung.level)}.{plan.kinds.index(rung.kind)}"
    number = 0
    while True:
        ask = asks[(first + number) % len(asks)]
        yield replace(
            ask,
            messages=numbered(ask.messages, f"{place}.{number}"),
            round=rung.round,
            seed=plan.seed + 10_000 * rung.round + number,
        )
        number += 1


def numbered(messages: Sequence[Message], number: str) -> list[Message]:
    """The messages with a number before their first text.

    The same prompt is sent many times. Behind a beginning of its own no prefix cache has it, and the time to the
    first token stays that of a prompt which is new, as a user's is.
    """
    first, *others = messages
    content = first["content"]
    mark = f"[{number}] "
    if isinstance(content, str):
        return [{**first, "content": mark + content}, *others]
    if isinstance(content, list):
        return [{**first, "content": [{"type": "text", "text": mark}, *content]}, *others]
    return list(messages)
