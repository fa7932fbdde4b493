"""Two arms out of other people's files, request by request: which answers are of the same prompt. Pure.

By the ids of the files, where the arms share some; else by the hash of the prompt; else by position in the run (within
a kind). What has no partner is left out and named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import cast

from ..bench.external.columns import Answer
from ..bench.external.read import Run
from ..bench.result_types import ArmResult, Request
from ..core.format import count, first_names, listing, times
from .speedup import BASELINE, SPECULATIVE
from .validity import RESULT_SCHEMA

BY_ID, BY_HASH, BY_POSITION, BY_NOTHING = "id", "hash of the prompt", "position", "nothing"
#: From this share on what is wrong with some answers says something of all.
MANY = 0.05
#: Failed answers of an arm beyond this share: the rest is no fair sample.
FAILED_SHARE = 0.1
#: Answers that are longer by this factor are named.
LONGER = 1.05

Key = tuple[str, str]
Keyed = dict[Key, list[Answer]]


@dataclass
class Paired:
    """Both arms as results, each run of an arm a round; what a reader must know; why they may not be compared.

    ``runs`` are the numbers of runs given. A run without one of the other arm is in ``results`` too.
    """

    results: dict[str, ArmResult]
    runs: dict[str, int]
    how: str
    clocks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    equal_texts: tuple[int, int] = (0, 0)


def pair_runs(baseline: Sequence[Run], speculative: Sequence[Run]) -> Paired:
    """The runs of two arms at one load as results whose requests have the same names."""
    arms = {BASELINE: baseline, SPECULATIVE: speculative}
    how = _method(baseline, speculative)
    paired = Paired({}, {BASELINE: len(baseline), SPECULATIVE: len(speculative)}, how)
    keyed: dict[str, list[Keyed]] = {}
    clocks: dict[str, None] = {}
    for arm, runs in arms.items():
        every = list(chain.from_iterable(run.answers for run in runs))
        _name_failed(arm, every, paired)
        _name_odd(arm, every, paired.notes)
        keyed[arm] = [_keyed(run.whole_answers, how) for run in runs]
        clocks |= dict.fromkeys(answer.clock for answer in every if not answer.failed)
    if how == BY_NOTHING:
        paired.invalid.append("the prompts of the two arms are not the same: no hash of one is in the other")
    _drop_unpaired(keyed, paired.notes)
    if how == BY_POSITION:
        _drop_other_prompts(keyed, paired)
    for arm, runs in arms.items():
        paired.results[arm] = _result(arm, runs, _requests(keyed[arm]))
    paired.clocks = list(clocks)
    _compare(paired, keyed)
    return paired


def _requests(runs: Sequence[Keyed]) -> list[Request]:
    """The answers of an arm as requests of ours; a run is a round."""
    found = []
    for number, run in enumerate(runs, 1):
        for key, same in run.items():
            for answer in same:
                # A request of ours has its name already.
                named = {"prompt_id": key[1], **answer.request, "round": number}
                found.append(cast("Request", named))
    return found


def _name_failed(arm: str, answers: Sequence[Answer], paired: Paired) -> None:
    """Name the answers that are left out: in ``invalid`` where the rest is no fair sample."""
    failed = Counter(answer.failed for answer in answers if answer.failed)
    number = sum(failed.values())
    if not number:
        return
    why = listing([f"{words} ({times_})" for words, times_ in failed.most_common(2)])
    many = number - failed["no speed"] > FAILED_SHARE * len(answers) or number == len(answers)
    named = paired.invalid if many else paired.notes
    named.append(f"{arm}: {number} of {count(len(answers), 'answer')} left out: {why}")


def _name_odd(arm: str, answers: Sequence[Answer], notes: list[str]) -> None:
    """Name figures that contradict each other, and answers without a token count."""
    first: dict[str, str] = {}
    odd: Counter[str] = Counter()
    for answer in answers:
        odd.update(answer.notes)
        for note in answer.notes:
            first.setdefault(note, answer.key or "without an id")
    for note, number in odd.most_common(3):
        notes.append(f"{arm}: {count(number, 'record')} with {note} (first: {first[note]}); left out")
    unknown = sum(not answer.request.get("output_tokens") and not answer.failed for answer in answers)
    if unknown:
        notes.append(f"{arm}: {count(unknown, 'answer')} without a token count")


def _method(baseline: Sequence[Run], speculative: Sequence[Run]) -> str:
    """By what the answers of both arms can be paired."""
    ids: list[set[str | None]] = []
    hashes: list[set[str | None]] = []
    for runs in (baseline, speculative):
        own_ids, own_hashes = set(), set()
        for answer in chain.from_iterable(run.whole_answers for run in runs):
            own_ids.add(answer.key)
            own_hashes.add(answer.prompt)
        ids.append(own_ids - {None})
        hashes.append(own_hashes - {None})
    if ids[0] & ids[1]:
        return BY_ID
    if hashes[0] & hashes[1]:
        return BY_HASH
    return BY_NOTHING if all(hashes) else BY_POSITION


def _keyed(run: Sequence[Answer], how: str) -> Keyed:
    """The answers of a run by kind and the name of their prompt; those without one are left out."""
    found: Keyed = {}
    places: Counter[str] = Counter()
    for answer in run:
        kind = str(answer.request.get("kind"))
        places[kind] += 1
        place = f"position {places[kind]}"
        name = {BY_ID: answer.key, BY_HASH: answer.prompt, BY_POSITION: place}.get(how)
        if name is not None:
            found.setdefault((kind, name), []).append(answer)
    return found


def _drop_unpaired(keyed: Mapping[str, Sequence[Keyed]], notes: list[str]) -> None:
    """Leave out what the other arm was not asked: in the same run, or in none where it has no such run."""
    everywhere = [set().union(*runs) for runs in keyed.values()]
    for number in range(max(map(len, keyed.values()))):
        sides = {arm: runs[number] for arm, runs in keyed.items() if number < len(runs)}
        asked = everywhere if len(sides) < 2 else list(map(set, sides.values()))
        shared = asked[0] & asked[1]
        for arm, side in sides.items():
            alone = [key for key in side if key not in shared]
            for key in alone:
                del side[key]
            if alone:
                names = first_names(list(map(" ".join, alone)))
                notes.append(f"{arm}, run {number + 1}: {count(len(alone), 'prompt')} without a partner ({names})")


def _drop_other_prompts(keyed: Mapping[str, Sequence[Keyed]], paired: Paired) -> None:
    """Leave out pairs by position whose prompts are of other lengths; where many are the arms are no pair."""
    known = 0
    other: list[str] = []
    for one, two in zip(keyed[BASELINE], keyed[SPECULATIVE], strict=False):
        for key in list(one):
            first, second = one[key][0].request.get("input_tokens"), two[key][0].request.get("input_tokens")
            if first is None or second is None:
                continue
            known += 1
            if first != second:
                other.append(f"{key[1]}: {first} and {second} tokens")
                del one[key], two[key]
    if not other:
        return
    lengths = f"at {len(other)} of {count(known, 'position')} the arms have prompts of other lengths (first {other[0]})"
    if len(other) > MANY * known:
        paired.invalid.append(f"{lengths}: not the same prompts in the same order")
    else:
        paired.notes.append(f"{lengths}; left out")


def _result(arm: str, runs: Sequence[Run], requests: list[Request]) -> ArmResult:
    """A result of one arm: one of ours as it is, otherwise with what the files say of drafts."""
    own = runs[0].result if runs else None
    if own is not None:
        kept = {name: value for name, value in own.items() if name not in ("rounds", "num_prompts", "arm")}
        return cast("ArmResult", {**kept, "arm": arm, "requests": requests})
    return cast("ArmResult", {**bare_result(arm, runs[0].load, requests), **_drafting(runs)})


def bare_result(arm: str, load: float | None, requests: list[Request]) -> ArmResult:
    """A result of requests, of which nothing else is known."""
    known: dict[str, object] = {
        "schema": RESULT_SCHEMA,
        "arm": arm,
        "max_concurrency": load,
        "groups": {},
        "requests": requests,
    }
    return cast("ArmResult", known)


def _drafting(runs: Sequence[Run]) -> dict[str, float | str]:
    """What the files say of drafts, under the names of a result."""
    found: dict[str, float | str] = {}
    drafted = 0
    accepted: list[int | None] = []
    rates = []
    for run in runs:
        found |= {name: value for name, value in run.figures.items() if name.startswith("spec_decode_")}
        if "accept_length" in run.figures:
            found |= {"spec_decode_acceptance_length": run.figures["accept_length"], "spec_decode_source": "gauge"}
        for answer in run.whole_answers:
            if timings := answer.request.get("timings"):
                drafted += timings["draft_n"]
                accepted.append(timings["draft_n_accepted"])
            if answer.acceptance:
                rates.append(answer.acceptance)
    if accepted:
        found |= {"spec_decode_draft_tokens": drafted, "spec_decode_source": "response"}
        known = [tokens for tokens in accepted if tokens is not None]
        if drafted and len(known) == len(accepted):
            total = sum(known)
            found |= {"spec_decode_accepted_tokens": total, "spec_decode_acceptance_rate": 100 * total / drafted}
    elif rates:
        found.setdefault("spec_decode_acceptance_rate", 100 * sum(rates) / len(rates))
    return found


def _compare(paired: Paired, keyed: Mapping[str, Sequence[Keyed]]) -> None:
    """What the pairs say beside their speed: texts that are equal, lengths that are not."""
    equal = texts = 0
    longer = []
    for one, two in zip(keyed[BASELINE], keyed[SPECULATIVE], strict=False):
        for key in one:
            first, second = one[key][0], two[key][0]
            length, other_length = first.request.get("output_tokens"), second.request.get("output_tokens")
            if length and other_length:
                longer.append(other_length / length)
            if first.text and second.text:
                texts += 1
                equal += first.text == second.text
    paired.equal_texts = equal, texts
    if longer and not 1 / LONGER <= median(longer) <= LONGER:
        paired.notes.append(f"the speculative arm's answers are {times(median(longer))} as long (median)")
    if len(paired.clocks) > 1:
        paired.notes.append(f"times per token are read off in several ways: {listing(paired.clocks)}")
