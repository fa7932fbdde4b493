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
    sentences = []
    not_tried = dict(NOT_TRIED)
    for gate in verdict.get("gates") or []:
        name, reason = gate["name"], f"{gate['title']}: {gate['said']}."
        if gate["word"] != NOT_MEASURED:
            not_tried.pop(name, None)
        elif name not in NOT_TRIED:
            # Gates of prompts that are asked again exist only where an experiment asks for them.
            sentences.append(reason)
        elif gate["speculative"]["total"]:
            # Its prompts were sent, and their answers tell nothing.
            not_tried[name] = reason
    if verdict["outputs"]["speculative"]:
        # Old results have no gates, and their texts were compared all the same.
        not_tried.pop("outputs", None)
    return [*sentences, *not_tried.values()]


def cost_of(results: Mapping[str, ArmResult], resolved: KeptProfile) -> Cost | None:
    """Cost and limits of both arms: ``arms`` as computed, ``rows`` as shown; None where nothing is known.

    ``saving`` is what speculation saves at the site's price, by bytes of text where the token counts are in doubt.

    Energy is in joules, money in the box's currency, memory in bytes, shares are fractions.
    """
    arms = cost_table(results, resolved)
    rows = cost_rows(arms)
    why = list(dict.fromkeys([*arms["baseline"]["why"], *arms["speculative"]["why"]]))
    if not why and all(row["baseline"] is None and row["speculative"] is None for row in rows):
        return None
    groups = list(dict.fromkeys(str(r.get("group")) for result in results.values() for r in requests_of(result)))
    in_doubt = bool(contradictions(results, groups) or usage_against_text(results, groups))
    return {"arms": arms, "rows": rows, "why": why, "saving": saving_of(arms, by_text=in_doubt)}


def cost_not_measured(cost: Cost | None) -> list[str]:
    """What of the cost is not known, and why where that was told."""
    if cost is None:
        return ["Energy per token and money per token."]
    arms = cost["arms"].values()
    lacking = []
    if not any(arm["energy"] for arm in arms):
        lacking.append("energy per token")
    if not any(arm["money"] for arm in arms):
        lacking.append("money per token")
    if not lacking:
        return []
    sentence = " and ".join(lacking).capitalize()
    if cost["why"]:
        sentence += f": {'; '.join(cost['why'])}"
    return [f"{sentence}."]


def other_tools(results: Mapping[str, ArmResult]) -> OtherTools | None:
    """The columns of an older tool, computed from our requests as it computes them, in its units; None without any."""
    rows: list[OtherToolRow] = []
    columns = zip(columns_of(results["baseline"]), columns_of(results["speculative"]), strict=True)
    for one, two in columns:
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
    if not any(row["baseline"] or row["speculative"] for row in rows):
        return None
    return {"note": TOKENS_NOTE, "rows": rows}
