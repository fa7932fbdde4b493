"""Two reports side by side: B against A, prompt by prompt, with the verdict's statistics.

The rule is the verdict's. Each prompt that both have is reduced to its median over the rounds; the ratio of the
two is that prompt's change; the median over the prompts gets a bootstrap interval. A change is above 1
where B is better. The interval knows prompts, not days: what the box itself moves by is in each A/A control.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .compare_conditions import differences, subjects
from .crossover_text import load as about
from .history import Kept
from .report_setup import ARMS
from .stats import CONFIDENCE, estimate, median, paired_ratios
from .verdict import PAYS, Prompt, Request, measured_tpot
from .wording import percent, span

SCHEMA = "drafthouse.comparison/1"
FASTER, SLOWER, SAME, TOO_FEW = "faster", "slower", "no clear difference", "too few prompts"
# Name in the data, title, unit of the values that are shown.
MEASURES = (("tpot_ms", "TPOT", "ms"), ("ttft_ms", "TTFT", "ms"))


def compare(one: Kept, two: Kept, threshold: float | None = None) -> dict[str, Any]:
    """Return two reports side by side, as plain data.

    ``against`` lists why they may not be compared (empty where they may), ``marks`` what weakens it, ``differs``
    what is compared. ``rows`` hold a measure of a kind and arm: medians in ms and ``change``, how many times
    faster B is, with its interval. With ``threshold`` (a fraction: 0.05) ``regressions`` lists what is worse by
    more than it and clearly so, and ``unjudged`` the rows of which that cannot be said.
    """
    against, marks = differences(one, two)
    rows = [row for arm in ARMS for row in _rows(arm, one, two)]
    found = {
        "schema": SCHEMA,
        "a": _identity(one),
        "b": _identity(two),
        "differs": subjects(one, two),
        "against": against,
        "marks": marks,
        "rows": rows,
        "speedups": _speedups(one, two),
        "acceptance": {name: _acceptance(kept) for name, kept in (("a", one), ("b", two))},
        "load": _load(one, two),
        "gates": _gates(one, two),
        "cost": _cost(one, two),
        "threshold": threshold,
    }
    judged = [row for row in rows if row["declared"]]
    return {
        **found,
        "regressions": _regressions(found, judged, threshold) if threshold is not None else [],
        "unjudged": [_name(row) for row in judged if row["word"] == TOO_FEW] if threshold is not None else [],
        "judged": sum(row["word"] != TOO_FEW for row in judged),
    }


def _identity(kept: Kept) -> dict[str, Any]:
    verdict = kept.report.get("verdict") or {}
    return {
        "label": kept.label,
        "folder": str(kept.path),
        "date": kept.report.get("date"),
        "word": verdict.get("word"),
        "sentence": verdict.get("sentence"),
        "speedup": verdict.get("speedup"),
        "control": verdict.get("control"),
    }


# --- prompt by prompt -----------------------------------------------------------------------------------


def _value(request: Request, name: str) -> float | None:
    if name == "tpot_ms":
        return measured_tpot(request)
    value = request.get(name)
    return float(value) if request.get("status") == "ok" and isinstance(value, int | float) and value > 0 else None


def _by_prompt(requests: Iterable[Request], name: str) -> dict[Prompt, list[float]]:
    found: dict[Prompt, list[float]] = {}
    for request in requests:
        value = _value(request, name)
        if value is not None:
            found.setdefault((str(request.get("group")), request.get("prompt_id")), []).append(value)
    return found


def _rows(arm: str, one: Kept, two: Kept) -> list[dict[str, Any]]:
    """Return a row for each kind and measure of an arm, over the prompts that both reports have."""
    requests = [list(kept.results[arm].get("requests") or []) for kept in (one, two)]
    groups = list(dict.fromkeys(str(request.get("group")) for request in requests[0]))
    declared = {
        str(group) for kept in (one, two) for group in kept.report["verdict"].get("scope", {}).get("groups") or []
    }
    rows = []
    for group in groups:
        own = [[request for request in side if str(request.get("group")) == group] for side in requests]
        for name, _, unit in MEASURES:
            sides = [_by_prompt(side, name) for side in own]
            shared = [key for key in sides[0] if key in sides[1]]
            change = estimate(list(paired_ratios(*sides).values()))
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
                    "change": change.as_dict(),
                    "word": _word(change.low, change.high, change.reach),
                }
            )
    return rows


def _word(low: float, high: float, reach: float) -> str:
    if reach < CONFIDENCE:
        return TOO_FEW
    return FASTER if low > 1.0 else SLOWER if high < 1.0 else SAME


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['arm']}, {row['kind']}: {next(title for name, title, _ in MEASURES if name == row['measure'])}"


# --- the rest of a report -----------------------------------------------------------------------------


def _speedups(one: Kept, two: Kept) -> list[dict[str, Any]]:
    """Return what speculation gained in each report, by kind."""
    sides = [{row["group"]: row["speedup"] for row in kept.report.get("kinds") or []} for kept in (one, two)]
    names = [*sides[0], *(name for name in sides[1] if name not in sides[0])]
    return [{"kind": name, "a": sides[0].get(name), "b": sides[1].get(name)} for name in names]


def _acceptance(kept: Kept) -> float | None:
    rate = ((kept.report.get("acceptance") or {}).get("overall") or {}).get("rate")
    return float(rate) if rate is not None else None


def _load(one: Kept, two: Kept) -> dict[str, Any] | None:
    """Return until which load speculation pays in both, and the server's speed at the levels that both have."""
    loads = [kept.report["load"] for kept in (one, two) if kept.report.get("load")]
    if len(loads) < 2:
        return None
    kinds = [{kind["kind"]: kind for kind in load["kinds"]} for load in loads]
    levels = [{(row["kind"], row["level"]): row for row in load["rows"]} for load in loads]
    return {
        "unit": loads[0]["unit"],
        "kinds": [{"kind": name, "a": kinds[0][name], "b": kinds[1][name]} for name in kinds[0] if name in kinds[1]],
        "rows": [
            {
                "kind": key[0],
                "level": key[1],
                **{
                    arm: {
                        side: (row.get(arm) or {}).get("output_throughput")
                        for side, row in (("a", levels[0][key]), ("b", levels[1][key]))
                    }
                    for arm in ARMS
                },
            }
            for key in levels[0]
            if key in levels[1]
        ],
    }


def _gates(one: Kept, two: Kept) -> list[dict[str, Any]]:
    sides = [{gate["name"]: gate for gate in kept.report.get("gates") or []} for kept in (one, two)]
    names = [*sides[0], *(name for name in sides[1] if name not in sides[0])]
    return [
        {
            "name": name,
            "title": (sides[0].get(name) or sides[1][name])["title"],
            "a": (sides[0].get(name) or {}).get("word"),
            "b": (sides[1].get(name) or {}).get("word"),
        }
        for name in names
    ]


def _cost(one: Kept, two: Kept) -> list[dict[str, Any]]:
    """Return the rows of cost that both reports have, for the speculative arm and its baseline."""
    sides = [{row["what"]: row for row in (kept.report.get("cost") or {}).get("rows") or []} for kept in (one, two)]
    return [
        {"what": name, "unit": row["unit"], **{arm: {"a": row[arm], "b": sides[1][name][arm]} for arm in ARMS}}
        for name, row in sides[0].items()
        if name in sides[1] and all(isinstance(side[name][arm], int | float) for side in sides for arm in ARMS)
    ]


# --- regressions ----------------------------------------------------------------------------------------


def _regressions(found: Mapping[str, Any], judged: Sequence[Mapping[str, Any]], threshold: float) -> list[str]:
    """Return what is worse in B by more than ``threshold``, where the interval leaves no doubt that it is."""
    worse = [
        f"{_name(row)} is {percent(1 / row['change']['median'] - 1)} longer "
        f"({span(row['change'])} of A's speed, over {row['change']['n']} prompts)"
        for row in judged
        if row["word"] == SLOWER and row["change"]["median"] < 1.0 - threshold
    ]
    if found["a"]["word"] == PAYS and found["b"]["word"] != PAYS:
        worse.append(f"the verdict was “pays” and is “{found['b']['word']}”")
    worse += [
        f"the gate {gate['title']} passed and is {gate['b']}"
        for gate in found["gates"]
        if gate["a"] == "passed" and gate["b"] not in ("passed", None, "not measured")
    ]
    for kind in (found["load"] or {}).get("kinds") or []:
        before, after = _ends(kind["a"]), _ends(kind["b"])
        if before and after and after[1] < before[0]:
            worse.append(
                f"{kind['kind']}: speculation paid until {about(before[0])} {found['load']['unit']} or more, "
                f"and pays until {about(after[1])} or fewer"
            )
    return worse


def _ends(kind: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return between which loads a kind stops paying; an end outside the ladder is 0 or infinite."""
    if kind.get("reaches_top"):
        return None
    if kind.get("pays_until") is None or not kind.get("interval"):
        return None
    low, high = kind["interval"]
    return (0.0 if low is None else float(low), float("inf") if high is None else float(high))
