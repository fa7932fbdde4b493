"""Suites of prompts: what they may hold, and how they become requests. Pure; files are read elsewhere.

A suite is plain data: a name, a description, and kinds of work, each with its own output length and its
prompts (OpenAI messages). `repeat: 10` on a kind sends its prompts ten times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .problems import HouseError, Problem, did_you_mean
from .shape import Anything, Findings, List, Map, Table, Value, check

#: Output tokens of a user's own prompts that name none (what `vllm bench serve` takes for its datasets).
DEFAULT_OUTPUT_TOKENS = 256
#: The kind of a user's own prompts that name none.
DEFAULT_KIND = "own"

_ROLES = ("assistant", "developer", "system", "tool", "user")
_MESSAGE = Map(
    {
        "role": Value(required=True, choices=_ROLES),
        # Text, or the list of parts that multimodal models take: the server knows best.
        "content": Anything(required=True),
        "name": Value(),
        "tool_calls": Anything(),
        "tool_call_id": Value(),
    }
)
_PROMPT = Map(
    {
        "id": Value(required=True),
        "messages": List(_MESSAGE, required=True),
        # In place of the kind's.
        "output_tokens": Value(int, low=1),
    }
)
_KIND = Map(
    {
        "output_tokens": Value(int, required=True, low=1),
        "repeat": Value(int, low=1),
        "prompts": List(_PROMPT, required=True),
    }
)
_SUITE = Map(
    {
        "name": Value(required=True),
        "description": Value(required=True),
        "kinds": Table(_KIND, required=True),
    }
)
_LINE = Map(
    {
        "messages": List(_MESSAGE, required=True),
        "id": Value(),
        "kind": Value(),
        "output_tokens": Value(int, low=1),
    }
)

Suite = dict[str, Any]


@dataclass(frozen=True)
class Prompt:
    """One prompt of a suite, `repeat` already expanded."""

    suite: str
    kind: str
    id: str
    messages: Sequence[Mapping[str, Any]]
    output_tokens: int


def check_suite(data: object, where: str) -> Suite:
    """Return ``data`` as a suite.

    Raises HouseError with all the problems: unknown keys, empty lists, two prompts of one id, and two
    prompts alike (an engine that remembers earlier answers would look fast; `repeat` says it openly).
    """
    findings = Findings(where)
    if check(data, _SUITE, findings):
        assert isinstance(data, dict)
        if not data["kinds"]:
            findings.add("kinds", "no kinds", "one kind of work or more", "add one with its prompts")
        for kind, entry in data["kinds"].items():
            _check_prompts(entry["prompts"], f"kinds.{kind}.prompts", findings)
        _check_distinct(data["kinds"], findings)
    if findings.problems:
        raise HouseError(findings.problems)
    assert isinstance(data, dict)
    return data


def _check_prompts(prompts: Sequence[Mapping[str, Any]], path: str, findings: Findings) -> None:
    if not prompts:
        findings.add(path, "an empty list", "one prompt or more", "add a prompt with an id and messages")
    for number, prompt in enumerate(prompts):
        _check_messages(prompt["messages"], f"{path}[{number}].messages", findings)


def _check_messages(messages: Sequence[Mapping[str, Any]], path: str, findings: Findings) -> None:
    if not messages:
        findings.add(path, "an empty list", "one message or more", "add {role: user, content: ...}")
    for number, message in enumerate(messages):
        content = message["content"]
        # An assistant message that only calls tools has no content of its own.
        if message.get("tool_calls") and content is None:
            continue
        if not isinstance(content, (str, list)) or not content:
            findings.add(f"{path}[{number}].content", _short(content), "text, or a list of parts", "write the text")


def _check_distinct(kinds: Mapping[str, Any], findings: Findings) -> None:
    ids: dict[str, str] = {}
    texts: dict[str, str] = {}
    for kind, entry in kinds.items():
        for number, prompt in enumerate(entry["prompts"]):
            path = f"kinds.{kind}.prompts[{number}]"
            if prompt["id"] in ids:
                findings.add(
                    f"{path}.id",
                    f"'{prompt['id']}' again",
                    f"another id than {ids[prompt['id']]}",
                    "rename one",
                )
            ids.setdefault(prompt["id"], path)
            text = json.dumps(prompt["messages"], sort_keys=True, default=str)
            if text in texts:
                findings.add(
                    f"{path}.messages",
                    f"the same messages as {texts[text]}",
                    "prompts that differ",
                    "write another prompt, or 'repeat:' on the kind",
                )
            texts.setdefault(text, path)


def suite_from_lines(text: str, name: str, where: str) -> Suite:
    """Return a suite from a user's own JSONL: one JSON object a line with OpenAI `messages`.

    Optional on each line: id (else the kind and the line's number), kind (else "own"), output_tokens
    (else 256). Raises HouseError with all the problems, each with its line.
    """
    findings = Findings(where)
    kinds: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError as error:
            findings.add(f"line {number}", f"no JSON ({error})", "one JSON object", "correct the line")
            continue
        before = len(findings.problems)
        if check(data, _LINE, findings, f"line {number}"):
            _check_messages(data["messages"], f"line {number}.messages", findings)
        if len(findings.problems) == before:
            kind = data.get("kind", DEFAULT_KIND)
            entry = kinds.setdefault(kind, {"output_tokens": DEFAULT_OUTPUT_TOKENS, "prompts": []})
            own = {"output_tokens": data["output_tokens"]} if "output_tokens" in data else {}
            entry["prompts"].append({"id": data.get("id", f"{kind}-{number}"), "messages": data["messages"], **own})
    if not kinds and not findings.problems:
        findings.add("", "no lines", "one prompt a line", 'write {"messages": [{"role": "user", ...}]}')
    if findings.problems:
        raise HouseError(findings.problems)
    return check_suite({"name": name, "description": f"from {where}", "kinds": kinds}, where)


def expand(suite: Mapping[str, Any]) -> dict[str, list[Prompt]]:
    """Return the prompts of each kind in order, repeats written out as `id#1`, `id#2`, ..."""
    prompts: dict[str, list[Prompt]] = {}
    for kind, entry in suite["kinds"].items():
        repeat = entry.get("repeat", 1)
        prompts[kind] = [
            Prompt(
                suite["name"],
                kind,
                f"{prompt['id']}#{turn}" if repeat > 1 else prompt["id"],
                prompt["messages"],
                prompt.get("output_tokens", entry["output_tokens"]),
            )
            for turn in range(1, repeat + 1)
            for prompt in entry["prompts"]
        ]
    return prompts


def pick(suite: Suite, number: int) -> Suite:
    """Return ``number`` prompts of a suite as one kind named like the suite, taken evenly from its kinds.

    That is how to send a mixture in one closed loop; measured by itself, each kind would have few.
    Raises HouseError when the suite has fewer prompts.
    """
    kinds = list(expand(suite).values())
    turns = (row for place in range(max(map(len, kinds))) for row in (kind[place : place + 1] for kind in kinds))
    mixed = [prompt for row in turns for prompt in row]
    if number > len(mixed):
        raise HouseError(
            Problem(
                f"{number} prompts asked for",
                f"{len(mixed)} or fewer, as many as the suite has: repeated prompts flatter some engines",
                "ask for fewer or for more rounds, or bring a suite with more prompts",
                f"suite {suite['name']}",
            )
        )
    prompts = [
        {"id": prompt.id, "messages": prompt.messages, "output_tokens": prompt.output_tokens}
        for prompt in mixed[:number]
    ]
    kind = {"output_tokens": prompts[0]["output_tokens"], "prompts": prompts}
    return {**suite, "kinds": {suite["name"]: kind}}


def with_output_tokens(suite: Suite, output_tokens: int) -> Suite:
    """Return the suite with one output length for all of its prompts."""
    kinds = {
        kind: {
            **entry,
            "output_tokens": output_tokens,
            "prompts": [{**prompt, "output_tokens": output_tokens} for prompt in entry["prompts"]],
        }
        for kind, entry in suite["kinds"].items()
    }
    return {**suite, "kinds": kinds}


def only_kinds(suite: Suite, names: Sequence[str]) -> Suite:
    """Return the suite with these kinds alone; raises HouseError for a kind that it has not."""
    problems = [
        Problem(f"no kind '{name}'", f"one of: {', '.join(suite['kinds'])}", did_you_mean(name, suite["kinds"]))
        for name in names
        if name not in suite["kinds"]
    ]
    if problems:
        raise HouseError(problems)
    return {**suite, "kinds": {name: suite["kinds"][name] for name in names}} if names else suite


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
