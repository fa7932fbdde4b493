"""Two reports side by side: B against A, prompt by prompt, with the verdict's statistics.

The estimator is the verdict's: A's time over B's of each prompt and round that both have, the geometric mean over the
prompts, and an interval that knows prompts and server starts. A change is above 1 where B is better. Days it does not
know: what the box itself moves by is in each A/A control.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from ...analysis.crossover_text import load as about
from ...analysis.gates import NOT_MEASURED, PASSED
from ...analysis.measured import paired
from ...analysis.verdict_types import CostRow
from ...analysis.words import CANNOT_SAY, DOES_NOT_PAY, EARLIER, PAYS, RULE
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
FASTER, SLOWER, SAME, TOO_FEW = "faster", "slower", "no clear difference", "too few prompts"
#: The measures that are compared, by their names in the data; all are in ms.
TITLES: Mapping[MeasureName, str] = {"tpot_ms": "TPOT", "ttft_ms": "TTFT"}


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


def _sides(one: Kept, two: Kept) -> tuple[tuple[Literal["a"], Kept], tuple[Literal["b"], Kept]]:
    """Both reports, each with the key of its values in a compared row."""
    return ("a", one), ("b", two)


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
    """The time to the first token of a whole answer in ms; None for a time that is not above 0."""
    value = request.get("ttft_ms")
    if request.get("status") != "ok" or value is None or value <= 0:
        return None
    return value


_CLOCKS: Mapping[MeasureName, Clock] = {"tpot_ms": measured_tpot, "ttft_ms": _ttft}


def _rows(arm: Arm, one: Kept, two: Kept) -> list[MeasureRow]:
    """A row for each kind and measure of an arm, over the prompts that both reports have."""
    all_a, all_b = requests_of(one.results[arm]), requests_of(two.results[arm])
    declared = {*_declared(one), *_declared(two)}
    rows: list[MeasureRow] = []
    for group in dict.fromkeys(str(request.get("group")) for request in all_a):
        asked_a, asked_b = in_group(all_a, group), in_group(all_b, group)
        for name, clock in _CLOCKS.items():
            times_a, times_b = by_prompt(asked_a, clock), by_prompt(asked_b, clock)
            shared = times_a.keys() & times_b.keys()
            change = paired(asked_a, asked_b, clock)
            if not shared or change is None:
                continue
            rows.append(
                {
                    "arm": arm,
                    "kind": group,
                    "declared": group in declared,
                    "measure": name,
                    "unit": "ms",
                    "a": _median_over(shared, times_a),
                    "b": _median_over(shared, times_b),
                    "change": change,
                    "word": _word(change["low"], change["high"], change["reach"]),
                }
            )
    return rows


def _median_over(prompts: Collection[Prompt], times: Mapping[Prompt, Sequence[float]]) -> float:
    """The median over prompts, of which each has the median of its rounds."""
    return median([median(times[prompt]) for prompt in prompts])


def _declared(kept: Kept) -> list[str]:
    """The groups that the verdict of a report is about."""
    scope = kept.report["verdict"].get("scope")
    if not scope:
        return []
    return scope.get("groups") or []


def _word(low: float, high: float, reach: float) -> str:
    if reach < CONFIDENCE:
        return TOO_FEW
    if low > 1.0:
        return FASTER
    if high < 1.0:
        return SLOWER
    return SAME


def _name(row: MeasureRow) -> str:
    return _place(row["arm"], row["kind"], row["measure"])


def _place(arm: Arm, kind: str, measure: MeasureName) -> str:
    return f"{arm}, {kind}: {TITLES[measure]}"


# --- the rest of a report -----------------------------------------------------------------------------


def _speedups(one: Kept, two: Kept) -> list[SpeedupRow]:
    """What speculation gained in each report, by kind."""
    rows: dict[str, SpeedupRow] = {}
    for side, kept in _sides(one, two):
        for kind in kept.report.get("kinds") or []:
            group = kind["group"]
            row = rows.setdefault(group, {"kind": group, "a": None, "b": None})
            row[side] = kind["speedup"]
    return list(rows.values())


def _acceptance(kept: Kept) -> float | None:
    acceptance = kept.report.get("acceptance") or {}
    overall = acceptance.get("overall")
    return overall.get("rate") if overall else None


def _load(one: Kept, two: Kept) -> ComparedLoad | None:
    """Until which load speculation pays in both, and the server's speed at the levels of both."""
    load_a, load_b = one.report.get("load"), two.report.get("load")
    if not load_a or not load_b:
        return None
    rows_b = {(row["kind"], row["level"]): row for row in load_b["rows"]}
    rows: list[ComparedLevel] = []
    # Levels of a kind at which both can say whether speculation pays.
    judged: dict[str, list[float]] = defaultdict(list)
    for a in load_a["rows"]:
        kind, level = a["kind"], a["level"]
        b = rows_b.get((kind, level))
        if b is None:
            continue
        baseline, speculative = _speeds(a, b, "baseline"), _speeds(a, b, "speculative")
        rows.append({"kind": kind, "level": level, "baseline": baseline, "speculative": speculative})
        if a.get("speedup") and b.get("speedup"):
            judged[kind].append(level)
    kinds_b = {kind["kind"]: kind for kind in load_b["kinds"]}
    kinds: list[ComparedKind] = []
    for load_kind in load_a["kinds"]:
        name = load_kind["kind"]
        if name in kinds_b:
            kinds.append({"kind": name, "a": load_kind, "b": kinds_b[name], "levels": judged[name]})
    return {"unit": load_a["unit"], "kinds": kinds, "rows": rows}


def _speeds(a: LoadRow, b: LoadRow, arm: Arm) -> Numbers:
    return {"a": _server_speed(a, arm), "b": _server_speed(b, arm)}


def _server_speed(row: LoadRow, arm: Arm) -> float | None:
    """Output tokens/s of all requests of an arm together."""
    measured = row.get(arm)
    return measured.get("output_throughput") if measured else None


def _gates(one: Kept, two: Kept) -> list[ComparedGate]:
    """The words of each gate; the title is that of A where A has the gate."""
    rows: dict[str, ComparedGate] = {}
    for side, kept in _sides(one, two):
        for gate in kept.report.get("gates") or []:
            name = gate["name"]
            row = rows.setdefault(name, {"name": name, "title": gate["title"], "a": None, "b": None})
            row[side] = gate.get("word")
    return list(rows.values())


def _cost(one: Kept, two: Kept) -> list[ComparedCost]:
    """The rows of cost that both reports have, for the speculative arm and its baseline."""
    rows_b = _known_costs(two)
    rows: list[ComparedCost] = []
    for name, a in _known_costs(one).items():
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
    """The rows of cost with a number for each arm, by what they are about."""
    cost = kept.report.get("cost")
    if not cost:
        return {}
    rows: dict[str, CostRow] = {}
    for row in cost.get("rows") or []:
        if all(isinstance(row[arm], int | float) for arm in ARMS):
            rows[row["what"]] = row
    return rows


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
    interval = kind.get("interval")
    low, high = interval or (None, None)
    surely = 0.0 if low is None else float(low)
    if kind.get("reaches_top"):
        # Only as far as the other report looked, and as this one is sure of.
        top = float(max(levels))
        return (top if low is None else min(top, surely)), float("inf")
    if kind.get("pays_until") is None or not interval:
        return None
    return surely, float("inf") if high is None else float(high)


# --- what cannot be judged ------------------------------------------------------------------------------


def _unjudged(found: Facts, judged: Sequence[MeasureRow], one: Kept, two: Kept) -> list[str]:
    """What A shows and B does not, so that nobody takes it for "no regression"; a sentence each."""
    missing = []
    for row in judged:
        if row["word"] == TOO_FEW:
            prompts = count(row["change"]["n"], "prompt")
            missing.append(f"{_name(row)}: too few prompts or rounds in both ({prompts})")
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
            asked_a = in_group(requests_of(one.results[arm]), group)
            asked_b = in_group(requests_of(two.results[arm]), group)
            why = "no prompt in common with A" if asked_b else "not in B"
            for name, clock in _CLOCKS.items():
                if (arm, group, name) not in rows and by_prompt(asked_a, clock):
                    yield f"{_place(arm, group, name)}: {why}"


def _untold_loads(found: Facts, one: Kept, two: Kept) -> Iterator[str]:
    """Yield the kinds that pay under load in A, and of which B's ladder does not tell it."""
    before, load = one.report.get("load"), found["load"]
    if not before:
        return
    paid = [kind for kind in before.get("kinds") or [] if kind.get("word") == PAYS]
    if not paid:
        return
    if not load:
        yield f"{listing([kind['kind'] for kind in paid])} under load: it pays in A, and B has no load ladder"
        return
    both = {kind["kind"]: kind for kind in load["kinds"]}
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
