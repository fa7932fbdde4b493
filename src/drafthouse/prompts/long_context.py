"""Generate long texts for prompts: a logbook of any length, with a needle (a sentence to be found) put into it.

The same seed gives the same text on every machine and every Python: words are chosen by a hash, not by a random
generator, whose sequence may change between versions. No two days of a logbook are equal.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..core.schema import Findings

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Long, PromptEntry

#: Placeholder in a prompt that the long text replaces.
MARK = "{long_text}"
#: Characters of English per token, from 4.0 to 4.8 by tokenizer: the lowest keeps a text from being too long.
CHARACTERS_A_TOKEN = 4.0
#: The same for a text that must fit into a context: some tokenizers make a token of every digit.
CHARACTERS_A_TOKEN_AT_LEAST = 3.2
#: Tokens reserved for the rest of the prompt and for the chat template.
AROUND = 200
#: Shortest length of a long text, in tokens.
FEWEST_TOKENS = 300

Item = TypeVar("Item")


class Chooser:
    """Pseudo-random choices from SHA-256 of a seed and the number of the choice, so their order matters."""

    def __init__(self, *seed: object) -> None:
        self.seed = ":".join(map(str, seed))
        self.choices = 0

    def number(self, below: int) -> int:
        """A whole number from 0 to ``below`` - 1."""
        self.choices += 1
        digest = hashlib.sha256(f"{self.seed}:{self.choices}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % below

    def one(self, items: Sequence[Item]) -> Item:
        """An item of a sequence, all equally likely."""
        return items[self.number(len(items))]


# --- the words ------------------------------------------------------------------------------------

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # of each month
_WEATHER = (
    "Fog until the late morning, then a weak sun",
    "A clear and windless day, warmer than the season would have it",
    "Rain from first light, and it did not stop before we went to bed",
    "A gale in the night took two slates off the roof",
    "Frost on the inside of the windows",
    "Low cloud and a wind that turned three times",
    "Thunder in the distance all afternoon, but not a drop fell here",
    "Bright and cold, with a ring around the moon in the evening",
    "Sleet, then hail, then an hour of blue sky as if to make up for it",
    "Mild and grey, the kind of day that leaves nothing to remember",
    "The first warm evening, and people stayed outside until dark",
    "Snow to the height of the second step",
)
_WHO = (
    "Alma", "old Bertram", "the younger Quist", "Doreen from the office", "the apprentice", "Mr Okafor", "Ines",
    "the night watchman", "Tobias", "Mrs Lindqvist", "the doctor's son", "Hettie", "Captain Roe",
    "the new clerk", "Father Anselm", "a woman from the mill", "the carpenter", "Yusuf",
)  # fmt: skip
_MOODS = (
    "nobody complained", "which surprised us all", "as had been feared", "to general relief", "without much talk",
    "for the second time this year", "although the letter had said otherwise", "and we left it at that",
    "against the advice of everyone", "which cost us half a day", "and was thanked for it", "before breakfast",
)  # fmt: skip
_SETTINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "harbour": {
        "title": ("Logbook of the harbour office",),
        "thing": (
            "the tide gauge", "the green buoy", "the small crane", "the rowing boat", "the signal lamp", "the slipway",
            "the fish scales", "the fog horn", "the inner gate", "the mooring at the north wall", "the tar store",
        ),
        "goods": (
            "salted herring", "roof tiles", "coal", "a church bell", "seed potatoes", "barrels of pitch", "timber",
            "sugar", "glass for the greenhouse", "rope", "two crates of books", "a disassembled loom",
        ),
        "comer": (
            "the ketch Marigold", "a collier from the north", "the mail steamer", "a Danish brig", "three trawlers",
            "the pilot cutter", "a yacht with nobody on deck", "the dredger", "the late ferry",
        ),
        "place": (
            "at the north wall", "in the inner basin", "off the bar", "beside the weigh house", "by the old steps",
        ),
    },
    "farm": {
        "title": ("Daybook of the upper farm",),
        "thing": (
            "the cider press", "the well", "the barn door", "the seed drill", "the goose house", "the long hedge",
            "the threshing floor", "the sheep dip", "the lower gate", "the beehives", "the hay cart",
        ),
        "goods": (
            "wool", "apples", "seed barley", "milk cans", "a new ploughshare", "lime for the meadow", "plum trees",
            "candle wax", "forty eggs", "oat straw", "fence posts", "a second-hand churn",
        ),
        "comer": (
            "the miller's wagon", "a pedlar with needles", "the vet", "the cattle dealer", "a school class",
            "the surveyor", "a man who asked for work", "the beekeepers' society", "the tax collector",
        ),
        "place": ("in the walled garden", "at the ford", "under the chestnut", "behind the dairy", "on the high field"),
    },
    "station": {
        "title": ("Register of the railway station",),
        "thing": (
            "the platform clock", "the water crane", "the ticket window", "the signal wire", "the waiting-room stove",
            "the turntable", "the luggage scale", "the gas lamp", "the level crossing", "the goods shed",
        ),
        "goods": (
            "a piano", "crates of pigeons", "mail sacks", "bicycles", "cut flowers", "a stuffed bear", "sacks of flour",
            "theatre costumes", "machine parts", "an empty coffin", "milk churns", "newspapers of the day before",
        ),
        "comer": (
            "the morning express", "a special train with pilgrims", "the slow goods train", "the inspector",
            "a regiment on its way south", "the circus", "the last train from the coast", "a pair of locomotives",
        ),
        "place": (
            "on platform two", "at the crossing", "in the goods yard", "beside the water tower", "under the clock",
        ),
    },
}  # fmt: skip
_SENTENCES = (
    "{Who} repaired {thing} {place}, {mood}.",
    "{Comer} arrived with {goods} and left again within the hour.",
    "We counted {goods} twice and were short both times, so {who} will write to the sender.",
    "{Who} asked for a day's leave to see a sister, and {who2} took over.",
    "There was a quarrel about {thing} between {who} and {who2}, {mood}.",
    "{Comer} stood {place} the whole afternoon.",
    "A parcel came for {who}; it held {goods} and no letter.",
    "{Thing} will need new paint, but {who} thinks that it can wait until the summer.",
    "In the evening {who} told the story of {comer} again, and this time it ended differently.",
    "Somebody had left {goods} {place}; {who} has put a notice on the door.",
    "{Who} proposes to move {thing} to where it is dry, and the committee will look at it on Monday.",
    "Lunch was late because {who} had gone to meet {comer}.",
    "{Comer} brought news of a wedding, and {who} went home early, {mood}.",
    "The children were found playing {place}, with {thing} as their castle.",
    "{Who} finished the inventory: {goods} are missing, {thing} is there twice.",
    "A dog followed {who} home and was fed, {mood}.",
    "{Goods} went to the hospital, and the bill to {who}.",
    "{Thing} made its old noise again, and {who} says that it must be the damp.",
    "A visitor drew {thing} and gave the sheet to {who}.",
    "Nothing came in and nothing went out; {who} swept the floor {place}.",
    "{Who} lost a glove {place} and offers {goods} to the finder.",
    "Two strangers asked the way and were shown {thing} instead, {mood}.",
    "{Who} has begun to learn the flute; {who2} has asked for another room.",
    "By lantern light {who} and {who2} carried {goods} past {thing}.",
    "{Comer} had to wait because {thing} was in the way.",
    "{Who} wrote down the names of all who had seen {comer}, eleven in all.",
    "The lock of {thing} is stiff again, and {who} keeps the only oil can.",
    "{Who} bought {goods} for less than last year, {mood}.",
)


def days(seed: int, setting: str = "harbour") -> Iterator[str]:
    """Yield the days of a logbook without end, each a paragraph of about 60 words."""
    choose = Chooser("days", seed, setting)
    words = _SETTINGS[setting]
    month = choose.number(12)  # from 0
    day = choose.number(28)
    recent: list[str] = []
    while True:
        day += 1 + choose.number(3)
        if day > _DAYS[month]:
            day -= _DAYS[month]
            month = (month + 1) % 12
        # The last 40 sentences are not repeated, and a day uses each form of sentence once.
        weather = choose.one([weather for weather in _WEATHER if weather not in recent])
        unused_forms = list(_SENTENCES)
        sentences: list[str] = []
        while len(sentences) < 4:
            form = choose.one(unused_forms)
            sentence = _sentence(choose, words, form)
            if sentence not in recent:
                sentences.append(sentence)
                unused_forms.remove(form)
        recent = [*recent, weather, *sentences][-40:]
        yield f"{day} {_MONTHS[month]}. {weather}. {' '.join(sentences)}"


def _sentence(choose: Chooser, words: Mapping[str, Sequence[str]], form: str) -> str:
    """A sentence of a form, filled with chosen words; ``words`` are those of the setting."""
    who = choose.one(_WHO)
    who2 = choose.one(_WHO)
    picked = {name: choose.one(words[name]) for name in ("thing", "goods", "comer", "place")}
    if who2 == who:
        who2 = "a stranger"
    picked |= {"who": who, "who2": who2, "mood": choose.one(_MOODS)}
    capitalised = {name.capitalize(): value[0].upper() + value[1:] for name, value in picked.items()}
    return form.format(**picked, **capitalised)


def passage(seed: int, setting: str) -> str:
    """The first day of a logbook without its date, as a short text to copy or summarise."""
    _date, _, text = next(days(seed, setting)).partition(". ")
    return text


@functools.lru_cache(maxsize=64)  # texts of about 40 kB; every resolve in a process needs the same ones
def long_text(
    characters: int,
    seed: int,
    setting: str = "harbour",
    needle: str | None = None,
    depth: float = 0.5,
    without: str = "",
) -> str:
    """A logbook of whole days with at most ``characters`` characters.

    ``needle`` is a paragraph after the fraction ``depth`` of the days, None for none. Days that contain ``without`` are
    skipped, unless that is "".
    """
    # Paragraphs are separated by two characters.
    room = characters - len(_SETTINGS[setting]["title"][0]) - 2
    if needle:
        room -= len(needle) + 2
    chosen: list[str] = []
    for day in days(seed, setting):
        if without and without.casefold() in day.casefold():
            continue
        room -= len(day) + 2
        if room < 0:
            break
        chosen.append(day)
    if needle:
        chosen.insert(round(depth * len(chosen)), needle)
    return "\n\n".join([*_SETTINGS[setting]["title"], *chosen])


# --- in a suite -----------------------------------------------------------------------------------


def check_long(prompt: PromptEntry, findings: Findings, path: str) -> None:
    """Add to ``findings`` the problems of a prompt's `long:`; the prompt's shape and messages are checked already."""
    marks = 0
    if prompt["messages"]:
        content = prompt["messages"][-1]["content"]
        if isinstance(content, str):
            marks = content.count(MARK)
    long = prompt.get("long")
    if long is None:
        if marks:
            findings.add(
                "missing-key",
                f"{path}.messages",
                f"{MARK} without a text",
                "the key 'long'",
                "add 'long:' to the prompt",
            )
        return
    if marks != 1:
        findings.add(
            "long-prompt-inconsistent",
            f"{path}.messages",
            f"{MARK} {marks} times in the last message",
            "once",
            f"write {MARK} where the text goes",
        )
    _check_expected_words(prompt, long, findings, path)
    if "depth" in long and "needle" not in long:
        findings.add(
            "missing-key", f"{path}.long.depth", "a depth without a needle", "a needle", "add it, or remove the key"
        )


def _check_expected_words(prompt: PromptEntry, long: Long, findings: Findings, path: str) -> None:
    """Add a problem for expected words that the needle lacks, or that a logbook may have without it."""
    expected = (prompt.get("expect") or {}).get("contains", "")
    if "needle" in long and expected.casefold() not in long["needle"].casefold():
        findings.add(
            "long-prompt-inconsistent",
            f"{path}.expect.contains",
            f"'{expected}'",
            "words of the needle",
            "what is expected must stand in the text",
        )
    elif expected and any(expected.casefold() in day.casefold() for day, _ in zip(days(0), range(50), strict=False)):
        findings.add(
            "long-prompt-inconsistent",
            f"{path}.expect.contains",
            f"'{expected}'",
            "words that only the needle has",
            "choose a number or a name",
        )
