"""Synthetic short prompts, all different, for load sweeps; they are combined from the phrases in this file.

A load sweep up to 64 concurrent requests sends hundreds of prompts. A prompt that is sent twice favours engines that
remember (prefix caches, n-gram pools, suffix trees). The same form and seed give the same prompts on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core.schema import Findings
from .long_context import Chooser, passage

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Made, PromptEntry

#: Separates a prompt's id from the number of its repeat (`vacation#2`); no id contains it.
REPEAT = "#"
#: Largest number of prompts of a kind; more of them would be too similar to each other.
MOST = 500

_COPY = (
    "Repeat the following text exactly, word for word:",
    "Copy this paragraph exactly as it is written:",
    "Write out the text below again, without any change:",
    "Please repeat these lines without changing a single word:",
)
#: The logbooks of `long_context.py`, from which passages are taken.
SETTINGS = ("farm", "harbour", "station")

_LANGUAGES = ("Python", "Go", "JavaScript", "Java", "Rust", "C", "bash", "SQL")
_TASKS = (
    "finds the longest word in a text file", "counts how often each line occurs", "turns a CSV file into JSON",
    "checks whether brackets are balanced", "merges two sorted lists", "splits a bill among friends in whole cents",
    "finds all files larger than ten megabytes", "converts Roman numerals to numbers", "draws a bar chart with text",
    "removes duplicates and keeps the order", "computes the running mean of the last ten values",
    "validates an IBAN", "finds the two closest points of a list", "prints a calendar month",
    "compresses a string by counting repeats", "ranks players with equal scores alike",
    "reads a temperature log and reports gaps", "rotates a matrix by ninety degrees",
)  # fmt: skip
_CONDITIONS = (
    "Handle empty input.", "Add a short test.", "Explain its running time in one sentence.", "Use no library.",
    "Write comments for a beginner.", "Make it fail with a clear message on bad input.", "Show how it is called.",
    "Keep it below thirty lines.", "Give two versions and say which is better.", "Mind very large inputs.",
)  # fmt: skip

_PEOPLE = (
    "I am moving to a small flat", "I have just started to run", "My parents visit me for the first time",
    "I share an office with four people", "I have inherited an old piano", "My team works in three countries",
    "I want to stop buying things I do not need", "I am learning to cook for two", "Our village has lost its shop",
    "I have to give my first speech", "My bicycle is my only vehicle", "I look after two small children",
    "I work at night and sleep by day", "We have a garden full of stones", "I am seventy and bought a tablet",
)  # fmt: skip
_QUESTIONS = (
    "What should I do in the first week?", "Which mistakes do beginners make?", "How much money will I need?",
    "What can I do when it rains for days?", "How do I keep going when I am tired of it?",
    "Whom should I ask for help, and how?", "What would you leave out?", "How do I explain it to my brother?",
    "Which three things matter most?", "What do people regret afterwards?",
)  # fmt: skip
_TONES = ("Answer like a friend.", "Be brief.", "Give reasons.", "Use everyday words.", "Start with the hardest part.")

_HEROES = (
    "a lighthouse keeper who is afraid of the dark", "a librarian who has never finished a book",
    "a tram driver with a secret passenger", "two sisters who run a button factory", "a retired astronaut",
    "a gardener who talks to moles", "a violin that wants to be a cello", "a baker who cannot taste",
    "the last typewriter mechanic", "a cartographer of places that do not exist", "a goat with a good memory",
    "a weather forecaster who is always wrong", "a night nurse and her talking kettle",
)  # fmt: skip
_PLACES = (
    "on an island that floats", "in a town without clocks", "at the end of a very long queue", "under a frozen lake",
    "in a hotel with one guest", "on a train that never stops", "in a valley where echoes answer late",
    "on the roof of an opera", "in a city that is moved stone by stone", "inside a snow globe",
)  # fmt: skip
_RULES = (
    "Begin with the last sentence.", "Let something small go wrong.", "There must be a letter in it.",
    "Nobody may speak.", "It happens within one hour.", "End with a question.", "Use the word 'copper' twice.",
    "Tell it as a letter.", "Tell it from the view of a bird.",
)  # fmt: skip


# Each of these functions makes the text of a prompt of one form. ``number`` is the seed of the passage in it; forms
# without a passage ignore it.


def _copy(choose: Chooser, number: int) -> str:
    return f"{choose.one(_COPY)}\n\n{passage(1000 + number, choose.one(SETTINGS))}"


def _code(choose: Chooser, number: int) -> str:
    language = choose.one(_LANGUAGES)
    what = "query or function" if language == "SQL" else "function or script"
    return f"Write a {what} in {language} that {choose.one(_TASKS)}. {choose.one(_CONDITIONS)}"


def _chat(choose: Chooser, number: int) -> str:
    return f"{choose.one(_PEOPLE)}. {choose.one(_QUESTIONS)} {choose.one(_TONES)}"


def _story(choose: Chooser, number: int) -> str:
    return f"Write the beginning of a story about {choose.one(_HEROES)} {choose.one(_PLACES)}. {choose.one(_RULES)}"


#: The functions that make a prompt's text, by form.
TEXTS: dict[str, Callable[[Chooser, int], str]] = {"chat": _chat, "code": _code, "copy": _copy, "story": _story}


def made_prompts(kind: str, made: Made, findings: Findings, path: str) -> list[PromptEntry]:
    """Prompts of a kind with `made:`, no two equal; adds a problem if the phrases do not give so many."""
    choose = Chooser("made", made["form"], made.get("seed", 0))
    text_of_form = TEXTS[made["form"]]
    texts: dict[str, None] = {}  # a dict drops equal texts and keeps the order
    tries = 0
    # The phrases are drawn at random, so many draws repeat an earlier text before a form is exhausted.
    while len(texts) < made["number"] and tries < 20 * MOST:
        texts[text_of_form(choose, tries)] = None
        tries += 1
    if len(texts) < made["number"]:
        findings.add("too-few-prompts", f"{path}.number", f"{made['number']}", f"{len(texts)} or fewer", "lower it")
    return [
        {"id": f"{kind.replace(REPEAT, '-')}-{number:03d}", "messages": [{"role": "user", "content": text}]}
        for number, text in enumerate(texts, start=1)
    ]
