"""Two reports side by side: B against A, prompt by prompt, with the verdict's statistics.

The estimator is the verdict's: A's time over B's of each prompt and round that both have, the geometric mean over the
prompts, and an interval that knows prompts and server starts. A change is above 1 where B is better. Days it does not
know: what the box itself moves by is in each A/A control.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...analysis.crossover_text import load as about
from ...analysis.gates import NOT_MEASURED, PASSED
from ...analysis.measured import paired
from ...analysis.verdict_types import CostRow
from ...analysis.words import CANNOT_SAY, DOES_NOT_PAY, EARLIER, PAYS, RULE
from ...bench.result_types import Request
from ...bench.samples import measured_tpot, requests_of
from ...bench.stats import CONFIDENCE, median
from ...core.format import count, listing, percent, span
from ...report.archive import Kept
from ...report.report_types import ARMS, Arm, LoadKind, LoadRow
from ..data.measures import Clock, by_prompt
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
FASTER, SLOWER, SAME, TOO_FEW = "faster", "slower", "no clear difference", "too few prompts"
# Name in the data, title, unit of the values that are shown.
MEASURES: tuple[tuple[MeasureName, str, str], ...] = (("tpot_ms", "TPOT", "ms"), ("ttft_ms", "TTFT", "ms"))


def compare(one: Kept, two: Kept, threshold: float | None = None) -> Comparison:
    """Two reports side by side, as plain data.

    ``against`` lists why they may not be compared (empty where they may), ``marks`` what weakens it, ``differs``
    what is compared. ``rows`` hold a measure of a kind and arm: medians in ms and ``change``, how many times
    faster B is, with its interval. With ``threshold`` (a fraction: 0.05) ``regressions`` lists what is worse by
    more than it and clearly so, and ``unjudged`` what of A's claims can be told neither worse nor as good in B.
    """
    against, marks = differences(one, two)
    if not _same_rule(one, two):
        marks = [*marks, f"the verdict of A or B was given {EARLIER}: the words of the two are not compared"]
    rows = [row for arm in ARMS for row in _rows(arm, one, two)]
    found: Facts = {
        "schema": SCHEMA,
        "a": _identity(one),
        "b": _identity(two),
        "differs": subjects(one, two),
        "against": against,
        "marks": marks,
        "rows": rows,
        "speedups": _speedups(one, two),
        "acceptance": {"a": _acceptance(one), "b": _acceptance(two)},
        "load": _load(one, two),
        "gates": _gates(one, two),
        "cost": _cost(one, two),
        "threshold": threshold,
    }
    declared = [row for row in rows if row["declared"]]
    judged = sum(row["word"] != TOO_FEW for row in declared)
    if threshold is None:
        return {**found, "regressions": [], "unjudged": [], "judged": judged}
    regressions = _regressions(found, declared, one, two, threshold)
    return {**found, "regressions": regressions, "unjudged": _unjudged(found, declared, one, two), "judged": judged}


def _same_rule(one: Kept, two: Kept) -> bool:
    """Whether the words of both, of their levels too, are by the rule of today."""
    return all(kept.report["verdict"].get("rule") == RULE for kept in (one, two))


def _identity(kept: Kept) -> Side:
    verdict = kept.report["verdict"]
    earlier = verdict.get("rule") != RULE
    return {
        "label": kept.label,
        "folder": str(kept.path),
        "date": kept.report.get("date"),
        "word": verdict.get("word"),
        "earlier_rule": earlier,
        "sentence": f"({EARLIER}) {verdict.get('sentence')}" if earlier else verdict.get("sentence"),
        "speedup": verdict.get("speedup"),
        "control": verdict.get("control"),
    }


# --- prompt by prompt -----------------------------------------------------------------------------------


def _ttft(request: Request) -> float | None:
    value = request.get("ttft_ms")
    return value if request.get("status") == "ok" and value is not None and value > 0 else None


_CLOCKS: dict[MeasureName, Clock] = {"tpot_ms": measured_tpot, "ttft_ms": _ttft}


def _rows(arm: Arm, one: Kept, two: Kept) -> list[MeasureRow]:
    """A row for each kind and measure of an arm, over the prompts that both reports have."""
    requests = [requests_of(kept.results[arm]) for kept in (one, two)]
    groups = list(dict.fromkeys(str(request.get("group")) for request in requests[0]))
    declared = {*_declared(one), *_declared(two)}
    rows: list[MeasureRow] = []
    for group in groups:
        own = [[request for request in side if str(request.get("group")) == group] for side in requests]
        for name, _, unit in MEASURES:
            clock = _CLOCKS[name]
            sides = [by_prompt(side, clock) for side in own]
            shared = [key for key in sides[0] if key in sides[1]]
            change = paired(own[0], own[1], clock)
            if not shared or change is None:
                continue
            rows.append(
                {
                    "arm": arm,
                    "kind": group,
                    "declared": group in declared,
                    "measure": name,
                    "unit": unit,
                    "a": median([median(sides[0][key]) for key in shared]),
                    "b": median([median(sides[1][key]) for key in shared]),
                    "change": change,
                    "word": _word(change["low"], change["high"], change["reach"]),
                }
            )
    return rows


def _declared(kept: Kept) -> list[str]:
    """The groups that the verdict of a report is about."""
    scope = kept.report["verdict"].get("scope")
    return (scope.get("groups") if scope else None) or []


def _word(low: float, high: float, reach: float) -> str:
    if reach < CONFIDENCE:
        return TOO_FEW
    return FASTER if low > 1.0 else SLOWER if high < 1.0 else SAME


def _name(row: MeasureRow) -> str:
    return _place(row["arm"], row["kind"], row["measure"])


def _place(arm: Arm, kind: str, measure: MeasureName) -> str:
    return f"{arm}, {kind}: {next(title for name, title, _ in MEASURES if name == measure)}"


# --- the rest of a report -----------------------------------------------------------------------------


def _speedups(one: Kept, two: Kept) -> list[SpeedupRow]:
    """What speculation gained in each report, by kind."""
    sides = [{row["group"]: row["speedup"] for row in kept.report.get("kinds") or []} for kept in (one, two)]
    names = [*sides[0], *(name for name in sides[1] if name not in sides[0])]
    return [{"kind": name, "a": sides[0].get(name), "b": sides[1].get(name)} for name in names]


def _acceptance(kept: Kept) -> float | None:
    acceptance = kept.report.get("acceptance") or {}
    overall = acceptance.get("overall")
    return overall.get("rate") if overall else None


def _load(one: Kept, two: Kept) -> ComparedLoad | None:
    """Return until which load speculation pays in both, and the server's speed at the levels that both have."""
    loads = [load for kept in (one, two) if (load := kept.report.get("load"))]
    if len(loads) < 2:
        return None
    kinds = [{kind["kind"]: kind for kind in load["kinds"]} for load in loads]
    levels = [{(row["kind"], row["level"]): row for row in load["rows"]} for load in loads]
    both = [key for key in levels[0] if key in levels[1]]
    # Those of which both can say whether speculation pays there.
    told = [key for key in both if all(side[key].get("speedup") for side in levels)]
    common: list[ComparedKind] = []
    for name, kind in kinds[0].items():
        if name in kinds[1]:
            own = [level for of, level in told if of == name]
            common.append({"kind": name, "a": kind, "b": kinds[1][name], "levels": own})
    rows: list[ComparedLevel] = []
    for name, level in both:
        a, b = levels[0][name, level], levels[1][name, level]
        baseline, speculative = _speeds(a, b, "baseline"), _speeds(a, b, "speculative")
        rows.append({"kind": name, "level": level, "baseline": baseline, "speculative": speculative})
    return {"unit": loads[0]["unit"], "kinds": common, "rows": rows}


def _speeds(one: LoadRow, two: LoadRow, arm: Arm) -> Numbers:
    a, b = one.get(arm), two.get(arm)
    return {"a": a.get("output_throughput") if a else None, "b": b.get("output_throughput") if b else None}


def _gates(one: Kept, two: Kept) -> list[ComparedGate]:
    sides = [{gate["name"]: gate for gate in kept.report.get("gates") or []} for kept in (one, two)]
    rows: list[ComparedGate] = []
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        a, b = (side.get(name) for side in sides)
        titled = a or b
        assert titled is not None
        rows.append(
            {
                "name": name,
                "title": titled["title"],
                "a": a.get("word") if a else None,
                "b": b.get("word") if b else None,
            }
        )
    return rows


def _cost(one: Kept, two: Kept) -> list[ComparedCost]:
    """The rows of cost that both reports have, for the speculative arm and its baseline."""
    sides = [_cost_rows(kept) for kept in (one, two)]
    rows: list[ComparedCost] = []
    for name, a in sides[0].items():
        b = sides[1].get(name)
        if b is None or not all(isinstance(row[arm], int | float) for row in (a, b) for arm in ARMS):
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


def _cost_rows(kept: Kept) -> dict[str, CostRow]:
    cost = kept.report.get("cost")
    return {row["what"]: row for row in (cost.get("rows") if cost else None) or []}


# --- regressions ----------------------------------------------------------------------------------------


def _regressions(found: Facts, judged: Sequence[MeasureRow], one: Kept, two: Kept, threshold: float) -> list[str]:
    """What is worse in B by more than ``threshold``, where the interval leaves no doubt that it is."""
    worse = [
        f"{_name(row)} is {percent(1 / row['change']['gain'] - 1)} longer "
        f"({span(row['change'])} of A's speed, over {row['change']['n']} prompts)"
        for row in judged
        # The change is A's time over B's: B longer by a quarter is 0.8 and not 0.75.
        if row["word"] == SLOWER and row["change"]["gain"] < 1.0 / (1.0 + threshold)
    ]
    same_rule = _same_rule(one, two)
    if same_rule and found["a"]["word"] == PAYS and found["b"]["word"] not in (PAYS, CANNOT_SAY):
        worse.append(f"the verdict was “pays” and is now “{found['b']['word']}”")
    worse += [
        f"the gate {gate['title']} passed and is now {gate['b']}"
        for gate in found["gates"]
        if gate["a"] == PASSED and gate["b"] not in (PASSED, None, NOT_MEASURED)
    ]
    if same_rule and (load := found["load"]):
        worse += [line for kind in load["kinds"] for line in _earlier(kind, load["unit"])]
    return worse


def _earlier(kind: ComparedKind, unit: str) -> Iterator[str]:
    """Yield that a kind stops paying at a lower load in B, where the two intervals are apart."""
    before, after = _ends(kind["a"], kind["levels"]), _ends(kind["b"], kind["levels"])
    if before is None or after is None:
        return
    said = f"{kind['kind']}: speculation paid until {about(before[0])} {unit} or more"
    if kind["b"]["word"] == DOES_NOT_PAY:
        # That is said of the levels of B's ladder alone: one of them must be a load at which A surely pays.
        if min(kind["levels"]) <= before[0]:
            yield f"{said}, and now pays at no level"
    elif after[1] < before[0]:
        yield f"{said}, and now pays until {about(after[1])} or fewer"


def _ends(kind: LoadKind, levels: Sequence[float]) -> tuple[float, float] | None:
    """Between which loads a kind stops paying; an end outside the ladder is 0 or infinite.

    ``levels`` are those that both reports judge. None where a ladder does not tell it.
    """
    if not levels:
        return None
    if kind.get("word") == DOES_NOT_PAY:
        return 0.0, 0.0
    low, high = kind.get("interval") or (None, None)
    if kind.get("reaches_top"):
        # Only as far as the other report looked, and as this one is sure of.
        top = float(max(levels))
        return (top if low is None else min(top, float(low))), float("inf")
    if kind.get("pays_until") is None or not kind.get("interval"):
        return None
    return (0.0 if low is None else float(low), float("inf") if high is None else float(high))


# --- what cannot be judged ------------------------------------------------------------------------------


def _unjudged(found: Facts, judged: Sequence[MeasureRow], one: Kept, two: Kept) -> list[str]:
    """What A shows and B does not, so that nobody takes it for "no regression"; a sentence each."""
    missing = []
    for row in judged:
        if row["word"] == TOO_FEW:
            missing.append(f"{_name(row)}: too few prompts or rounds in both ({count(row['change']['n'], 'prompt')})")
    same_rule = _same_rule(one, two)
    if same_rule and found["a"]["word"] == PAYS and found["b"]["word"] == CANNOT_SAY:
        missing.append("the verdict was “pays”, but B could not give one")
    missing += _no_longer(judged, one, two)
    for gate in found["gates"]:
        if gate["a"] == PASSED and gate["b"] in (None, NOT_MEASURED):
            where = "measured in" if gate["b"] else "in"
            missing.append(f"the gate {gate['title']}: it passed in A and is not {where} B")
    if same_rule:
        missing += _untold_loads(found, one, two)
    return missing


def _no_longer(judged: Sequence[MeasureRow], one: Kept, two: Kept) -> Iterator[str]:
    """Yield the measures of A's declared kinds for which B has not one prompt in common."""
    rows = {(row["arm"], row["kind"], row["measure"]) for row in judged}
    for arm in ARMS:
        for group in _declared(one):
            own = [r for r in requests_of(one.results[arm]) if str(r.get("group")) == group]
            there = any(str(r.get("group")) == group for r in requests_of(two.results[arm]))
            for name, _, _ in MEASURES:
                if (arm, group, name) not in rows and by_prompt(own, _CLOCKS[name]):
                    why = "no prompt in common with A" if there else "not in B"
                    yield f"{_place(arm, group, name)}: {why}"


def _untold_loads(found: Facts, one: Kept, two: Kept) -> Iterator[str]:
    """Yield the kinds that pay under load in A, and of which B's ladder does not tell it."""
    before, load = one.report.get("load"), found["load"]
    paid = [kind for kind in (before.get("kinds") if before else None) or [] if kind.get("word") == PAYS]
    if paid and not two.report.get("load"):
        yield f"{listing([kind['kind'] for kind in paid])} under load: it pays in A, and B has no load ladder"
        return
    both = {kind["kind"]: kind for kind in (load["kinds"] if load else [])}
    for kind in paid:
        name = kind["kind"]
        if name not in both:
            yield f"{name} under load: it pays in A and is not in B's ladder"
            continue
        later, levels = both[name]["b"], both[name]["levels"]
        if _ends(later, levels) is None:
            yield f"{name} under load: it pays in A, and B cannot say"
        elif later["word"] == DOES_NOT_PAY and not kind["reaches_top"] and min(levels) > (kind["pays_until"] or 0.0):
            yield f"{name} under load: B measured no load at which it pays in A"
