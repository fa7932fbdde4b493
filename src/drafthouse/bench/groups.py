"""Which prompts are asked in which groups of a step, and how each is asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from ..core.errors import DrafthouseError, Problem, did_you_mean
from ..prompts.prompt_plan import REPEATS, Asking, asked_in_round, ordered
from ..prompts.suites import Prompt, expand
from ..prompts.synthetic import REPEAT
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
    asking: Asking | None = None
    """Which prompts a round of an experiment asks; None: all of them, at every temperature."""


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
    """The name of a group: the kind, with the temperature when it is not 0."""
    return kind if temperature == 0 else f"{kind}@{temperature:g}"


def plan_groups(suites: Sequence[Suite], options: StepOptions) -> list[Group]:
    """The groups of a step in the order they are measured.

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
    groups: list[Group] = []
    for number in range(options.first_round, options.first_round + options.rounds):
        groups += _groups_of_round(chosen, options, number)
    return groups


def _groups_of_round(chosen: Mapping[str, Sequence[Prompt]], options: StepOptions, number: int) -> list[Group]:
    cells = _cells_of_round(chosen, options, number) if options.asking else _all_cells(chosen, options)
    asks = []
    for (temperature, _), prompts in cells.items():
        of_group = []
        for place, prompt in enumerate(prompts):
            of_group.append(_ask(prompt, options, number=number, place=place, temperature=temperature))
        asks.append(of_group)
    groups: list[Group] = []
    for (temperature, kind), marked in zip(cells, asking_token_ids(asks, options.token_ids), strict=True):
        at_once = _at_once(kind, chosen, options)
        groups.append(Group(group_key(kind, temperature), number, len(groups), marked, at_once))
    return groups


Cells = dict[tuple[float, str], list[Prompt]]
"""The prompts of each group by temperature and kind, in the order in which the groups are measured."""


def _all_cells(chosen: Mapping[str, Sequence[Prompt]], options: StepOptions) -> Cells:
    """Every prompt at each of its kind's temperatures.

    A kind may have temperatures of its own (1.2 for free writing), in place of the step's.
    """
    temperatures: dict[float, None] = {}
    for prompts in chosen.values():
        temperatures |= dict.fromkeys(_temperatures(prompts, options))
    cells: Cells = {}
    for temperature in temperatures:
        for kind, prompts in chosen.items():
            if temperature in _temperatures(prompts, options):
                cells[temperature, kind] = list(prompts)
    return cells


def _cells_of_round(chosen: Mapping[str, Sequence[Prompt]], options: StepOptions, number: int) -> Cells:
    """The prompts of a round of an experiment, in the first one those without a word before those that are timed."""
    asking = options.asking
    assert asking is not None
    declared = _declared(chosen, asking)
    cells: Cells = {}
    if number == 1:
        cells = _cells_beside(chosen, declared, options, asking.others)
    sizes, temperatures = {}, {}
    for kind in declared:
        sizes[kind] = len(chosen[kind])
        temperatures[kind] = _temperatures(chosen[kind], options)
    for timed in asked_in_round(ordered(sizes, temperatures), asking, number):
        cells.setdefault((timed.temperature, timed.kind), []).append(chosen[timed.kind][timed.place])
    return cells


def _cells_beside(
    chosen: Mapping[str, Sequence[Prompt]], declared: Sequence[str], options: StepOptions, others: int
) -> Cells:
    """The prompts of the kinds that the verdict is not about.

    A suite without a declared kind (gates, an article) is asked whole; of the other kinds beside a declared one
    ``others`` prompts, each once.
    """
    suites = {prompt.suite for kind in declared for prompt in chosen[kind]}
    whole, few = {}, {}
    for kind, prompts in chosen.items():
        if kind in declared:
            continue
        if any(prompt.suite in suites for prompt in prompts):
            few[kind] = prompts[:others]
        elif _is_repeated(prompts):
            few[kind] = prompts[:REPEATS]
        else:
            whole[kind] = prompts
    cells = _all_cells(whole, options)
    for kind, prompts in few.items():
        temperatures = _temperatures(prompts, options)
        for place, prompt in enumerate(prompts):
            cells.setdefault((temperatures[place % len(temperatures)], kind), []).append(prompt)
    return cells


def _declared(chosen: Mapping[str, Sequence[Prompt]], asking: Asking) -> list[str]:
    """The kinds that the verdict is about: those that are named, or all without a gate."""
    if asking.kinds:
        return [kind for kind in asking.kinds if kind in chosen]
    without_gate = []
    for kind, prompts in chosen.items():
        if not any(prompt.gate for prompt in prompts):
            without_gate.append(kind)
    return without_gate


def _is_repeated(prompts: Sequence[Prompt]) -> bool:
    """Whether a kind is one article's prompts, sent again and again."""
    return all(REPEAT in prompt.id for prompt in prompts)


def _temperatures(prompts: Sequence[Prompt], options: StepOptions) -> tuple[float, ...]:
    if not prompts:
        return options.temperatures
    return prompts[0].temperatures or options.temperatures


def _at_once(kind: str, chosen: Mapping[str, Sequence[Prompt]], options: StepOptions) -> int:
    """How many requests of a kind are under way at once.

    Its own number where it has one. In an experiment several where only a gate looks, and one of an article's prompt:
    the article sent one after the other, and its rows are compared with that.
    """
    prompts, asking = chosen[kind], options.asking
    if prompts and prompts[0].at_once:
        return prompts[0].at_once
    if asking is None:
        return options.concurrency
    gates = [prompt.gate for prompt in prompts]
    # Prompts that are asked again wait for each other: the second reads what the first left in the cache.
    if gates and all(gate and "again" not in gate for gate in gates):
        return max(options.concurrency, asking.gates_at_once)
    if _is_repeated(prompts) and kind not in _declared(chosen, asking):
        return 1
    return options.concurrency


def ask_fields(prompt: Prompt) -> PromptFields:
    """What a prompt says of its `Ask`; group, temperature, round and seed are the experiment's."""
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


def _ask(prompt: Prompt, options: StepOptions, *, number: int, place: int, temperature: float) -> Ask:
    seed = None
    if options.seed is not None:
        seed = options.seed + 10_000 * number + place
    return Ask(
        **ask_fields(prompt),
        group=group_key(prompt.kind, temperature),
        temperature=temperature,
        round=number,
        seed=seed,
        ignore_eos=options.ignore_eos,
    )
