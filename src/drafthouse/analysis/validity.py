"""Reasons for the verdict `invalid`: the results of the arms (baseline, speculative) are not comparable.

``declared`` has the groups that the verdict is about; a group is a prompt kind at one temperature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..bench.result_types import ArmResult, Request
from ..bench.samples import disturbances, measured_tpot, refused_or_empty, requests_of
from ..core.format import count, first_names, listing
from ..profiles.planned_types import PlannedExperiment
from .measured import answers_in

#: The schema of the results that this version reads.
RESULT_SCHEMA = "drafthouse.result/1"
# Statuses of incomplete answers, with their wording in a report.
BROKEN = {
    "failed": "failed",
    "cut_off": "cut off",
    "empty": "empty",
    "no_usage": "without a token count (usage)",
}

RequestKey = tuple[Any, Any, Any]  # round, group (a kind at one temperature), prompt id


def wrong_schema(results: Mapping[str, ArmResult]) -> list[str]:
    """A sentence for each result of a schema that this version does not read."""
    texts = []
    for arm, result in results.items():
        schema = result.get("schema")
        if schema != RESULT_SCHEMA:
            texts.append(f"{arm} has the schema {schema!r}, and this program reads {RESULT_SCHEMA!r}")
    return texts


def broken_answers(results: Mapping[str, ArmResult]) -> list[str]:
    """Sentences about incomplete results.

    For each arm, in this order:

    - a measurement that was stopped, and a result without requests;
    - for each status of `BROKEN` the broken requests, or else the number in the result's summary, if it is larger than
      that of the requests with this status that a gate judges;
    - requests of an unknown status.
    """
    texts: list[str] = []
    for arm, result in results.items():
        requests = requests_of(result)
        if result.get("incomplete"):
            texts.append(f"{arm} was stopped before its end")
        if not requests:
            texts.append(f"{arm} has no requests")
        for status, words in BROKEN.items():
            # A request that was `refused_or_empty` is judged by its gate; the others with this status are broken.
            judged_by_gate = 0
            broken = []
            for request in requests:
                if request.get("status") == status and refused_or_empty(request):
                    judged_by_gate += 1
                elif request.get("status") == status:
                    broken.append(request)
            summary_count = result.get(status)
            if broken:
                texts.append(f"{arm}: {len(broken)} of {count(len(requests), 'request')} {words} ({_first(broken[0])})")
            elif isinstance(summary_count, int) and summary_count > judged_by_gate:
                summary = f"its summary counts {count(summary_count, 'request')} {words}"
                texts.append(f"{arm}: {summary}, but its requests show none")
        unknown = sorted({str(r.get("status")) for r in requests} - {"ok", *BROKEN})
        if unknown:
            texts.append(f"{arm}: requests with the unknown status {listing(unknown)}")
    return texts


def _first(request: Request) -> str:
    """The first broken request of a status in words, with the beginning of its error if it has one."""
    text = f"first {request.get('prompt_id')}, round {request.get('round')}"
    if not request.get("error"):
        return text
    return f"{text}: {str(request['error'])[:160]}"


def polluted_groups(results: Mapping[str, ArmResult], declared: Sequence[str]) -> list[str]:
    """A sentence for each declared group that other traffic or a suspended machine disturbed."""
    texts = []
    for arm, result in results.items():
        for group, round_number, why in disturbances(result):
            if group in declared:
                texts.append(f"{arm}: {group} is polluted in round {round_number}: {why}")
    return texts


def missing_pairs(
    results: Mapping[str, ArmResult],
    experiment: PlannedExperiment,
    declared: Sequence[str],
    present: Sequence[str],
) -> list[str]:
    """Sentences about declared kinds without requests, requests without a partner, and repeated requests."""
    texts: list[str] = []
    keys: dict[str, list[RequestKey]] = {}
    measured_kinds: set[str] = set()
    for arm, result in results.items():
        keys[arm] = []
        for request in requests_of(result):
            keys[arm].append((request.get("round"), request.get("group"), request.get("prompt_id")))
            if str(request.get("group")) in declared:
                measured_kinds.add(str(request.get("kind")))
    absent = [str(kind) for kind in experiment.get("kinds") or [] if str(kind) not in measured_kinds]
    if absent:
        texts.append(
            f"the profile declares {listing(absent)}, but the results have only {listing(list(present)) or 'nothing'}"
        )

    baseline = set(keys["baseline"])
    speculative = set(keys["speculative"])
    # By the arm that lacks the requests.
    for arm, unpaired in (("speculative", baseline - speculative), ("baseline", speculative - baseline)):
        if unpaired:
            names = sorted(f"{key[2]} in round {key[0]}" for key in unpaired)
            texts.append(f"{count(len(unpaired), 'pair')} missing: {arm} has no request for {first_names(names)}")
    for arm, sent in keys.items():
        if len(set(sent)) < len(sent):
            texts.append(
                f"{arm}: {count(len(sent) - len(set(sent)), 'request')} repeating the round and prompt of another"
            )
    return texts


def answers_without_tpot(results: Mapping[str, ArmResult], declared: Sequence[str]) -> list[str]:
    """A sentence for each arm with complete declared answers, none of a gate, that have no time per token (TPOT)."""
    texts: list[str] = []
    for arm, result in results.items():
        without_tpot = []
        for request in answers_in(result, declared):
            # A tool call or a short answer for a gate may arrive in one chunk.
            if not request.get("gate") and measured_tpot(request) is None:
                without_tpot.append(str(request.get("prompt_id")))
        if without_tpot:
            texts.append(
                f"{arm}: {count(len(without_tpot), 'answer')} without a TPOT (first {without_tpot[0]}): "
                "one token, or all in one chunk"
            )
    return texts
