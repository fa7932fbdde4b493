"""What the acceptance counters say of a draft that is too deep, dead, or lost in a long conversation. Pure."""

from __future__ import annotations

from statistics import median

from ..bench.result_types import ArmResult
from ..bench.samples import requests_of
from ..profiles.resolved_types import ResolvedProfile
from ..prompts.checks import TALK
from .drafting import counter_of
from .verdict_types import AcceptanceFinding

TOO_DEEP, DEAD, COLLAPSES = "draft-too-deep", "dead-head", "acceptance-collapses"
#: Drafts that must have been made before a position's rate is called 0: three accepted ones would show.
LEAST_DRAFTS = 300
#: A position of which no more is accepted costs its step of the draft and gives nothing.
NOTHING_ACCEPTED = 0.01
#: Tokens a step, the target's own among them: 1 is nothing accepted, and a draft costs more than 2 %.
DEAD_LENGTH = 1.02
#: Of a longer conversation less than this share of what is accepted at its beginning is no drift any more.
COLLAPSED = 0.5
#: Tokens that must have been drafted at either end of a conversation: a rate is then known to a few percent.
LEAST_DRAFTED = 200
#: What most often kills a head, in the order in which it is quickest to see.
CAUSES = (
    "weights that were not loaded, or are not in this export (look for missing or unused tensors in the engine's log)",
    "a head in a different precision from its training",
    "a head for another target, or for a different version of it",
    "a method that the head was not made for",
)


def acceptance_findings(speculative: ArmResult, resolved: ResolvedProfile) -> list[AcceptanceFinding]:
    """What the whole run's counters say against the draft; nothing where they do not tell, or told too little.

    A lookup is left out: it drafts no further than what it found, and where it finds nothing it costs nothing.
    """
    method = resolved.get("method") or {}
    drafts = counter_of(speculative, "drafts")
    if method.get("kind") == "lookup" or (drafts is not None and drafts < LEAST_DRAFTS):
        return []
    length = speculative.get("spec_decode_acceptance_length")
    if length is not None and length <= DEAD_LENGTH:
        said = f"dead head: {length:.3f} tokens per step, where 1 means that no draft token is accepted"
        return [{"code": DEAD, "said": said, "do": f"usual causes: {'; '.join(CAUSES)}"}]
    found = _collapsed(speculative)
    rates = list(speculative.get("spec_decode_per_position_acceptance_rates") or [])
    useful = next((at for at, rate in enumerate(rates) if rate <= NOTHING_ACCEPTED), len(rates))
    if drafts is not None and 0 < useful < len(rates):
        asked = method.get("num_speculative_tokens", len(rates))
        least = f"at most {NOTHING_ACCEPTED:.0%} is accepted"
        said = f"K too deep: from draft position {useful + 1} on, {least}, with K={asked}"
        do = f"set num_speculative_tokens: {useful}; a one-layer head may not be made for more"
        found.append({"code": TOO_DEEP, "said": said, "do": do})
    return found


def _collapsed(speculative: ArmResult) -> list[AcceptanceFinding]:
    """A finding where less is accepted the longer a conversation is: its parts are groups of their own."""
    lengths: dict[str, list[int]] = {}
    for request in requests_of(speculative):
        if (gate := request.get("gate")) and gate.get("name") == TALK:
            lengths.setdefault(str(request.get("group")), []).append(request.get("input_tokens") or 0)
    parts = []
    for name, group in (speculative.get("groups") or {}).items():
        rate = group.get("spec_decode_acceptance_rate")
        enough = (counter_of(group, "draft_tokens") or 0) >= LEAST_DRAFTED
        if name in lengths and enough and rate is not None:
            parts.append((median(lengths[name]), rate))
    parts.sort(key=lambda part: part[0])
    if len(parts) < 2 or parts[-1][1] >= COLLAPSED * parts[0][1]:
        return []
    over = ", ".join(f"{rate:.0f} % at {tokens:,.0f} tokens" for tokens, rate in parts)
    do = (
        "usual causes: a draft with a shorter context or a different RoPE scaling than the target, a sliding "
        "window in the draft, a draft cache that is not kept between turns"
    )
    return [{"code": COLLAPSES, "said": f"acceptance collapses as a conversation grows: {over}", "do": do}]
