"""Validate suites of prompts and expand them into the prompts to send. `loader.py` reads the files.

A suite is plain data: a name, a description, and kinds (categories) of prompts, each with an output length and its
prompts (OpenAI messages). `repeat: 10` on a kind sends its prompts ten times; `made:` instead of prompts generates
short ones (`synthetic.py`); `long:` on a prompt generates a long text in it (`long_context.py`). Tools, response
formats and other fields of a prompt are in `checks.py`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ..core.errors import DrafthouseError, Problem, did_you_mean, first_few, one_problem
from ..core.schema import Findings, Map, Table, Value, check, check_keys
from ..core.typed_shape import shape_of
from .checks import AGAIN, SLOTS, STREAMS, TALK, check_expect, check_request_fields, gate_of, with_kind_fields
from .conversation import talk_prompts
from .long_context import check_long
from .more_prompts import MORE_FORMS, add_synthetic
from .suite_types import Kind
from .synthetic import REPEAT, made_prompts

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import (
        Again,
        Gate,
        Message,
        PromptEntry,
        RequestFields,
        ResponseFormat,
        Suite,
        Tool,
    )

#: Values of a kind's `needs:`, and the engine option that a server needs for each (`profiles/workspace.py`).
NEEDS = {"thinking": "reasoning_parser", "tools": "tool_call_parser"}
# The shape of a kind. `suite_types.py` cannot name the values of `more`, because `more_prompts.py` depends on it.
_KIND = Map({**shape_of(Kind).fields, "more": Value(choices=MORE_FORMS)})
_SUITE = Map(
    {
        "name": Value(required=True),
        "description": Value(required=True),
        "kinds": Table(_KIND, required=True),
    }
)


@dataclass(frozen=True)
class Prompt:
    """A prompt to send once: `repeat` is already expanded, and the fields of its kind are filled in."""

    suite: str  # the suite's name
    kind: str
    id: str  # a repeat ends in "#" and its number
    messages: Sequence[Message]
    output_tokens: int  # the output length, a limit
    tools: Sequence[Tool] | None = None
    response_format: ResponseFormat | None = None
    extra: RequestFields | None = None  # further fields of the request
    gate: Gate | None = None  # the check of the answer; None: any answer is right
    temperatures: tuple[float, ...] = ()  # those of its kind; empty: those of the experiment
    at_once: int = 0  # concurrent requests of its kind; 0: the concurrency of the experiment
    stream: bool = True  # False: the answer comes in one piece


def check_suite(data: object, where: str) -> Suite:
    """``data`` as a suite, with the prompts of `made:` and `talk:` generated.

    Raises DrafthouseError with all problems: unknown keys, empty lists, an id with a `#`, two prompts with one id, two
    equal prompts (which favour an engine that remembers answers; `repeat` would show them in the report).
    """
    findings = Findings(where)
    if check(data, _SUITE, findings):
        suite = cast("Suite", data)
        if not suite["kinds"]:
            findings.add("no-prompts", "kinds", "no kinds", "one kind of work or more", "add one with its prompts")
        problems_before = len(findings.problems)
        kinds = {kind: _with_prompts(kind, entry, findings) for kind, entry in suite["kinds"].items()}
        for kind, entry in kinds.items():
            _check_kind(entry, f"kinds.{kind}", findings)
        if len(findings.problems) == problems_before:
            _check_distinct(kinds, findings)
            suite = {**suite, "kinds": kinds}
    if findings.problems:
        raise DrafthouseError(first_few(findings.problems, where))
    return suite


def _with_prompts(kind: str, entry: Kind, findings: Findings) -> Kind:
    """A kind with its own prompts, or with those generated for its `made:` or `talk:`.

    Adds a problem, and gives the kind no prompts if it has none, for several of these keys, none, or an empty list.
    """
    path = f"kinds.{kind}"
    sources = [key for key in ("made", "talk", "prompts") if key in entry]
    if len(sources) > 1:
        both = f"'{sources[0]}' beside '{sources[1]}'"
        findings.add("conflicting-keys", f"{path}.{sources[0]}", both, "one of them", "keep one, or make two kinds")
    elif "talk" in entry:
        talked: Kind = {**entry, "prompts": talk_prompts(kind, entry["talk"], findings, f"{path}.talk")}
        del talked["talk"]
        return talked
    elif "made" in entry:
        made = made_prompts(kind, entry["made"], findings, f"{path}.made")
        generated: Kind = {"more": entry["made"]["form"], **entry, "prompts": made}
        del generated["made"]
        return generated
    elif "prompts" not in entry:
        findings.add("missing-key", f"{path}.prompts", "nothing", "the key 'prompts'", "add 'prompts:' here")
    elif not entry["prompts"]:
        findings.add(
            "empty-value",
            f"{path}.prompts",
            "an empty list",
            "one prompt or more",
            "add a prompt with an id and messages",
        )
    return {"prompts": [], **entry}


def _check_kind(entry: Kind, path: str, findings: Findings) -> None:
    """Add to ``findings`` the problems of a kind's fields and of each of its prompts."""
    check_request_fields(entry, findings, path)
    for index, prompt in enumerate(entry["prompts"]):
        place = f"{path}.prompts[{index}]"
        check_id(prompt["id"], findings, place)
        check_messages(prompt["messages"], f"{place}.messages", findings)
        problems_before = len(findings.problems)
        check_request_fields(prompt, findings, place)
        if len(findings.problems) == problems_before:
            check_expect(with_kind_fields(entry, prompt), findings, place)
        check_long(prompt, findings, place)


def check_id(prompt_id: str, findings: Findings, path: str) -> None:
    """Add a problem for an id with a `#`, which marks repeats (`expand`): two prompts would count as one."""
    if REPEAT in prompt_id:
        plain = prompt_id.replace(REPEAT, "-")
        findings.add(
            "reserved-name",
            f"{path}.id",
            f"'{prompt_id}'",
            f"an id without '{REPEAT}', which marks repeats",
            f"write '{plain}'",
        )


def check_messages(messages: Sequence[Message], path: str, findings: Findings) -> None:
    """Add a problem for each message without text, parts or tool calls, and one for an empty list."""
    if not messages:
        findings.add("empty-value", path, "an empty list", "one message or more", "add {role: user, content: ...}")
    for index, message in enumerate(messages):
        content = message["content"]
        check_keys(content, findings, f"{path}[{index}].content")
        check_keys(message.get("tool_calls"), findings, f"{path}[{index}].tool_calls")
        # An assistant message that only calls tools has no content.
        if message.get("tool_calls") and content is None:
            continue
        if not isinstance(content, (str, list)) or not content:
            findings.add(
                "wrong-type",
                f"{path}[{index}].content",
                short_json(content),
                "text, or a list of parts",
                "write the text",
            )


def _check_distinct(kinds: Mapping[str, Kind], findings: Findings) -> None:
    """Add a problem for each prompt whose id or messages an earlier prompt has."""
    path_by_id: dict[str, str] = {}
    path_by_text: dict[str, str] = {}
    for kind, entry in kinds.items():
        for index, prompt in enumerate(entry["prompts"]):
            path = f"kinds.{kind}.prompts[{index}]"
            if prompt["id"] in path_by_id:
                findings.add(
                    "duplicate-name",
                    f"{path}.id",
                    f"'{prompt['id']}' again",
                    f"another id than {path_by_id[prompt['id']]}",
                    "rename one",
                )
            path_by_id.setdefault(prompt["id"], path)
            text = json.dumps(prompt["messages"], sort_keys=True, default=str)
            if text in path_by_text:
                findings.add(
                    "duplicate-prompt",
                    f"{path}.messages",
                    f"the same messages as {path_by_text[text]}",
                    "prompts that differ",
                    "write another prompt, or 'repeat:' on the kind",
                )
            path_by_text.setdefault(text, path)


def expand(suite: Suite) -> dict[str, list[Prompt]]:
    """The prompts of each kind in order; repeats have the ids `id#1`, `id#2`, ..."""
    prompts = {}
    for kind, entry in suite["kinds"].items():
        prompts[kind] = [_prompt(suite["name"], kind, entry, prompt, number) for prompt, number in _repeats(entry)]
    return prompts


def _repeats(entry: Kind) -> list[tuple[PromptEntry, int]]:
    """The prompts of a kind in the order they are sent, each with the number of its repeat (0: not repeated).

    With `again` the repeats of a prompt follow each other, so that they find its prefix in the cache or run beside it.
    """
    again = entry.get("again")
    repeat = entry.get("repeat", 1)
    if again:
        repeat = entry.get("repeat", AGAIN[again])
    if repeat == 1:
        return [(prompt, 0) for prompt in entry["prompts"]]
    repeat_numbers = range(1, repeat + 1)
    if again:
        return list(itertools.product(entry["prompts"], repeat_numbers))
    return [(prompt, number) for number in repeat_numbers for prompt in entry["prompts"]]


def _prompt(suite: str, kind: str, entry: Kind, prompt: PromptEntry, repeat_number: int) -> Prompt:
    """The prompt to send for a suite's prompt; ``repeat_number`` is 0 if it is not repeated."""
    ask = with_kind_fields(entry, prompt)
    again = entry.get("again")
    at_once = 0
    if again == SLOTS:
        at_once = entry.get("repeat", AGAIN[SLOTS])
    elif again:
        # Sequential: the first request must fill the prefix cache before the second is sent.
        at_once = 1
    is_streamed = not (again == STREAMS and repeat_number and repeat_number % 2 == 0)  # every second repeat is not
    prompt_id = prompt["id"]
    if repeat_number:
        prompt_id += f"{REPEAT}{repeat_number}"
    return Prompt(
        suite=suite,
        kind=kind,
        id=prompt_id,
        messages=prompt["messages"],
        output_tokens=prompt.get("output_tokens", entry["output_tokens"]),
        tools=ask.get("tools"),
        response_format=ask.get("response_format"),
        extra=ask.get("request"),
        gate=_gate(ask, again),
        temperatures=tuple(map(float, entry.get("temperatures") or ())),
        at_once=at_once,
        stream=is_streamed,
    )


def _gate(ask: PromptEntry, again: Again | None) -> Gate | None:
    """The gate of a prompt: a check of each answer, a comparison of repeats, a conversation's mark, or None."""
    gate = gate_of(ask)
    if again:
        return {**(gate or {"name": again}), "again": again}
    if gate is None and "talk" in ask:
        return {"name": TALK}
    return gate


def prompt_hashes(suites: Iterable[Suite]) -> dict[str, dict[str, str]]:
    """A short hash of each prompt, by kind, then by id, which a report has instead of the text.

    It covers what is sent: the messages, the output length, tools, the response format and further fields of the
    request. It does not cover the expected answer.
    """
    hashes = {}
    for suite in suites:
        for kind, prompts in expand(suite).items():
            hashes[kind] = {prompt.id: _hash(prompt) for prompt in prompts}
    return hashes


def _hash(prompt: Prompt) -> str:
    """The first 12 hex digits of the SHA-256 of what is sent."""
    sent = [prompt.messages, prompt.output_tokens, prompt.tools, prompt.response_format, prompt.extra]
    return hashlib.sha256(json.dumps(sent, sort_keys=True, default=str).encode()).hexdigest()[:12]


def pick(suite: Suite, number: int, seed: int = 0) -> Suite:
    """A suite with one kind, named like the suite, of ``number`` prompts taken evenly from the suite's kinds.

    This sends a mixture of kinds in one closed loop, at the experiment's temperatures. If the suite has fewer prompts,
    synthetic ones of each kind's form (`more:`) are added, chosen by ``seed``, and the suite's "notes" say how many.
    Raises DrafthouseError if these are too few as well.
    """
    kinds: dict[str, list[PromptEntry]] = {}
    for kind, prompts in expand(suite).items():
        kinds[kind] = []
        for prompt, (entry, _) in zip(prompts, _repeats(suite["kinds"][kind]), strict=True):
            kinds[kind].append({**entry, "id": prompt.id, "output_tokens": prompt.output_tokens})
    own_total = sum(map(len, kinds.values()))
    forms = {kind: entry["more"] for kind, entry in suite["kinds"].items() if "more" in entry}
    added = add_synthetic(kinds, forms, number, seed)
    total = own_total + sum(added.values())
    if number > total:
        more = "as many as the suite and its synthetic prompts are" if added else "as many as the suite has"
        raise one_problem(
            "too-few-prompts",
            f"{number} prompts asked for",
            f"{total} or fewer, {more}: repeated prompts favour some engines",
            "request fewer prompts or more rounds, or use a suite with more prompts",
            f"suite {suite['name']}",
        )
    mixed = _interleaved(suite, kinds)[:number]
    all_in_one: Kind = {"output_tokens": mixed[0]["output_tokens"], "prompts": mixed}
    picked: Suite = {**suite, "kinds": {suite["name"]: all_in_one}}
    if added:
        each = ", ".join(f"{kind} {count}" for kind, count in added.items())
        note = (
            f"{sum(added.values())} of the {number} prompts are synthetic (seed {seed}), since the suite "
            f"'{suite['name']}' has {own_total}: {each}"
        )
        picked["notes"] = [*suite.get("notes", []), note]
    return picked


def _interleaved(suite: Suite, kinds: Mapping[str, Sequence[PromptEntry]]) -> list[PromptEntry]:
    """The prompts of all kinds, first the first of each kind, with the fields of their kinds filled in."""
    mixed: list[PromptEntry] = []
    for index in range(max(map(len, kinds.values()))):
        for kind, entries in kinds.items():
            if index < len(entries):
                of_kind = suite["kinds"][kind]
                mixed.append({"output_tokens": of_kind["output_tokens"], **with_kind_fields(of_kind, entries[index])})
    return mixed


def with_output_tokens(suite: Suite, output_tokens: int) -> Suite:
    """A copy of the suite with one output length (in tokens) for all prompts."""
    kinds: dict[str, Kind] = {}
    for kind, entry in suite["kinds"].items():
        prompts: list[PromptEntry] = [{**prompt, "output_tokens": output_tokens} for prompt in entry["prompts"]]
        kinds[kind] = {**entry, "output_tokens": output_tokens, "prompts": prompts}
    return {**suite, "kinds": kinds}


def only_kinds(suite: Suite, names: Sequence[str]) -> Suite:
    """A copy of the suite with only these kinds (all for no names). Raises DrafthouseError for an unknown kind."""
    problems = [
        Problem(
            "no-such-category",
            f"no kind '{name}'",
            f"one of: {', '.join(suite['kinds'])}",
            did_you_mean(name, suite["kinds"]),
        )
        for name in names
        if name not in suite["kinds"]
    ]
    if problems:
        raise DrafthouseError(problems)
    if not names:
        return suite
    return {**suite, "kinds": {name: suite["kinds"][name] for name in names}}


def short_json(value: object) -> str:
    """A value of a user's file as JSON, cut to 80 characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
