"""The verdict: does speculation pay on the work a profile declares, does it not, or can nothing be said.

Three steps. `gather` (`evidence.py`) measures: the speed-up by the estimator of `speedup.py`, and with it the word that
speed alone gives, by the table of `decision.py`. `decide_word` lets invalid evidence, wrong output and a disturbed
machine override that word. `explain` puts it into sentences (`explanation.py`). The rule: docs/verdict.md.
"""

from __future__ import annotations

from ..bench.result_types import ArmResult
from ..bench.usage_check import sources_of
from ..profiles.resolved_types import ResolvedProfile
from .decision import Cause, Decision, Fresh
from .evidence import Evidence, gather
from .explanation import (
    MARKS,
    cannot_say,
    headline,
    reasons_of,
    seconds_of,
    slower_share,
    slowest_prompts,
    starts_of,
    warnings_of,
    what_follows,
)
from .speedup import CONFIDENCE
from .verdict_types import Judgement, NextRound
from .words import RULE, THRESHOLD, Word


def judge(baseline: ArmResult, speculative: ArmResult, resolved: ResolvedProfile) -> Judgement:
    """The verdict over two results of one resolved profile, as plain data.

    An invalid pair keeps the numbers that can be computed, for whoever looks for the cause. Nothing is raised for a bad
    result: it is a reason.
    """
    evidence = gather(baseline, speculative, resolved)
    return explain(evidence, decide_word(evidence))


def decide_word(evidence: Evidence) -> Decision:
    """The word. Invalid evidence says nothing, wrong answers do not pay at any speed, and noise hides either word."""
    if evidence.invalid:
        return Decision(Word.INVALID)
    if evidence.wrong:
        return Decision(Word.DOES_NOT_PAY)
    if evidence.disturbed and evidence.by_speed.word != Word.CANNOT_SAY:
        return Decision(Word.CANNOT_SAY, Cause.TOO_NOISY, Fresh.FEW)
    return evidence.by_speed


def explain(evidence: Evidence, decision: Decision) -> Judgement:
    """The word with everything that a report shows beside it."""
    resolved, speedup = evidence.resolved, evidence.measured.speedup
    follows = what_follows(evidence, decision)
    marks = "".join(f"{mark}, " for mark in MARKS if resolved.get(mark))
    experiment = resolved.get("experiment") or {}
    return {
        "rule": RULE,
        "word": decision.word.value,
        "wrong_output": bool(evidence.wrong),
        "sentence": f"{marks}{decision.word}: {follows}",
        "headline": headline(evidence, decision),
        "said": follows,
        "reasons": reasons_of(evidence, decision),
        "warnings": warnings_of(evidence, decision),
        "threshold": THRESHOLD,
        "confidence": CONFIDENCE,
        "scope": {
            "kinds": evidence.kinds,
            "groups": evidence.declared,
            "concurrency": evidence.concurrency,
            "rounds": evidence.rounds,
            "schedule": experiment.get("schedule"),
        },
        "synthetic": resolved.get("synthetic"),
        **evidence.figures,
        "seconds": seconds_of(evidence),
        "slowest": slowest_prompts(speedup),
        "slower_share": slower_share(speedup),
        "next_round": _next_round(evidence, decision),
        "user_clock": evidence.clock,
        "counts": {arm: sources_of(result) for arm, result in evidence.results.items()},
        "starts": starts_of(speedup),
        "groups": evidence.groups,
        "drafting": evidence.drafting,
        "acceptance_findings": evidence.acceptance,
        "gates": evidence.gates,
    }


def _next_round(evidence: Evidence, decision: Decision) -> NextRound | None:
    """What another round should ask, None where the word stands."""
    if decision.fresh is None:
        return None
    speedup = evidence.measured.speedup
    why = cannot_say(evidence, decision, speedup)[0] if speedup else "fewer than two prompts were answered"
    return {"why": f"{decision.cause}: {why}", "fresh": decision.fresh.value}
