"""Pairs the requests of two arms (baseline, speculative) from files that other clients wrote.

Requests are paired by id if the arms share ids; else by the hash of the prompt if they share hashes; else, unless all
have hashes, by position in the run, within a prompt kind. Requests without a partner are left out and reported.
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

# The ways to pair requests, as a report names them.
BY_ID = "id"
BY_HASH = "hash of the prompt"
BY_POSITION = "position"
BY_NOTHING = "nothing"  # the hashes show that the arms have different prompts
#: If more than this fraction of the pairs by position differ in prompt length, the arms have different prompts.
TOLERATED_SHARE = 0.05
#: If more than this fraction of an arm's answers failed, the rest is no fair sample.
FAILED_SHARE = 0.1
#: A larger ratio of the arms' answer lengths, or a smaller one than its inverse, is reported.
TOLERATED_LENGTH_RATIO = 1.05

Key = tuple[str, str]  # kind, and the name of a prompt: id, hash or position
Keyed = dict[Key, list[Answer]]  # the answers of one run; several for a prompt that was sent several times


@dataclass
class Paired:
    """Both arms as results, each run of an arm as a round."""

    results: dict[str, ArmResult]  # by arm; also with runs that have no counterpart in the other arm
    runs: dict[str, int]  # the number of runs by arm
    how: str  # the pairing method: BY_ID, BY_HASH, BY_POSITION or BY_NOTHING
    clocks: list[str] = field(default_factory=list)  # where the times per token come from
    notes: list[str] = field(default_factory=list)  # sentences about answers that were left out, and other warnings
    invalid: list[str] = field(default_factory=list)  # reasons not to compare the arms
    equal_texts: tuple[int, int] = (0, 0)  # equal texts, compared texts


def pair_runs(baseline: Sequence[Run], speculative: Sequence[Run]) -> Paired:
    """The runs of two arms at one load level as results whose paired requests have equal prompt ids."""
    arms = {BASELINE: baseline, SPECULATIVE: speculative}
    how = _pairing_method(baseline, speculative)
    run_counts = {BASELINE: len(baseline), SPECULATIVE: len(speculative)}
    paired = Paired(results={}, runs=run_counts, how=how)
    answers_by_key: dict[str, list[Keyed]] = {}
    clocks: dict[str, None] = {}  # a dict keeps their order
    for arm, runs in arms.items():
        answers = list(chain.from_iterable(run.answers for run in runs))
        _note_failed(arm, answers, paired)
        _note_contradictions(arm, answers, paired.notes)
        answers_by_key[arm] = [_answers_by_key(run.whole_answers, how) for run in runs]
        clocks |= dict.fromkeys(answer.clock for answer in answers if not answer.failed)
    if how == BY_NOTHING:
        paired.invalid.append("the prompts of the two arms are not the same: no hash of one is in the other")
    _drop_unpaired(answers_by_key, paired.notes)
    if how == BY_POSITION:
        _drop_other_lengths(answers_by_key, paired)
    for arm, runs in arms.items():
        paired.results[arm] = _result_of_arm(arm, runs, _requests(answers_by_key[arm]))
    paired.clocks = list(clocks)
    _compare_pairs(paired, answers_by_key)
    return paired


def _requests(runs: Sequence[Keyed]) -> list[Request]:
    """The answers of an arm as Drafthouse requests; each run is a round."""
    requests = []
    for round_number, run in enumerate(runs, 1):
        for key, same_key in run.items():
            for answer in same_key:
                # A request measured by Drafthouse has a prompt id already, which replaces the key's name.
                request = {"prompt_id": key[1], **answer.request, "round": round_number}
                requests.append(cast("Request", request))
    return requests


def _note_failed(arm: str, answers: Sequence[Answer], paired: Paired) -> None:
    """Report the answers that are left out: in ``invalid`` if the rest is no fair sample, else in ``notes``."""
    failed = Counter(answer.failed for answer in answers if answer.failed)
    failed_count = sum(failed.values())
    if not failed_count:
        return
    # An answer without a speed is left out but is no failure. If all are left out, nothing can be compared.
    causes = listing([f"{cause} ({times_failed})" for cause, times_failed in failed.most_common(2)])
    unfair_sample = failed_count - failed["no speed"] > FAILED_SHARE * len(answers) or failed_count == len(answers)
    texts = paired.invalid if unfair_sample else paired.notes
    texts.append(f"{arm}: {failed_count} of {count(len(answers), 'answer')} left out: {causes}")


def _note_contradictions(arm: str, answers: Sequence[Answer], notes: list[str]) -> None:
    """Add to ``notes`` what the records contradict themselves in, and how many answers have no token count.

    ``answer.notes`` has the contradictions of one record; the figures in question were left out when it was read.
    """
    first_key: dict[str, str] = {}  # by contradiction, the first record that has it
    note_counts: Counter[str] = Counter()
    for answer in answers:
        note_counts.update(answer.notes)
        for note in answer.notes:
            first_key.setdefault(note, answer.key or "without an id")
    for note, note_count in note_counts.most_common(3):
        notes.append(f"{arm}: {count(note_count, 'record')} with {note} (first: {first_key[note]}); left out")
    without_tokens = sum(not answer.request.get("output_tokens") and not answer.failed for answer in answers)
    if without_tokens:
        notes.append(f"{arm}: {count(without_tokens, 'answer')} without a token count")


def _pairing_method(baseline: Sequence[Run], speculative: Sequence[Run]) -> str:
    """The best method by which answers of both arms can be paired.

    By id if they share one, else by hash if they share one. Else by nothing if both arms have hashes, because their
    prompts differ, and by position if an arm has none.
    """
    ids: list[set[str | None]] = []
    hashes: list[set[str | None]] = []
    for runs in (baseline, speculative):
        arm_ids: set[str | None] = set()
        arm_hashes: set[str | None] = set()
        for answer in chain.from_iterable(run.whole_answers for run in runs):
            arm_ids.add(answer.key)
            arm_hashes.add(answer.prompt)
        ids.append(arm_ids - {None})
        hashes.append(arm_hashes - {None})
    if ids[0] & ids[1]:
        return BY_ID
    if hashes[0] & hashes[1]:
        return BY_HASH
    return BY_NOTHING if all(hashes) else BY_POSITION


def _answers_by_key(run: Sequence[Answer], how: str) -> Keyed:
    """The answers of a run by kind and prompt name, without those that have no name by this method."""
    by_key: Keyed = {}
    kind_counts: Counter[str] = Counter()
    for answer in run:
        kind = str(answer.request.get("kind"))
        kind_counts[kind] += 1
        position = f"position {kind_counts[kind]}"
        name = {BY_ID: answer.key, BY_HASH: answer.prompt, BY_POSITION: position}.get(how)
        if name is not None:
            by_key.setdefault((kind, name), []).append(answer)
    return by_key


def _drop_unpaired(keyed: Mapping[str, Sequence[Keyed]], notes: list[str]) -> None:
    """Drop prompts that the other arm did not answer: in the same run, or in any if it has no such run."""
    asked_in_any = [set().union(*runs) for runs in keyed.values()]
    for index in range(max(map(len, keyed.values()))):
        arms_of_run = {arm: runs[index] for arm, runs in keyed.items() if index < len(runs)}
        # A run without a counterpart in the other arm is compared with all of that arm's runs.
        asked_keys = asked_in_any if len(arms_of_run) < 2 else list(map(set, arms_of_run.values()))
        shared = asked_keys[0] & asked_keys[1]
        for arm, answers in arms_of_run.items():
            unpaired = [key for key in answers if key not in shared]
            for key in unpaired:
                del answers[key]
            if unpaired:
                names = first_names(list(map(" ".join, unpaired)))
                notes.append(f"{arm}, run {index + 1}: {count(len(unpaired), 'prompt')} without a partner ({names})")


def _drop_other_lengths(keyed: Mapping[str, Sequence[Keyed]], paired: Paired) -> None:
    """Drop pairs by position of unequal known prompt length; above `TOLERATED_SHARE` of them the arms are invalid."""
    compared = 0
    diffs: list[str] = []
    for base, spec in zip(keyed[BASELINE], keyed[SPECULATIVE], strict=False):
        for key in list(base):
            tokens_a = base[key][0].request.get("input_tokens")
            tokens_b = spec[key][0].request.get("input_tokens")
            if tokens_a is None or tokens_b is None:
                continue
            compared += 1
            if tokens_a != tokens_b:
                diffs.append(f"{key[1]}: {tokens_a} and {tokens_b} tokens")
                del base[key], spec[key]
    if not diffs:
        return
    text = f"at {len(diffs)} of {count(compared, 'position')} the arms have prompts of other lengths (first {diffs[0]})"
    if len(diffs) > TOLERATED_SHARE * compared:
        paired.invalid.append(f"{text}: not the same prompts in the same order")
    else:
        paired.notes.append(f"{text}; left out")


def _result_of_arm(arm: str, runs: Sequence[Run], requests: list[Request]) -> ArmResult:
    """The result of an arm: the fields of the first run if Drafthouse wrote it, else the files' drafting figures."""
    own_result = runs[0].result if runs else None
    if own_result is not None:
        # The numbers of rounds and prompts are those of one file, and the user says which arm it is.
        fields = {name: value for name, value in own_result.items() if name not in ("rounds", "num_prompts", "arm")}
        return cast("ArmResult", {**fields, "arm": arm, "requests": requests})
    return cast("ArmResult", {**bare_result(arm, runs[0].load, requests), **_draft_figures(runs)})


def bare_result(arm: str, load: float | None, requests: list[Request]) -> ArmResult:
    """A result that has requests and nothing else; ``load`` is the concurrency, None if unknown."""
    result: dict[str, object] = {
        "schema": RESULT_SCHEMA,
        "arm": arm,
        "max_concurrency": load,
        "groups": {},
        "requests": requests,
    }
    return cast("ArmResult", result)


def _draft_figures(runs: Sequence[Run]) -> dict[str, float | str]:
    """The files' drafting figures under the keys of a result; rates in per cent.

    Later runs override earlier ones, and the counts of the answers override the files' summaries.
    """
    figures: dict[str, float | str] = {}
    draft_tokens = 0
    accepted: list[int | None] = []  # of each answer that counts its draft tokens; None if it counts only these
    rates = []  # acceptance rates of single answers, in per cent
    for run in runs:
        figures |= {name: value for name, value in run.figures.items() if name.startswith("spec_decode_")}
        if "accept_length" in run.figures:
            figures |= {"spec_decode_acceptance_length": run.figures["accept_length"], "spec_decode_source": "gauge"}
        for answer in run.whole_answers:
            if timings := answer.request.get("timings"):
                draft_tokens += timings["draft_n"]
                accepted.append(timings["draft_n_accepted"])
            if answer.acceptance:
                rates.append(answer.acceptance)
    # The answers' counts are exact; a mean of their rates is used only without them.
    if accepted:
        figures |= {"spec_decode_draft_tokens": draft_tokens, "spec_decode_source": "response"}
        counted = [tokens for tokens in accepted if tokens is not None]
        if draft_tokens and len(counted) == len(accepted):
            total = sum(counted)
            figures |= {"spec_decode_accepted_tokens": total, "spec_decode_acceptance_rate": 100 * total / draft_tokens}
    elif rates:
        figures.setdefault("spec_decode_acceptance_rate", 100 * sum(rates) / len(rates))
    return figures


def _compare_pairs(paired: Paired, keyed: Mapping[str, Sequence[Keyed]]) -> None:
    """Count equal texts, and report answer lengths that differ and times per token from several sources.

    Of a prompt that was sent several times in a run, the first answers are compared.
    """
    equal = compared = 0
    length_ratios = []
    for base, spec in zip(keyed[BASELINE], keyed[SPECULATIVE], strict=False):
        for key in base:
            first = base[key][0]
            second = spec[key][0]
            length_a = first.request.get("output_tokens")
            length_b = second.request.get("output_tokens")
            if length_a and length_b:
                length_ratios.append(length_b / length_a)
            if first.text and second.text:
                compared += 1
                equal += first.text == second.text
    paired.equal_texts = equal, compared
    if length_ratios and not 1 / TOLERATED_LENGTH_RATIO <= median(length_ratios) <= TOLERATED_LENGTH_RATIO:
        paired.notes.append(f"the speculative arm's answers are {times(median(length_ratios))} as long (median)")
    if len(paired.clocks) > 1:
        paired.notes.append(f"times per token are read off in several ways: {listing(paired.clocks)}")
