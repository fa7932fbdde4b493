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
from .data.measures import MEASURES, values_of
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
    values: Mapping[Arm, Sequence[float]]
    requests: Mapping[Arm, int]


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
        values = {arm: values_of(asked[arm], measure) for arm in ARMS}
        if unit != "ms" or name == "tpot_ms" or not all(values.values()):
            continue
        at_shares = {arm: [percentile(values[arm], share) or 0.0 for share in SHARES] for arm in ARMS}
        found.append(Tail(title, at_shares, {arm: len(values[arm]) for arm in ARMS}))
    return found


def _answers(asked: Mapping[Arm, Sequence[Request]], resolved: KeptProfile) -> list[AnswerPair]:
    """A few pairs: of each kind one that differs, else one that is equal; what differs comes first."""
    pairs = pair_outputs(asked["baseline"], asked["speculative"])
    chosen: dict[str, OutputPair] = {}
    for pair in sorted(pairs, key=lambda pair: (pair.equal, pair.round or 0, pair.character)):
        chosen.setdefault(pair.group, pair)
    if not chosen:
        return []
    few = sorted(chosen.values(), key=lambda pair: pair.equal)[:_MOST_PAIRS]
    baseline, speculative = _texts(asked["baseline"]), _texts(asked["speculative"])
    prompts = _prompts(resolved)
    answers = []
    for pair in few:
        key = pair.group, pair.prompt_id, pair.round
        texts: dict[Arm, str] = {"baseline": baseline[key], "speculative": speculative[key]}
        answers.append(_pair(pair, texts, prompts))
    return answers


def _texts(requests: Iterable[Request]) -> dict[tuple[str, str, int | None], str]:
    """The whole text of each answer by group, prompt and round."""
    texts: dict[tuple[str, str, int | None], str] = {}
    for request in requests:
        key = str(request.get("group")), str(request.get("prompt_id")), request.get("round")
        texts[key] = whole_text(request)
    return texts


def _pair(pair: OutputPair, texts: Mapping[Arm, str], prompts: Mapping[str, str]) -> AnswerPair:
    at = pair.character
    if pair.equal:
        same, sides = _cut(texts["baseline"], _BEFORE + _AFTER), {arm: Side("", "") for arm in ARMS}
    else:
        same = texts["baseline"][max(0, at - _BEFORE) : at]
        if at > _BEFORE:
            same = f"…{same}"
        sides = {arm: Side(texts[arm][at : at + 1], _cut(texts[arm][at + 1 :], _AFTER)) for arm in ARMS}
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
    for kept in (resolved.get("prompts") or {}).values():
        hashes |= kept
    found: dict[str, str] = {}
    if not hashes:
        return found
    for name in (resolved.get("experiment") or {}).get("suites") or []:
        try:
            suite = trimmed(load_suite(name, ROOT / "benchmarks"), resolved)
        except (DrafthouseError, KeyError):
            continue
        now = prompt_hashes([suite])
        for kind, prompts in expand(suite).items():
            for prompt in prompts:
                said = prompt.messages[-1].get("content")
                if isinstance(said, str) and now[kind][prompt.id] == hashes.get(prompt.id):
                    found[prompt.id] = _cut(said, _PROMPT)
    return found
