"""Judge a comparison: `pays`, `does not pay`, `cannot say` or `invalid`, for the prompt kinds that a profile declares.

`gather` (`evidence.py`) computes the speed-up (`speedup.py`) and the word that speed alone gives (`decision.py`).
`decide_word` lets invalid evidence, wrong output and a disturbed machine override that word. A disturbance is a cause
other than speculation that can explain the speed-up (`noise.py`). `explain` adds the sentences (`explanation.py`). The
rule is in docs/verdict.md.
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
from .words import RULE_VERSION, THRESHOLD, Word


def judge(baseline: ArmResult, speculative: ArmResult, resolved: ResolvedProfile) -> Judgement:
    """The verdict, as plain data, for the results of the two arms of one resolved profile.

    Even an invalid comparison has all numbers that can be computed, to help find the cause. A bad result raises
    nothing: it becomes a reason.
    """
    evidence = gather(baseline, speculative, resolved)
    return explain(evidence, decide_word(evidence))


def decide_word(evidence: Evidence) -> Decision:
    """The word of the verdict, and how many fresh prompts (that no other round asks) the next round needs.

    The first case that applies decides:

    - results that are not comparable: `invalid`;
    - a failed gate (a test of the outputs): `does not pay`;
    - a disturbance, unless the speed alone gives `cannot say` already: `cannot say`, too noisy;
    - else the decision by speed alone.
    """
    if evidence.invalid:
        return Decision(Word.INVALID)
    if evidence.wrong:
        return Decision(Word.DOES_NOT_PAY)
    if evidence.disturbed and evidence.by_speed.word != Word.CANNOT_SAY:
        # The noise comes from the machine, not from too few prompts, so the next round needs few fresh ones.
        return Decision(Word.CANNOT_SAY, cause=Cause.TOO_NOISY, fresh=Fresh.FEW)
    return evidence.by_speed


def explain(evidence: Evidence, decision: Decision) -> Judgement:
    """The word with everything that a report shows beside it."""
    resolved = evidence.resolved
    speedup = evidence.measured.speedup
    text = verdict_text(evidence, decision)
    # A profile that is synthetic or unpinned is marked before the word: "synthetic, pays: ...".
    marks = "".join(f"{mark}, " for mark in MARKS if resolved.get(mark))
    experiment = resolved.get("experiment") or {}
    return {
        "rule": RULE_VERSION,
        "word": decision.word.value,
        "wrong_output": bool(evidence.wrong),
        "sentence": f"{marks}{decision.word}: {text}",  # marks, word and explanation
        "headline": headline(evidence, decision),  # the explanation in about a dozen words, without the word
        "said": text,  # the explanation alone, without marks and word
        "reasons": reasons_of(evidence, decision),
        "warnings": warnings_of(evidence, decision),
        "threshold": THRESHOLD,
        "confidence": CONFIDENCE,
        "scope": {
            "kinds": evidence.kinds,
            "groups": evidence.declared,  # their names; the key "groups" below has the figures of all groups
            "concurrency": evidence.concurrency,
            "rounds": evidence.rounds,
            "schedule": experiment.get("schedule"),
        },
        "synthetic": resolved.get("synthetic"),
        **evidence.figures,  # speedup, control and outputs, over the declared groups
        "seconds": seconds_of(evidence),  # of all answers
        "slowest": slowest_prompts(speedup),
        "slower_share": slower_share(speedup),
        "next_round": _next_round(evidence, decision),
        "user_clock": evidence.clock,
        "counts": {arm: sources_of(result) for arm, result in evidence.results.items()},  # where token counts came from
        "starts": starts_of(speedup),  # how the starts of each arm differ
        "groups": evidence.groups,
        "drafting": evidence.drafting,
        "acceptance_findings": evidence.acceptance,
        "gates": evidence.gates,
    }


def _next_round(evidence: Evidence, decision: Decision) -> NextRound | None:
    """Why a further round is needed, and how many fresh prompts it asks; None for all words but `cannot say`."""
    if decision.fresh is None:
        return None
    speedup = evidence.measured.speedup
    if speedup:
        why, _advice = cannot_say(evidence, decision, speedup)
    else:
        why = "fewer than two prompts were answered"
    return {"why": f"{decision.cause}: {why}", "fresh": decision.fresh.value}
