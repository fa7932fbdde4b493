"""Compare two reports, A and B, prompt by prompt, with the estimator of the verdict.

The change is A's time over B's: the geometric mean over the prompts and rounds of both, with an interval that covers
variation between prompts and between server starts. Above 1, B is faster. The interval does not cover changes of the
machine from day to day; the A/A control of each report (baseline against itself) shows its noise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from ...analysis.crossover_text import load_text
from ...analysis.gates import NOT_MEASURED, PASSED
from ...analysis.measured import paired_ratio
from ...analysis.verdict_types import CostRow
from ...analysis.words import CANNOT_SAY, DOES_NOT_PAY, EARLIER, PAYS, RULE_VERSION
from ...bench.result_types import Request
from ...bench.samples import Prompt, measured_tpot, requests_of
from ...bench.stats import CONFIDENCE, median
from ...core.format import count, listing, percent, span
from ...report.archive import Kept
from ...report.report_types import ARMS, Arm, LoadKind, LoadRow
from ..data.measures import Clock, by_prompt, in_group
from .compared_types import (
    ComparedCost,
    ComparedGate,
    ComparedKind,
    ComparedLevel,
    ComparedLoad,
    Comparison,
    Facts,
    MeasureName,
    MeasureRow,
    Numbers,
    Side,
    SpeedupRow,
)
from .conditions import differences, subjects

SCHEMA = "drafthouse.comparison/1"
# The words of a change, see `_word`.
FASTER = "faster"
SLOWER = "slower"
SAME = "no clear difference"
TOO_FEW = "too few prompts"
#: The names of the measures, all in ms.
TITLES: Mapping[MeasureName, str] = {"tpot_ms": "TPOT", "ttft_ms": "TTFT"}


def compare(kept_a: Kept, kept_b: Kept, threshold: float | None = None) -> Comparison:
    """Compare two reports and return plain data.

    ``against`` lists why they are not comparable (empty if they are), ``marks`` what weakens the comparison,
    ``differs`` what is compared. ``rows`` have a measure per arm and kind: medians in ms, and ``change`` with its
    interval. With ``threshold``, a fraction such as 0.05, ``regressions`` lists what is worse in B by more than it,
    beyond doubt, and ``unjudged`` lists claims of A that B neither confirms nor refutes.
    """
    against, marks = differences(kept_a, kept_b)
    if not _same_rule(kept_a, kept_b):
        marks = [*marks, f"the verdict of A or B was given {EARLIER}: the words of the two are not compared"]
    rows = [row for arm in ARMS for row in _rows(arm, kept_a, kept_b)]
    facts: Facts = {
        "schema": SCHEMA,
        "a": _side(kept_a),
        "b": _side(kept_b),
        "differs": subjects(kept_a, kept_b),
        "against": against,
        "marks": marks,
        "rows": rows,
        "speedups": _speedups(kept_a, kept_b),
        "acceptance": {"a": _acceptance(kept_a), "b": _acceptance(kept_b)},
        "load": _load(kept_a, kept_b),
        "gates": _gates(kept_a, kept_b),
        "cost": _cost(kept_a, kept_b),
        "threshold": threshold,
    }
    declared = [row for row in rows if row["declared"]]
    judged = sum(row["word"] != TOO_FEW for row in declared)
    if threshold is None:
        return {**facts, "regressions": [], "unjudged": [], "judged": judged}
    worse = _regressions(facts, declared, kept_a, kept_b, threshold)
    return {**facts, "regressions": worse, "unjudged": _unjudged(facts, declared, kept_a, kept_b), "judged": judged}


def _same_rule(kept_a: Kept, kept_b: Kept) -> bool:
    """True if the current rule gave the words of both verdicts and of their load levels."""
    return all(kept.report["verdict"].get("rule") == RULE_VERSION for kept in (kept_a, kept_b))


def _sides(kept_a: Kept, kept_b: Kept) -> tuple[tuple[Literal["a"], Kept], tuple[Literal["b"], Kept]]:
    """Both reports, each with its key in a row of the comparison."""
    return ("a", kept_a), ("b", kept_b)


def _side(kept: Kept) -> Side:
    """A report's part of the comparison; a sentence by an earlier rule is marked as such."""
    verdict = kept.report["verdict"]
    earlier = verdict.get("rule") != RULE_VERSION
    sentence = verdict.get("sentence")
    if earlier:
        sentence = f"({EARLIER}) {sentence}"
    return {
        "label": kept.label,
        "folder": str(kept.path),
        "date": kept.report.get("date"),
        "word": verdict.get("word"),
        "earlier_rule": earlier,
        "sentence": sentence,
        "speedup": verdict.get("speedup"),
        "control": verdict.get("control"),
    }


# --- prompt by prompt -----------------------------------------------------------------------------------


def _ttft(request: Request) -> float | None:
    """The TTFT of a complete answer in ms; None if it is missing or not above 0."""
    value = request.get("ttft_ms")
    if request.get("status") != "ok" or value is None or value <= 0:
        return None
    return value


_MEASURES: Mapping[MeasureName, Clock] = {"tpot_ms": measured_tpot, "ttft_ms": _ttft}


def _rows(arm: Arm, kept_a: Kept, kept_b: Kept) -> list[MeasureRow]:
    """A row for each kind and measure of an arm, over the prompts of both reports."""
    all_a, all_b = requests_of(kept_a.results[arm]), requests_of(kept_b.results[arm])
    declared = {*_declared(kept_a), *_declared(kept_b)}
    rows: list[MeasureRow] = []
    for group in dict.fromkeys(str(request.get("group")) for request in all_a):
        requests_a, requests_b = in_group(all_a, group), in_group(all_b, group)
        for measure_name, measure in _MEASURES.items():
            times_a, times_b = by_prompt(requests_a, measure), by_prompt(requests_b, measure)
            shared = times_a.keys() & times_b.keys()
            change = paired_ratio(requests_a, requests_b, measure)
            if not shared or change is None:
                continue
            rows.append(
                {
                    "arm": arm,
                    "kind": group,
                    "declared": group in declared,
                    "measure": measure_name,
                    "unit": "ms",
                    "a": _median_over(shared, times_a),
                    "b": _median_over(shared, times_b),
                    "change": change,
                    "word": _word(change["low"], change["high"], change["reach"]),
                }
            )
    return rows


def _median_over(prompts: Collection[Prompt], times: Mapping[Prompt, Sequence[float]]) -> float:
    """The median over prompts of each prompt's median over its rounds."""
    return median([median(times[prompt]) for prompt in prompts])


def _declared(kept: Kept) -> list[str]:
    """The groups of requests (a kind at a temperature) that a report's verdict covers."""
    scope = kept.report["verdict"].get("scope")
    if not scope:
        return []
    return scope.get("groups") or []


def _word(low: float, high: float, reach: float) -> str:
    """The word for a change with this interval, of A's time over B's: above 1 B is faster.

    ``reach`` is the confidence that the interval really has; below `CONFIDENCE` there is no word but `TOO_FEW`.
    """
    if reach < CONFIDENCE:
        return TOO_FEW
    if low > 1.0:
        return FASTER
    if high < 1.0:
        return SLOWER
    return SAME


def _title(row: MeasureRow) -> str:
    return _measure_name(row["arm"], row["kind"], row["measure"])


def _measure_name(arm: Arm, kind: str, measure: MeasureName) -> str:
    return f"{arm}, {kind}: {TITLES[measure]}"


# --- the rest of a report -----------------------------------------------------------------------------


def _speedups(kept_a: Kept, kept_b: Kept) -> list[SpeedupRow]:
    """The speed-up in each report, by kind."""
    rows: dict[str, SpeedupRow] = {}
    for side, kept in _sides(kept_a, kept_b):
        for kind in kept.report.get("kinds") or []:
            group = kind["group"]
            row = rows.setdefault(group, {"kind": group, "a": None, "b": None})
            row[side] = kind["speedup"]
    return list(rows.values())


def _acceptance(kept: Kept) -> float | None:
    """The acceptance rate of a report, a fraction; None if it is unknown."""
    acceptance = kept.report.get("acceptance") or {}
    overall = acceptance.get("overall")
    return overall.get("rate") if overall else None


def _load(kept_a: Kept, kept_b: Kept) -> ComparedLoad | None:
    """The loads up to which speculation pays in both, and the server's speed at common levels; None if one has none."""
    load_a, load_b = kept_a.report.get("load"), kept_b.report.get("load")
    if not load_a or not load_b:
        return None
    rows_b = {(row["kind"], row["level"]): row for row in load_b["rows"]}
    rows: list[ComparedLevel] = []
    # By kind, the levels with a speed-up in both reports: only these can show that it pays less far.
    shared_levels: dict[str, list[float]] = defaultdict(list)
    for a in load_a["rows"]:
        kind = a["kind"]
        level = a["level"]
        b = rows_b.get((kind, level))
        if b is None:
            continue
        rows.append(
            {
                "kind": kind,
                "level": level,
                "baseline": _speeds(a, b, "baseline"),
                "speculative": _speeds(a, b, "speculative"),
            }
        )
        if a.get("speedup") and b.get("speedup"):
            shared_levels[kind].append(level)
    kinds_b = {kind["kind"]: kind for kind in load_b["kinds"]}
    kinds: list[ComparedKind] = []
    for load_kind in load_a["kinds"]:
        name = load_kind["kind"]
        if name in kinds_b:
            kinds.append({"kind": name, "a": load_kind, "b": kinds_b[name], "levels": shared_levels[name]})
    return {"unit": load_a["unit"], "kinds": kinds, "rows": rows}


def _speeds(a: LoadRow, b: LoadRow, arm: Arm) -> Numbers:
    return {"a": _server_speed(a, arm), "b": _server_speed(b, arm)}


def _server_speed(row: LoadRow, arm: Arm) -> float | None:
    """Output tokens/s of an arm, over all its concurrent requests."""
    measured = row.get(arm)
    return measured.get("output_throughput") if measured else None


def _gates(kept_a: Kept, kept_b: Kept) -> list[ComparedGate]:
    """The words of each gate; the title is A's if A has that gate."""
    rows: dict[str, ComparedGate] = {}
    for side, kept in _sides(kept_a, kept_b):
        for gate in kept.report.get("gates") or []:
            name = gate["name"]
            row = rows.setdefault(name, {"name": name, "title": gate["title"], "a": None, "b": None})
            row[side] = gate.get("word")
    return list(rows.values())


def _cost(kept_a: Kept, kept_b: Kept) -> list[ComparedCost]:
    """The rows of the cost table that both reports have, for both arms."""
    rows_b = _known_costs(kept_b)
    rows: list[ComparedCost] = []
    for name, a in _known_costs(kept_a).items():
        b = rows_b.get(name)
        if b is None:
            continue
        rows.append(
            {
                "what": name,
                "unit": a["unit"],
                "baseline": {"a": a["baseline"], "b": b["baseline"]},
                "speculative": {"a": a["speculative"], "b": b["speculative"]},
            }
        )
    return rows


def _known_costs(kept: Kept) -> dict[str, CostRow]:
    """The rows of the cost table that have a number for each arm, by name."""
    cost = kept.report.get("cost")
    if not cost:
        return {}
    rows: dict[str, CostRow] = {}
    for row in cost.get("rows") or []:
        if all(isinstance(row[arm], int | float) for arm in ARMS):
            rows[row["what"]] = row
    return rows


# --- regressions ----------------------------------------------------------------------------------------


def _regressions(facts: Facts, judged: Sequence[MeasureRow], kept_a: Kept, kept_b: Kept, threshold: float) -> list[str]:
    """Sentences on what is clearly worse in B: times longer by more than ``threshold``, the verdict, gates, loads.

    ``judged`` are the rows of kinds that a verdict covers; ``threshold`` is a fraction.
    """
    lines = []
    for row in judged:
        change = row["change"]
        # The change is A's time over B's, so it is 0.8 if B takes a quarter longer.
        if row["word"] == SLOWER and change["gain"] < 1.0 / (1.0 + threshold):
            longer = percent(1 / change["gain"] - 1)
            lines.append(f"{_title(row)} is {longer} longer ({span(change)} of A's speed, over {change['n']} prompts)")
    same_rule = _same_rule(kept_a, kept_b)
    # `cannot say` and a gate that was not measured refute nothing: `_unjudged` lists them.
    if same_rule and facts["a"]["word"] == PAYS and facts["b"]["word"] not in (PAYS, CANNOT_SAY):
        lines.append(f"the verdict was “pays” and is now “{facts['b']['word']}”")
    for gate in facts["gates"]:
        if gate["a"] == PASSED and gate["b"] not in (PASSED, None, NOT_MEASURED):
            lines.append(f"the gate {gate['title']} passed and is now {gate['b']}")
    load = facts["load"]
    if same_rule and load:
        for kind in load["kinds"]:
            lines += _pays_less_far(kind, load["unit"])
    return lines


def _pays_less_far(kind: ComparedKind, unit: str) -> Iterator[str]:
    """Yield a sentence if a kind stops paying at a lower load in B, and the intervals do not overlap."""
    bounds_a, bounds_b = _bounds(kind["a"], kind["levels"]), _bounds(kind["b"], kind["levels"])
    if bounds_a is None or bounds_b is None:
        return
    lower_a, _upper_a = bounds_a
    _lower_b, upper_b = bounds_b
    claim = f"{kind['kind']}: speculation paid until {load_text(lower_a)} {unit} or more"
    if kind["b"]["word"] == DOES_NOT_PAY:
        # B's word covers the levels of B only, so one of them must be a load at which A surely pays.
        if min(kind["levels"]) <= lower_a:
            yield f"{claim}, and now pays at no level"
    elif upper_b < lower_a:
        yield f"{claim}, and now pays until {load_text(upper_b)} or fewer"


def _bounds(kind: LoadKind, levels: Sequence[float]) -> tuple[float, float] | None:
    """The lower and upper bound of the load up to which a kind pays; 0 and infinity are outside the sweep.

    ``levels`` are those that both reports judge. None if the load sweep does not show a bound.
    """
    if not levels:
        return None
    if kind.get("word") == DOES_NOT_PAY:
        return 0.0, 0.0
    interval = kind.get("interval")
    low, high = interval or (None, None)
    lower = 0.0 if low is None else float(low)
    if kind.get("reaches_top"):
        # Claim at most the highest level of both reports, and at most this report's lower bound.
        top = float(max(levels))
        return (top if low is None else min(top, lower)), float("inf")
    if kind.get("pays_until") is None or not interval:
        return None
    return lower, float("inf") if high is None else float(high)


# --- what cannot be judged ------------------------------------------------------------------------------


def _unjudged(facts: Facts, judged: Sequence[MeasureRow], kept_a: Kept, kept_b: Kept) -> list[str]:
    """Sentences on what A shows and B does not, lest silence be taken for "no regression"."""
    sentences = []
    for row in judged:
        if row["word"] == TOO_FEW:
            prompts = count(row["change"]["n"], "prompt")
            sentences.append(f"{_title(row)}: too few prompts or rounds in both ({prompts})")
    same_rule = _same_rule(kept_a, kept_b)
    if same_rule and facts["a"]["word"] == PAYS and facts["b"]["word"] == CANNOT_SAY:
        sentences.append("the verdict was “pays”, but B could not give one")
    sentences += _missing_measures(judged, kept_a, kept_b)
    for gate in facts["gates"]:
        if gate["a"] == PASSED and gate["b"] in (None, NOT_MEASURED):
            missing = "not measured in" if gate["b"] else "not in"
            sentences.append(f"the gate {gate['title']}: it passed in A and is {missing} B")
    if same_rule:
        sentences += _unjudged_loads(facts, kept_a, kept_b)
    return sentences


def _missing_measures(judged: Sequence[MeasureRow], kept_a: Kept, kept_b: Kept) -> Iterator[str]:
    """Yield the measures of A's declared kinds for which the reports have no prompt in common."""
    rows = {(row["arm"], row["kind"], row["measure"]) for row in judged}
    for arm in ARMS:
        for group in _declared(kept_a):
            requests_a = in_group(requests_of(kept_a.results[arm]), group)
            requests_b = in_group(requests_of(kept_b.results[arm]), group)
            reason = "no prompt in common with A" if requests_b else "not in B"
            for name, measure in _MEASURES.items():
                if (arm, group, name) not in rows and by_prompt(requests_a, measure):
                    yield f"{_measure_name(arm, group, name)}: {reason}"


def _unjudged_loads(facts: Facts, kept_a: Kept, kept_b: Kept) -> Iterator[str]:
    """Yield a sentence for each kind that pays under load in A and that B's load sweep does not judge."""
    load_a = kept_a.report.get("load")
    load = facts["load"]  # None: B has no load sweep
    if not load_a:
        return
    paying_kinds = [kind for kind in load_a.get("kinds") or [] if kind.get("word") == PAYS]
    if not paying_kinds:
        return
    if not load:
        yield f"{listing([kind['kind'] for kind in paying_kinds])} under load: it pays in A, and B has no load ladder"
        return
    common = {kind["kind"]: kind for kind in load["kinds"]}
    for kind in paying_kinds:
        name = kind["kind"]
        if name not in common:
            yield f"{name} under load: it pays in A and is not in B's ladder"
            continue
        kind_b = common[name]["b"]
        levels = common[name]["levels"]
        if _bounds(kind_b, levels) is None:
            yield f"{name} under load: it pays in A, and B cannot say"
        elif kind_b["word"] == DOES_NOT_PAY and not kind["reaches_top"] and min(levels) > (kind["pays_until"] or 0.0):
            yield f"{name} under load: B measured no load at which it pays in A"
