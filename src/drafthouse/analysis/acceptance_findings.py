"""What the acceptance counters say of a draft that is too deep, or dead. Pure."""

from __future__ import annotations

from ..bench.result_types import ArmResult
from ..profiles.resolved_types import ResolvedProfile
from .drafting import counter_of
from .verdict_types import AcceptanceFinding

TOO_DEEP, DEAD = "draft-too-deep", "dead-head"
#: Drafts that must have been made before a position's rate is called 0: three accepted ones would show.
LEAST_DRAFTS = 300
#: A position of which no more is accepted costs its step of the draft and gives nothing.
NOTHING_ACCEPTED = 0.01
#: Tokens a step, the target's own among them: 1 is nothing accepted, and a draft costs more than 2 %.
DEAD_LENGTH = 1.02
#: What most often kills a head, in the order in which it is quickest to see.
CAUSES = (
    "weights that were not loaded, or are not in this export (look for missing or unused tensors in the engine's log)",
    "a head in another precision than it was trained in",
    "a head of another target, or of another version of it",
    "another method than the head is for",
)


def acceptance_findings(speculative: ArmResult, resolved: ResolvedProfile) -> list[AcceptanceFinding]:
    """Return what the whole run's counters say against the draft; nothing where they do not tell, or told too little.

    A lookup is left out: it drafts no further than what it found, and where it finds nothing it costs nothing.
    """
    method = resolved.get("method") or {}
    drafts = counter_of(speculative, "drafts")
    if method.get("kind") == "lookup" or (drafts is not None and drafts < LEAST_DRAFTS):
        return []
    length = speculative.get("spec_decode_acceptance_length")
    if length is not None and length <= DEAD_LENGTH:
        return [
            {
                "code": DEAD,
                "said": f"dead head: a step gives {length:.3f} tokens, and 1 is without any draft accepted",
                "do": f"usual causes: {'; '.join(CAUSES)}",
            }
        ]
    rates = list(speculative.get("spec_decode_per_position_acceptance_rates") or [])
    useful = next((at for at, rate in enumerate(rates) if rate <= NOTHING_ACCEPTED), len(rates))
    if drafts is None or not 0 < useful < len(rates):
        return []
    return [
        {
            "code": TOO_DEEP,
            "said": f"K too deep: of the draft's position {useful + 1} and later at most {NOTHING_ACCEPTED:.0%} is "
            f"accepted, with K={method.get('num_speculative_tokens', len(rates))}",
            "do": f"num_speculative_tokens: {useful}; a head with one layer may be made for no more",
        }
    ]
