"""Prompts at a given context length, for a load sweep over context as well as load.

A prompt kind at a context is a kind of its own in the sweep: "chat at 8192 tokens" has the prompts of "chat", each
behind a different logbook of that length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..core.format import shown_level
from .long_context import CHARACTERS_A_TOKEN, long_text

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Message

#: The unit of a context in sentences and tables.
CONTEXT_UNIT = "tokens of context"
# The names that `at_contexts` and `at_load` make.
_AT_CONTEXT = re.compile(r"(.+) at (\d+) tokens")
_AT_LOAD = re.compile(r"(.+) at load \d+(?:\.\d+)?")


def at_contexts(kinds: Iterable[str], contexts: Sequence[int]) -> list[str]:
    """The kinds at each context (tokens); without contexts the kinds themselves."""
    if not contexts:
        return list(kinds)
    names = []
    for kind in kinds:
        for tokens in contexts:
            names.append(f"{kind} at {tokens} tokens")
    return names


def at_load(kind: str, level: float) -> str:
    """The name of a kind at one load ("chat at load 4"), in a sweep over contexts."""
    return f"{kind} at load {shown_level(level)}"


def kind_and_context(name: str) -> tuple[str, int]:
    """The prompt kind and the context in tokens of a kind of the sweep; 0 for a kind without a context."""
    match = _AT_CONTEXT.fullmatch(name)
    if match is None:
        return name, 0
    return match[1], int(match[2])


def base_kind(name: str) -> str:
    """The prompt kind of "chat", "chat at 8192 tokens" and "chat at load 4": always "chat"."""
    if match := _AT_LOAD.fullmatch(name):
        return match[1]
    kind, _tokens = kind_and_context(name)
    return kind


def behind_a_logbook(messages: Sequence[Message], tokens: int, seed: int) -> list[Message]:
    """The messages with a logbook of about ``tokens`` tokens before the first text of the user; 0: unchanged.

    The same seed gives the same logbook. Its length is that of English text at 4 characters per token, so most
    tokenizers make up to a fifth less of it; the engine's own count is in the results.
    """
    if not tokens:
        return list(messages)
    characters = int(tokens * CHARACTERS_A_TOKEN)
    text = long_text(characters + 1_000, seed)[:characters] + "\n\n"  # a day of it is shorter than 1,000
    longer = list(messages)
    for index, message in enumerate(longer):
        content = message["content"]
        if message["role"] != "user":
            continue
        if isinstance(content, str):
            longer[index] = {**message, "content": text + content}
        elif isinstance(content, list):
            longer[index] = {**message, "content": [{"type": "text", "text": text}, *content]}
        break
    return longer
