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
    others, sentences = [], dict(NOT_TRIED)
    for gate in verdict.get("gates") or []:
        name, sentence = gate["name"], f"{gate['title']}: {gate['said']}."
        if gate["word"] != NOT_MEASURED:
            sentences.pop(name, None)
        # Those of prompts that are asked again are there only where an experiment asks for them.
        elif name not in NOT_TRIED:
            others.append(sentence)
        # One whose prompts were sent, and whose answers tell nothing, says why itself.
        elif gate["speculative"]["total"]:
            sentences[name] = sentence
    # Old results have no gates, and their texts were compared all the same.
    if verdict["outputs"]["speculative"]:
        sentences.pop("outputs", None)
    return [*others, *sentences.values()]


def cost_of(results: Mapping[str, ArmResult], resolved: KeptProfile) -> Cost | None:
    """Cost and limits of both arms: ``arms`` as computed, ``rows`` as shown; None where nothing is known.

    ``saving`` is what speculation saves at the site's price, by bytes of text where the token counts are in doubt.

    Energy is in joules, money in the box's currency, memory in bytes, shares are fractions.
    """
    arms = cost_table(results, resolved)
    rows = cost_rows(arms)
    why = list(dict.fromkeys([*arms["baseline"]["why"], *arms["speculative"]["why"]]))
    known = any(row["baseline"] is not None or row["speculative"] is not None for row in rows)
    if not known and not why:
        return None
    requests = [*requests_of(results["baseline"]), *requests_of(results["speculative"])]
    groups = list(dict.fromkeys(str(request.get("group")) for request in requests))
    in_doubt = bool(contradictions(results, groups) or usage_against_text(results, groups))
    return {"arms": arms, "rows": rows, "why": why, "saving": saving_of(arms, by_text=in_doubt)}


def cost_not_measured(cost: Cost | None) -> list[str]:
    """What of the cost is not known, and why where that was told."""
    if not cost:
        return ["Energy per token and money per token."]
    arms = cost["arms"].values()
    energy, money = any(arm["energy"] for arm in arms), any(arm["money"] for arm in arms)
    if energy and money:
        return []
    if money:
        text = "Energy per token"
    elif energy:
        text = "Money per token"
    else:
        text = "Energy per token and money per token"
    if cost["why"]:
        text += f": {'; '.join(cost['why'])}"
    return [f"{text}."]


def other_tools(results: Mapping[str, ArmResult]) -> OtherTools | None:
    """The columns of an older tool, computed from our requests as it computes them, in its units; None without any."""
    rows: list[OtherToolRow] = []
    columns = zip(columns_of(results["baseline"]), columns_of(results["speculative"]), strict=True)
    for baseline, speculative in columns:
        rows.append(
            {
                "tool": TOOL,
                "name": baseline["name"],
                "unit": baseline["unit"],
                "of": "median",
                "baseline": baseline["values"]["median"],
                "speculative": speculative["values"]["median"],
                "error": baseline["error"],
            }
        )
    known = any(row["baseline"] or row["speculative"] for row in rows)
    return {"note": TOKENS_NOTE, "rows": rows} if known else None
