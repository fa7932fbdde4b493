"""The verdict: whether speculation pays on the prompt kinds that a profile declares, or `cannot say`, or `invalid`.

`gather` (`evidence.py`) measures the speed-up (`speedup.py`) and the word that speed alone gives
(`decision.py`). `decide_word` lets invalid evidence, wrong output and a disturbed machine override
that word. `explain` writes the sentences (`explanation.py`). The rule is in docs/verdict.md.
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
    verdict_text,
    warnings_of,
)
from .speedup import CONFIDENCE
from .verdict_types import Judgement, NextRound
from .words import RULE, THRESHOLD, Word


def judge(baseline: ArmResult, speculative: ArmResult, resolved: ResolvedProfile) -> Judgement:
    """The verdict over the results of the two arms (baseline, speculative) of one resolved profile, as plain data.

    An invalid pair keeps all numbers that can be computed, to help find the cause. A bad result
    raises nothing: it becomes a reason.
    """
    evidence = gather(baseline, speculative, resolved)
    return explain(evidence, decide_word(evidence))


def decide_word(evidence: Evidence) -> Decision:
    """The word: invalid evidence and wrong output override speed, and a disturbance makes it `cannot say`."""
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
    text = verdict_text(evidence, decision)
    marks = "".join(f"{mark}, " for mark in MARKS if resolved.get(mark))
    experiment = resolved.get("experiment") or {}
    return {
        "rule": RULE,
        "word": decision.word.value,
        "wrong_output": bool(evidence.wrong),
        "sentence": f"{marks}{decision.word}: {text}",
        "headline": headline(evidence, decision),
        "said": text,
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
    """What the next round should ask and why; None if no further round is needed."""
    if decision.fresh is None:
        return None
    speedup = evidence.measured.speedup
    why = cannot_say(evidence, decision, speedup)[0] if speedup else "fewer than two prompts were answered"
    return {"why": f"{decision.cause}: {why}", "fresh": decision.fresh.value}
