"""What a report says, as plain data: report.json. Terminal, Markdown and HTML only show what stands here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...analysis.crossover import agreed
from ...analysis.verdict import BROKEN, CANNOT_SAY, INVALID, MARKS, Prompt, Request, Result, judge, measured_tpot
from ...bench.samples import apart_from_temperature
from ...bench.stats import estimate, geometric_means, median, paired_ratios
from ...bench.usage_check import not_compared
from ...core import exit_codes
from ...core.format import at_a_time, shown_level
from ...prompts.suites import prompt_hashes
from .checks import cost_not_measured, cost_of, gates_not_measured, gates_of, other_tools
from .load import load_of, load_warnings, with_load, without_claims
from .setup import ARMS, commands, engine_changes, machine_table, setup, versions

SCHEMA = "drafthouse.report/1"

ARTICLES_SOURCE = "llm-speed-benchmark (github.com/coder543/llm-speed-benchmark), as the articles used it"
ARTICLES_NOTE = (
    "These three rows are computed as the articles' tool does, so that old published numbers can be set "
    "beside them: the median over the requests of each arm, then one median over the other. Ours, under "
    "Latency and By kind of prompt, pair each prompt with itself and give an interval."
)
# name, unit, larger is better, what it is and where it misleads.
ARTICLES_ROWS = (
    (
        "Response Tok/s",
        "tok/s",
        True,
        "tokens over the time from the first token to the last. The tool counts with GPT-4's tokenizer; "
        "here the server's own count is used",
    ),
    (
        "Time To First Token (s)",
        "s",
        False,
        "the articles' values fit the first token of the answer, after the thinking. "
        "Ours is the first token of any kind",
    ),
    (
        "Prompt Tok/s",
        "tok/s",
        True,
        "prompt tokens over that time, thinking included: not the speed at which a prompt is read",
    ),
)

# What is measured per kind: name in the data, title, unit, larger is better, value of one request.
Measure = Callable[[Request], float | None]


def _field(name: str) -> Measure:
    def read(request: Request) -> float | None:
        value = request.get(name)
        whole = request.get("status") == "ok" and isinstance(value, int | float)
        return float(value) if whole and value is not None else None

    return read


def _tokens_per_second(request: Request) -> float | None:
    tpot = measured_tpot(request)
    return 1000.0 / tpot if tpot else None


MEASURES: tuple[tuple[str, str, str, bool, Measure], ...] = (
    ("tok_s", "Output speed", "tok/s", True, _tokens_per_second),
    ("tpot_ms", "TPOT", "ms", False, measured_tpot),
    ("ttft_ms", "TTFT", "ms", False, _field("ttft_ms")),
    ("ttfat_ms", "First answer", "ms", False, _field("ttfat_ms")),
    ("e2el_ms", "Whole answer", "ms", False, _field("e2el_ms")),
)


def lasting(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a report keeps of a resolved profile: the same for the same results, so nothing of the moment.

    The state of the box is left out, and for how long it is rented still; of the prompts' text, which is long, a hash
    each stands in its place (``prompts``), so that another report can be seen to have sent the same.
    """
    kept = {name: value for name, value in resolved.items() if name not in ("box", "lease", "suites")}
    if resolved.get("suites"):
        kept["prompts"] = prompt_hashes(resolved["suites"].values())
    return kept


def build_report(
    baseline: Result,
    speculative: Result,
    resolved: Mapping[str, Any],
    host: str = "",
    stock: Result | None = None,
    ladder: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return everything a report shows, JSON-serialisable and the same for the same results.

    ``host`` is the box's name in the inventory; without it the results' machine names itself. ``stock`` is the
    result of the arm that starts the engine as an article does, where it was measured, ``ladder`` the loads that
    were tried. Times are in ms, speeds in tokens per second, rates are fractions, speed-ups are above 1 where
    speculation is better. docs/report.schema.json describes it.
    """
    results = {"baseline": baseline, "speculative": speculative}
    judged = judge(baseline, speculative, resolved)
    load = load_of(agreed(ladder, judged), judged["scope"]["kinds"])
    if load and judged.get("wrong_output"):
        load = without_claims(load)
    verdict = with_load(judged, load)
    cost = cost_of(results, resolved)
    date = max(str(baseline.get("date") or ""), str(speculative.get("date") or ""))
    return {
        "schema": SCHEMA,
        "profile": resolved.get("profile") or speculative.get("profile") or "",
        "title": resolved.get("title") or "",
        "article": resolved.get("article"),
        "marks": {mark: resolved[mark] for mark in MARKS if resolved.get(mark)},
        "key": resolved.get("key") or speculative.get("key"),
        "host": host or host_of(results),
        "date": date,
        "verdict": verdict,
        "failures": failures(results),
        "articles": articles_table(results),
        "other_tools": other_tools(results),
        "load": load,
        "kinds": [_kind_row(group, verdict["groups"][group], results) for group in verdict["groups"]],
        "acceptance": acceptance(speculative),
        "stock": against_stock(stock, results, verdict["scope"]["groups"]) if stock else None,
        "distributions": {
            name: {arm: _values(results[arm], measure) for arm in ARMS}
            for name, _, _, _, measure in MEASURES
            if name in ("tpot_ms", "ttft_ms")
        },
        "gates": gates_of(verdict),
        "cost": cost,
        "totals": {arm: _totals(result) for arm, result in results.items()},
        "expectation": resolved.get("expectation"),
        "setup": setup(resolved, verdict["scope"]["rounds"]),
        "commands": commands(resolved),
        "versions": versions(results),
        "engine_changes": engine_changes(results),
        "machine": machine_table(results),
        "warnings": [*verdict["warnings"], *load_warnings(ladder, resolved)],
        "not_measured": not_measured(results, verdict, resolved, load, cost),
    }


def exit_code_of(report: Mapping[str, Any]) -> int:
    """Return how a program that shows a report ends: by the verdict's word, and by the warnings beside it."""
    word = report["verdict"]["word"]
    if word in (INVALID, CANNOT_SAY):
        return exit_codes.FAILED if word == INVALID else exit_codes.CANNOT_SAY
    return exit_codes.WARNED if report["warnings"] else exit_codes.DONE


def against_stock(stock: Result, results: Mapping[str, Result], groups: Iterable[str]) -> dict[str, Any]:
    """Return how each arm compares with the engine as an article starts it, on the verdict's groups.

    Medians over prompts of the paired TPOT ratio (stock over arm), with their interval; None without a pair. As in
    the verdict a prompt counts once, whatever its temperatures.
    """
    wanted = set(groups)

    def times_of(result: Result) -> dict[Prompt, list[float]]:
        chosen = [r for r in result.get("requests") or [] if str(r.get("group")) in wanted]
        return _by_prompt(chosen, measured_tpot)

    own = times_of(stock)
    prompts = apart_from_temperature(stock.get("requests") or [])
    found: dict[str, Any] = {}
    for arm, result in results.items():
        ratio = estimate(list(geometric_means(paired_ratios(own, times_of(result)), prompts).values()))
        found[arm] = ratio.as_dict() if ratio else None
    return found


def host_of(results: Mapping[str, Result]) -> str:
    """Return the name the measured machine gives itself, or ``box``."""
    for result in results.values():
        found = ((result.get("machine") or {}).get("before") or {}).get("host")
        if found:
            return str(found)
    return "box"


# --- failures ---------------------------------------------------------------------------------------


def failures(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Return what did not give a whole answer, a row for each arm and sort, with the first ones by name."""
    rows: list[dict[str, Any]] = []
    for arm, result in results.items():
        requests = list(result.get("requests") or [])
        for status, words in BROKEN.items():
            hits = [r for r in requests if r.get("status") == status]
            if hits:
                rows.append(
                    {
                        "arm": arm,
                        "status": status,
                        "words": words,
                        "count": len(hits),
                        "of": len(requests),
                        "examples": [
                            {
                                "prompt_id": r.get("prompt_id"),
                                "round": r.get("round"),
                                "http_status": r.get("http_status"),
                                "error": r.get("error"),
                            }
                            for r in hits[:5]
                        ],
                    }
                )
    return rows


# --- tables -----------------------------------------------------------------------------------------


def _values(result: Result, measure: Measure, group: str | None = None) -> list[float]:
    chosen = (r for r in result.get("requests") or [] if group is None or r.get("group") == group)
    return sorted(value for value in map(measure, chosen) if value is not None)


def _by_prompt(requests: Iterable[Request], measure: Measure) -> dict[Prompt, list[float]]:
    found: dict[Prompt, list[float]] = {}
    for request in requests:
        value = measure(request)
        if value is not None:
            found.setdefault((str(request.get("group")), request.get("prompt_id")), []).append(value)
    return found


def _kind_row(group: str, judged: Mapping[str, Any], results: Mapping[str, Result]) -> dict[str, Any]:
    """Return one row of our table: every measure of both arms with its interval, over prompts."""
    requests = {arm: [r for r in results[arm].get("requests") or [] if r.get("group") == group] for arm in ARMS}
    row: dict[str, Any] = {
        "group": group,
        "kind": next((r.get("kind") for r in requests["baseline"] + requests["speculative"]), group),
        "temperature": next((r.get("temperature") for r in requests["baseline"] + requests["speculative"]), None),
        "concurrency": results["speculative"].get("max_concurrency"),
        "declared": judged["declared"],
        "prompts": len({r.get("prompt_id") for r in requests["speculative"]}),
        "requests": {arm: len(requests[arm]) for arm in ARMS},
        "output_tokens": {arm: sum(r.get("output_tokens") or 0 for r in requests[arm]) for arm in ARMS},
        "speedup": judged["speedup"],
        "control": judged["control"],
        "outputs": judged["outputs"],
        "acceptance": _acceptance((results["speculative"].get("groups") or {}).get(group) or {}),
    }
    for name, _, _, larger, measure in MEASURES:
        prompts = {arm: _by_prompt(requests[arm], measure) for arm in ARMS}
        better, worse = ("speculative", "baseline") if larger else ("baseline", "speculative")
        ratios = paired_ratios(prompts[better], prompts[worse])
        cell: dict[str, Any] = {}
        for arm in ARMS:
            found = estimate([median(values) for values in prompts[arm].values()])
            cell[arm] = found.as_dict() if found else None
        ratio = estimate(list(ratios.values()))
        row[name] = {**cell, "speedup": ratio.as_dict() if ratio else None}
    # That is the verdict's own question, and server starts are part of its answer.
    row["tpot_ms"]["speedup"] = judged["speedup"]
    return row


def articles_table(results: Mapping[str, Result]) -> dict[str, Any]:
    """Return the articles' three rows: from their own suite where it was run, otherwise from all requests."""
    chosen: dict[str, list[Request]] = {}
    for arm, result in results.items():
        whole = [r for r in result.get("requests") or [] if r.get("status") == "ok"]
        chosen[arm] = [r for r in whole if r.get("suite") == "articles"]
    own = all(chosen.values())
    if not own:
        chosen = {arm: [r for r in results[arm].get("requests") or [] if r.get("status") == "ok"] for arm in ARMS}

    def seconds(request: Request) -> float | None:
        value = _field("ttfat_ms")(request)
        return value / 1000.0 if value else None

    def prompt_speed(request: Request) -> float | None:
        wait, tokens = seconds(request), request.get("input_tokens")
        return float(tokens) / wait if wait and tokens else None

    rows = []
    for (title, unit, larger, note), measure in zip(
        ARTICLES_ROWS, (_tokens_per_second, seconds, prompt_speed), strict=True
    ):
        values = {arm: [v for v in map(measure, chosen[arm]) if v is not None] for arm in ARMS}
        normal, spec = (median(values[arm]) if values[arm] else None for arm in ARMS)
        speedup = None
        if normal and spec:
            speedup = spec / normal if larger else normal / spec
        rows.append(
            {
                "metric": title,
                "unit": unit,
                "normal": normal,
                "speculative": spec,
                "speedup": speedup,
                "note": note,
            }
        )
    return {
        "suite": "articles" if own else None,
        "requests": {arm: len(chosen[arm]) for arm in ARMS},
        "source": ARTICLES_SOURCE,
        "note": ARTICLES_NOTE,
        "rows": rows,
    }


def _acceptance(block: Mapping[str, Any]) -> dict[str, Any]:
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


def acceptance(speculative: Result) -> dict[str, Any]:
    """Return what was accepted of the drafts: overall, per group, by position in the draft; fractions."""
    return {
        "source": speculative.get("spec_decode_source"),
        "overall": _acceptance(speculative),
        "groups": {str(group): _acceptance(block) for group, block in (speculative.get("groups") or {}).items()},
    }


def _totals(result: Result) -> dict[str, Any]:
    names = ("duration", "completed", "total_input_tokens", "total_output_tokens", "output_throughput")
    return {"requests": len(result.get("requests") or [])} | {name: result.get(name) for name in names}


# --- what this report cannot say ------------------------------------------------------------------------


def not_measured(
    results: Mapping[str, Result],
    verdict: Mapping[str, Any],
    resolved: Mapping[str, Any],
    load: Mapping[str, Any] | None = None,
    cost: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return what a reader might look for and not find, a sentence each."""
    spec = results["speculative"]
    requests = list(spec.get("requests") or [])
    if load:
        found = [f"Any load above {shown_level(load['levels'][-1])} {load['unit']}."]
    else:
        found = [
            f"Any other load than {at_a_time(spec.get('max_concurrency'))}: speculation gains less, or loses, "
            "as load grows."
        ]
    temperatures = sorted({r.get("temperature") for r in requests if r.get("temperature") is not None})
    if temperatures == [0]:
        found.append("Sampling above temperature 0, which lowers acceptance.")
    if verdict["control"] is None:
        found.append("The baseline against itself (A/A): that takes two rounds.")
    if not any(acceptance(spec)["overall"]["by_position"]):
        found.append("Acceptance by position in the draft: the engine did not tell it.")
    told = acceptance(spec)["overall"]
    if told["rate"] is None and told["length"] is not None:
        found.append("The acceptance rate: the engine told how many tokens a step gave, not how many were drafted.")
    outputs = verdict["outputs"]["speculative"]
    if outputs is None:
        found.append("Whether the outputs are equal: no pair of answers at temperature 0.")
    found += [*gates_not_measured(verdict), *not_compared(verdict["counts"]), *cost_not_measured(cost)]
    if verdict["word"] == INVALID:
        found.insert(0, "A valid comparison: the reasons stand at the top.")
    if verdict["word"] == CANNOT_SAY:
        found.insert(0, "Whether speculation pays: what disturbed it stands at the top.")
    if (resolved.get("hardware") or {}).get("kind") == "cpu":
        found.append("A GPU: these numbers are of a CPU and say nothing about a GPU's gain.")
    return found
