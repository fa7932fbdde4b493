"""Data of the HTML page about single requests: a few answers of both arms, and latency percentiles.

report.json does not contain them, since it goes into support bundles, and prompts and answers may be private.
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

#: The percentiles of the latencies; one of them is shown if at least `_BEYOND` answers of each arm took longer.
_SHARES = (50, 95, 99)
_BEYOND = 2
#: The most pairs of answers that are shown.
_MOST_PAIRS = 4
#: The most characters that are shown of a prompt.
_PROMPT = 400
#: The most characters that are shown before the first difference of two answers.
_BEFORE = 200
#: The most characters that are shown after it.
_AFTER = 300


@dataclass(frozen=True)
class Side:
    """An arm's answer from the first difference on; both are "" for equal answers."""

    mark: str  # the differing character; "" if the answer ends before it
    rest: str  # the text after it, at most `_AFTER` characters


@dataclass(frozen=True)
class AnswerPair:
    """The answers of both arms to a prompt in a round."""

    prompt_id: str
    group: str  # the prompt kind at one temperature
    round: int | None  # None: the results have no rounds
    prompt: str | None  # the beginning of its text; None if the text is no longer available
    equal: bool
    at: int  # index of the first differing character
    of: int  # characters of the longer answer
    same: str  # the last `_BEFORE` characters before it, or the beginning of equal answers
    sides: Mapping[Arm, Side]


@dataclass(frozen=True)
class Tail:
    """A latency of both arms at the percentiles that are shown."""

    title: str
    values: dict[Arm, list[float]]  # in ms, in the order of `Shown.shares`
    requests: dict[Arm, int]  # number of complete answers with the latency


@dataclass(frozen=True)
class Shown:
    """Data of the page that is not in report.json."""

    answers: Sequence[AnswerPair] = ()
    tails: Sequence[Tail] = ()
    shares: Sequence[int] = ()  # the percentiles of ``tails``


def shown_of(results: Mapping[Arm, ArmResult], resolved: KeptProfile) -> Shown:
    """The data for the page of two results."""
    requests = {arm: requests_of(results[arm]) for arm in ARMS}
    tails, shares = _tails(requests)
    return Shown(_answers(requests, resolved), tails, shares)


def _tails(requests: Mapping[Arm, Sequence[Request]]) -> tuple[list[Tail], list[int]]:
    """The latencies of a request that both arms have, and the percentiles at which they are shown.

    Both are empty where the answers are too few for any percentile but the median, which stands beside each kind.
    """
    latencies: dict[str, dict[Arm, list[float]]] = {}  # by title
    for name, title, unit, _, measure in MEASURES:
        values = {arm: values_of(requests[arm], measure) for arm in ARMS}
        # A TPOT is no latency of a request but a mean over its answer. Without thinking, the first answer token is the
        # first token.
        if unit == "ms" and name != "tpot_ms" and all(values.values()) and values not in latencies.values():
            latencies[title] = values
    fewest = min((len(times) for values in latencies.values() for times in values.values()), default=0)
    shares = [share for share in _SHARES if fewest * (100 - share) >= 100 * _BEYOND]
    if shares in ([], [50]):
        return [], []
    tails = []
    for title, values in latencies.items():
        tail = Tail(title, {}, {})
        for arm, times in values.items():
            tail.values[arm] = [percentile(times, share) or 0.0 for share in shares]
            tail.requests[arm] = len(times)
        tails.append(tail)
    return tails, shares


def _answers(requests: Mapping[Arm, Sequence[Request]], resolved: KeptProfile) -> list[AnswerPair]:
    """At most `_MOST_PAIRS` pairs, one per group, differing ones first; an equal pair only if no pair differs."""
    pairs = pair_outputs(requests["baseline"], requests["speculative"])
    chosen: dict[str, OutputPair] = {}  # by group
    for pair in sorted(pairs, key=lambda pair: (pair.equal, pair.round or 0, pair.character)):
        chosen.setdefault(pair.group, pair)
    if not chosen:
        return []
    shown_pairs = sorted(chosen.values(), key=lambda pair: pair.equal)[:_MOST_PAIRS]
    baseline, speculative = _texts(requests["baseline"]), _texts(requests["speculative"])
    prompts = _prompts(resolved)
    answers = []
    for pair in shown_pairs:
        key = pair.group, pair.prompt_id, pair.round
        texts: dict[Arm, str] = {"baseline": baseline[key], "speculative": speculative[key]}
        answers.append(_answer_pair(pair, texts, prompts))
    return answers


def _texts(requests: Iterable[Request]) -> dict[tuple[str, str, int | None], str]:
    """The complete text of each answer by (group, prompt id, round)."""
    texts: dict[tuple[str, str, int | None], str] = {}
    for request in requests:
        key = str(request.get("group")), str(request.get("prompt_id")), request.get("round")
        texts[key] = whole_text(request)
    return texts


def _answer_pair(pair: OutputPair, texts: Mapping[Arm, str], prompts: Mapping[str, str]) -> AnswerPair:
    """The answers of a pair, shortened around their first difference."""
    at = pair.character
    if pair.equal:
        same = _cut(texts["baseline"], _BEFORE + _AFTER)
        sides = {arm: Side(mark="", rest="") for arm in ARMS}
    else:
        same = texts["baseline"][max(0, at - _BEFORE) : at]
        if at > _BEFORE:
            same = f"…{same}"
        sides = {arm: Side(texts[arm][at : at + 1], _cut(texts[arm][at + 1 :], _AFTER)) for arm in ARMS}
    return AnswerPair(
        prompt_id=pair.prompt_id,
        group=pair.group,
        round=pair.round,
        prompt=prompts.get(pair.prompt_id),
        equal=pair.equal,
        at=at,
        of=pair.characters,
        same=same,
        sides=sides,
    )


def _cut(text: str, most: int) -> str:
    """The text; if it is longer than ``most`` characters, its beginning with an ellipsis."""
    if len(text) <= most:
        return text
    return text[:most] + "…"


def _prompts(resolved: KeptProfile) -> dict[str, str]:
    """The last message by prompt id, for prompts that the local suites still have unchanged.

    The report has a hash of each prompt. Suites and prompts that are missing or have changed are skipped.
    """
    hashes: dict[str, str] = {}
    for kind_hashes in (resolved.get("prompts") or {}).values():
        hashes |= kind_hashes
    messages: dict[str, str] = {}
    if not hashes:
        return messages
    for name in (resolved.get("experiment") or {}).get("suites") or []:
        try:
            suite = trimmed(load_suite(name, ROOT / "benchmarks"), resolved)
        except (DrafthouseError, KeyError):
            continue
        current_hashes = prompt_hashes([suite])
        for kind, prompts in expand(suite).items():
            for prompt in prompts:
                content = prompt.messages[-1].get("content")
                if isinstance(content, str) and current_hashes[kind][prompt.id] == hashes.get(prompt.id):
                    messages[prompt.id] = _cut(content, _PROMPT)
    return messages
