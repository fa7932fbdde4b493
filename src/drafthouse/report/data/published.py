"""Compare the measured acceptance length with published figures for the target, and name causes of a shortfall."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..report_types import AcceptanceBySource, KeptProfile, PublishedBeside

#: A measured acceptance length minus 1 (the target's own token) below this fraction of the published one points to the
#: setup and not to the prompts. Between data sets of the same head the ratio was 0.6 to 1.
WELL_BELOW = 0.75
#: Part of a model's name that says that it is quantised.
_QUANTISED = re.compile(r"(?i)nvfp4|mxfp4|fp8|awq|gptq|int[48]|w\d+a\d+|\bq\d")


def published_beside(resolved: KeptProfile, accepted: AcceptanceBySource) -> list[PublishedBeside]:
    """The published figures, each with the acceptance length measured on the same data set or else on all prompts.

    ``well_below`` can only be True for the same draft and K, on which the length depends. On other prompts, the
    measured length must be well below all published lengths.
    """
    figures = resolved.get("published") or []
    tokens = (resolved.get("method") or {}).get("num_speculative_tokens")
    groups = {_letters(group): acceptance for group, acceptance in accepted["groups"].items()}
    lengths = []  # published for the same draft and K
    for figure in figures:
        if figure["same_draft"] and figure["tokens"] == tokens and figure["length"] is not None:
            lengths.append(figure["length"])
    compared: list[PublishedBeside] = []
    for figure in figures:
        acceptance = groups.get(_letters(figure["dataset"]))
        published = figure["length"]
        measured = acceptance["length"] if acceptance else None
        limit = published
        same_prompts = measured is not None
        if not same_prompts:
            # Data sets of one head differ much, so only a length below all published ones points to the setup.
            measured = accepted["overall"]["length"]
            limit = min(lengths, default=None)
        comparable = figure["same_draft"] and figure["tokens"] == tokens and published is not None
        well_below = comparable and _well_below(measured, limit)
        compared.append({**figure, "here": measured, "same_prompts": same_prompts, "well_below": well_below})
    return compared


def _letters(name: str) -> str:
    """The lowercase letters and digits of a name, so that `MT-Bench` and `mt_bench` are equal."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _well_below(measured: float | None, published: float | None) -> bool:
    """True if the measured length is well below the published one (`WELL_BELOW`); False if either is unknown."""
    return measured is not None and published is not None and measured - 1 < WELL_BELOW * (published - 1)


def usual_causes(resolved: KeptProfile, temperatures: Sequence[float]) -> list[str]:
    """Usual causes of an acceptance below the published one, the most likely first."""
    target = str((resolved.get("target") or {}).get("name") or "the target")
    causes = ["the chat template: the head was trained with the target's own, and every prompt must use it"]
    hottest = max(temperatures, default=0)
    if hottest > 0:
        causes.append(f"temperature {hottest:g}: greedy drafts are accepted less often above 0")
    if _QUANTISED.search(target):
        causes.append(f"precision: {target} is quantised, and the head was trained on the full-precision model")
    else:
        causes.append("precision: target, head or KV cache differ from the published ones")
    causes.append("the wrong head: made for another version of the target, or for its base model")
    return causes


def published_warnings(compared: Sequence[PublishedBeside], causes: Sequence[str]) -> list[str]:
    """A warning with the largest difference and the usual causes if any figure is well below; else an empty list."""
    below = [figure for figure in compared if figure["well_below"] and figure["here"] and figure["length"]]
    if not below:
        return []
    worst = max(below, key=lambda figure: (figure["length"] or 0) - (figure["here"] or 0))
    return [
        f"acceptance length {worst['here']:.2f} here, {worst['length']:.2f} published ({conditions(worst)}); "
        f"usual causes in order: {'; '.join(causes)}"
    ]


def conditions(figure: PublishedBeside) -> str:
    """The conditions of a published figure as text: data set, K (draft tokens per step) and source."""
    if not figure["tokens"]:
        return f"{figure['dataset']}, {figure['source']}"
    return f"{figure['dataset']}, K={figure['tokens']}, {figure['source']}"
