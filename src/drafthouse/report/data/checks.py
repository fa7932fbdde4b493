"""What a report says of right and of price: the gates, and energy, money, memory and the limit of bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...analysis.cost import cost_rows, cost_table
from ...analysis.legacy_metrics import LLMPERF, SPEED, old_tables
from ...analysis.verdict import Result
from .setup import ARMS

# What a gate is called where it does not say so itself.
TITLES = {
    "outputs": "Equal outputs",
    "scores": "Scored by the baseline",
    "texts": "Degenerate text",
    "json": "JSON by schema",
    "tools": "Tool calls",
    "needle": "Long context",
}
# What is told of a gate that was not measured, after "Not measured".
NOT_TRIED = {
    "outputs": "Whether the outputs of both arms are equal, token by token.",
    "scores": "Whether the baseline itself would have said what the speculative arm says: it scored no answers.",
    "texts": "Whether answers degenerate (repeats, foreign characters): too few to tell what is normal.",
    "json": "Whether answers by a JSON schema parse and validate: no such prompt was sent.",
    "tools": "Whether tool calls have the right names and types: no such prompt was sent.",
    "needle": "Whether a fact is found in a long context: no such prompt was sent.",
}
FAILED, NOT_MEASURED = "failed", "not measured"


def gates_of(verdict: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each gate of a verdict: its word, what each arm did, the rule, the first failures by name."""
    rows = []
    for gate in verdict.get("gates") or []:
        name = str(gate.get("name"))
        rows.append(
            {
                "name": name,
                "title": str(gate.get("title") or TITLES.get(name, name)),
                "word": str(gate.get("word")),
                "said": str(gate.get("said") or ""),
                "rule": str(gate.get("rule") or ""),
                **{arm: _told(gate.get(arm)) for arm in ARMS},
                "examples": {
                    arm: [str(example) for example in (gate.get(arm) or {}).get("examples") or []] for arm in ARMS
                },
            }
        )
    return rows


def _told(block: Mapping[str, Any] | None) -> str | None:
    """Return what one arm did at a gate, None where it was not asked."""
    if not block:
        return None
    if block.get("said"):
        return str(block["said"])
    return f"{block['passed']} of {block['total']}" if block.get("total") else None


def gates_not_measured(verdict: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each gate that was not tried; all of them for a result without gates."""
    tried = {str(gate.get("name")): str(gate.get("word")) for gate in verdict.get("gates") or []}
    # One whose prompts were sent, and whose answers tell nothing, says why itself.
    asked = {
        str(gate["name"]): f"{gate['title']}: {gate['said']}."
        for gate in verdict.get("gates") or []
        if gate.get("said") and gate.get("title") and (gate.get("speculative") or {}).get("total")
    }
    return [
        asked.get(name, sentence)
        for name, sentence in NOT_TRIED.items()
        if tried.get(name, NOT_MEASURED) == NOT_MEASURED
        # Old results have no gates, and their texts were compared all the same.
        and not (name == "outputs" and verdict["outputs"]["speculative"])
    ]


def cost_of(results: Mapping[str, Result], resolved: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return cost and limits of both arms: ``arms`` as computed, ``rows`` as shown; None where nothing is known.

    Energy is in joules, money in the box's currency, memory in bytes, shares are fractions.
    """
    arms = cost_table(results, resolved)
    rows = [dict(row) for row in cost_rows(arms)]
    known = any(row.get(arm) is not None for row in rows for arm in ARMS)
    return {"arms": arms, "rows": rows, "why": _why(arms)} if known or _why(arms) else None


def _why(arms: Mapping[str, Any]) -> list[str]:
    """Return why parts of the cost are not known, each reason once."""
    found: list[str] = []
    for arm in ARMS:
        told = (arms.get(arm) or {}).get("why") or []
        found += [str(reason) for reason in ([told] if isinstance(told, str) else told)]
    return list(dict.fromkeys(found))


def cost_not_measured(cost: Mapping[str, Any] | None) -> list[str]:
    """Return what of the cost is not known, and why where that was told."""
    arms = (cost or {}).get("arms") or {}
    lacking = [
        words
        for key, words in (("energy", "energy per token"), ("money", "money per token"))
        if not any((arms.get(arm) or {}).get(key) for arm in ARMS)
    ]
    if not lacking:
        return []
    why = "; ".join((cost or {}).get("why") or [])
    text = " and ".join(lacking)
    return [f"{text[0].upper()}{text[1:]}{': ' + why if why else ''}."]


def other_tools(results: Mapping[str, Result]) -> dict[str, Any] | None:
    """Return the columns of older tools, computed from our requests as they compute them; None without any.

    ``of`` is what of a column is shown: the mean, the median, or the value of the whole run. Units are the tools' own.
    """
    tables = {arm: old_tables(results[arm]) for arm in ARMS}
    rows = []
    for tool in (SPEED, LLMPERF):
        for one, two in zip(*(tables[arm][tool]["columns"] for arm in ARMS), strict=True):
            of = next(name for name in ("median", "mean", "value") if name in one["values"])
            rows.append(
                {
                    "tool": tool,
                    "name": one["name"],
                    "unit": one["unit"],
                    "of": "whole run" if of == "value" else of,
                    "baseline": one["values"][of],
                    "speculative": two["values"][of],
                    "error": one["error"],
                }
            )
    known = any(row[arm] for row in rows for arm in ARMS)
    return {"note": tables["baseline"]["note"], "rows": rows} if known else None
