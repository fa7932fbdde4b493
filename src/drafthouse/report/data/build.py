"""Build report.json from the results of both arms. Terminal, Markdown and HTML only display this data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from ...analysis.crossover import over_contexts, with_settled_levels
from ...analysis.degenerate_text import answers_repeat
from ...analysis.measured import answers_in, paired_ratio
from ...analysis.validity import BROKEN
from ...analysis.verdict import judge
from ...analysis.verdict_types import JudgedGroup, Judgement
from ...analysis.words import CANNOT_SAY, INVALID
from ...bench.result_types import Acceptance as Drafted
from ...bench.result_types import ArmResult, Request
from ...bench.samples import measured_tpot, requests_of
from ...bench.stats import Estimated, Gain, estimate, median
from ...bench.sweep.ladder_types import Ladder
from ...bench.usage_check import not_compared
from ...core import exit_codes
from ...core.format import at_a_time, shown_level
from ...prompts.suites import prompt_hashes
from ..report_types import (
    ARMS,
    Acceptance,
    AcceptanceBySource,
    Arm,
    Cost,
    FailedRequest,
    Failure,
    KeptProfile,
    KindRow,
    Load,
    Measure,
    Report,
    Totals,
    Verdict,
)
from .articles import articles_table
from .checks import cost_not_measured, cost_of, gates_not_measured, gates_of, other_tools
from .load import load_of, load_warnings, with_load, without_claims
from .measures import MEASURES, Clock, by_prompt, field, in_group, values_of
from .published import published_beside, published_warnings, usual_causes
from .setup import commands, engine_changes, machine_table, setup, versions

SCHEMA: Final = "drafthouse.report/1"
#: The keys of a resolved profile that a report does not keep, see `lasting`.
_TEMPORARY_KEYS = ("box", "lease", "suites", "suites_file", "extras", "overrides")

#: The acceptance of a group that has none.
NO_ACCEPTANCE: Acceptance = {
    "rate": None,
    "length": None,
    "drafts": None,
    "draft_tokens": None,
    "accepted_tokens": None,
    "by_position": [],
}


def lasting(resolved: KeptProfile) -> KeptProfile:
    """The part of a resolved profile that a report keeps, which is the same for the same results.

    It leaves out the state of the host and the time left of its rental. Hashes (``prompts``) replace the texts of the
    prompts, which are long, so that a comparison can check that two reports sent the same prompts.
    """
    kept_profile = cast("KeptProfile", {name: value for name, value in resolved.items() if name not in _TEMPORARY_KEYS})
    if suites := resolved.get("suites"):
        kept_profile["prompts"] = prompt_hashes(suites.values())
    return kept_profile


def build_report(
    baseline: ArmResult,
    speculative: ArmResult,
    resolved: KeptProfile,
    host: str = "",
    stock: ArmResult | None = None,
    ladder: Ladder | None = None,
    judged: Judgement | None = None,
) -> Report:
    """The report as JSON-serialisable data, the same for the same results; see docs/report.schema.json.

    ``host`` is the host's name in the inventory ("": the one in the results), ``stock`` the result of a third arm,
    the engine without the profile's settings, ``ladder`` the load sweep, ``judged`` a verdict computed before. Times
    are in ms, speeds in tokens per second, rates are fractions; a speed-up above 1: speculation is faster.
    """
    results = {"baseline": baseline, "speculative": speculative}
    judged = judged or judge(baseline, speculative, resolved)
    load, contexts = _load_and_contexts(ladder, judged)
    verdict = with_load(judged, contexts or load)  # of a ladder over contexts, the context is its subject
    cost = cost_of(results, resolved)
    accepted = acceptance(speculative)
    published_figures = published_beside(resolved, accepted)
    kinds = [_kind_row(name, group, results, accepted) for name, group in verdict["groups"].items()]
    acceptance_warnings = published_warnings(published_figures, usual_causes(resolved, temperatures_of(speculative)))
    report: Report = {
        "schema": SCHEMA,
        "profile": resolved.get("profile") or speculative.get("profile") or "",
        "title": resolved.get("title") or "",
        "article": resolved.get("article"),
        "marks": _marks(resolved),
        "key": resolved.get("key") or speculative.get("key"),
        "host": host or host_of(results),
        "date": max(str(baseline.get("date") or ""), str(speculative.get("date") or "")),
        "verdict": verdict,
        "failures": failures(results),
        "articles": articles_table(results),
        "other_tools": other_tools(results),
        "load": load,
        "kinds": kinds,
        "acceptance": {**accepted, "published": published_figures},
        "stock": against_stock(stock, results, verdict["scope"]["groups"]) if stock else None,
        "distributions": {
            "tpot_ms": _distribution(results, measured_tpot),
            "ttft_ms": _distribution(results, field("ttft_ms")),
        },
        "gates": gates_of(verdict),
        "cost": cost,
        "totals": {arm: _totals(results[arm]) for arm in ARMS},
        "expectation": resolved.get("expectation"),
        "setup": setup(resolved, verdict["scope"]["rounds"]),
        "commands": commands(resolved),
        "versions": versions(results),
        "engine_changes": engine_changes(results),
        "machine": machine_table(results),
        "warnings": [*verdict["warnings"], *acceptance_warnings, *load_warnings(ladder, resolved)],
        "not_measured": not_measured(results, verdict, resolved, load, cost),
    }
    if contexts:
        report["contexts"] = contexts
    return report


def _load_and_contexts(ladder: Ladder | None, judged: Judgement) -> tuple[Load | None, Load | None]:
    """The report's parts on the ladder over load, and on the one over context; None for one that was not measured.

    They make no claims if the speculative arm's output is wrong.
    """
    load = load_of(with_settled_levels(ladder, judged), judged["scope"]["kinds"])
    contexts = load_of(over_contexts(ladder), judged["scope"]["kinds"])
    if judged.get("wrong_output"):
        return load and without_claims(load), contexts and without_claims(contexts)
    return load, contexts


def _marks(resolved: KeptProfile) -> dict[str, str]:
    """Marks before the verdict's word (synthetic, unpinned), each with its reason."""
    marks = {"synthetic": resolved.get("synthetic"), "unpinned": resolved.get("unpinned")}
    return {mark: why for mark, why in marks.items() if why}


def exit_code_of(report: Report) -> int:
    """The exit code of a program that shows the report.

    It is FAILED for an invalid verdict, CANNOT_SAY for that word, otherwise WARNED with warnings and DONE without.
    """
    word = report["verdict"]["word"]
    if word == INVALID:
        return exit_codes.FAILED
    if word == CANNOT_SAY:
        return exit_codes.CANNOT_SAY
    return exit_codes.WARNED if report["warnings"] else exit_codes.DONE


def against_stock(stock: ArmResult, results: Mapping[str, ArmResult], groups: Iterable[str]) -> dict[str, Gain | None]:
    """The speed-up of each arm over ``stock``, the engine without the profile's settings, on the verdict's groups.

    Uses the verdict's estimator: the TPOT of stock over the TPOT of the arm. None if no prompt is in both.
    """
    names = list(groups)
    return {arm: paired_ratio(answers_in(stock, names), answers_in(result, names)) for arm, result in results.items()}


def host_of(results: Mapping[str, ArmResult]) -> str:
    """The host name in the results, or ``box`` if they have none."""
    for result in results.values():
        machine = result.get("machine")
        before = machine and machine.get("before")
        if before and before.get("host"):
            return before["host"]
    return "box"


# --- failures ---------------------------------------------------------------------------------------


def failures(results: Mapping[str, ArmResult]) -> list[Failure]:
    """Requests without a complete answer, a row for each arm and status, with the first 5 requests as examples."""
    rows: list[Failure] = []
    for arm in ARMS:
        requests = requests_of(results[arm])
        for status, words in BROKEN.items():
            broken = [request for request in requests if request.get("status") == status]
            if broken:
                rows.append(
                    {
                        "arm": arm,
                        "status": status,
                        "words": words,
                        "count": len(broken),
                        "of": len(requests),
                        "examples": [_failed_request(request) for request in broken[:5]],
                    }
                )
    return rows


def _failed_request(request: Request) -> FailedRequest:
    """The part of a request without a complete answer that a report keeps; its texts may be private."""
    return {
        "prompt_id": request.get("prompt_id"),
        "round": request.get("round"),
        "http_status": request.get("http_status"),
        "error": request.get("error"),
    }


# --- tables -----------------------------------------------------------------------------------------


def _distribution(results: Mapping[str, ArmResult], measure: Clock) -> dict[Arm, list[float]]:
    """The sorted values of all requests, by arm."""
    return {arm: sorted(values_of(requests_of(results[arm]), measure)) for arm in ARMS}


def _kind_row(
    group: str, judged: JudgedGroup, results: Mapping[str, ArmResult], accepted: AcceptanceBySource
) -> KindRow:
    """The table row of a group: all measures of both arms over the prompts, with intervals."""
    requests = {arm: in_group(requests_of(results[arm]), group) for arm in ARMS}
    any_requests = requests["baseline"] or requests["speculative"]
    kind = any_requests[0].get("kind") if any_requests else group
    temperature = any_requests[0].get("temperature") if any_requests else None
    prompts = {request.get("prompt_id") for request in requests["speculative"]}
    output_tokens = {arm: _output_tokens(requests[arm]) for arm in ARMS}
    measures = {name: _measure(requests, measure, larger) for name, _, _, larger, measure in MEASURES}
    return {
        "group": group,
        "kind": kind,
        "temperature": temperature,
        "concurrency": results["speculative"].get("max_concurrency"),
        "declared": judged["declared"],
        "prompts": len(prompts),
        "requests": {arm: len(requests[arm]) for arm in ARMS},
        "output_tokens": output_tokens,
        "speedup": judged["speedup"],
        "control": judged["control"],
        "outputs": judged["outputs"],
        "acceptance": accepted["groups"].get(group, NO_ACCEPTANCE),
        "tok_s": measures["tok_s"],
        # Use the verdict's speed-up, whose interval includes the variation between server starts.
        "tpot_ms": {**measures["tpot_ms"], "speedup": judged["speedup"]},
        "ttft_ms": measures["ttft_ms"],
        "ttfat_ms": measures["ttfat_ms"],
        "e2el_ms": measures["e2el_ms"],
    }


def _output_tokens(requests: Sequence[Request]) -> int:
    return sum(request.get("output_tokens") or 0 for request in requests)


def _measure(requests: Mapping[Arm, Sequence[Request]], measure: Clock, larger: bool) -> Measure:
    """A measure of both arms and its speed-up; ``larger`` is True if larger values are better."""
    baseline, speculative = requests["baseline"], requests["speculative"]
    slower, faster = (speculative, baseline) if larger else (baseline, speculative)
    return {
        "baseline": _over_prompts(baseline, measure),
        "speculative": _over_prompts(speculative, measure),
        "speedup": paired_ratio(slower, faster, measure),
    }


def _over_prompts(requests: Sequence[Request], measure: Clock) -> Estimated | None:
    """The median over prompts with its interval, where each prompt counts once, as the median of its rounds."""
    estimated = estimate([median(values) for values in by_prompt(requests, measure).values()])
    return estimated.as_dict() if estimated else None


def _acceptance(counts: Drafted) -> Acceptance:
    """The acceptance of a result, or of a group's part of it."""
    rate = counts.get("spec_decode_acceptance_rate")
    return {
        # As in vllm bench serve, a result has percent here but fractions by position.
        "rate": rate / 100.0 if isinstance(rate, int | float) else None,
        "length": counts.get("spec_decode_acceptance_length"),
        "drafts": counts.get("spec_decode_num_drafts"),
        "draft_tokens": counts.get("spec_decode_draft_tokens"),
        "accepted_tokens": counts.get("spec_decode_accepted_tokens"),
        "by_position": list(counts.get("spec_decode_per_position_acceptance_rates") or []),
    }


def acceptance(speculative: ArmResult) -> AcceptanceBySource:
    """Acceptance of the draft tokens, as fractions: overall and per group, each also by position in the draft."""
    groups: dict[str, Acceptance] = {}
    requests = requests_of(speculative)
    for group, counts in (speculative.get("groups") or {}).items():
        groups[group] = {**_acceptance(counts), "repeats": answers_repeat(in_group(requests, group))}
    overall: Acceptance = {**_acceptance(speculative), "repeats": answers_repeat(requests)}
    return {"source": speculative.get("spec_decode_source"), "overall": overall, "groups": groups}


def _totals(result: ArmResult) -> Totals:
    """The totals of an arm; None for those that an old result does not have."""
    return {
        "requests": len(requests_of(result)),
        "duration": result.get("duration"),
        "completed": result.get("completed"),
        "total_input_tokens": result.get("total_input_tokens"),
        "total_output_tokens": result.get("total_output_tokens"),
        "output_throughput": result.get("output_throughput"),
    }


def temperatures_of(result: ArmResult) -> list[float]:
    """The temperatures of an arm's requests, ascending."""
    return sorted({r["temperature"] for r in requests_of(result) if r.get("temperature") is not None})


# --- what this report cannot say ------------------------------------------------------------------------


def not_measured(
    results: Mapping[str, ArmResult],
    verdict: Verdict,
    resolved: KeptProfile,
    load: Load | None = None,
    cost: Cost | None = None,
) -> list[str]:
    """Sentences on what the report does not show although a reader may expect it.

    ``load`` is the report's part on the load sweep and ``cost`` its part on the cost; None: not measured.
    """
    speculative = results["speculative"]
    if load:
        sentences = [f"Any load above {shown_level(load['levels'][-1])} {load['unit']}."]
    else:
        level = at_a_time(speculative.get("max_concurrency"))
        sentences = [f"Any load other than {level}: speculation gains less, or loses, as load grows."]
    if temperatures_of(speculative) == [0]:
        sentences.append("Sampling above temperature 0, which lowers acceptance.")
    if verdict["control"] is None:
        sentences.append("The baseline against itself (A/A): this needs two rounds.")
    accepted = acceptance(speculative)["overall"]
    if not any(accepted["by_position"]):
        sentences.append("Acceptance by position in the draft: the engine did not report it.")
    if accepted["rate"] is None and accepted["length"] is not None:
        sentences.append("The acceptance rate: the engine reported tokens per step, but not how many were drafted.")
    if verdict["outputs"]["speculative"] is None:
        sentences.append("Whether the outputs are equal: no pair of answers at temperature 0.")
    sentences += [*gates_not_measured(verdict), *not_compared(verdict["counts"]), *cost_not_measured(cost)]
    if verdict["word"] == INVALID:
        sentences.insert(0, "A valid comparison: the reasons are at the top.")
    if verdict["word"] == CANNOT_SAY:
        sentences.insert(0, "Whether speculation pays: what disturbed it is at the top.")
    if (resolved.get("hardware") or {}).get("kind") == "cpu":
        sentences.append("A GPU: these numbers are from a CPU and say nothing about the gain on a GPU.")
    return sentences
