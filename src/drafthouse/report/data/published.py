"""What others published of the target beside what was measured here, and what usually makes ours lower."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..report_types import Acceptance, AcceptanceBySource, KeptProfile, PublishedBeside

#: Of what is accepted beyond the target's own token: below this share of the published our setup is to blame, and not
#: other prompts. Between data sets of one head it was 0.6 to 1.
WELL_BELOW = 0.75
_QUANTISED = re.compile(r"(?i)nvfp4|mxfp4|fp8|awq|gptq|int[48]|w\d+a\d+|\bq\d")


def published_beside(resolved: KeptProfile, told: AcceptanceBySource) -> list[PublishedBeside]:
    """What was published of the target beside the length here: of the same data set, else of all prompts.

    ``well_below`` is said of the same draft at the same K alone; against other prompts only where ours is well below
    all of the published lengths.
    """
    figures = resolved.get("published") or []
    tokens = (resolved.get("method") or {}).get("num_speculative_tokens")
    same = [one for one in figures if one["same_draft"] and one["tokens"] == tokens]
    least = min((one["length"] for one in same if one["length"] is not None), default=None)
    groups = {_word(group): accepted for group, accepted in told["groups"].items()}
    found: list[PublishedBeside] = []
    for one in figures:
        group = groups.get(_word(one["dataset"]))
        here = _length(group) if group else None
        against = least if here is None else one["length"]
        own = _length(told["overall"]) if here is None else here
        found.append(
            {
                **one,
                "here": own,
                "same_prompts": here is not None,
                "well_below": one in same and one["length"] is not None and _well_below(own, against),
            }
        )
    return found


def _word(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _length(told: Acceptance) -> float | None:
    return told["length"]


def _well_below(here: float | None, published: float | None) -> bool:
    return here is not None and published is not None and here - 1 < WELL_BELOW * (published - 1)


def usual_causes(resolved: KeptProfile, temperatures: Sequence[float]) -> list[str]:
    """What usually makes an acceptance lower than the published, the likeliest first."""
    target = str((resolved.get("target") or {}).get("name") or "the target")
    sampled = [temperature for temperature in temperatures if temperature > 0]
    return [
        "the chat template: the head was trained with the target's own, and every prompt must use it",
        *([f"temperature {max(sampled):g}: greedy drafts are accepted less often above 0"] if sampled else []),
        f"precision: {target} is quantised, and the head was trained on the full-precision model"
        if _QUANTISED.search(target)
        else "precision: target, head or KV cache differ from the published ones",
        "the wrong head: made for another version of the target, or for its base model",
    ]


def published_warnings(beside: Sequence[PublishedBeside], causes: Sequence[str]) -> list[str]:
    """A sentence where ours is well below what was published: the largest difference, and the usual causes."""
    below = [one for one in beside if one["well_below"] and one["here"] and one["length"]]
    if not below:
        return []
    worst = max(below, key=lambda one: (one["length"] or 0) - (one["here"] or 0))
    return [
        f"acceptance length {worst['here']:.2f} here, {worst['length']:.2f} published ({conditions(worst)}); "
        f"usual causes in order: {'; '.join(causes)}"
    ]


def conditions(one: PublishedBeside) -> str:
    """Of what a published figure is, in a few words."""
    return ", ".join([one["dataset"], *([f"K={one['tokens']}"] if one["tokens"] else []), one["source"]])
