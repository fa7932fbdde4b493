"""Generate a conversation that grows: each of its turns is a prompt that begins with all earlier turns.

The assistant's earlier answers are generated too, the same for both arms and every run. With an arm's real answers the
later prompts of the two arms would differ, and the arms could not be compared. The sentences are those of the logbooks
(`long_context.py`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..core.schema import Findings
from .long_context import AROUND, CHARACTERS_A_TOKEN, CHARACTERS_A_TOKEN_AT_LEAST, days

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drafthouse.prompts.suite_types import Message, PromptEntry, Talk, TurnEntry

#: Fewest tokens of a turn (question and answer).
FEWEST_A_TURN = 60
#: The tokens that a chat template adds to a turn.
MARKS_A_TURN = 16
#: Fraction of a turn's characters that its answer has.
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
    """A prompt for each turn from ``first`` to ``last``, still without the earlier turns (`talk_messages`).

    Adds a problem, and gives no prompts, if these are no turns of the conversation.
    """
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
    """The prompt for the turn ``talk["last"]``, with the id ``name``."""
    return {"id": name, "messages": [{"role": "user", "content": _question(talk["last"])}], "talk": talk}


def talk_messages(talk: Talk, context: int | None, output_tokens: int) -> list[Message]:
    """The conversation up to the question of turn ``talk["last"]``, shortened to fit into ``context`` tokens.

    None: no limit. ``output_tokens`` is the room for the answer. A later turn's messages begin with those of an earlier
    one. Raises ValueError if not all turns fit.
    """
    characters = CHARACTERS_A_TOKEN * talk["tokens"]
    if context is not None:
        room = context - AROUND - output_tokens - MARKS_A_TURN * talk["turns"]
        if room < FEWEST_A_TURN * talk["turns"]:
            raise ValueError(f"room for {talk['turns']} turns of {max(room, 0) // talk['turns']}")
        characters = min(characters, CHARACTERS_A_TOKEN_AT_LEAST * room)
    turn_characters = int(characters / talk["turns"])
    conversation = _conversation(talk["seed"], talk.get("setting", "harbour"), talk["turns"], turn_characters)
    # A question and an answer per turn; the last turn still lacks its answer.
    return [{**message} for message in conversation[: 2 * talk["last"] - 1]]


@functools.lru_cache(maxsize=16)  # entries of about 40 kB; every turn of a conversation needs the same entry
def _conversation(seed: int, setting: str, turns: int, turn_characters: int) -> tuple[Message, ...]:
    """A conversation of ``turns`` turns with ``turn_characters`` characters each, including the last answer."""
    sentences = _sentences(seed, setting)
    messages: list[Message] = []
    for turn in range(1, turns + 1):
        fitting = _up_to(sentences, turn_characters * (1 - ANSWERED) - len(_question(turn)))
        messages.append({"role": "user", "content": f"{' '.join(fitting)}\n\n{_question(turn)}"})
        # An answer is the turn's first sentences, after up to two skipped ones. So the answers differ in form and
        # length: a model that sees one form of answer many times repeats that form.
        skipped = turn % min(3, len(fitting))
        answer = _up_to(iter(fitting[skipped:]), turn_characters * ANSWERED)
        messages.append({"role": "assistant", "content": " ".join(answer)})
    return tuple(messages)


def _up_to(sentences: Iterator[str], characters: float) -> list[str]:
    """The next sentences that fit into ``characters``, at least one."""
    fitting: list[str] = []
    for sentence in sentences:
        characters -= len(sentence) + 1
        if fitting and characters < 0:
            break
        fitting.append(sentence)
    return fitting


def _question(turn: int) -> str:
    """The question at the end of a turn."""
    return f"That is part {turn}. {_QUESTIONS[turn % len(_QUESTIONS)]}"


def _sentences(seed: int, setting: str) -> Iterator[str]:
    """Yield the sentences of a logbook without end; each day begins with its date."""
    for day in days(seed, setting):
        for sentence in day.split(". "):
            yield f"{sentence.removesuffix('.')}."
