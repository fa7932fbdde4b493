"""What a report says of right and of price: the gates, and energy, money, memory and the limit of bandwidth."""

from __future__ import annotations

from collections.abc import Mapping

from ...analysis.cost import cost_rows, cost_table, saving_of
from ...analysis.gates import NOT_MEASURED
from ...analysis.legacy_metrics import TOKENS_NOTE, TOOL, columns_of
from ...analysis.text_clock import usage_against_text
from ...analysis.verdict_types import Judgement
from ...bench.result_types import ArmResult
from ...bench.samples import requests_of
from ...bench.usage_check import contradictions
from ..report_types import ARMS, Cost, GateRow, KeptProfile, OtherToolRow, OtherTools

# What is told of a gate that was not measured, after "Not measured".
NOT_TRIED = {
    "outputs": "Whether the outputs of both arms are equal, token by token.",
    "scores": "Whether the baseline would have given the speculative arm's answers: it scored none.",
    "texts": "Whether answers degenerate (repeats, foreign characters): too few to tell what is normal.",
    "json": "Whether answers with a JSON schema parse and validate: no such prompt was sent.",
    "tools": "Whether tool calls have the right names and types: no such prompt was sent.",
    "sampled": "Whether answers above temperature 0 are as long and as varied as the baseline's: too few were sent.",
    "needle": "Whether a fact is found in a long context: no such prompt was sent.",
}


def gates_of(verdict: Judgement) -> list[GateRow]:
    """A row for each gate of a verdict: its word, what each arm did, the rule, the first failures by name."""
    return [
        {
            "name": gate["name"],
            "title": gate["title"],
            "word": gate["word"],
            "said": gate["said"],
            "rule": gate["rule"],
            "baseline": gate["baseline"]["said"],
            "speculative": gate["speculative"]["said"],
            "examples": {arm: gate[arm]["examples"] for arm in ARMS},
        }
        for gate in verdict.get("gates") or []
    ]


def gates_not_measured(verdict: Judgement) -> list[str]:
    """A sentence for each gate that was not tried; all of them for a result without gates."""
    gates = verdict.get("gates") or []
    tried = {gate["name"]: gate["word"] for gate in gates}
    # One whose prompts were sent, and whose answers tell nothing, says why itself.
    asked = {gate["name"]: f"{gate['title']}: {gate['said']}." for gate in gates if gate["speculative"]["total"]}
    # Those of prompts that are asked again are there only where an experiment asks for them.
    others = [
        f"{gate['title']}: {gate['said']}."
        for gate in gates
        if gate["name"] not in NOT_TRIED and gate["word"] == NOT_MEASURED
    ]
    return others + [
        asked.get(name, sentence)
        for name, sentence in NOT_TRIED.items()
        if tried.get(name, NOT_MEASURED) == NOT_MEASURED
        # Old results have no gates, and their texts were compared all the same.
        and not (name == "outputs" and verdict["outputs"]["speculative"])
    ]


def cost_of(results: Mapping[str, ArmResult], resolved: KeptProfile) -> Cost | None:
    """Cost and limits of both arms: ``arms`` as computed, ``rows`` as shown; None where nothing is known.

    ``saving`` is what speculation saves at the site's price, by bytes of text where the token counts are in doubt.

    Energy is in joules, money in the box's currency, memory in bytes, shares are fractions.
    """
    arms = cost_table(results, resolved)
    rows = cost_rows(arms)
    why = list(dict.fromkeys(reason for arm in ARMS for reason in arms[arm]["why"]))
    known = any(row[arm] is not None for row in rows for arm in ARMS)
    if not known and not why:
        return None
    groups = list(dict.fromkeys(str(r.get("group")) for result in results.values() for r in requests_of(result)))
    in_doubt = bool(contradictions(results, groups) or usage_against_text(results, groups))
    return {"arms": arms, "rows": rows, "why": why, "saving": saving_of(arms, by_text=in_doubt)}


def cost_not_measured(cost: Cost | None) -> list[str]:
    """What of the cost is not known, and why where that was told."""
    arms = list(cost["arms"].values()) if cost else []
    lacking = []
    if not any(arm["energy"] for arm in arms):
        lacking.append("energy per token")
    if not any(arm["money"] for arm in arms):
        lacking.append("money per token")
    if not lacking:
        return []
    why = "; ".join(cost["why"] if cost else [])
    text = " and ".join(lacking)
    return [f"{text[0].upper()}{text[1:]}{': ' + why if why else ''}."]


def other_tools(results: Mapping[str, ArmResult]) -> OtherTools | None:
    """The columns of an older tool, computed from our requests as it computes them, in its units; None without any."""
    rows: list[OtherToolRow] = []
    for one, two in zip(*(columns_of(results[arm]) for arm in ARMS), strict=True):
        rows.append(
            {
                "tool": TOOL,
                "name": one["name"],
                "unit": one["unit"],
                "of": "median",
                "baseline": one["values"]["median"],
                "speculative": two["values"]["median"],
                "error": one["error"],
            }
        )
    known = any(row[arm] for row in rows for arm in ARMS)
    return {"note": TOKENS_NOTE, "rows": rows} if known else None
