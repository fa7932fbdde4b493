"""Plan the requests of a step: which prompts are in which group, in which order, and with which parameters.

A declared kind of prompts is one that the verdict is about. A gate checks the answers to its prompts, not their speed.
Nothing here reads a file or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from ..core.errors import DrafthouseError, Problem, did_you_mean
from ..prompts.prompt_plan import REPEATS, Asking, prompt_order, round_prompts
from ..prompts.suites import Prompt, expand
from ..prompts.synthetic import REPEAT
from .chat_request import ChatRequest
from .output_scoring import asking_token_ids

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Gate, Message, RequestFields, ResponseFormat, Suite, Tool


class PromptFields(TypedDict):
    """The fields of a `ChatRequest`, where they are explained, that come from the prompt; see `request_fields`."""

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
    """The settings of a step."""

    concurrency: int = 1  # requests at once, unless the prompt kind sets another number
    rounds: int = 1  # how often the prompts are sent
    first_round: int = 1  # number of the step's first round; in an experiment each step is one round
    temperatures: tuple[float, ...] = (0.0,)  # unless the prompt kind sets others
    seed: int | None = 0  # from which each request's seed is made; None: the server chooses
    timeout_s: float = 600.0  # of a whole request
    warmups: int | None = None  # requests before the measurement; None: ``concurrency``
    ignore_eos: bool = False  # True: every answer has its maximum length
    kinds: tuple[str, ...] = ()  # the prompt kinds to send; empty: all
    token_ids: int = 0  # answers per round whose token ids are requested, so that the baseline can score them
    asking: Asking | None = None  # selects the prompts for a round of an experiment; None: all, at every temperature


@dataclass(frozen=True)
class Group:
    """Requests that are measured together: one prompt kind at one temperature in one round."""

    key: str  # from `group_key`
    round: int  # from 1
    place: int  # position of the group in its round, from 0
    requests: tuple[ChatRequest, ...]  # in the order of sending
    concurrency: int = 1  # requests at once


def group_key(kind: str, temperature: float) -> str:
    """The name of a group: the kind, with "@" and the temperature if that is not 0."""
    return kind if temperature == 0 else f"{kind}@{temperature:g}"


def plan_groups(suites: Sequence[Suite], options: StepOptions) -> list[Group]:
    """The groups of a step in the order in which they are measured.

    A request's seed depends on the round and its position in the group, not on the arm. So both arms sample with the
    same seeds, and no two requests of a group share one. Raises DrafthouseError for a kind that is in no suite or
    in two.
    """
    kinds = _prompts_by_kind(suites, options)
    chosen = {kind: prompts for kind, prompts in kinds.items() if not options.kinds or kind in options.kinds}
    groups: list[Group] = []
    for round_number in range(options.first_round, options.first_round + options.rounds):
        groups += _groups_of_round(chosen, options, round_number)
    return groups


def _prompts_by_kind(suites: Sequence[Suite], options: StepOptions) -> dict[str, list[Prompt]]:
    """The prompts of all suites by kind. Raises DrafthouseError as `plan_groups` does, with all problems at once."""
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
    return kinds


def _groups_of_round(chosen: Mapping[str, Sequence[Prompt]], options: StepOptions, round_number: int) -> list[Group]:
    """The groups of a round; ``chosen`` are the prompts of the kinds to send."""
    cells = _cells_of_round(chosen, options, round_number) if options.asking else _all_cells(chosen, options)
    requests_by_group = []
    for (temperature, _), prompts in cells.items():
        group_requests = []
        for index, prompt in enumerate(prompts):
            request = _request(prompt, options, round_number=round_number, index=index, temperature=temperature)
            group_requests.append(request)
        requests_by_group.append(group_requests)
    groups: list[Group] = []
    for (temperature, kind), with_ids in zip(
        cells, asking_token_ids(requests_by_group, options.token_ids), strict=True
    ):
        concurrency = _concurrency(kind, chosen, options)
        groups.append(Group(group_key(kind, temperature), round_number, len(groups), with_ids, concurrency))
    return groups


Cells = dict[tuple[float, str], list[Prompt]]
"""The prompts of each group, by (temperature, kind), in the order in which the groups are measured."""


def _all_cells(chosen: Mapping[str, Sequence[Prompt]], options: StepOptions) -> Cells:
    """Every prompt at each temperature of its kind.

    A kind may set temperatures (1.2 for free writing) that replace those of the step.
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


def _cells_of_round(chosen: Mapping[str, Sequence[Prompt]], options: StepOptions, round_number: int) -> Cells:
    """The prompts of an experiment's round; round 1 begins with the kinds that the verdict is not about."""
    asking = options.asking
    assert asking is not None  # the caller looked; for the type checker
    declared = _declared(chosen, asking)
    cells: Cells = {}
    if round_number == 1:
        cells = _undeclared_cells(chosen, declared, options, asking.others)
    sizes = {}  # number of prompts, by kind
    temperatures = {}  # by kind
    for kind in declared:
        sizes[kind] = len(chosen[kind])
        temperatures[kind] = _temperatures(chosen[kind], options)
    for timed in round_prompts(prompt_order(sizes, temperatures), asking, round_number):
        cells.setdefault((timed.temperature, timed.kind), []).append(chosen[timed.kind][timed.place])
    return cells


def _undeclared_cells(
    chosen: Mapping[str, Sequence[Prompt]], declared: Sequence[str], options: StepOptions, others: int
) -> Cells:
    """The prompts of the kinds that the verdict is not about (those not ``declared``), each prompt once.

    They only appear in the report, so few are enough:

    - a kind whose suite also has a declared kind: its first ``others`` prompts
    - a prompt of an article that its suite repeats: `REPEATS` times
    - all other kinds, which gates need completely: every prompt at every temperature
    """
    suites = {prompt.suite for kind in declared for prompt in chosen[kind]}
    unlimited = {}
    limited = {}
    for kind, prompts in chosen.items():
        if kind in declared:
            continue
        if any(prompt.suite in suites for prompt in prompts):
            limited[kind] = prompts[:others]
        elif _is_repeated(prompts):
            limited[kind] = prompts[:REPEATS]
        else:
            unlimited[kind] = prompts
    cells = _all_cells(unlimited, options)
    for kind, prompts in limited.items():
        temperatures = _temperatures(prompts, options)
        for index, prompt in enumerate(prompts):  # each prompt once: the temperatures take turns
            cells.setdefault((temperatures[index % len(temperatures)], kind), []).append(prompt)
    return cells


def _declared(chosen: Mapping[str, Sequence[Prompt]], asking: Asking) -> list[str]:
    """The kinds that the verdict is about: those that the profile declares, else all without a gate."""
    if asking.kinds:
        return [kind for kind in asking.kinds if kind in chosen]
    without_gate = []
    for kind, prompts in chosen.items():
        if not any(prompt.gate for prompt in prompts):
            without_gate.append(kind)
    return without_gate


def _is_repeated(prompts: Sequence[Prompt]) -> bool:
    """True if all prompts of a kind are repeats of an article's prompt."""
    return all(REPEAT in prompt.id for prompt in prompts)


def _temperatures(prompts: Sequence[Prompt], options: StepOptions) -> tuple[float, ...]:
    """The temperatures of a kind: its suite's, which all prompts of the kind share, else those of the step."""
    if not prompts:
        return options.temperatures
    return prompts[0].temperatures or options.temperatures


def _concurrency(kind: str, chosen: Mapping[str, Sequence[Prompt]], options: StepOptions) -> int:
    """The number of concurrent requests of a kind, by the first of these that applies.

    - the suite's number
    - outside an experiment: the step's number
    - a kind that only gates check: at least `gates_at_once`, because its speed is not measured
    - a repeated prompt of an article, unless declared: 1, as in the article with which it is compared
    - the step's number
    """
    prompts = chosen[kind]
    asking = options.asking
    if prompts and prompts[0].at_once:
        return prompts[0].at_once
    if asking is None:
        return options.concurrency
    gates = [prompt.gate for prompt in prompts]
    # A gate with "again" repeats a prompt to read it from the prefix cache, so its requests must not overlap.
    if gates and all(gate and "again" not in gate for gate in gates):
        return max(options.concurrency, asking.gates_at_once)
    if _is_repeated(prompts) and kind not in _declared(chosen, asking):
        return 1
    return options.concurrency


def request_fields(prompt: Prompt) -> PromptFields:
    """The fields of a `ChatRequest` that come from the prompt; its other fields come from the plan."""
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


def _request(prompt: Prompt, options: StepOptions, *, round_number: int, index: int, temperature: float) -> ChatRequest:
    """The request for a prompt; ``index`` is its position in the group, from 0."""
    seed = None
    if options.seed is not None:
        seed = options.seed + 10_000 * round_number + index  # no group has 10,000 requests: rounds share no seed
    return ChatRequest(
        **request_fields(prompt),
        group=group_key(prompt.kind, temperature),
        temperature=temperature,
        round=round_number,
        seed=seed,
        ignore_eos=options.ignore_eos,
    )
