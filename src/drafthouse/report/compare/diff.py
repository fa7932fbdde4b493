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
    value = request.get("ttft_ms")
    if request.get("status") != "ok" or value is None or value <= 0:
        return None
    return value


_CLOCKS: dict[MeasureName, Clock] = {"tpot_ms": measured_tpot, "ttft_ms": _ttft}


def _rows(arm: Arm, one: Kept, two: Kept) -> list[MeasureRow]:
    """A row for each kind and measure of an arm, over the prompts that both reports have."""
    requests_a, requests_b = _by_group(one, arm), _by_group(two, arm)
    declared = {*_declared(one), *_declared(two)}
    rows: list[MeasureRow] = []
    for group, in_a in requests_a.items():
        in_b = requests_b.get(group, [])
        for name, _, unit in MEASURES:
            clock = _CLOCKS[name]
            times_a, times_b = by_prompt(in_a, clock), by_prompt(in_b, clock)
            shared = [prompt for prompt in times_a if prompt in times_b]
            change = paired(in_a, in_b, clock)
            if not shared or change is None:
                continue
            rows.append(
                {
                    "arm": arm,
                    "kind": group,
                    "declared": group in declared,
                    "measure": name,
                    "unit": unit,
                    "a": median([median(times_a[prompt]) for prompt in shared]),
                    "b": median([median(times_b[prompt]) for prompt in shared]),
                    "change": change,
                    "word": _word(change["low"], change["high"], change["reach"]),
                }
            )
    return rows


def _by_group(kept: Kept, arm: Arm) -> dict[str, list[Request]]:
    """The requests of an arm by their group, in the order in which the groups were first asked."""
    groups: dict[str, list[Request]] = {}
    for request in requests_of(kept.results[arm]):
        groups.setdefault(str(request.get("group")), []).append(request)
    return groups


def _declared(kept: Kept) -> list[str]:
    """The groups that the verdict of a report is about."""
    scope = kept.report["verdict"].get("scope")
    return (scope.get("groups") if scope else None) or []


def _word(low: float, high: float, reach: float) -> str:
    """How B compares with A by the interval of its change; ``reach`` is the confidence that the interval has."""
    if reach < CONFIDENCE:
        return TOO_FEW
    if low > 1.0:
        return FASTER
    return SLOWER if high < 1.0 else SAME


def _name(row: MeasureRow) -> str:
    return _place(row["arm"], row["kind"], row["measure"])


def _place(arm: Arm, kind: str, measure: MeasureName) -> str:
    titles = {name: title for name, title, _ in MEASURES}
    return f"{arm}, {kind}: {titles[measure]}"


# --- the rest of a report -----------------------------------------------------------------------------


def _speedups(one: Kept, two: Kept) -> list[SpeedupRow]:
    """What speculation gained in each report, by kind."""
    in_a = {row["group"]: row["speedup"] for row in one.report.get("kinds") or []}
    in_b = {row["group"]: row["speedup"] for row in two.report.get("kinds") or []}
    return [{"kind": kind, "a": in_a.get(kind), "b": in_b.get(kind)} for kind in {**in_a, **in_b}]


def _acceptance(kept: Kept) -> float | None:
    acceptance = kept.report.get("acceptance") or {}
    overall = acceptance.get("overall")
    return overall.get("rate") if overall else None


def _load(one: Kept, two: Kept) -> ComparedLoad | None:
    """Until which load speculation pays in both, and the server's speed at the levels that both have."""
    load_a, load_b = one.report.get("load"), two.report.get("load")
    if not load_a or not load_b:
        return None
    levels_b = {(row["kind"], row["level"]): row for row in load_b["rows"]}
    rows: list[ComparedLevel] = []
    # The levels at which both reports say whether speculation pays, by kind.
    judged: dict[str, list[float]] = {}
    for row in load_a["rows"]:
        kind, level = row["kind"], row["level"]
        other = levels_b.get((kind, level))
        if other is None:
            continue
        baseline, speculative = _speeds(row, other, "baseline"), _speeds(row, other, "speculative")
        rows.append({"kind": kind, "level": level, "baseline": baseline, "speculative": speculative})
        if row.get("speedup") and other.get("speedup"):
            judged.setdefault(kind, []).append(level)
    kinds_b = {entry["kind"]: entry for entry in load_b["kinds"]}
    common: list[ComparedKind] = []
    for entry in load_a["kinds"]:
        name = entry["kind"]
        if name in kinds_b:
            common.append({"kind": name, "a": entry, "b": kinds_b[name], "levels": judged.get(name, [])})
    return {"unit": load_a["unit"], "kinds": common, "rows": rows}


def _speeds(one: LoadRow, two: LoadRow, arm: Arm) -> Numbers:
    """The output tokens per second of an arm at one level, in both reports."""
    a, b = one.get(arm), two.get(arm)
    return {"a": a.get("output_throughput") if a else None, "b": b.get("output_throughput") if b else None}


def _gates(one: Kept, two: Kept) -> list[ComparedGate]:
    """The word of each gate in both reports; None where a report has no such gate."""
    gates_a, gates_b = one.report.get("gates") or [], two.report.get("gates") or []
    titles = {gate["name"]: gate["title"] for gate in (*gates_b, *gates_a)}
    words_a = {gate["name"]: gate.get("word") for gate in gates_a}
    words_b = {gate["name"]: gate.get("word") for gate in gates_b}
    return [
        {"name": name, "title": titles[name], "a": words_a.get(name), "b": words_b.get(name)}
        for name in {**words_a, **words_b}
    ]


def _cost(one: Kept, two: Kept) -> list[ComparedCost]:
    """The rows of cost that both reports have, for the speculative arm and its baseline."""
    rows_b = _cost_rows(two)
    rows: list[ComparedCost] = []
    for name, a in _cost_rows(one).items():
        b = rows_b.get(name)
        if b is None:
            continue
        values = (a["baseline"], a["speculative"], b["baseline"], b["speculative"])
        if not all(isinstance(value, int | float) for value in values):
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
    rows = cost.get("rows") if cost else None
    return {row["what"]: row for row in rows or []}


# --- regressions ----------------------------------------------------------------------------------------


def _regressions(found: Facts, judged: Sequence[MeasureRow], one: Kept, two: Kept, threshold: float) -> list[str]:
    """What is worse in B by more than ``threshold``, where the interval leaves no doubt that it is."""
    worse = []
    for row in judged:
        change = row["change"]
        # The change is A's time over B's: B longer by a quarter is 0.8 and not 0.75.
        if row["word"] == SLOWER and change["gain"] < 1.0 / (1.0 + threshold):
            longer = percent(1 / change["gain"] - 1)
            worse.append(f"{_name(row)} is {longer} longer ({span(change)} of A's speed, over {change['n']} prompts)")
    same_rule = _same_rule(one, two)
    if same_rule and found["a"]["word"] == PAYS and found["b"]["word"] not in (PAYS, CANNOT_SAY):
        worse.append(f"the verdict was “pays” and is now “{found['b']['word']}”")
    for gate in found["gates"]:
        if gate["a"] == PASSED and gate["b"] not in (PASSED, None, NOT_MEASURED):
            worse.append(f"the gate {gate['title']} passed and is now {gate['b']}")
    load = found["load"]
    if same_rule and load:
        for kind in load["kinds"]:
            worse += _earlier(kind, load["unit"])
    return worse


def _earlier(kind: ComparedKind, unit: str) -> Iterator[str]:
    """Yield that a kind stops paying at a lower load in B, where the two intervals are apart."""
    before, after = _ends(kind["a"], kind["levels"]), _ends(kind["b"], kind["levels"])
    if before is None or after is None:
        return
    paid = f"{kind['kind']}: speculation paid until {about(before[0])} {unit} or more"
    if kind["b"]["word"] == DOES_NOT_PAY:
        # That is said of the levels of B's ladder alone: one of them must be a load at which A surely pays.
        if min(kind["levels"]) <= before[0]:
            yield f"{paid}, and now pays at no level"
    elif after[1] < before[0]:
        yield f"{paid}, and now pays until {about(after[1])} or fewer"


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
        if low is not None:
            top = min(top, float(low))
        return top, float("inf")
    if kind.get("pays_until") is None or not kind.get("interval"):
        return None
    lower = 0.0 if low is None else float(low)
    upper = float("inf") if high is None else float(high)
    return lower, upper


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
    compared = {(row["arm"], row["kind"], row["measure"]) for row in judged}
    for arm in ARMS:
        requests_a, requests_b = _by_group(one, arm), _by_group(two, arm)
        for group in _declared(one):
            why = "no prompt in common with A" if group in requests_b else "not in B"
            for name, _, _ in MEASURES:
                if (arm, group, name) not in compared and by_prompt(requests_a.get(group, []), _CLOCKS[name]):
                    yield f"{_place(arm, group, name)}: {why}"


def _untold_loads(found: Facts, one: Kept, two: Kept) -> Iterator[str]:
    """Yield the kinds that pay under load in A, and of which B's ladder does not tell it."""
    before, load = one.report.get("load"), found["load"]
    kinds = before.get("kinds") if before else None
    paid = [kind for kind in kinds or [] if kind.get("word") == PAYS]
    if paid and not two.report.get("load"):
        yield f"{listing([kind['kind'] for kind in paid])} under load: it pays in A, and B has no load ladder"
        return
    both = {kind["kind"]: kind for kind in load["kinds"]} if load else {}
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
