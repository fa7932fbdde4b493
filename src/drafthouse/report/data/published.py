"""What others published of the target beside what was measured here, and what usually makes ours lower."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..report_types import AcceptanceBySource, KeptProfile, PublishedBeside

#: Of what is accepted beyond the target's own token: below this share of the published our setup is to blame, and not
#: other prompts. Between data sets of one head it was 0.6 to 1.
WELL_BELOW = 0.75
_QUANTISED = re.compile(r"(?i)nvfp4|mxfp4|fp8|awq|gptq|int[48]|w\d+a\d+|\bq\d")


def published_beside(resolved: KeptProfile, accepted: AcceptanceBySource) -> list[PublishedBeside]:
    """What was published of the target beside the length here: of the same data set, else of all prompts.

    ``well_below`` is said of the same draft at the same K alone; against other prompts only where ours is well below
    all of the published lengths.
    """
    figures = resolved.get("published") or []
    tokens = (resolved.get("method") or {}).get("num_speculative_tokens")
    groups = {_letters(group): acceptance for group, acceptance in accepted["groups"].items()}
    lengths = []
    for figure in figures:
        if figure["same_draft"] and figure["tokens"] == tokens and figure["length"] is not None:
            lengths.append(figure["length"])
    found: list[PublishedBeside] = []
    for figure in figures:
        own, published = groups.get(_letters(figure["dataset"])), figure["length"]
        here, limit = (own["length"] if own else None), published
        same_prompts = here is not None
        if not same_prompts:
            here, limit = accepted["overall"]["length"], min(lengths, default=None)
        comparable = figure["same_draft"] and figure["tokens"] == tokens and published is not None
        well_below = comparable and _well_below(here, limit)
        found.append({**figure, "here": here, "same_prompts": same_prompts, "well_below": well_below})
    return found


def _letters(name: str) -> str:
    """A name's letters and digits: a data set may be written `MT-Bench` or `mt_bench`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _well_below(here: float | None, published: float | None) -> bool:
    return here is not None and published is not None and here - 1 < WELL_BELOW * (published - 1)


def usual_causes(resolved: KeptProfile, temperatures: Sequence[float]) -> list[str]:
    """What usually makes an acceptance lower than the published, the likeliest first."""
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


def published_warnings(beside: Sequence[PublishedBeside], causes: Sequence[str]) -> list[str]:
    """A sentence where ours is well below what was published: the largest difference, and the usual causes."""
    below = [figure for figure in beside if figure["well_below"] and figure["here"] and figure["length"]]
    if not below:
        return []
    worst = max(below, key=lambda figure: (figure["length"] or 0) - (figure["here"] or 0))
    return [
        f"acceptance length {worst['here']:.2f} here, {worst['length']:.2f} published ({conditions(worst)}); "
        f"usual causes in order: {'; '.join(causes)}"
    ]


def conditions(figure: PublishedBeside) -> str:
    """Of what a published figure is, in a few words: the data set, the draft's length K, and who says it."""
    if not figure["tokens"]:
        return f"{figure['dataset']}, {figure['source']}"
    return f"{figure['dataset']}, K={figure['tokens']}, {figure['source']}"
