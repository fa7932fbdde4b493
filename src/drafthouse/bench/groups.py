"""Which prompts are asked in which groups of a step, and how each is asked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from ..core.errors import DrafthouseError, Problem, did_you_mean
from ..prompts.suites import Prompt, expand
from .ask import Ask
from .output_scoring import asking_token_ids

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Gate, Message, RequestFields, ResponseFormat, Suite, Tool


class PromptFields(TypedDict):
    """What a prompt says of its `Ask`."""

    suite: str
    kind: str
    prompt_id: str
    messages: Sequence[Message]
    output_tokens: int
    tools: Sequence[Tool] | None
    response_format: ResponseFormat | None
    extra: RequestFields | None
    gate: Gate | None
    stream: bool


@dataclass(frozen=True)
class StepOptions:
    """How a step is measured. ``warmups`` None means one for each concurrent stream."""

    concurrency: int = 1
    rounds: int = 1
    first_round: int = 1
    """Number of the step's first round: an alternated experiment measures one round a step."""
    temperatures: tuple[float, ...] = (0.0,)
    seed: int | None = 0
    timeout_s: float = 600.0
    warmups: int | None = None
    ignore_eos: bool = False
    kinds: tuple[str, ...] = ()
    """Only these kinds of the suites; empty is all of them."""
    token_ids: int = 0
    """Of so many answers a round each server is asked for the token ids, so that the baseline can score them."""


@dataclass(frozen=True)
class Group:
    """Requests that are measured together: one kind at one temperature in one round."""

    key: str
    round: int
    place: int
    """Its place in the round, from 0."""
    asks: tuple[Ask, ...]
    concurrency: int = 1


def group_key(kind: str, temperature: float) -> str:
    """Return the name of a group: the kind, with the temperature when it is not 0."""
    return kind if temperature == 0 else f"{kind}@{temperature:g}"


def plan_groups(suites: Sequence[Suite], options: StepOptions) -> list[Group]:
    """Return the groups of a step in the order they are measured.

    A request's seed depends on the round and its place in the group and not on the arm, so both arms
    sample alike, and no two requests of an arm do. Raises DrafthouseError for a kind that is in no suite or
    in two.
    """
    kinds: dict[str, list[Prompt]] = {}
    problems: list[Problem] = []
    for suite in suites:
        for kind, prompts in expand(suite).items():
            if kind in kinds:
                problems.append(
                    Problem(
                        "duplicate-name",
                        f"the kind '{kind}' twice",
                        "each kind in one suite",
                        "choose one of the suites, or rename the kind",
                        f"suite {suite['name']}",
                    )
                )
            kinds[kind] = prompts
    for kind in options.kinds:
        if kind not in kinds:
            problems.append(
                Problem(
                    "no-such-category",
                    f"no kind '{kind}'",
                    f"one of: {', '.join(kinds)}",
                    did_you_mean(kind, kinds),
                    "kinds",
                )
            )
    if problems:
        raise DrafthouseError(problems)
    chosen = {kind: prompts for kind, prompts in kinds.items() if not options.kinds or kind in options.kinds}
    # A kind may have temperatures of its own (1.2 for free writing), in place of the step's.
    cells = [
        (temperature, kind)
        for temperature in dict.fromkeys(t for kind in chosen for t in _temperatures(chosen[kind], options))
        for kind in chosen
        if temperature in _temperatures(chosen[kind], options)
    ]
    groups = []
    for number in range(options.first_round, options.first_round + options.rounds):
        keys = [group_key(kind, temperature) for temperature, kind in cells]
        asks = [
            tuple(
                _ask(prompt, options, key=key, number=number, place=at, temperature=temperature)
                for at, prompt in enumerate(chosen[kind])
            )
            for key, (temperature, kind) in zip(keys, cells, strict=True)
        ]
        asks = asking_token_ids(asks, options.token_ids)
        groups += [
            Group(key, number, place, asks[place], _at_once(chosen[kind], options))
            for place, (key, (_, kind)) in enumerate(zip(keys, cells, strict=True))
        ]
    return groups


def _temperatures(prompts: Sequence[Prompt], options: StepOptions) -> tuple[float, ...]:
    return (prompts[0].temperatures if prompts else ()) or options.temperatures


def _at_once(prompts: Sequence[Prompt], options: StepOptions) -> int:
    return (prompts[0].at_once if prompts else 0) or options.concurrency


def ask_fields(prompt: Prompt) -> PromptFields:
    """Return what a prompt says of its `Ask`; group, temperature, round and seed are the experiment's."""
    return {
        "suite": prompt.suite,
        "kind": prompt.kind,
        "prompt_id": prompt.id,
        "messages": prompt.messages,
        "output_tokens": prompt.output_tokens,
        "tools": prompt.tools,
        "response_format": prompt.response_format,
        "extra": prompt.extra,
        "gate": prompt.gate,
        "stream": prompt.stream,
    }


def _ask(prompt: Prompt, options: StepOptions, *, key: str, number: int, place: int, temperature: float) -> Ask:
    return Ask(
        **ask_fields(prompt),
        group=key,
        temperature=temperature,
        round=number,
        seed=None if options.seed is None else options.seed + 10_000 * number + place,
        ignore_eos=options.ignore_eos,
    )
