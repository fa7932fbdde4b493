"""What makes two results no fair comparison, a sentence each: then the verdict is `invalid`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..bench.result_types import ArmResult, Request
from ..bench.samples import disturbances, gave_nothing, measured_tpot, requests_of
from ..core.format import count, first_names, listing
from ..profiles.planned_types import PlannedExperiment
from .measured import in_groups

RESULT_SCHEMA = "drafthouse.result/1"
# How the client calls an answer that is not whole, and how a person does.
BROKEN = {
    "failed": "failed",
    "cut_off": "cut off",
    "empty": "empty",
    "no_usage": "without a token count (usage)",
}

Pair = tuple[Any, Any, Any]


def wrong_schema(results: Mapping[str, ArmResult]) -> list[str]:
    """A sentence for each result of another schema."""
    found = []
    for arm, result in results.items():
        schema = result.get("schema")
        if schema != RESULT_SCHEMA:
            found.append(f"{arm} has the schema {schema!r}, and this program reads {RESULT_SCHEMA!r}")
    return found


def broken_answers(results: Mapping[str, ArmResult]) -> list[str]:
    """A sentence for each way in which an arm's answers were not whole, as its requests show."""
    found: list[str] = []
    for arm, result in results.items():
        requests = requests_of(result)
        if result.get("incomplete"):
            found.append(f"{arm} was stopped before its end")
        if not requests:
            found.append(f"{arm} has no requests")
        for status, words in BROKEN.items():
            # The gates judge what gave nothing; what is left is broken.
            judged, broken = 0, []
            for request in requests:
                if request.get("status") == status and gave_nothing(request):
                    judged += 1
                elif request.get("status") == status:
                    broken.append(request)
            counted = result.get(status)
            if broken:
                found.append(f"{arm}: {len(broken)} of {count(len(requests), 'request')} {words} ({_first(broken[0])})")
            elif isinstance(counted, int) and counted > judged:
                summary = f"its summary counts {count(counted, 'request')} {words}"
                found.append(f"{arm}: {summary}, but its requests show none")
        strange = sorted({str(r.get("status")) for r in requests} - {"ok", *BROKEN})
        if strange:
            found.append(f"{arm}: requests with the unknown status {listing(strange)}")
    return found


def _first(request: Request) -> str:
    """The first broken request of its sort, with its error."""
    place = f"first {request.get('prompt_id')}, round {request.get('round')}"
    if not request.get("error"):
        return place
    return f"{place}: {str(request['error'])[:160]}"


def polluted_groups(results: Mapping[str, ArmResult], declared: Sequence[str]) -> list[str]:
    """A sentence for each declared group that something else disturbed: its times are not the arm's own."""
    found = []
    for arm, result in results.items():
        for group, number, why in disturbances(result):
            if group in declared:
                found.append(f"{arm}: {group} is polluted in round {number}: {why}")
    return found


def missing_pairs(
    results: Mapping[str, ArmResult],
    experiment: PlannedExperiment,
    declared: Sequence[str],
    present: Sequence[str],
) -> list[str]:
    """Where a request of one arm has no partner in the other."""
    found: list[str] = []
    keys: dict[str, list[Pair]] = {}
    measured: set[str] = set()
    for arm, result in results.items():
        keys[arm] = []
        for request in requests_of(result):
            keys[arm].append((request.get("round"), request.get("group"), request.get("prompt_id")))
            if str(request.get("group")) in declared:
                measured.add(str(request.get("kind")))
    absent = [str(kind) for kind in experiment.get("kinds") or [] if str(kind) not in measured]
    if absent:
        found.append(
            f"the profile declares {listing(absent)}, but the results have only {listing(list(present)) or 'nothing'}"
        )

    one, two = set(keys["baseline"]), set(keys["speculative"])
    for arm, alone in (("speculative", one - two), ("baseline", two - one)):
        if alone:
            names = sorted(f"{key[2]} in round {key[0]}" for key in alone)
            found.append(f"{count(len(alone), 'pair')} missing: {arm} has no request for {first_names(names)}")
    for arm, seen in keys.items():
        if len(set(seen)) < len(seen):
            found.append(
                f"{arm}: {count(len(seen) - len(set(seen)), 'request')} repeating the round and prompt of another"
            )
    return found


def answers_without_tpot(results: Mapping[str, ArmResult], declared: Sequence[str]) -> list[str]:
    """A sentence for each arm with whole answers of which no time per token can be read."""
    found: list[str] = []
    for arm, result in results.items():
        short = []
        for request in in_groups(result, declared):
            # A call or a word that a gate looks for may well come in one chunk.
            if not request.get("gate") and measured_tpot(request) is None:
                short.append(str(request.get("prompt_id")))
        if short:
            found.append(
                f"{arm}: {count(len(short), 'answer')} without a TPOT (first {short[0]}): "
                "one token, or all in one chunk"
            )
    return found
