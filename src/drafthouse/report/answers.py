"""What a page shows of the requests themselves: a few answers side by side, and the tails of the latencies.

Neither stands in report.json: support bundles carry that, and what a model was asked and said is a person's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..analysis.answered import whole_text
from ..analysis.output_equality import OutputPair, pair_outputs
from ..bench.result_types import ArmResult, Request
from ..bench.results import percentile
from ..bench.samples import requests_of
from ..core.errors import DrafthouseError
from ..core.places import ROOT
from ..profiles.workspace import trimmed
from ..prompts.loader import load_suite
from ..prompts.suites import expand, prompt_hashes
from .data.measures import MEASURES
from .report_types import ARMS, Arm, KeptProfile

SHARES = (50, 95, 99)
_MOST_PAIRS = 4
# In characters: of a prompt, of what both arms said before they differ, and of what each said from there on.
_PROMPT, _BEFORE, _AFTER = 400, 200, 300


@dataclass(frozen=True)
class Side:
    """An arm's answer from the first difference on: the character that differs, and what follows it."""

    mark: str
    rest: str


@dataclass(frozen=True)
class AnswerPair:
    """A prompt's answers in one round; ``prompt`` is None where its text is not known any more."""

    prompt_id: str
    group: str
    round: int | None
    prompt: str | None
    equal: bool
    at: int
    of: int
    same: str
    sides: Mapping[Arm, Side]


@dataclass(frozen=True)
class Tail:
    """A latency of both arms at each of SHARES, in ms, over so many whole answers."""

    title: str
    values: dict[Arm, Sequence[float]]
    requests: dict[Arm, int]


@dataclass(frozen=True)
class Shown:
    """What a page shows beside its report."""

    answers: Sequence[AnswerPair] = ()
    tails: Sequence[Tail] = ()


def shown_of(results: Mapping[Arm, ArmResult], resolved: KeptProfile) -> Shown:
    """What the page of two results shows of their requests."""
    asked = {arm: requests_of(results[arm]) for arm in ARMS}
    return Shown(_answers(asked, resolved), _tails(asked))


def _tails(asked: Mapping[Arm, Sequence[Request]]) -> list[Tail]:
    found = []
    for name, title, unit, _, measure in MEASURES:
        if unit != "ms" or name == "tpot_ms":
            continue
        tail = Tail(title, {}, {})
        for arm in ARMS:
            values = [value for value in map(measure, asked[arm]) if value is not None]
            if values:
                tail.values[arm] = [percentile(values, share) or 0.0 for share in SHARES]
                tail.requests[arm] = len(values)
        if len(tail.values) == len(ARMS):
            found.append(tail)
    return found


def _answers(asked: Mapping[Arm, Sequence[Request]], resolved: KeptProfile) -> list[AnswerPair]:
    """A few pairs: of each kind one that differs, else one that is equal; what differs comes first."""
    pairs = pair_outputs(asked["baseline"], asked["speculative"])
    chosen: dict[str, OutputPair] = {}
    for pair in sorted(pairs, key=lambda pair: (pair.equal, pair.round or 0, pair.character)):
        chosen.setdefault(pair.group, pair)
    few = sorted(chosen.values(), key=lambda pair: pair.equal)[:_MOST_PAIRS]
    if not few:
        return []
    prompts = _prompts(resolved)
    baseline, speculative = _texts(asked["baseline"]), _texts(asked["speculative"])
    found = []
    for pair in few:
        key = _pair_key(pair)
        found.append(_pair(pair, {"baseline": baseline[key], "speculative": speculative[key]}, prompts))
    return found


def _texts(requests: Sequence[Request]) -> dict[tuple[str, str, int | None], str]:
    """The whole answers, reasoning included, by group, prompt and round."""
    return {_key(request): whole_text(request) for request in requests}


def _key(request: Request) -> tuple[str, str, int | None]:
    return str(request.get("group")), str(request.get("prompt_id")), request.get("round")


def _pair_key(pair: OutputPair) -> tuple[str, str, int | None]:
    return pair.group, pair.prompt_id, pair.round


def _pair(pair: OutputPair, texts: Mapping[Arm, str], prompts: Mapping[str, str]) -> AnswerPair:
    at = pair.character
    sides: dict[Arm, Side] = {}
    if pair.equal:
        same = _cut(texts["baseline"], _BEFORE + _AFTER)
        sides = dict.fromkeys(ARMS, Side("", ""))
    else:
        same = texts["baseline"][max(0, at - _BEFORE) : at]
        if at > _BEFORE:
            same = f"…{same}"
        for arm in ARMS:
            sides[arm] = Side(texts[arm][at : at + 1], _cut(texts[arm][at + 1 :], _AFTER))
    prompt = prompts.get(pair.prompt_id)
    return AnswerPair(pair.prompt_id, pair.group, pair.round, prompt, pair.equal, at, pair.characters, same, sides)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return text[:most] + "…"


def _prompts(resolved: KeptProfile) -> dict[str, str]:
    """The last message of each prompt by id, of those that a suite here still has as they were sent.

    A report keeps a hash of each. A suite that is gone or was changed gives nothing.
    """
    hashes: dict[str, str] = {}
    for prompts_of_kind in (resolved.get("prompts") or {}).values():
        hashes.update(prompts_of_kind)
    if not hashes:
        return {}
    found: dict[str, str] = {}
    for name in _suites(resolved):
        try:
            suite = trimmed(load_suite(name, ROOT / "benchmarks"), resolved)
        except (DrafthouseError, KeyError):
            continue
        now = prompt_hashes([suite])
        for kind, prompts in expand(suite).items():
            for prompt in prompts:
                message = prompt.messages[-1].get("content")
                if isinstance(message, str) and now[kind][prompt.id] == hashes.get(prompt.id):
                    found[prompt.id] = _cut(message, _PROMPT)
    return found


def _suites(resolved: KeptProfile) -> Iterable[str]:
    return (resolved.get("experiment") or {}).get("suites") or []
