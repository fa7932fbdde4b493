"""Plan a load sweep (ladder): its steps, their order and their requests.

The arms (baseline, speculative) take turns at every level and prompt kind, and alternate in who begins, so that a
drift of the machine affects both. Levels rise, so that a run that is stopped has the low levels complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...bench.chat_request import ChatRequest
from ...bench.groups import StepOptions, plan_groups
from ...core.format import shown_level
from ...prompts.contexts import at_contexts, base_kind, behind_a_logbook, kind_and_context
from ...prompts.load_levels import NARROW, SECONDS, UNITS
from ...prompts.suites import expand

if TYPE_CHECKING:
    from drafthouse.bench.sweep.ladder_types import Ladder
    from drafthouse.prompts.load_levels import PlannedLadder
    from drafthouse.prompts.suite_types import Message, Suite

SCHEMA = "drafthouse.ladder/1"


@dataclass(frozen=True)
class LadderPlan:
    """The plan of a ladder."""

    load: str  # "closed" or "open", which says what a level is (`level.LoadOptions`)
    levels: tuple[float, ...]
    kinds: tuple[str, ...]  # prompt kinds, possibly behind a context (`prompts/contexts.py`)
    rounds: tuple[int, ...] = (1,)  # the numbers of the rounds to measure now
    of_rounds: int = 1  # the number of all rounds
    seconds: float = SECONDS  # the longest duration of a step
    narrow: float | None = NARROW  # the precision that ends a step earlier (`level.LoadOptions`)
    limits: Mapping[str, float] = field(default_factory=dict)  # in ms, of a request that counts as goodput
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False
    timeout_s: float = 600.0  # of a request
    drain_s: float = 60.0  # for the running requests at the end of a step


@dataclass(frozen=True)
class Rung:
    """One step of a ladder: one arm at one load level with one prompt kind in one round."""

    level: float
    arm: str
    round: int
    kind: str

    @property
    def name(self) -> str:
        """The step's name for people."""
        return f"{shown_level(self.level)}, {self.kind}, {self.arm}, round {self.round}"


def plan_of(
    ladder: PlannedLadder,
    suites: Sequence[Suite],
    once: Sequence[str],
    rounds: Sequence[int],
    timeout_s: float,
) -> LadderPlan:
    """The plan of a resolved experiment's ladder.

    If the ladder names no kinds, it has all except those in ``once``: names of suites and of kinds that only the first
    round of the experiment sends. ``rounds`` are the numbers of those to measure now. ``timeout_s`` limits a request.
    """
    all_kinds = []
    for suite in suites:
        if suite["name"] not in once:
            all_kinds += [kind for kind in suite["kinds"] if kind not in once]
    return LadderPlan(
        load=ladder["load"],
        levels=tuple(ladder["levels"]),
        kinds=tuple(at_contexts(ladder["kinds"] or all_kinds, ladder.get("contexts", []))),
        rounds=tuple(rounds),
        of_rounds=ladder["rounds"],
        seconds=ladder["seconds"],
        narrow=ladder["narrow"],
        limits=ladder["limits"],
        timeout_s=timeout_s,
    )


def heading(plan: LadderPlan, profile: str | None, key: str) -> Ladder:
    """The content of ladder.json before any step is measured."""
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
    """The steps in the order in which they are measured."""
    steps = []
    for round_number in plan.rounds:
        for level_index, level in enumerate(plan.levels):
            for kind_index, kind in enumerate(plan.kinds):
                # Neighbouring steps and rounds begin with different arms.
                ordered_arms = arms if (level_index + kind_index + round_number) % 2 else arms[::-1]
                steps += [Rung(level, arm, round_number, kind) for arm in ordered_arms]
    return steps


def requests_by_kind(plan: LadderPlan, suites: Sequence[Suite]) -> dict[str, tuple[ChatRequest, ...]]:
    """The requests by prompt kind, one for each prompt.

    Raises DrafthouseError for a kind that no suite has.
    """
    wanted = set(map(base_kind, plan.kinds))
    reduced: list[Suite] = []
    for suite in suites:
        kinds = {kind: suite["kinds"][kind] for kind in expand(suite) if kind in wanted}
        reduced.append({**suite, "kinds": kinds})
    options = StepOptions(
        temperatures=(plan.temperature,), seed=plan.seed, ignore_eos=plan.ignore_eos, kinds=tuple(wanted)
    )
    requests: dict[str, tuple[ChatRequest, ...]] = {}
    for group in plan_groups(reduced, options):
        # A kind may set several temperatures; only its first group, at the first temperature, is used.
        if group.requests:
            requests.setdefault(group.requests[0].kind, group.requests)
    return {name: tuple(_at_context(requests, name)) for name in plan.kinds if base_kind(name) in requests}


def _at_context(requests: Mapping[str, Sequence[ChatRequest]], name: str) -> Iterator[ChatRequest]:
    """The requests of a kind of the plan; each behind another logbook, so that their texts do not repeat."""
    kind, tokens = kind_and_context(name)
    for seed, request in enumerate(requests[kind]):
        yield replace(request, kind=name, messages=behind_a_logbook(request.messages, tokens, seed))


def endless(requests: Sequence[ChatRequest], plan: LadderPlan, rung: Rung) -> Iterator[ChatRequest]:
    """The requests of a step: an endless cycle through the prompts in which no two requests are equal.

    Each round begins at another prompt, so that short steps do not always reach the same prompts. Both arms get
    identical requests.
    """
    first = (rung.round - 1) * len(requests) // plan.of_rounds  # index of the round's first prompt
    prefix = f"{rung.round}.{shown_level(rung.level)}.{plan.kinds.index(rung.kind)}"
    index = 0
    while True:
        request = requests[(first + index) % len(requests)]
        yield replace(
            request,
            messages=numbered(request.messages, f"{prefix}.{index}"),
            round=rung.round,
            seed=plan.seed + 10_000 * rung.round + index,
        )
        index += 1


def numbered(messages: Sequence[Message], number: str) -> list[Message]:
    """The messages with "[number] " before the first text; unchanged if the first message has no text.

    The same prompt is sent many times. With a unique beginning it is in no prefix cache, so TTFT stays that of a new
    prompt, as a user would send it.
    """
    first, *rest = messages
    content = first["content"]
    prefix = f"[{number}] "
    if isinstance(content, str):
        return [{**first, "content": prefix + content}, *rest]
    if isinstance(content, list):
        return [{**first, "content": [{"type": "text", "text": prefix}, *content]}, *rest]
    return list(messages)
