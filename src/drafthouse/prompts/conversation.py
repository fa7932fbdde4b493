"""One conversation that grows: its turns as prompts, each behind all that was said before.

What the model would have answered in the turns before is written here, the same for both arms and every run: an answer
that an arm gave itself would send its later turns another way, and two arms could not be compared any more. The words
are those of the logbooks (`long_context.py`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..core.schema import Findings
from .long_context import AROUND, CHARACTERS_A_TOKEN, CHARACTERS_A_TOKEN_AT_LEAST, days

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drafthouse.prompts.suite_types import Message, PromptEntry, Talk, TurnEntry

#: Tokens of a turn at least, both sides together; a chat template's own marks for them.
FEWEST_A_TURN, MARKS_A_TURN = 60, 16
#: The share of a turn that its answer takes.
ANSWERED = 0.15

_QUESTIONS = (
    "What of this will still matter next month, and why?",
    "Write a reply of four sentences to whoever complained.",
    "List what has to be done now, the most urgent first.",
    "How does this fit with what I told you before?",
    "Put it into one paragraph for the annual report.",
    "Whom should I talk to first, and what do I say?",
    "What would you have written down in another way?",
)


def talk_prompts(kind: str, talk: Talk, findings: Findings, path: str) -> list[PromptEntry]:
    """A prompt for each turn that a kind asks, without what stands before it: `talk_messages` knows that."""
    if not talk["first"] <= talk["last"] <= talk["turns"]:
        findings.add(
            "out-of-range",
            f"{path}.last",
            f"the turns {talk['first']} to {talk['last']} of {talk['turns']}",
            "turns of this conversation, the first of them first",
            "correct first, last or turns",
        )
        return []
    return [_turn(f"{kind}-{turn:02d}", {**talk, "last": turn}) for turn in range(talk["first"], talk["last"] + 1)]


def _turn(name: str, talk: Talk) -> TurnEntry:
    return {"id": name, "messages": [{"role": "user", "content": _question(talk["last"])}], "talk": talk}


def talk_messages(talk: Talk, context: int | None, output_tokens: int) -> list[Message]:
    """The conversation up to its turn ``talk["last"]``, at its size or what ``context`` (tokens) holds.

    A later turn begins with the whole of an earlier one. Raises ValueError for a context without room for all turns.
    """
    characters = CHARACTERS_A_TOKEN * talk["tokens"]
    if context is not None:
        room = context - AROUND - output_tokens - MARKS_A_TURN * talk["turns"]
        if room < FEWEST_A_TURN * talk["turns"]:
            raise ValueError(f"room for {talk['turns']} turns of {max(room, 0) // talk['turns']}")
        characters = min(characters, CHARACTERS_A_TOKEN_AT_LEAST * room)
    share = int(characters / talk["turns"])
    whole = _conversation(talk["seed"], talk.get("setting", "harbour"), talk["turns"], share)
    return [{**message} for message in whole[: 2 * talk["last"] - 1]]


@functools.lru_cache(maxsize=16)  # of some 40 kB: each of its turns is a prompt, which begins with all turns before
def _conversation(seed: int, setting: str, turns: int, share: int) -> tuple[Message, ...]:
    """A whole conversation, ``share`` characters a turn, with the answer to its last question."""
    sentences = _sentences(seed, setting)
    messages: list[Message] = []
    for turn in range(1, turns + 1):
        fitting = _up_to(sentences, share * (1 - ANSWERED) - len(_question(turn)))
        messages.append({"role": "user", "content": f"{' '.join(fitting)}\n\n{_question(turn)}"})
        # A model that is shown one form of answer again and again gives no other: what it says here differs in length.
        messages.append(
            {
                "role": "assistant",
                "content": " ".join(_up_to(iter(fitting[turn % min(3, len(fitting)) :]), share * ANSWERED)),
            }
        )
    return tuple(messages)


def _up_to(sentences: Iterator[str], characters: float) -> list[str]:
    """The next sentences that fit, one at least."""
    fitting: list[str] = []
    for sentence in sentences:
        characters -= len(sentence) + 1
        if fitting and characters < 0:
            break
        fitting.append(sentence)
    return fitting


def _question(turn: int) -> str:
    return f"That is part {turn}. {_QUESTIONS[turn % len(_QUESTIONS)]}"


def _sentences(seed: int, setting: str) -> Iterator[str]:
    """The sentences of a logbook, without end; a day begins with its date."""
    for day in days(seed, setting):
        for sentence in day.split(". "):
            yield f"{sentence.removesuffix('.')}."
