"""More prompts of a kind than its suite has, where a measurement asks for more: synthetic, and no two alike.

A kind says with `more:` which form they have (a kind that is `made:` has its own form). They are asked of the server
like the kind's own prompts, at its output length and with its tools, and what a gate looks at has its answer in it.
The same form and seed give the same prompts on every machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from .checks import take_asks
from .long_context import CHARACTERS_A_TOKEN, Chooser, days, long_text
from .synthetic import REPEAT, SETTINGS, TEXTS

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Ask, JsonSchema, PromptEntry, ResponseFormat

#: A form is spent after so many tries in a row that gave nothing new.
_TRIES = 500
#: Passages are numbered; those of one seed begin so far behind those of the one before.
_PER_SEED = 1_000_000
#: Tokens of the synthetic long texts, as short as the shortest of the suites: they fit most contexts.
_LONG_TOKENS = 3000
_NEEDLE_TOKENS = 2000

_SUMMARISE = (
    "Summarise the following text in two sentences:",
    "What are the main points of this text? Answer in two sentences.",
    "Shorten this text to a third of its length:",
    "Give this text a title and sum it up in one sentence:",
)
_LONG = (
    "Summarise this logbook in five sentences.",
    "List what was repaired or needs to be, one line each.",
    "Describe the weather of these weeks in one paragraph.",
    "Which visitors came, and what did they bring? Answer as a list.",
    "What would you ask the people who wrote this? Give four questions with your reasons.",
)
_NAMES = ("Ada", "Bruno", "Chiara", "Dmitri", "Esi", "Farid", "Greta", "Hugo", "Ilse", "Jonas", "Kei", "Lena")
_THINGS = ("notebooks", "lamps", "chairs", "tickets", "plants", "cups", "tiles", "jars of honey", "bags of soil")
_MATH = (
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
_TRIPS = (
    "Which three sights come first, and why?", "What do you pack?", "Plan it day by day.",
    "How do you keep it cheap?", "What will you do when it rains?", "How do you balance rest and adventure?",
)  # fmt: skip
_CITIES = (
    "Aarhus", "Basel", "Coimbra", "Dresden", "Exeter", "Faro", "Gdansk", "Haarlem", "Izmir", "Jena", "Kotor", "Lille",
    "Mostar", "Namur", "Oulu", "Porto", "Riga", "Siena", "Tartu", "Uppsala", "Verona", "Wroclaw", "York", "Zadar",
)  # fmt: skip
_OUTINGS = ("a picnic", "a bicycle tour", "a street party", "hanging out the washing", "painting the fence", "a hike")
_TIMED = ("The bread must rise", "My tea draws", "The parking meter runs", "The paint dries", "The dog sleeps")
_CALLS: dict[str, tuple[str, ...]] = {
    "get_weather": ("Will it rain in {city} {day}?", "Is {day} a good day for {outing} in {city}?"),
    "set_timer": ("{timed} for {n} minutes. Please tell me when that is over.", "Wake me in {n} minutes{loud}."),
    "find_trains": (
        "How do I get from {city} to {other} after {hour} o'clock?",
        "Is there a direct train from {city} to {other} {day}?",
    ),
}
_NEEDLES = (
    ("The spare key of the {what} has the number {n}.", "Which number has the spare key of the {what}?"),
    ("The {what} was sold for {n} crowns.", "For how many crowns was the {what} sold?"),
    ("The {what} was built in {n} days.", "In how many days was the {what} built?"),
)
_WHAT = ("copper kettle", "marble bench", "organ", "weather vane", "sledge", "globe", "ice cellar", "dovecote")
_ENTRY: JsonSchema = {
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


def _summarise(choose: Chooser, number: int) -> Ask:
    text = " ".join(day.partition(". ")[2] for day in itertools.islice(days(number, choose.one(SETTINGS)), 2))
    return _said(f"{choose.one(_SUMMARISE)}\n\n{text}")


def _summarise_long(choose: Chooser, number: int) -> Ask:
    text = long_text(int(CHARACTERS_A_TOKEN * _LONG_TOKENS), number, choose.one(SETTINGS))
    return _said(f"{choose.one(_LONG)}\n\n{text}")


def _math(choose: Chooser, number: int) -> Ask:
    a = choose.number(len(_NAMES))
    b = (a + 1 + choose.number(len(_NAMES) - 1)) % len(_NAMES)
    numbers = {"p": 2 + choose.number(12), "q": 14 + choose.number(20), "n": 60 + choose.number(90)}
    numbers["m"] = 200 + choose.number(400)
    problem = choose.one(_MATH).format(a=_NAMES[a], b=_NAMES[b], thing=choose.one(_THINGS), **numbers)
    return _said(f"{problem} Show your working.")


def _travel(choose: Chooser, number: int) -> Ask:
    trip = f"Imagine {choose.one(_LENGTHS)} in {choose.one(_PLACES)}, {choose.one(_COMPANIONS)}."
    return _said(f"{trip} Describe the place and its culture. {choose.one(_TRIPS)}")


def _json(choose: Chooser, number: int) -> Ask:
    text = next(days(number, choose.one(SETTINGS)))
    form: ResponseFormat = {"type": "json_schema", "json_schema": {"name": "entry", "strict": True, "schema": _ENTRY}}
    return {**_said(f"Read this entry of a logbook and fill in the form as JSON:\n\n{text}"), "response_format": form}


def _call(choose: Chooser, number: int) -> Ask:
    tool = choose.one(sorted(_CALLS))
    city = choose.number(len(_CITIES))
    other = (city + 1 + choose.number(len(_CITIES) - 1)) % len(_CITIES)
    text = choose.one(_CALLS[tool]).format(
        city=_CITIES[city],
        other=_CITIES[other],
        day=choose.one(("today", "tomorrow")),
        outing=choose.one(_OUTINGS),
        timed=choose.one(_TIMED),
        n=2 + choose.number(200),
        loud=choose.one(("", ", loudly", ", softly")),
        hour=6 + choose.number(15),
    )
    return {**_said(text), "expect": {"tool": tool}}


def _needle(choose: Chooser, number: int) -> Ask:
    hidden = str(2000 + choose.number(7000))
    needle, question = choose.one(_NEEDLES)
    what, depth = choose.one(_WHAT), choose.number(100) / 100
    characters = int(CHARACTERS_A_TOKEN * _NEEDLE_TOKENS)
    text = long_text(characters, number, choose.one(SETTINGS), needle.format(what=what, n=hidden), depth, hidden)
    asked = _said(f"{text}\n\n{question.format(what=what)} Answer with the number alone.")
    return {**asked, "expect": {"contains": hidden}}


def _said(text: str) -> Ask:
    return {"messages": [{"role": "user", "content": text}]}


def _of_text(text: Callable[[Chooser, int], str]) -> Callable[[Chooser, int], Ask]:
    return lambda choose, number: _said(text(choose, number))


_FORMS: dict[str, Callable[[Chooser, int], Ask]] = {
    **{name: _of_text(text) for name, text in TEXTS.items()},
    "json": _json,
    "math": _math,
    "needle": _needle,
    "summarise": _summarise,
    "summarise-long": _summarise_long,
    "tool-call": _call,
    "travel": _travel,
}
#: The words of `more:`.
MORE_FORMS = tuple(sorted(_FORMS))


def more_prompts(form: str, seed: int) -> Iterator[Ask]:
    """Prompts of a form without ids, no two alike, until its parts are spent."""
    choose = Chooser("more", form, seed)
    texts: set[str] = set()
    number = last = (seed + 1) * _PER_SEED
    while number - last < _TRIES:
        number += 1
        ask = _FORMS[form](choose, number)
        text: str = ask["messages"][0]["content"]
        if text not in texts:
            texts.add(text)
            last = number
            yield ask


def lengthen(
    kinds: Mapping[str, list[PromptEntry]], forms: Mapping[str, str], number: int, seed: int
) -> dict[str, int]:
    """Add synthetic prompts to ``kinds`` until they have ``number`` in all, and return how many to each.

    The shortest grows first. ``forms`` names the form of each kind that can have more. None is like one that is
    there, in any kind. With all the forms spent it ends with fewer than ``number``.
    """
    there, ids = set(), set()
    for prompt in itertools.chain.from_iterable(kinds.values()):
        there.add(_key(prompt))
        ids.add(prompt["id"])
    # Each kind draws from a sequence of its own: two kinds of one form are not to have the same prompts.
    sources = {kind: more_prompts(form, seed + place * 1000) for place, (kind, form) in enumerate(forms.items())}
    added: dict[str, int] = {}
    missing = number - sum(map(len, kinds.values()))
    while missing > 0 and sources:
        kind = min(sources, key=lambda one: len(kinds[one]))
        ask = next((ask for ask in sources[kind] if _key(ask) not in there), None)
        if ask is None:
            del sources[kind]
            continue
        there.add(_key(ask))
        added[kind] = turn = added.get(kind, 0) + 1
        name = f"{kind.replace(REPEAT, '-')}-synthetic-{turn:03d}"
        while name in ids:
            name += "-"
        ids.add(name)
        synthetic: PromptEntry = {"id": name, "messages": ask["messages"]}
        take_asks(synthetic, ask)
        if "expect" in ask:
            synthetic["expect"] = ask["expect"]
        kinds[kind].append(synthetic)
        missing -= 1
    return added


def _key(prompt: Ask) -> str:
    return repr(prompt["messages"])
