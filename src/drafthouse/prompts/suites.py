"""Suites of prompts: what they may hold, and how they become requests. Pure; files are read elsewhere.

A suite is plain data: a name, a description, and kinds of work, each with its own output length and its
prompts (OpenAI messages). `repeat: 10` on a kind sends its prompts ten times; `made:` in place of prompts has
many short ones made (`synthetic.py`), `long:` on a prompt a long text put into it (`long_context.py`). What a
prompt may ask for beside its messages, tools and JSON among it, stands in `checks.py`.
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
from .checks import AGAIN, SLOTS, STREAMS, TALK, asked_of, check_ask, check_expect, gate_of
from .conversation import talk_prompts
from .long_context import check_long
from .more_prompts import MORE_FORMS, lengthen
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

#: What a kind may need of a server, and the engine's option that gives it (`profiles/workspace.py`).
NEEDS = {"thinking": "reasoning_parser", "tools": "tool_call_parser"}
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
    """One prompt of a suite, `repeat` already expanded, with what its kind asks of all of them."""

    suite: str
    kind: str
    id: str
    messages: Sequence[Message]
    output_tokens: int
    tools: Sequence[Tool] | None = None
    response_format: ResponseFormat | None = None
    extra: RequestFields | None = None
    gate: Gate | None = None
    temperatures: tuple[float, ...] = ()
    """Its kind's own; none: the experiment's."""
    at_once: int = 0
    """How many requests of its kind are under way at once; 0: as the experiment has it."""
    stream: bool = True


def check_suite(data: object, where: str) -> Suite:
    """``data`` as a suite, its `made:` prompts written out.

    Raises DrafthouseError with all the problems: unknown keys, empty lists, an id with a `#`, two prompts of one id,
    and two prompts alike (an engine that remembers earlier answers would look fast; `repeat` says it openly).
    """
    findings = Findings(where)
    if check(data, _SUITE, findings):
        suite = cast("Suite", data)
        if not suite["kinds"]:
            findings.add("no-prompts", "kinds", "no kinds", "one kind of work or more", "add one with its prompts")
        before = len(findings.problems)
        kinds = {kind: _with_prompts(kind, entry, findings) for kind, entry in suite["kinds"].items()}
        for kind, entry in kinds.items():
            _check_kind(entry, f"kinds.{kind}", findings)
        if len(findings.problems) == before:
            _check_distinct(kinds, findings)
            suite = {**suite, "kinds": kinds}
    if findings.problems:
        raise DrafthouseError(first_few(findings.problems, where))
    return suite


def _with_prompts(kind: str, entry: Kind, findings: Findings) -> Kind:
    """A kind with its prompts: its own, or those that are made for it."""
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
        whole: Kind = {"more": entry["made"]["form"], **entry, "prompts": made}
        del whole["made"]
        return whole
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
    check_ask(entry, findings, path)
    for number, prompt in enumerate(entry["prompts"]):
        place = f"{path}.prompts[{number}]"
        check_id(prompt["id"], findings, place)
        check_messages(prompt["messages"], f"{place}.messages", findings)
        before = len(findings.problems)
        check_ask(prompt, findings, place)
        if len(findings.problems) == before:
            check_expect(asked_of(entry, prompt), findings, place)
        check_long(prompt, findings, place)


def check_id(prompt_id: str, findings: Findings, path: str) -> None:
    """Add a problem for an id that holds the sign of a repeat (`expand`): two such prompts would count as one."""
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
    """Add a problem for each message that has neither text, nor parts, nor calls, and one where there is none."""
    if not messages:
        findings.add("empty-value", path, "an empty list", "one message or more", "add {role: user, content: ...}")
    for number, message in enumerate(messages):
        content = message["content"]
        check_keys(content, findings, f"{path}[{number}].content")
        check_keys(message.get("tool_calls"), findings, f"{path}[{number}].tool_calls")
        # An assistant message that only calls tools has no content of its own.
        if message.get("tool_calls") and content is None:
            continue
        if not isinstance(content, (str, list)) or not content:
            findings.add(
                "wrong-type",
                f"{path}[{number}].content",
                short_json(content),
                "text, or a list of parts",
                "write the text",
            )


def _check_distinct(kinds: Mapping[str, Kind], findings: Findings) -> None:
    ids: dict[str, str] = {}
    texts: dict[str, str] = {}
    for kind, entry in kinds.items():
        for number, prompt in enumerate(entry["prompts"]):
            path = f"kinds.{kind}.prompts[{number}]"
            if prompt["id"] in ids:
                findings.add(
                    "duplicate-name",
                    f"{path}.id",
                    f"'{prompt['id']}' again",
                    f"another id than {ids[prompt['id']]}",
                    "rename one",
                )
            ids.setdefault(prompt["id"], path)
            text = json.dumps(prompt["messages"], sort_keys=True, default=str)
            if text in texts:
                findings.add(
                    "duplicate-prompt",
                    f"{path}.messages",
                    f"the same messages as {texts[text]}",
                    "prompts that differ",
                    "write another prompt, or 'repeat:' on the kind",
                )
            texts.setdefault(text, path)


def expand(suite: Suite) -> dict[str, list[Prompt]]:
    """The prompts of each kind in order, repeats written out as `id#1`, `id#2`, ..."""
    prompts = {}
    for kind, entry in suite["kinds"].items():
        prompts[kind] = [_prompt(suite["name"], kind, entry, prompt, turn) for prompt, turn in _turns(entry)]
    return prompts


def _turns(entry: Kind) -> list[tuple[PromptEntry, int]]:
    """The prompts of a kind in the order they are sent, each with the number of its repeat, 0 for none.

    What is asked again for a gate follows at once: so its prefix is in the cache still, or runs beside it.
    """
    again = entry.get("again")
    repeat = entry.get("repeat", 1)
    if again:
        repeat = entry.get("repeat", AGAIN[again])
    if repeat == 1:
        return [(prompt, 0) for prompt in entry["prompts"]]
    turns = range(1, repeat + 1)
    if again:
        return list(itertools.product(entry["prompts"], turns))
    return [(prompt, turn) for turn in turns for prompt in entry["prompts"]]


def _prompt(suite: str, kind: str, entry: Kind, prompt: PromptEntry, turn: int) -> Prompt:
    asked, again = asked_of(entry, prompt), entry.get("again")
    at_once = 0
    if again == SLOTS:
        at_once = entry.get("repeat", AGAIN[SLOTS])
    elif again:
        # One after the other, whatever the experiment asks at once: else there is no prefix to find yet.
        at_once = 1
    prompt_id = prompt["id"]
    if turn:
        prompt_id += f"{REPEAT}{turn}"
    return Prompt(
        suite,
        kind,
        prompt_id,
        prompt["messages"],
        prompt.get("output_tokens", entry["output_tokens"]),
        tools=asked.get("tools"),
        response_format=asked.get("response_format"),
        extra=asked.get("request"),
        gate=_gate(asked, again),
        temperatures=tuple(map(float, entry.get("temperatures") or ())),
        at_once=at_once,
        stream=not (again == STREAMS and turn and turn % 2 == 0),
    )


def _gate(asked: PromptEntry, again: Again | None) -> Gate | None:
    """What looks at a prompt's answers: at each, at those to one prompt beside each other, or at its turn."""
    gate = gate_of(asked)
    if again:
        return {**(gate or {"name": again}), "again": again}
    if gate is None and "talk" in asked:
        return {"name": TALK}
    return gate


def prompt_hashes(suites: Iterable[Suite]) -> dict[str, dict[str, str]]:
    """A short hash of what each prompt asks for, by kind and id: what a report keeps in place of the text.

    What decides the work is in it: the messages, the output length, tools, the form of the answer and further
    fields of the request. What an answer is checked for is not: it is not sent.
    """
    hashes = {}
    for suite in suites:
        for kind, prompts in expand(suite).items():
            hashes[kind] = {prompt.id: _hash(prompt) for prompt in prompts}
    return hashes


def _hash(prompt: Prompt) -> str:
    asked = [prompt.messages, prompt.output_tokens, prompt.tools, prompt.response_format, prompt.extra]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:12]


def pick(suite: Suite, number: int, seed: int = 0) -> Suite:
    """``number`` prompts of a suite as one kind named like the suite, taken evenly from its kinds.

    That is how to send a mixture in one closed loop; measured by itself, each kind would have few. They are
    all sent at the experiment's temperatures. Where the suite has fewer, its kinds are filled with synthetic prompts
    of their own form (`more:`), which ``seed`` chooses, and a sentence of the suite's "notes" says so. Raises
    DrafthouseError when that is not enough.
    """
    kinds: dict[str, list[PromptEntry]] = {}
    for kind, prompts in expand(suite).items():
        kinds[kind] = []
        for prompt, (entry, _) in zip(prompts, _turns(suite["kinds"][kind]), strict=True):
            kinds[kind].append({**entry, "id": prompt.id, "output_tokens": prompt.output_tokens})
    own = sum(map(len, kinds.values()))
    forms = {kind: entry["more"] for kind, entry in suite["kinds"].items() if "more" in entry}
    added = lengthen(kinds, forms, number, seed)
    have = own + sum(added.values())
    if number > have:
        more = "as many as the suite and its synthetic prompts are" if added else "as many as the suite has"
        raise one_problem(
            "too-few-prompts",
            f"{number} prompts asked for",
            f"{have} or fewer, {more}: repeated prompts favour some engines",
            "request fewer prompts or more rounds, or use a suite with more prompts",
            f"suite {suite['name']}",
        )
    mixed: list[PromptEntry] = []
    for place in range(max(map(len, kinds.values()))):
        for kind, entries in kinds.items():
            if place < len(entries):
                of_kind = suite["kinds"][kind]
                mixed.append({"output_tokens": of_kind["output_tokens"], **asked_of(of_kind, entries[place])})
    mixed = mixed[:number]
    all_in_one: Kind = {"output_tokens": mixed[0]["output_tokens"], "prompts": mixed}
    picked: Suite = {**suite, "kinds": {suite["name"]: all_in_one}}
    if added:
        each = ", ".join(f"{kind} {count}" for kind, count in added.items())
        note = (
            f"{sum(added.values())} of the {number} prompts are synthetic (seed {seed}), since the suite "
            f"'{suite['name']}' has {own}: {each}"
        )
        picked["notes"] = [*suite.get("notes", []), note]
    return picked


def with_output_tokens(suite: Suite, output_tokens: int) -> Suite:
    """The suite with one output length for all of its prompts."""
    kinds: dict[str, Kind] = {}
    for kind, entry in suite["kinds"].items():
        prompts: list[PromptEntry] = [{**prompt, "output_tokens": output_tokens} for prompt in entry["prompts"]]
        kinds[kind] = {**entry, "output_tokens": output_tokens, "prompts": prompts}
    return {**suite, "kinds": kinds}


def only_kinds(suite: Suite, names: Sequence[str]) -> Suite:
    """The suite with these kinds alone; raises DrafthouseError for a kind that it has not."""
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
    """A value of somebody's file as JSON of 80 characters at most."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
