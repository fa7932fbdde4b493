"""Choose the prompts of the tuner's search, and other prompts for the final measurement of the winner.

The final measurement uses the prompts of the declared kinds in the profile's experiment, at the same temperatures. The
search uses the suite `tune`, which no experiment uses, so that the winner is not fitted to the prompts that judge it.
If `tune` lacks a kind, half of the profile's prompts of that kind go to each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..bench.groups import PromptFields, request_fields
from ..bench.stats import values_needed
from ..core.errors import one_problem
from ..prompts.checks import JSON, NEEDLE, TOOLS
from ..prompts.suites import Prompt, expand

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.prompts.suite_types import Suite

SUITE = "tune"  # the suite below `benchmarks/` for the search
FIRST_PROMPTS = 4  # fewest prompts of a trial; a trial is one server start and its prompts


class TuneRequest(PromptFields):
    """A request as plain data for the module that measures: fields of `bench.client.Ask`."""

    temperature: float


@dataclass(frozen=True)
class TunePrompts:
    """The requests of the tuner."""

    search: tuple[TuneRequest, ...]  # of the search, in the order in which they are sent
    final: tuple[TuneRequest, ...]  # of the final measurement, in the order in which they are sent
    first: int  # number of requests in the first, shortest trials; at least one of each kind where there are enough
    notes: tuple[str, ...]  # remarks for the report: kinds that were split, or too few prompts for the concurrency
    gates: tuple[TuneRequest, ...] = ()  # whose answers can be checked: JSON, tool calls, words from a long text

    @property
    def weight(self) -> float:
        """Output token limit of the final measurement per timed request, over the mean of a search request."""
        final_tokens = sum(request["output_tokens"] for request in (*self.final, *self.gates))
        search_tokens = sum(request["output_tokens"] for request in self.search)
        return (final_tokens / len(self.final)) / (search_tokens / len(self.search))


def prompts_for(resolved: ResolvedProfile, tune_suite: Suite, full_suites: Mapping[str, Suite]) -> TunePrompts:
    """The requests for a resolved profile.

    ``resolved`` holds the profile's suites cut to `prompts_per_kind`, ``full_suites`` holds them uncut. ``tune_suite``
    is the suite `tune`. Raises DrafthouseError if there are too few prompts of the declared kinds to search with, or
    too few for the interval of the final measurement.
    """
    experiment = resolved["experiment"]
    kinds = experiment["kinds"] or [kind for suite in resolved["suites"].values() for kind in suite["kinds"]]
    search, final, notes = _split(resolved, kinds, tune_suite, full_suites)
    _check(resolved, kinds, search, final)
    temperatures = tuple(map(float, experiment["temperatures"]))
    limit = experiment.get("max_output_tokens")
    search_asks = []
    final_asks = []
    # The search sends a prompt at one temperature, which alternate; the final measurement sends it at all of them.
    for prompt, index in _interleaved(search):
        choices = prompt.temperatures or temperatures
        search_asks.append(_request(prompt, limit, choices[index % len(choices)]))
    for prompt, _ in _interleaved(final):
        for temperature in prompt.temperatures or temperatures:
            final_asks.append(_request(prompt, limit, temperature))
    concurrency = int(experiment["concurrency"])
    if len(search_asks) < concurrency:
        notes.append(f"the search has {len(search_asks)} prompts, fewer than the {concurrency} streams of the profile")
    # The first trials: a prompt of each kind, as many as the profile sends at a time, yet half stay for later trials.
    first_wanted = max(FIRST_PROMPTS, len(kinds), min(concurrency, len(search_asks) // 2))
    first = min(len(search_asks), first_wanted)
    return TunePrompts(
        search=tuple(search_asks),
        final=tuple(final_asks),
        first=first,
        notes=tuple(notes),
        gates=_gates(resolved["suites"], limit),
    )


def _split(
    resolved: ResolvedProfile, kinds: Sequence[str], tune_suite: Suite, full_suites: Mapping[str, Suite]
) -> tuple[list[list[Prompt]], list[list[Prompt]], list[str]]:
    """The prompts of search and final measurement, a list per kind, and a note for each kind that is split."""
    cut_prompts = _by_kind(resolved["suites"])
    all_prompts = _by_kind(full_suites)
    tune_prompts = expand(tune_suite)
    # If the cut leaves too few prompts for the interval of a median, the final measurement uses all of them.
    enough = sum(len(cut_prompts[kind]) for kind in kinds) >= values_needed()
    search: list[list[Prompt]] = []
    final: list[list[Prompt]] = []
    notes: list[str] = []
    for kind in kinds:
        profile_texts = set(map(_text, all_prompts[kind]))
        unseen = [prompt for prompt in tune_prompts.get(kind, ()) if _text(prompt) not in profile_texts]
        if unseen:
            search.append(unseen)
            final.append(cut_prompts[kind] if enough else all_prompts[kind])
        else:
            # Not only the cut ones, so that each half has as many as possible.
            search.append(all_prompts[kind][::2])
            final.append(all_prompts[kind][1::2])
            notes.append(
                f"the suite '{SUITE}' has no prompts of its own of the kind '{kind}': half of the profile's are "
                "used for the search, the other half for the re-measurement"
            )
    return search, final, notes


def _gates(suites: Mapping[str, Suite], limit: int | None) -> tuple[TuneRequest, ...]:
    """The requests, at temperature 0, for the prompts of the profile's suites whose single answers can be checked."""
    requests = []
    for prompts in _by_kind(suites).values():
        for prompt in prompts:
            # A gate with "again" compares answers to a repeated prompt.
            if prompt.gate and prompt.gate["name"] in (JSON, TOOLS, NEEDLE) and "again" not in prompt.gate:
                requests.append(_request(prompt, limit, 0.0))
    return tuple(requests)


def _by_kind(suites: Mapping[str, Suite]) -> dict[str, list[Prompt]]:
    """The prompts of the suites by kind; a prompt that a suite repeats appears once."""
    by_kind: dict[str, list[Prompt]] = {}
    for suite in suites.values():
        unrepeated: Suite = {**suite, "kinds": {name: {**kind, "repeat": 1} for name, kind in suite["kinds"].items()}}
        for kind, prompts in expand(unrepeated).items():
            by_kind.setdefault(kind, []).extend(prompts)
    return by_kind


def _interleaved(prompts_by_kind: Sequence[Sequence[Prompt]]) -> list[tuple[Prompt, int]]:
    """The prompts of all kinds, first the first of each kind, with an index by which the temperatures alternate."""
    interleaved = []
    for prompt_index in range(max(map(len, prompts_by_kind))):
        for kind_index, prompts in enumerate(prompts_by_kind):
            if prompt_index < len(prompts):
                interleaved.append((prompts[prompt_index], prompt_index + kind_index))
    return interleaved


def _request(prompt: Prompt, limit: int | None, temperature: float) -> TuneRequest:
    """The request for a prompt, with at most ``limit`` output tokens; None or 0: no limit beside the prompt's own."""
    tokens = prompt.output_tokens
    if limit:
        tokens = min(tokens, limit)
    return {**request_fields(prompt), "output_tokens": tokens, "temperature": temperature}


def _text(prompt: Prompt) -> str:
    """The prompt's messages as text, to recognise the same prompt in another suite."""
    return json.dumps(prompt.messages, sort_keys=True, default=str)


def _check(
    resolved: ResolvedProfile,
    kinds: Sequence[str],
    search: Sequence[Sequence[Prompt]],
    final: Sequence[Sequence[Prompt]],
) -> None:
    """Raise DrafthouseError if there are too few prompts for the search or for the final measurement."""
    final_prompts = sum(map(len, final))
    search_prompts = sum(map(len, search))
    if final_prompts >= values_needed() and search_prompts >= FIRST_PROMPTS:
        return
    raise one_problem(
        "too-few-prompts",
        f"{search_prompts} prompts to search and {final_prompts} to judge, of the kinds {', '.join(kinds)}",
        f"{FIRST_PROMPTS} and {values_needed()}: an interval of a median needs that many",
        f"write more prompts of these kinds ({2 * values_needed()} or more where the suite '{SUITE}' has none)",
        f"profiles/{resolved['profile']}.yml: experiment.kinds",
    )
