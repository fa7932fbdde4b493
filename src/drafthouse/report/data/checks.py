"""The report's gates (checks that speculation left the answers right), and its cost: energy, money, memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...analysis.cost import cost_rows, cost_table, saving_of
from ...analysis.gates import NOT_MEASURED
from ...analysis.legacy_metrics import TOKENS_NOTE, TOOL, columns_of
from ...analysis.text_clock import usage_against_text
from ...analysis.verdict_types import Judgement
from ...bench.result_types import ArmResult
from ...bench.samples import requests_of
from ...bench.usage_check import contradictions
from ..report_types import ARMS, Cost, GateRow, KeptProfile, OtherToolRow, OtherTools

# By gate, the sentence under the heading "Not measured" if it was not measured.
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
    """A row for each gate of a verdict: its word, each arm's result, the rule, and the names of the first failures."""
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


def measured_gates(gates: Iterable[GateRow] | None) -> list[GateRow]:
    """The rows of the gates that were measured; `gates_not_measured` has sentences for the others."""
    return [gate for gate in gates or [] if gate["word"] != NOT_MEASURED]


def gates_not_measured(verdict: Judgement) -> list[str]:
    """A sentence for each gate that was not measured; for all gates if the result has none."""
    repeat_sentences = []  # of gates on repeated prompts
    sentences = dict(NOT_TRIED)  # by gate; the loop removes those of measured gates
    for gate in verdict.get("gates") or []:
        name = gate["name"]
        sentence = f"{gate['title']}: {gate['said']}."
        if gate["word"] != NOT_MEASURED:
            sentences.pop(name, None)
        # Gates on repeated prompts exist only in experiments that repeat prompts.
        elif name not in NOT_TRIED:
            repeat_sentences.append(sentence)
        # The prompts were sent but the answers are not conclusive: use the gate's own reason.
        elif gate["speculative"]["total"]:
            sentences[name] = sentence
    # Old results have no gates, but their texts were compared.
    if verdict["outputs"]["speculative"]:
        sentences.pop("outputs", None)
    return [*repeat_sentences, *sentences.values()]


def cost_of(results: Mapping[str, ArmResult], resolved: KeptProfile) -> Cost | None:
    """Cost and limits of both arms: ``arms`` as computed, ``rows`` as shown, ``why`` some figures are missing.

    ``saving`` is what speculation saves at the site's price, per byte of text if the token counts are in doubt. The
    result is None if no figure is known and there is no reason either.

    Energy is in joules, money in the currency of the site's price, memory in bytes, shares are fractions.
    """
    arms = cost_table(results, resolved)
    rows = cost_rows(arms)
    why = list(dict.fromkeys([*arms["baseline"]["why"], *arms["speculative"]["why"]]))
    any_figure = any(row["baseline"] is not None or row["speculative"] is not None for row in rows)
    if not any_figure and not why:
        return None
    requests = [*requests_of(results["baseline"]), *requests_of(results["speculative"])]
    groups = list(dict.fromkeys(str(request.get("group")) for request in requests))
    in_doubt = bool(contradictions(results, groups) or usage_against_text(results, groups))
    return {"arms": arms, "rows": rows, "why": why, "saving": saving_of(arms, by_text=in_doubt)}


def cost_not_measured(cost: Cost | None) -> list[str]:
    """A sentence on the unknown parts of the cost, with the reasons if there are any; empty if all is known."""
    if not cost:
        return ["Energy per token and money per token."]
    arms = cost["arms"].values()
    energy = any(arm["energy"] for arm in arms)
    money = any(arm["money"] for arm in arms)
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
    """The columns of an older tool, computed from these requests by its formulas; None if all are empty."""
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
    any_figure = any(row["baseline"] or row["speculative"] for row in rows)
    return {"note": TOKENS_NOTE, "rows": rows} if any_figure else None
