"""Which prompts the tuner searches with, and which it keeps unseen for the re-measurement. Pure.

The re-measurement asks what the profile's experiment asks of its declared kinds of work, at the same temperatures.
The search asks prompts of the suite `tune`, which no profile's experiment has, so that nothing is tuned to the
prompts that judge it. A kind that this suite lacks (a user's own) is divided: a half for each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..bench.groups import PromptFields, ask_fields
from ..bench.stats import values_needed
from ..core.errors import one_problem
from ..prompts.suites import Prompt, expand

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.prompts.suite_types import Suite

#: The suite of `benchmarks/` that belongs to the search.
SUITE = "tune"
#: How many prompts the first and shortest run asks at least.
FIRST_PROMPTS = 4


class TuneAsk(PromptFields):
    """A prompt as plain data for the box: fields of `client.Ask`."""

    temperature: float


@dataclass(frozen=True)
class TunePrompts:
    """Both sets of prompts, in the order they are asked."""

    search: tuple[TuneAsk, ...]
    final: tuple[TuneAsk, ...]
    first: int
    """How many the shortest run asks: of each kind one at least."""
    notes: tuple[str, ...]
    """What a reader of the result must know about them."""

    @property
    def weight(self) -> float:
        """The output tokens of an answer of the re-measurement over those of the search."""
        return _mean_tokens(self.final) / _mean_tokens(self.search)


def prompts_for(resolved: ResolvedProfile, own_suite: Suite, whole: Mapping[str, Suite]) -> TunePrompts:
    """The prompts for a resolved profile.

    ``own_suite`` is the suite `tune`, ``whole`` the profile's suites with all the prompts they have: ``resolved``
    holds them with as many as the experiment wants. Raises DrafthouseError when the declared kinds have too few prompts
    for a re-measurement that can be believed.
    """
    experiment = resolved["experiment"]
    names = experiment["kinds"] or [kind for suite in resolved["suites"].values() for kind in suite["kinds"]]
    wanted, everything, mine = _by_kind(resolved["suites"]), _by_kind(whole), expand(own_suite)
    enough = sum(len(wanted[kind]) for kind in names) >= values_needed()
    search: list[list[Prompt]] = []
    final: list[list[Prompt]] = []
    notes: list[str] = []
    for kind in names:
        seen = set(map(_text, everything[kind]))
        others = [prompt for prompt in mine.get(kind, ()) if _text(prompt) not in seen]
        if others:
            search.append(others)
            final.append(wanted[kind] if enough else everything[kind])
        else:
            search.append(everything[kind][::2])
            final.append(everything[kind][1::2])
            notes.append(
                f"the suite '{SUITE}' has no prompts of its own of the kind '{kind}': half of the profile's are "
                "used for the search, the other half for the re-measurement"
            )
    _check(resolved, names, search, final)
    usual = tuple(map(float, experiment["temperatures"]))
    limit = experiment.get("max_output_tokens")
    asks, judged = [], []
    for prompt, turn in _in_turns(search):
        heat = prompt.temperatures or usual
        asks.append(_ask(prompt, limit, heat[turn % len(heat)]))
    for prompt, _ in _in_turns(final):
        for temperature in prompt.temperatures or usual:
            judged.append(_ask(prompt, limit, temperature))
    streams = int(experiment["concurrency"])
    if len(asks) < streams:
        notes.append(f"the search has {len(asks)} prompts, fewer than the {streams} streams of the profile")
    first = min(len(asks), max(FIRST_PROMPTS, len(names), min(streams, len(asks) // 2)))
    return TunePrompts(tuple(asks), tuple(judged), first, tuple(notes))


def _by_kind(suites: Mapping[str, Suite]) -> dict[str, list[Prompt]]:
    """The prompts of every kind; one that a suite repeats counts once."""
    found: dict[str, list[Prompt]] = {}
    for suite in suites.values():
        once: Suite = {**suite, "kinds": {name: {**kind, "repeat": 1} for name, kind in suite["kinds"].items()}}
        for kind, prompts in expand(once).items():
            found.setdefault(kind, []).extend(prompts)
    return found


def _in_turns(kinds: Sequence[Sequence[Prompt]]) -> list[tuple[Prompt, int]]:
    """The prompts of all kinds in turns, with a number by which their temperatures alternate."""
    turns = []
    for place in range(max(map(len, kinds))):
        for number, kind in enumerate(kinds):
            if place < len(kind):
                turns.append((kind[place], place + number))
    return turns


def _ask(prompt: Prompt, limit: int | None, temperature: float) -> TuneAsk:
    tokens = prompt.output_tokens
    if limit:
        tokens = min(tokens, limit)
    return {**ask_fields(prompt), "output_tokens": tokens, "temperature": temperature}


def _mean_tokens(asks: Sequence[TuneAsk]) -> float:
    return sum(ask["output_tokens"] for ask in asks) / len(asks)


def _text(prompt: Prompt) -> str:
    return json.dumps(prompt.messages, sort_keys=True, default=str)


def _check(
    resolved: ResolvedProfile,
    names: Sequence[str],
    search: Sequence[Sequence[Prompt]],
    final: Sequence[Sequence[Prompt]],
) -> None:
    """Raise DrafthouseError when there are too few prompts to search with, or to judge with."""
    judged, searched = sum(map(len, final)), sum(map(len, search))
    if judged >= values_needed() and searched >= FIRST_PROMPTS:
        return
    raise one_problem(
        "too-few-prompts",
        f"{searched} prompts to search and {judged} to judge, of the kinds {', '.join(names)}",
        f"{FIRST_PROMPTS} and {values_needed()}: an interval of a median needs that many",
        f"write more prompts of these kinds ({2 * values_needed()} or more where the suite '{SUITE}' has none)",
        f"profiles/{resolved['profile']}.yml: experiment.kinds",
    )
