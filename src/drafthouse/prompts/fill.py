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
        prompts = [_filled_prompt(prompt, entry, context, problems, suite) for prompt in entry["prompts"]]
        kinds[kind] = {**entry, "prompts": prompts}
    if problems:
        raise DrafthouseError(problems)
    return {**suite, "kinds": kinds}


def _filled_prompt(
    prompt: PromptEntry,
    entry: Kind,
    context: int | None,
    problems: list[Problem],
    suite: Suite,
) -> PromptEntry:
    """The prompt with its generated text or conversation; adds a problem if that does not fit."""
    output_tokens = prompt.get("output_tokens", entry["output_tokens"])
    if "talk" in prompt:
        talk = cast("TurnEntry", prompt)["talk"]
        try:
            return {**prompt, "messages": talk_messages(talk, context, output_tokens)}
        except ValueError as error:
            if talk["last"] > talk["first"]:
                return {**prompt}  # only the first turn reports the problem, which all turns of a kind have
            problems.append(
                Problem(
                    "context-too-short",
                    f"a context of {context} tokens: {error}",
                    f"room for {FEWEST_A_TURN} tokens a turn or more",
                    "give the profile a longer context, or the conversation fewer turns, or leave this suite out",
                    f"suite {suite['name']}: {prompt['id']}",
                )
            )
    if "long" not in prompt:
        return {**prompt}
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
                    f"suite {suite['name']}: {prompt['id']}",
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
