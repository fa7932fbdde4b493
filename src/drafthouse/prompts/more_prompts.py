"""Synthetic prompts for a measurement that needs more prompts of a kind than its suite has; no two are equal.

`more:` of a kind names their form (a `made:` kind uses its own form). They are sent like the kind's other prompts, with
its output length and tools; prompts for a gate come with the answer that it expects. The same form and seed give the
same prompts on every machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from .checks import copy_request_fields
from .long_context import CHARACTERS_A_TOKEN, Chooser, days, long_text
from .synthetic import REPEAT, SETTINGS, TEXTS

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import ChatPrompt, JsonSchema, PromptEntry, ResponseFormat

#: A form is exhausted after this many prompts in a row that were not new.
_TRIES = 500
#: Distance between the passage numbers of two consecutive seeds, so that their passages differ.
_PER_SEED = 1_000_000
# Tokens of the synthetic long texts, like the shortest texts of the suites, which fit most contexts.
_LONG_TOKENS = 3000  # of a text to summarise
_NEEDLE_TOKENS = 2000  # of a text with a needle

_SUMMARY_QUESTIONS = (
    "Summarise the following text in two sentences:",
    "What are the main points of this text? Answer in two sentences.",
    "Shorten this text to a third of its length:",
    "Give this text a title and sum it up in one sentence:",
)
_LONG_QUESTIONS = (
    "Summarise this logbook in five sentences.",
    "List what was repaired or needs to be, one line each.",
    "Describe the weather of these weeks in one paragraph.",
    "Which visitors came, and what did they bring? Answer as a list.",
    "What would you ask the people who wrote this? Give four questions with your reasons.",
)
_NAMES = ("Ada", "Bruno", "Chiara", "Dmitri", "Esi", "Farid", "Greta", "Hugo", "Ilse", "Jonas", "Kei", "Lena")
_THINGS = ("notebooks", "lamps", "chairs", "tickets", "plants", "cups", "tiles", "jars of honey", "bags of soil")
_MATH_PROBLEMS = (
    "{a} buys {n} {thing} for {m} each and gets a discount of {p} per cent on the whole. How much is to be paid?",
    "A cyclist rides {n} km at {q} km an hour and {m} km at {p} km an hour. What is the average speed?",
    "{a} can load a van in {n} minutes, {b} needs {m}. How long do they need together?",
    "{n} {thing} are packed into boxes of {p}. How many boxes are full, and how many {thing} are left over?",
    "A tank holds {m} litres and is filled at {p} litres a minute, while {q} litres run out every hour. "
    "When is it full, if it starts with {n}?",
    "{a} saves {p} in the first month and {q} more in each month than in the one before. "
    "After how many months is it {m} or more?",
    "A garden is {n} m long and {p} m wide. A path of 1 m runs around it on the outside. How large is the path?",
    "{a} is {p} years older than {b}. In {q} years they will be {n} together. How old are they now?",
)
_PLACES = (
    "an island without cars", "a town at the end of a railway line", "a mountain village in winter",
    "a city that is built on canals", "a region known for its caves", "a fishing port in the far north",
    "an old town behind walls", "a valley of vineyards", "a desert oasis", "the coast of a cold sea",
    "a capital that was founded only sixty years ago", "a forest with lakes",
)  # fmt: skip
_LENGTHS = ("a weekend", "four days", "a week", "ten days", "three weeks")
_COMPANIONS = (
    "with two grandparents", "alone", "with three small children", "with an old friend", "with a school class",
    "with a dog", "with somebody who hates flying", "with colleagues whom you hardly know",
)  # fmt: skip
_TRIP_QUESTIONS = (
    "Which three sights come first, and why?", "What do you pack?", "Plan it day by day.",
    "How do you keep it cheap?", "What will you do when it rains?", "How do you balance rest and adventure?",
)  # fmt: skip
_CITIES = (
    "Aarhus", "Basel", "Coimbra", "Dresden", "Exeter", "Faro", "Gdansk", "Haarlem", "Izmir", "Jena", "Kotor", "Lille",
    "Mostar", "Namur", "Oulu", "Porto", "Riga", "Siena", "Tartu", "Uppsala", "Verona", "Wroclaw", "York", "Zadar",
)  # fmt: skip
_OUTINGS = ("a picnic", "a bicycle tour", "a street party", "hanging out the washing", "painting the fence", "a hike")
_TIMED_EVENTS = ("The bread must rise", "My tea draws", "The parking meter runs", "The paint dries", "The dog sleeps")
_CALL_REQUESTS: dict[str, tuple[str, ...]] = {
    "get_weather": ("Will it rain in {city} {day}?", "Is {day} a good day for {outing} in {city}?"),
    "set_timer": ("{timed} for {n} minutes. Please tell me when that is over.", "Wake me in {n} minutes{loud}."),
    "find_trains": (
        "How do I get from {city} to {other} after {hour} o'clock?",
        "Is there a direct train from {city} to {other} {day}?",
    ),
}
_FACTS_AND_QUESTIONS = (
    ("The spare key of the {what} has the number {n}.", "Which number has the spare key of the {what}?"),
    ("The {what} was sold for {n} crowns.", "For how many crowns was the {what} sold?"),
    ("The {what} was built in {n} days.", "In how many days was the {what} built?"),
)
_LOST_THINGS = ("copper kettle", "marble bench", "organ", "weather vane", "sledge", "globe", "ice cellar", "dovecote")
_SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {
        "day": {"type": "integer", "minimum": 1, "maximum": 31},
        "month": {"type": "string", "maxLength": 12},
        "weather": {"type": "string", "enum": ["good", "mixed", "bad"]},
        "people": {"type": "integer", "minimum": 0, "maximum": 20},
    },
    "required": ["day", "month", "weather", "people"],
    "additionalProperties": False,
}


# Each of these functions makes a prompt of one form. ``number`` is the seed of the passage in it; forms without a
# passage ignore it.


def _summarise(choose: Chooser, number: int) -> ChatPrompt:
    text = " ".join(day.partition(". ")[2] for day in itertools.islice(days(number, choose.one(SETTINGS)), 2))
    return _ask(f"{choose.one(_SUMMARY_QUESTIONS)}\n\n{text}")


def _summarise_long(choose: Chooser, number: int) -> ChatPrompt:
    text = long_text(int(CHARACTERS_A_TOKEN * _LONG_TOKENS), number, choose.one(SETTINGS))
    return _ask(f"{choose.one(_LONG_QUESTIONS)}\n\n{text}")


def _math(choose: Chooser, number: int) -> ChatPrompt:
    """A word problem with two different persons, and numbers with p < q < n < m."""
    a = choose.number(len(_NAMES))
    b = (a + 1 + choose.number(len(_NAMES) - 1)) % len(_NAMES)
    numbers = {"p": 2 + choose.number(12), "q": 14 + choose.number(20), "n": 60 + choose.number(90)}
    numbers["m"] = 200 + choose.number(400)
    problem = choose.one(_MATH_PROBLEMS).format(a=_NAMES[a], b=_NAMES[b], thing=choose.one(_THINGS), **numbers)
    return _ask(f"{problem} Show your working.")


def _travel(choose: Chooser, number: int) -> ChatPrompt:
    trip = f"Imagine {choose.one(_LENGTHS)} in {choose.one(_PLACES)}, {choose.one(_COMPANIONS)}."
    return _ask(f"{trip} Describe the place and its culture. {choose.one(_TRIP_QUESTIONS)}")


def _json_form(choose: Chooser, number: int) -> ChatPrompt:
    text = next(days(number, choose.one(SETTINGS)))
    form: ResponseFormat = {"type": "json_schema", "json_schema": {"name": "entry", "strict": True, "schema": _SCHEMA}}
    return {**_ask(f"Read this entry of a logbook and fill in the form as JSON:\n\n{text}"), "response_format": form}


def _tool_call(choose: Chooser, number: int) -> ChatPrompt:
    """A question that one of the suite's tools answers, with two different cities."""
    tool = choose.one(sorted(_CALL_REQUESTS))
    city = choose.number(len(_CITIES))
    other = (city + 1 + choose.number(len(_CITIES) - 1)) % len(_CITIES)
    text = choose.one(_CALL_REQUESTS[tool]).format(
        city=_CITIES[city],
        other=_CITIES[other],
        day=choose.one(("today", "tomorrow")),
        outing=choose.one(_OUTINGS),
        timed=choose.one(_TIMED_EVENTS),
        n=2 + choose.number(200),
        loud=choose.one(("", ", loudly", ", softly")),
        hour=6 + choose.number(15),
    )
    return {**_ask(text), "expect": {"tool": tool}}


def _needle(choose: Chooser, number: int) -> ChatPrompt:
    """A logbook with a hidden number, and the question for it."""
    hidden = str(2000 + choose.number(7000))
    needle, question = choose.one(_FACTS_AND_QUESTIONS)
    thing = choose.one(_LOST_THINGS)
    depth = choose.number(100) / 100
    text = long_text(
        int(CHARACTERS_A_TOKEN * _NEEDLE_TOKENS),
        number,
        setting=choose.one(SETTINGS),
        needle=needle.format(what=thing, n=hidden),
        depth=depth,
        without=hidden,
    )
    ask = _ask(f"{text}\n\n{question.format(what=thing)} Answer with the number alone.")
    return {**ask, "expect": {"contains": hidden}}


def _ask(text: str) -> ChatPrompt:
    """A prompt of one user message."""
    return {"messages": [{"role": "user", "content": text}]}


def _ask_maker(text_of_form: Callable[[Chooser, int], str]) -> Callable[[Chooser, int], ChatPrompt]:
    """A function that makes a prompt, from one that makes its text."""
    return lambda choose, number: _ask(text_of_form(choose, number))


_FORMS: dict[str, Callable[[Chooser, int], ChatPrompt]] = {
    **{name: _ask_maker(text) for name, text in TEXTS.items()},
    "json": _json_form,
    "math": _math,
    "needle": _needle,
    "summarise": _summarise,
    "summarise-long": _summarise_long,
    "tool-call": _tool_call,
    "travel": _travel,
}
#: The values of `more:`.
MORE_FORMS = tuple(sorted(_FORMS))


def more_prompts(form: str, seed: int) -> Iterator[ChatPrompt]:
    """Yield prompts of a form, without ids and no two equal, until the form is exhausted."""
    choose = Chooser("more", form, seed)
    texts: set[str] = set()
    number = last_new = (seed + 1) * _PER_SEED  # passage numbers: the current one, and that of the last new prompt
    while number - last_new < _TRIES:
        number += 1
        ask = _FORMS[form](choose, number)
        text: str = ask["messages"][0]["content"]
        if text not in texts:
            texts.add(text)
            last_new = number
            yield ask


def add_synthetic(
    kinds: Mapping[str, list[PromptEntry]], forms: Mapping[str, str], number: int, seed: int
) -> dict[str, int]:
    """Add synthetic prompts to ``kinds`` until they have ``number`` in all; return how many were added to each kind.

    The kind with the fewest prompts is next. ``forms`` has the form of each kind that may grow. No added prompt equals
    another prompt of any kind. When all forms are exhausted, the total stays below ``number``.
    """
    messages_seen: set[str] = set()
    ids: set[str] = set()
    for prompt in itertools.chain.from_iterable(kinds.values()):
        messages_seen.add(_messages_key(prompt))
        ids.add(prompt["id"])
    # Each kind has its own seed, so that two kinds of one form get different prompts.
    sources = {kind: more_prompts(form, seed + place * 1000) for place, (kind, form) in enumerate(forms.items())}
    added: dict[str, int] = {}
    missing_count = number - sum(map(len, kinds.values()))
    while missing_count > 0 and sources:
        kind = min(sources, key=lambda name: len(kinds[name]))
        ask = next((ask for ask in sources[kind] if _messages_key(ask) not in messages_seen), None)
        if ask is None:
            del sources[kind]
            continue
        messages_seen.add(_messages_key(ask))
        added[kind] = added_number = added.get(kind, 0) + 1
        prompt_id = f"{kind.replace(REPEAT, '-')}-synthetic-{added_number:03d}"
        while prompt_id in ids:
            prompt_id += "-"
        ids.add(prompt_id)
        synthetic: PromptEntry = {"id": prompt_id, "messages": ask["messages"]}
        copy_request_fields(synthetic, ask)
        if "expect" in ask:
            synthetic["expect"] = ask["expect"]
        kinds[kind].append(synthetic)
        missing_count -= 1
    return added


def _messages_key(prompt: ChatPrompt) -> str:
    """The messages of a prompt as a text, to recognise equal ones."""
    return repr(prompt["messages"])
