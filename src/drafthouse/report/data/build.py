"""What a report says, as plain data: report.json. Terminal, Markdown and HTML only show what stands here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from ...analysis.crossover import agreed
from ...analysis.degenerate_text import answers_repeat
from ...analysis.measured import in_groups, paired
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
# What a report leaves out of a resolved profile.
_OF_THE_MOMENT = ("box", "lease", "suites", "suites_file", "extras", "overrides")

NOTHING_TOLD: Acceptance = {
    "rate": None,
    "length": None,
    "drafts": None,
    "draft_tokens": None,
    "accepted_tokens": None,
    "by_position": [],
}


def lasting(resolved: KeptProfile) -> KeptProfile:
    """What a report keeps of a resolved profile: the same for the same results, so nothing of the moment.

    The state of the box is left out, and for how long it is rented still; of the prompts' text, which is long, a hash
    each stands in its place (``prompts``), so that another report can be seen to have sent the same.
    """
    kept = cast("KeptProfile", {name: value for name, value in resolved.items() if name not in _OF_THE_MOMENT})
    if suites := resolved.get("suites"):
        kept["prompts"] = prompt_hashes(suites.values())
    return kept


def build_report(
    baseline: ArmResult,
    speculative: ArmResult,
    resolved: KeptProfile,
    host: str = "",
    stock: ArmResult | None = None,
    ladder: Ladder | None = None,
    judged: Judgement | None = None,
) -> Report:
    """Everything a report shows, JSON-serialisable and the same for the same results.

    ``host`` is the box's name in the inventory; without it the results' machine names itself. ``stock`` is the
    result of the arm that starts the engine as an article does, where it was measured, ``ladder`` the loads that
    were tried, ``judged`` the verdict where it is given already. Times are in ms, speeds in tokens per second, rates
    are fractions, speed-ups are above 1 where speculation is better. docs/report.schema.json describes it.
    """
    results = {"baseline": baseline, "speculative": speculative}
    judged = judged or judge(baseline, speculative, resolved)
    load = load_of(agreed(ladder, judged), judged["scope"]["kinds"])
    if load and judged.get("wrong_output"):
        load = without_claims(load)
    verdict = with_load(judged, load)
    cost = cost_of(results, resolved)
    accepted = acceptance(speculative)
    beside = published_beside(resolved, accepted)
    kinds = [_kind_row(name, group, results, accepted) for name, group in verdict["groups"].items()]
    beside_warnings = published_warnings(beside, usual_causes(resolved, temperatures_of(speculative)))
    return {
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
        "acceptance": {**accepted, "published": beside},
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
        "warnings": [*verdict["warnings"], *beside_warnings, *load_warnings(ladder, resolved)],
        "not_measured": not_measured(results, verdict, resolved, load, cost),
    }


def _marks(resolved: KeptProfile) -> dict[str, str]:
    """What a reader must know before the verdict's word, each with its reason."""
    marks = {"synthetic": resolved.get("synthetic"), "unpinned": resolved.get("unpinned")}
    return {mark: why for mark, why in marks.items() if why}


def exit_code_of(report: Report) -> int:
    """How a program that shows a report ends: by the verdict's word, and by the warnings beside it."""
    word = report["verdict"]["word"]
    if word == INVALID:
        return exit_codes.FAILED
    if word == CANNOT_SAY:
        return exit_codes.CANNOT_SAY
    return exit_codes.WARNED if report["warnings"] else exit_codes.DONE


def against_stock(stock: ArmResult, results: Mapping[str, ArmResult], groups: Iterable[str]) -> dict[str, Gain | None]:
    """How each arm compares with the engine as an article starts it, on the verdict's groups.

    By the verdict's estimator, the TPOT of stock over that of the arm; None without a pair.
    """
    wanted = list(groups)
    return {arm: paired(in_groups(stock, wanted), in_groups(result, wanted)) for arm, result in results.items()}


def host_of(results: Mapping[str, ArmResult]) -> str:
    """The name the measured machine gives itself, or ``box``."""
    for result in results.values():
        machine = result.get("machine")
        before = machine and machine.get("before")
        if before and before.get("host"):
            return before["host"]
    return "box"


# --- failures ---------------------------------------------------------------------------------------


def failures(results: Mapping[str, ArmResult]) -> list[Failure]:
    """What did not give a whole answer, a row for each arm and sort, with the first ones by name."""
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
                        "examples": [_failed(request) for request in broken[:5]],
                    }
                )
    return rows


def _failed(request: Request) -> FailedRequest:
    return {
        "prompt_id": request.get("prompt_id"),
        "round": request.get("round"),
        "http_status": request.get("http_status"),
        "error": request.get("error"),
    }


# --- tables -----------------------------------------------------------------------------------------


def _distribution(results: Mapping[str, ArmResult], measure: Clock) -> dict[Arm, list[float]]:
    """Every request's value in order, by arm."""
    return {arm: sorted(values_of(requests_of(results[arm]), measure)) for arm in ARMS}


def _kind_row(
    group: str, judged: JudgedGroup, results: Mapping[str, ArmResult], accepted: AcceptanceBySource
) -> KindRow:
    """One row of our table: every measure of both arms with its interval, over prompts."""
    requests = {arm: in_group(requests_of(results[arm]), group) for arm in ARMS}
    asked = requests["baseline"] or requests["speculative"]
    kind = asked[0].get("kind") if asked else group
    temperature = asked[0].get("temperature") if asked else None
    prompts = {request.get("prompt_id") for request in requests["speculative"]}
    output_tokens = {arm: _output_tokens(requests[arm]) for arm in ARMS}
    cells = {name: _cell(requests, measure, larger) for name, _, _, larger, measure in MEASURES}
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
        "acceptance": accepted["groups"].get(group, NOTHING_TOLD),
        "tok_s": cells["tok_s"],
        # That is the verdict's own question, and server starts are part of its answer.
        "tpot_ms": {**cells["tpot_ms"], "speedup": judged["speedup"]},
        "ttft_ms": cells["ttft_ms"],
        "ttfat_ms": cells["ttfat_ms"],
        "e2el_ms": cells["e2el_ms"],
    }


def _output_tokens(requests: Sequence[Request]) -> int:
    return sum(request.get("output_tokens") or 0 for request in requests)


def _cell(requests: Mapping[Arm, Sequence[Request]], measure: Clock, larger: bool) -> Measure:
    """A measure of both arms; ``larger``: whether larger is better."""
    baseline, speculative = requests["baseline"], requests["speculative"]
    slower, faster = (speculative, baseline) if larger else (baseline, speculative)
    return {
        "baseline": _over_prompts(baseline, measure),
        "speculative": _over_prompts(speculative, measure),
        "speedup": paired(slower, faster, measure),
    }


def _over_prompts(requests: Sequence[Request], measure: Clock) -> Estimated | None:
    """The median over prompts with its interval; a prompt counts once, with the median of its rounds."""
    found = estimate([median(values) for values in by_prompt(requests, measure).values()])
    return found.as_dict() if found else None


def _acceptance(block: Drafted) -> Acceptance:
    rate = block.get("spec_decode_acceptance_rate")
    return {
        # The result follows vllm bench serve, which gives percent here and fractions by position.
        "rate": rate / 100.0 if isinstance(rate, int | float) else None,
        "length": block.get("spec_decode_acceptance_length"),
        "drafts": block.get("spec_decode_num_drafts"),
        "draft_tokens": block.get("spec_decode_draft_tokens"),
        "accepted_tokens": block.get("spec_decode_accepted_tokens"),
        "by_position": list(block.get("spec_decode_per_position_acceptance_rates") or []),
    }


def acceptance(speculative: ArmResult) -> AcceptanceBySource:
    """What was accepted of the drafts: overall, per group, by position in the draft; fractions."""
    groups: dict[str, Acceptance] = {}
    requests = requests_of(speculative)
    for group, block in (speculative.get("groups") or {}).items():
        groups[group] = {**_acceptance(block), "repeats": answers_repeat(in_group(requests, group))}
    overall: Acceptance = {**_acceptance(speculative), "repeats": answers_repeat(requests)}
    return {"source": speculative.get("spec_decode_source"), "overall": overall, "groups": groups}


def _totals(result: ArmResult) -> Totals:
    return {
        "requests": len(requests_of(result)),
        "duration": result.get("duration"),
        "completed": result.get("completed"),
        "total_input_tokens": result.get("total_input_tokens"),
        "total_output_tokens": result.get("total_output_tokens"),
        "output_throughput": result.get("output_throughput"),
    }


def temperatures_of(result: ArmResult) -> list[float]:
    """The temperatures that an arm was asked at, in order."""
    return sorted({r["temperature"] for r in requests_of(result) if r.get("temperature") is not None})


# --- what this report cannot say ------------------------------------------------------------------------


def not_measured(
    results: Mapping[str, ArmResult],
    verdict: Verdict,
    resolved: KeptProfile,
    load: Load | None = None,
    cost: Cost | None = None,
) -> list[str]:
    """What a reader might look for and not find, a sentence each."""
    spec = results["speculative"]
    if load:
        found = [f"Any load above {shown_level(load['levels'][-1])} {load['unit']}."]
    else:
        level = at_a_time(spec.get("max_concurrency"))
        found = [f"Any load other than {level}: speculation gains less, or loses, as load grows."]
    if temperatures_of(spec) == [0]:
        found.append("Sampling above temperature 0, which lowers acceptance.")
    if verdict["control"] is None:
        found.append("The baseline against itself (A/A): this needs two rounds.")
    accepted = acceptance(spec)["overall"]
    if not any(accepted["by_position"]):
        found.append("Acceptance by position in the draft: the engine did not report it.")
    if accepted["rate"] is None and accepted["length"] is not None:
        found.append("The acceptance rate: the engine reported tokens per step, but not how many were drafted.")
    if verdict["outputs"]["speculative"] is None:
        found.append("Whether the outputs are equal: no pair of answers at temperature 0.")
    found += [*gates_not_measured(verdict), *not_compared(verdict["counts"]), *cost_not_measured(cost)]
    if verdict["word"] == INVALID:
        found.insert(0, "A valid comparison: the reasons are at the top.")
    if verdict["word"] == CANNOT_SAY:
        found.insert(0, "Whether speculation pays: what disturbed it is at the top.")
    if (resolved.get("hardware") or {}).get("kind") == "cpu":
        found.append("A GPU: these numbers are from a CPU and say nothing about the gain on a GPU.")
    return found
