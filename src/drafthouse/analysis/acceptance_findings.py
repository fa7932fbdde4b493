"""Finds drafts that are too deep, heads without any accepted token, and acceptance that falls in long chats.

A head is a draft model that reads the target's hidden states. A draft has up to K tokens; the first has position 1.
"""

from __future__ import annotations

from statistics import median

from ..bench.result_types import ArmResult
from ..bench.samples import requests_of
from ..profiles.resolved_types import ResolvedProfile
from ..prompts.checks import TALK
from .drafting import counter_of
from .verdict_types import AcceptanceFinding

# Codes of the findings.
TOO_DEEP = "draft-too-deep"  # the last positions of a draft are almost never accepted
DEAD = "dead-head"  # almost no draft token is accepted
COLLAPSES = "acceptance-collapses"  # acceptance falls as a conversation grows
#: Fewer drafts give no finding. At `NOTHING_ACCEPTED` this many drafts have three accepted tokens at a position.
LEAST_DRAFTS = 300
#: A draft position with at most this acceptance rate (a fraction) costs drafting time and gains nothing.
NOTHING_ACCEPTED = 0.01
#: A head with at most this acceptance length (tokens per step, 1 of them the target's) is dead: drafting costs more.
DEAD_LENGTH = 1.02
#: Acceptance collapses if the longest part of a conversation has less than this fraction of the shortest part's rate.
COLLAPSED = 0.5
#: Parts of a conversation with fewer draft tokens are left out; with this many a rate is known to a few per cent.
LEAST_DRAFTED = 200
#: The usual causes of a dead head, the quickest to check first.
CAUSES = (
    "weights that were not loaded, or are not in this export (look for missing or unused tensors in the engine's log)",
    "a head in a different precision from its training",
    "a head for another target, or for a different version of it",
    "a method that the head was not made for",
)


def acceptance_findings(speculative: ArmResult, resolved: ResolvedProfile) -> list[AcceptanceFinding]:
    """Findings from the speculative arm's counters over the whole run.

    - A lookup (n-gram) gets none: it drafts only what it found in the text, and costs nothing where it finds nothing.
    - Fewer than `LEAST_DRAFTS` drafts give none; an unknown number is enough.
    - A dead head is the only finding, because it explains the others.
    - Else: acceptance that collapses, and then, if the drafts are counted, a draft that is too deep.
    """
    method = resolved.get("method") or {}
    drafts = counter_of(speculative, "drafts")
    if method.get("kind") == "lookup" or (drafts is not None and drafts < LEAST_DRAFTS):
        return []
    acceptance_length = speculative.get("spec_decode_acceptance_length")
    if acceptance_length is not None and acceptance_length <= DEAD_LENGTH:
        sentence = f"dead head: {acceptance_length:.3f} tokens per step, where 1 means that no draft token is accepted"
        return [{"code": DEAD, "said": sentence, "do": f"usual causes: {'; '.join(CAUSES)}"}]
    findings = _collapse_finding(speculative)
    rates = list(speculative.get("spec_decode_per_position_acceptance_rates") or [])  # fractions, from position 1
    useful_depth = next((position for position, rate in enumerate(rates) if rate <= NOTHING_ACCEPTED), len(rates))
    # Without a count of drafts the rates may rest on too few. At a useful depth of 0 there is no K to advise.
    if drafts is not None and 0 < useful_depth < len(rates):
        draft_length = method.get("num_speculative_tokens", len(rates))
        rate_text = f"at most {NOTHING_ACCEPTED:.0%} is accepted"
        sentence = f"K too deep: from draft position {useful_depth + 1} on, {rate_text}, with K={draft_length}"
        do = f"set num_speculative_tokens: {useful_depth}; a one-layer head may not be made for more"
        findings.append({"code": TOO_DEEP, "said": sentence, "do": do})
    return findings


def _collapse_finding(speculative: ArmResult) -> list[AcceptanceFinding]:
    """The finding that acceptance falls as a conversation grows; empty unless it does.

    A conversation (gate name `TALK`) is asked in parts of growing length; each part is a prompt group of its own.
    """
    context_tokens: dict[str, list[int]] = {}  # by group, the input tokens of its requests
    for request in requests_of(speculative):
        if (gate := request.get("gate")) and gate.get("name") == TALK:
            context_tokens.setdefault(str(request.get("group")), []).append(request.get("input_tokens") or 0)
    tokens_and_rates = []  # of each part: median input tokens, and acceptance rate in per cent
    for name, figures in (speculative.get("groups") or {}).items():
        rate = figures.get("spec_decode_acceptance_rate")
        enough_drafted = (counter_of(figures, "draft_tokens") or 0) >= LEAST_DRAFTED
        if name in context_tokens and enough_drafted and rate is not None:
            tokens_and_rates.append((median(context_tokens[name]), rate))
    tokens_and_rates.sort(key=lambda pair: pair[0])
    if len(tokens_and_rates) < 2:
        return []
    _, rate_of_shortest = tokens_and_rates[0]
    _, rate_of_longest = tokens_and_rates[-1]
    if rate_of_longest >= COLLAPSED * rate_of_shortest:
        return []
    listed = ", ".join(f"{rate:.0f} % at {tokens:,.0f} tokens" for tokens, rate in tokens_and_rates)
    do = (
        "usual causes: a draft with a shorter context or a different RoPE scaling than the target, a sliding "
        "window in the draft, a draft cache that is not kept between turns"
    )
    return [{"code": COLLAPSES, "said": f"acceptance collapses as a conversation grows: {listed}", "do": do}]
