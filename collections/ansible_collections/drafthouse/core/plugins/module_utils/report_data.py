"""What a report says, as plain data: report.json. Terminal, Markdown and HTML only show what stands here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import Any

from .stats import estimate, median, paired_ratios
from .verdict import BROKEN, INVALID, MARKS, Prompt, Request, Result, busy_processes, judge, measured_tpot
from .wording import at_a_time, listing

SCHEMA = "drafthouse.report/1"
ARMS = ("baseline", "speculative")
MADE_WITH = ("numpy", "matplotlib", "jinja2")

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


def build_report(
    baseline: Result,
    speculative: Result,
    resolved: Mapping[str, Any],
    host: str = "",
    stock: Result | None = None,
) -> dict[str, Any]:
    """Return everything a report shows, JSON-serialisable and the same for the same results.

    ``host`` is the box's name in the inventory; without it the results' machine names itself. ``stock`` is the
    result of the arm that starts the engine as an article does, where it was measured. Rows under
    ``kinds`` carry their concurrency, so that more steps of load add rows. Times are in ms, speeds in
    tokens per second, rates are fractions, speed-ups are above 1 where speculation is better.
    """
    results = {"baseline": baseline, "speculative": speculative}
    verdict = judge(baseline, speculative, resolved)
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
        "kinds": [_kind_row(group, verdict["groups"][group], results) for group in verdict["groups"]],
        "acceptance": acceptance(speculative),
        "stock": against_stock(stock, results, verdict["scope"]["groups"]) if stock else None,
        "distributions": {
            name: {arm: _values(results[arm], measure) for arm in ARMS}
            for name, _, _, _, measure in MEASURES
            if name in ("tpot_ms", "ttft_ms")
        },
        "totals": {arm: _totals(result) for arm, result in results.items()},
        "expectation": resolved.get("expectation"),
        "setup": _setup(resolved),
        "commands": commands(resolved),
        "versions": versions(results),
        "engine_changes": engine_changes(results),
        "machine": machine_table(results),
        "warnings": verdict["warnings"],
        "not_measured": not_measured(results, verdict, resolved),
    }


def against_stock(stock: Result, results: Mapping[str, Result], groups: Iterable[str]) -> dict[str, Any]:
    """Return how each arm compares with the engine as an article starts it, on the verdict's groups.

    Medians over prompts of the paired TPOT ratio (stock over arm), with their interval; None without a pair.
    """
    wanted = set(groups)

    def times_of(result: Result) -> dict[Prompt, list[float]]:
        chosen = [r for r in result.get("requests") or [] if str(r.get("group")) in wanted]
        return _by_prompt(chosen, measured_tpot)

    own = times_of(stock)
    found: dict[str, Any] = {}
    for arm, result in results.items():
        ratio = estimate(list(paired_ratios(own, times_of(result)).values()))
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


# --- what was run, where ------------------------------------------------------------------------------


def _setup(resolved: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what was compared, in a few lines: what, and which."""
    site = resolved.get("site") or {}
    engine = resolved.get("engine") or {}
    method = resolved.get("method") or {}
    experiment = resolved.get("experiment") or {}
    tokens = method.get("num_speculative_tokens")
    rows = {
        "Hardware": _named(resolved.get("hardware")),
        "Engine": " ".join(str(part) for part in (_named(engine), engine.get("version")) if part),
        "Target": _named(resolved.get("target")),
        "Draft": _named(resolved.get("draft")) or "none: tokens are looked up in the text",
        "Method": _named(method) + (f", up to {tokens} tokens a draft" if tokens else ""),
        "Box": ", ".join(str(site[name]) for name in ("box_kind", "runtime") if site.get(name)),
        "Suites": listing([str(suite) for suite in experiment.get("suites") or []]),
        "Rounds": f"{experiment.get('rounds', '?')}, {experiment.get('schedule', 'order unknown')}",
        "Load": at_a_time(experiment.get("concurrency", "?")),
    }
    return [{"what": what, "which": which} for what, which in rows.items() if which]


def _named(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return ""
    return str(entry.get("name") or entry.get("id") or "")


def commands(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rendered files of both arms and their difference, as ``diff -u`` shows it."""
    files = {
        arm: [
            {"path": str(f.get("path")), "content": str(f.get("content", ""))}
            for f in ((resolved.get("arms") or {}).get(arm) or {}).get("files") or []
        ]
        for arm in ARMS
    }
    texts = {arm: {f["path"]: f["content"] for f in files[arm]} for arm in ARMS}
    diff: list[str] = []
    for path in sorted(texts["baseline"].keys() | texts["speculative"].keys()):
        one, two = (texts[arm].get(path, "").splitlines() for arm in ARMS)
        diff += difflib.unified_diff(one, two, f"baseline/{path}", f"speculative/{path}", lineterm="")
    return {**files, "diff": "\n".join(diff)}


def flatten(data: object, path: str = "") -> dict[str, Any]:
    """Return nested data as ``{"cpu.model": …, "gpus[0].name": …}``: a leaf for each row of a table."""
    if isinstance(data, Mapping):
        parts = [(f"{path}.{key}" if path else str(key), value) for key, value in data.items()]
    elif isinstance(data, list) and any(isinstance(item, Mapping | list) for item in data):
        parts = [(f"{path}[{position}]", value) for position, value in enumerate(data)]
    elif isinstance(data, list):
        return {path: ", ".join(str(item) for item in data)} if data else {}
    else:
        return {path: data}
    found: dict[str, Any] = {}
    for where, value in parts:
        found |= flatten(value, where)
    return found


def _side_by_side(one: object, two: object) -> list[dict[str, Any]]:
    flat = [flatten(side or {}) for side in (one, two)]
    names = list(flat[0]) + [name for name in flat[1] if name not in flat[0]]
    return [{"what": name, "baseline": flat[0].get(name), "speculative": flat[1].get(name)} for name in names]


def versions(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Return what the engine says of itself and what made this report, side by side for the two arms."""
    rows: list[dict[str, Any]] = []
    for part in ("engine",):
        sides = [{part: results[arm].get(part)} if results[arm].get(part) else {} for arm in ARMS]
        rows += _side_by_side(*sides)
    for name in MADE_WITH:
        try:
            found: str | None = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = None
        rows.append({"what": f"report.{name}", "baseline": found, "speculative": found})
    return rows


def engine_changes(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Return what the engine itself set differently in the two arms, as far as it says (model runner, …)."""
    rows = _side_by_side(*(results[arm].get("engine") for arm in ARMS))
    return [row for row in rows if row["baseline"] != row["speculative"]]


def machine_table(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Return machine and state of both arms, a row a fact: before and after the arm, and while it ran."""
    rows: dict[str, dict[str, Any]] = {}
    for arm in ARMS:
        machine = results[arm].get("machine") or {}
        for moment in ("before", "after"):
            for path, value in flatten(machine.get(moment) or {}).items():
                rows.setdefault(path, {"what": path, "baseline": {}, "speculative": {}})[arm][moment] = value
        for path, value in _while_measuring(machine).items():
            rows.setdefault(path, {"what": path, "baseline": {}, "speculative": {}})[arm]["value"] = value
    return list(rows.values())


def _while_measuring(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the machine did while the groups of an arm ran: medians, and who else was busy."""
    between = [group.get("between") or {} for group in machine.get("groups") or []]
    found: dict[str, Any] = {}
    for name in ("cpu_busy_percent", "cpu_steal_percent", "other_cpu_percent", "cpu_package_power_w"):
        values = [one[name] for one in between if isinstance(one.get(name), int | float)]
        if values:
            found[f"while measuring: {name}, median"] = median(values)
            found[f"while measuring: {name}, highest"] = max(values)
    names = busy_processes(machine)
    if names:
        found["while measuring: busy processes"] = ", ".join(names)
    return found


# --- what this report cannot say ------------------------------------------------------------------------


def not_measured(results: Mapping[str, Result], verdict: Mapping[str, Any], resolved: Mapping[str, Any]) -> list[str]:
    """Return what a reader might look for and not find, a sentence each."""
    spec = results["speculative"]
    requests = list(spec.get("requests") or [])
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
    found += [
        "Whether answers are right: outputs are compared as text; JSON mode, tool calls and long context "
        "are not tried.",
        "Energy per token, and money per token.",
    ]
    if verdict["word"] == INVALID:
        found.insert(0, "A valid comparison: the reasons stand at the top.")
    if (resolved.get("hardware") or {}).get("kind") == "cpu":
        found.append("A GPU: these numbers are of a CPU and say nothing about a GPU's gain.")
    return found
