"""Generate the long texts and conversations of a suite's prompts, shortened to the server's context."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..core.errors import DrafthouseError, Problem
from .conversation import FEWEST_A_TURN, talk_messages
from .long_context import (
    AROUND,
    CHARACTERS_A_TOKEN,
    CHARACTERS_A_TOKEN_AT_LEAST,
    FEWEST_TOKENS,
    MARK,
    long_text,
)

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Kind, PromptEntry, Suite, TurnEntry


def fill(suite: Suite, context: int | None = None) -> Suite:
    """A copy of ``suite`` with its texts generated, at most as long as ``context`` tokens allow (None: no limit).

    Raises DrafthouseError if the context is too short.
    """
    problems: list[Problem] = []
    kinds: dict[str, Kind] = {}
    for kind, entry in suite["kinds"].items():
        prompts = []
        for prompt in entry["prompts"]:
            output_tokens = prompt.get("output_tokens", entry["output_tokens"])
            where = f"suite {suite['name']}: {prompt['id']}"
            prompts.append(_filled_prompt(prompt, output_tokens, context, problems, where))
        kinds[kind] = {**entry, "prompts": prompts}
    if problems:
        raise DrafthouseError(problems)
    return {**suite, "kinds": kinds}


def _filled_prompt(
    prompt: PromptEntry, output_tokens: int, context: int | None, problems: list[Problem], where: str
) -> PromptEntry:
    """The prompt with its generated conversation or text, unchanged if it has neither.

    Adds a problem with the place ``where`` if the text does not fit into ``context`` with ``output_tokens``.
    """
    if "talk" in prompt:
        return _with_conversation(prompt, output_tokens, context, problems, where)
    if "long" in prompt:
        return _with_long_text(prompt, output_tokens, context, problems, where)
    return {**prompt}


def _with_conversation(
    prompt: PromptEntry, output_tokens: int, context: int | None, problems: list[Problem], where: str
) -> PromptEntry:
    """The prompt of a turn with the earlier turns; without them if they do not fit (see `_filled_prompt`)."""
    talk = cast("TurnEntry", prompt)["talk"]
    try:
        return {**prompt, "messages": talk_messages(talk, context, output_tokens)}
    except ValueError as error:
        # Only the first turn reports the problem, which all turns of a kind have.
        if talk["last"] == talk["first"]:
            problems.append(
                Problem(
                    "context-too-short",
                    f"a context of {context} tokens: {error}",
                    f"room for {FEWEST_A_TURN} tokens a turn or more",
                    "give the profile a longer context, or the conversation fewer turns, or leave this suite out",
                    where,
                )
            )
    return {**prompt}


def _with_long_text(
    prompt: PromptEntry, output_tokens: int, context: int | None, problems: list[Problem], where: str
) -> PromptEntry:
    """The prompt with its long text in the last message (see `_filled_prompt`)."""
    long = prompt["long"]
    *before, last = prompt["messages"]
    characters = CHARACTERS_A_TOKEN * long["tokens"]
    if context is not None:
        room = context - AROUND - output_tokens
        if room < FEWEST_TOKENS:
            problems.append(
                Problem(
                    "context-too-short",
                    f"a context of {context} tokens: room for a text of {max(room, 0)}",
                    f"room for {FEWEST_TOKENS} or more",
                    "give the profile a longer context, or leave this suite out",
                    where,
                )
            )
        characters = min(characters, CHARACTERS_A_TOKEN_AT_LEAST * room)
    text = long_text(
        int(characters),
        long["seed"],
        setting=long.get("setting", "harbour"),
        needle=long.get("needle"),
        depth=long.get("depth", 0.5),
        without=(prompt.get("expect") or {}).get("contains", ""),  # only the needle may hold the expected words
    )
    filled: PromptEntry = {**prompt, "messages": [*before, {**last, "content": last["content"].replace(MARK, text)}]}
    del filled["long"]
    return filled
