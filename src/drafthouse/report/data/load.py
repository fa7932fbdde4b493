"""The part of a report about load: a row for each kind of prompt and load level, and a sentence for the verdict.

A ladder is the result of a load sweep (ladder.json): a step for each arm, level, kind and round. Numbers are medians
over the rounds' steps. A step that was disturbed, or whose engine died, is listed but does not enter any number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from ...analysis.verdict_types import Judgement
from ...analysis.words import CANNOT_SAY, INVALID
from ...bench.stats import median
from ...bench.sweep.ladder_types import Crossover, Ladder, LadderStep, LevelVerdict, Spread
from ...bench.sweep.plan import SCHEMA
from ...core.format import NOTHING, count, listing, shown_level
from ...prompts.contexts import CONTEXT_UNIT, base_kind
from ..report_types import (
    Arm,
    KeptProfile,
    Load,
    LoadedArm,
    LoadKind,
    LoadPower,
    LoadRow,
    Verdict,
)

#: The status of an undisturbed step.
OK: Final = "ok"
#: The unit of the levels in ladders that do not name theirs.
UNIT = "concurrent requests"
# Texts for the statuses of steps that do not enter the numbers.
TROUBLES = {
    # Disturbed by another client, or because the machine was suspended; the step's notes name the cause.
    "polluted": "disturbed while it ran, so its numbers are left out",
    "broken": "the engine died or kept failing, so its numbers are left out",
    "incomplete": "stopped before its end, so its numbers are left out",
}
# What ended a step, in the words of the report's narrow column.
ENDED_BY = {
    "narrow": "narrow",
    "time": "time",
    "prompts": "all sent",
    "overload": "overload",
    "failed": "failed",
    "died": "died",
    "stopped": "stopped",
}
#: The most kinds in the verdict's sentence; the table has all.
MOST_KINDS = 3


def load_of(ladder: Ladder | None, declared: Sequence[str] = ()) -> Load | None:
    """The report's part about a ladder; None if there is none, if its schema is another, or if it has no steps.

    ``declared`` are the verdict's kinds, which come first. In ``rows`` speeds are in tokens per second, ``goodput``
    is in requests per second within the limits, latencies in ms, rates are fractions; ``speedup`` and ``word`` are
    from the crossover's analysis. ``kinds`` has the load up to which speculation pays, by kind.
    """
    if not ladder or ladder.get("schema") != SCHEMA:
        return None
    steps = ladder.get("steps") or []
    if not steps:
        return None
    names = dict.fromkeys(str(step.get("kind")) for step in steps)
    levels = sorted({*(ladder.get("levels") or []), *(step["level"] for step in steps)})
    crossover = ladder.get("crossover") or {}
    kinds: list[LoadKind] = []
    rows: list[LoadRow] = []
    # The sort is stable: it keeps the ladder's order.
    for name in sorted(names, key=lambda name: base_kind(name) not in declared):
        kinds.append(_kind(name, crossover.get(name), base_kind(name) in declared))
        kind_steps = [step for step in steps if str(step.get("kind")) == name]
        rows += _rows(name, levels, kind_steps, crossover.get(name))
    return {
        "load": ladder.get("load") or "closed",
        "unit": ladder.get("unit") or UNIT,
        "levels": levels,
        "limits": ladder.get("limits") or None,
        "rounds": ladder.get("rounds"),
        "kinds": kinds,
        "rows": rows,
        "troubles": troubles(steps),
        "remarks": remarks(ladder),
    }


def load_warnings(ladder: Ladder | None, resolved: KeptProfile) -> list[str]:
    """A warning if a planned ladder is missing or cannot be read; else an empty list."""
    if ladder and ladder.get("schema") != SCHEMA:
        return [
            f"the ladder has the schema {ladder.get('schema')!r} but this program reads {SCHEMA!r}: it is not shown"
        ]
    if not ladder and (resolved.get("experiment") or {}).get("ladder"):
        return ["the profile asks for a load ladder, but none was measured"]
    return []


def _kind(name: str, crossover: Crossover | None, declared: bool) -> LoadKind:
    """The crossover of a kind, i.e. the load at which speculation stops paying; empty if it was not computed."""
    if not crossover:
        return {
            "kind": name,
            "declared": declared,
            "word": None,
            "pays_from": None,
            "pays_until": None,
            "reaches_top": False,
            "interval": None,
            "beyond": None,
            "sentence": None,
            "reasons": [],
        }
    interval = crossover.get("interval")
    return {
        "kind": name,
        "declared": declared,
        "word": crossover.get("word"),
        "pays_from": crossover.get("pays_from"),
        "pays_until": crossover.get("pays_until"),
        "reaches_top": bool(crossover.get("reaches_top")),
        "interval": list(interval) if interval else None,
        "beyond": crossover.get("beyond") or None,
        "sentence": crossover.get("sentence") or None,
        "reasons": list(crossover.get("reasons") or []),
    }


def _rows(name: str, levels: Sequence[float], steps: Sequence[LadderStep], judged: Crossover | None) -> list[LoadRow]:
    """A row for each level at which the kind has steps; ``steps`` and ``judged`` are those of the kind."""
    verdict_by_level: dict[float, LevelVerdict] = {}
    if judged:
        verdict_by_level = {entry["level"]: entry for entry in judged.get("levels") or []}
    rows: list[LoadRow] = []
    for level in levels:
        level_steps = [step for step in steps if step.get("level") == level]
        if not level_steps:
            continue
        baseline, speculative = _arm(level_steps, "baseline"), _arm(level_steps, "speculative")
        verdict = verdict_by_level.get(level)
        rows.append(
            {
                "kind": name,
                "level": level,
                "speedup": verdict.get("speedup") if verdict else None,
                "word": verdict.get("word") if verdict else None,
                "baseline": baseline,
                "speculative": speculative,
                "ended": _ended(baseline, speculative),
            }
        )
    return rows


def _ended(*arms: LoadedArm | None) -> str:
    """What ended the steps, such as ``narrow``; ``narrow / time`` if the arms differ."""
    words: dict[str, None] = {}
    for arm in arms:
        if arm:
            words[listing([ENDED_BY.get(code, code) for code in arm["ended_by"]]) or NOTHING] = None
    return " / ".join(words)


_Measured = Literal[
    "output_throughput",
    "per_user_tok_s",
    "request_throughput",
    "goodput",
    "spec_decode_acceptance_rate",
    "spec_decode_acceptance_length",
]


def _arm(steps: Sequence[LadderStep], arm: Arm) -> LoadedArm | None:
    """An arm's numbers at a level, as medians over its rounds; None if the arm has no step there."""
    arm_steps = [step for step in steps if step.get("arm") == arm]
    if not arm_steps:
        return None
    good_steps = [step for step in arm_steps if step.get("status") == OK]

    def median_over_rounds(name: _Measured) -> float | None:
        return _median_or_none(step.get(name) for step in good_steps)

    def percentiles(name: Literal["ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"]) -> Spread:
        return _percentiles([step.get(name) for step in good_steps])

    acceptance = median_over_rounds("spec_decode_acceptance_rate")
    rate = None if acceptance is None else acceptance / 100.0
    ended_by = {str(step["ended_by"]) for step in good_steps if step.get("ended_by")}
    seconds = math.fsum(step.get("duration_s") or 0.0 for step in good_steps)
    completed = sum(step.get("completed") or 0 for step in good_steps)
    failed = sum(step.get("failed") or 0 for step in arm_steps)
    return {
        "status": OK if good_steps else arm_steps[-1]["status"],  # one good step is enough for numbers
        "steps": len(arm_steps),
        "kept": len(good_steps),
        "ended_by": sorted(ended_by),
        "seconds": seconds,
        "completed": completed,
        "failed": failed,
        "output_throughput": median_over_rounds("output_throughput"),
        "per_user_tok_s": median_over_rounds("per_user_tok_s"),
        "request_throughput": median_over_rounds("request_throughput"),
        "goodput": median_over_rounds("goodput"),
        "ttft_ms": percentiles("ttft_ms"),
        "tpot_ms": percentiles("tpot_ms"),
        "itl_ms": percentiles("itl_ms"),
        "e2el_ms": percentiles("e2el_ms"),
        # A step has percent, a report has a fraction.
        "acceptance_rate": rate,
        "acceptance_length": median_over_rounds("spec_decode_acceptance_length"),
        **_power(good_steps),
    }


def _percentiles(spreads: Sequence[Spread | None]) -> Spread:
    """The median over the rounds of each percentile."""

    def median_over_rounds(name: Literal["median", "p90", "p99"]) -> float | None:
        return _median_or_none(spread.get(name) for spread in spreads if spread)

    return {"median": median_over_rounds("median"), "p90": median_over_rounds("p90"), "p99": median_over_rounds("p99")}


def _power(steps: Sequence[LadderStep]) -> LoadPower:
    """Mean power in W, and energy per output token in J: of the whole GPU, and above its idle power.

    Energy and tokens cover the time from the first request to the last answer, so not full load only.
    """
    watts = []
    joules = []  # per output token, as the next one
    above_idle = []
    for step in steps:
        power = step.get("power")
        if not power or power.get("mean_w") is None:
            continue
        watts.append(power["mean_w"])
        tokens = power.get("output_tokens")
        energy_j = power["energy_j"]
        if not tokens or energy_j is None:
            continue
        joules.append(energy_j / tokens)
        net_j = power.get("energy_above_idle_j")
        if net_j is not None:
            above_idle.append(net_j / tokens)
    return {
        "mean_w": _median_or_none(watts),
        "joules_per_token": _median_or_none(joules),
        "joules_per_token_above_idle": _median_or_none(above_idle),
    }


def _median_or_none(values: Iterable[float | None]) -> float | None:
    """The median of the finite values; None if there are none."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return median(finite) if finite else None


# --- sentences ---------------------------------------------------------------------------------------


def troubles(steps: Iterable[LadderStep]) -> list[str]:
    """A sentence for each step that was disturbed or restarted, or that had failed requests."""
    sentences: list[str] = []
    for step in steps:
        step_name = f"{step.get('arm')}, {step.get('kind')} at {shown_level(step['level'])}, round {step.get('round')}"
        status = str(step.get("status"))
        reasons = []
        if status != OK:
            reasons.append(TROUBLES.get(status, status))
        if step.get("restarted"):
            reasons.append("its server was restarted")
        if step.get("failed"):
            reasons.append(f"{step['failed']} of {count(int(step.get('num_prompts') or 0), 'request')} failed")
        if not reasons:
            continue
        sentence = f"{step_name}: {'; '.join(reasons)}"
        notes = "; ".join(map(str, step.get("notes") or []))
        if notes:
            sentence += f" ({notes})"
        sentences.append(sentence)
    return sentences


def remarks(ladder: Ladder) -> list[str]:
    """The ladder's notes, and the notes of undisturbed steps, each with the number of its steps."""
    steps_of_note: Counter[str] = Counter()
    for step in ladder["steps"]:
        if step.get("status") == OK:
            steps_of_note.update(map(str, step.get("notes") or []))
    ladder_notes = [str(note) for note in ladder.get("notes") or []]
    return ladder_notes + [f"{note} ({count(steps, 'step')})" for note, steps in steps_of_note.items()]


def with_load(verdict: Judgement, load: Load | None) -> Verdict:
    """The verdict with the load up to which speculation pays at the end of its sentence, and alone as ``load``.

    The word does not change. ``load`` is None, and the sentence stays as it is, if no load was measured; if nothing can
    be claimed about loads, because the verdict is `invalid` or `cannot say` or the output is wrong; or if no kind has a
    sentence, or more than `MOST_KINDS` have, which only the table shows.
    """
    no_claims = verdict["word"] in (INVALID, CANNOT_SAY) or verdict.get("wrong_output")
    if not load or no_claims:
        return {**verdict, "load": None}
    with_sentence = [kind for kind in load["kinds"] if kind["sentence"]]
    # A ladder may use other prompts than the experiment, whose kinds the verdict does not declare.
    chosen = [kind for kind in with_sentence if kind["declared"]] or with_sentence
    if not chosen or len(chosen) > MOST_KINDS:
        return {**verdict, "load": None}
    axis = "under load"
    if load["unit"] == CONTEXT_UNIT:
        axis = "over context"
    if len(chosen) == 1 and chosen[0]["declared"]:
        load_part = f"{axis}: {chosen[0]['sentence']}"
    else:
        kinds_by_sentence: dict[str, list[str]] = {}
        for kind in chosen:
            kinds_by_sentence.setdefault(kind["sentence"] or "", []).append(kind["kind"])
        sentences = [f"on {listing(kinds)}: {sentence}" for sentence, kinds in kinds_by_sentence.items()]
        load_part = f"{axis}, {'; '.join(sentences)}"
    return {**verdict, "sentence": f"{verdict['sentence']}; {load_part}", "load": load_part}


def without_claims(load: Load) -> Load:
    """The load's speeds without any claim that speculation pays, for an arm whose output is wrong."""
    return {
        **load,
        "kinds": [_kind(kind["kind"], None, kind["declared"]) for kind in load["kinds"]],
        "rows": [{**row, "word": None} for row in load["rows"]],
    }
