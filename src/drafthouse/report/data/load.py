"""What a ladder of loads says, as plain data for a report: a row for each kind and level, and the sentence.

A ladder (ladder.json) holds a step for each arm, level, kind and round. Steps that ended well are put together
over the rounds; a step that was disturbed, or whose engine died, is named and enters no number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from ...analysis.verdict_types import Judgement
from ...analysis.words import CANNOT_SAY, INVALID
from ...bench.stats import median
from ...bench.sweep.ladder_types import Crossover, Ladder, LadderStep, Spread
from ...bench.sweep.plan import SCHEMA
from ...core.format import NOTHING, count, listing, shown_level
from ..report_types import (
    ARMS,
    KeptProfile,
    Load,
    LoadedArm,
    LoadKind,
    LoadPower,
    LoadRow,
    Verdict,
)

OK: Final = "ok"
UNIT = "concurrent requests"
# Why a step enters no number, for people.
TROUBLES = {
    # By another client or by a machine that was suspended: the step's notes say which.
    "polluted": "disturbed while it ran, so its numbers are left out",
    "broken": "the engine died or kept failing, so its numbers are left out",
    "incomplete": "stopped before its end, so its numbers are left out",
}
ENDED_BY = {
    "narrow": "narrow",
    "time": "time",
    "prompts": "all sent",
    "overload": "overload",
    "failed": "failed",
    "died": "died",
    "stopped": "stopped",
}
# More kinds than this make no sentence; the table has them all.
MOST_KINDS = 3


def load_of(ladder: Ladder | None, declared: Sequence[str] = ()) -> Load | None:
    """What a report shows of a ladder; None for none, one it cannot read, or one never begun.

    ``declared`` are the verdict's kinds, which come first. In ``rows`` speeds are in tokens per second,
    ``goodput`` in requests per second within the limits, latencies in ms, rates fractions; ``speedup`` and
    ``word`` are those of the crossover. ``kinds`` says of each kind until which load speculation pays.
    """
    steps = (ladder.get("steps") if ladder else None) or []
    if not ladder or not steps or ladder.get("schema") != SCHEMA:
        return None
    kinds = {str(step.get("kind")): None for step in steps}
    names = sorted(kinds, key=lambda name: name not in declared)
    crossover = ladder.get("crossover") or {}
    levels = sorted({*(ladder.get("levels") or []), *(step["level"] for step in steps)})
    rows: list[LoadRow] = []
    for name in names:
        rows += _rows(name, levels, steps, crossover.get(name))
    return {
        "load": ladder.get("load") or "closed",
        "unit": ladder.get("unit") or UNIT,
        "levels": levels,
        "limits": ladder.get("limits") or None,
        "rounds": ladder.get("rounds"),
        "kinds": [_kind(name, crossover.get(name), name in declared) for name in names],
        "rows": rows,
        "troubles": troubles(steps),
        "remarks": remarks(ladder),
    }


def load_warnings(ladder: Ladder | None, resolved: KeptProfile) -> list[str]:
    """What a reader must know before the loads: a ladder that is lacking, or that cannot be read."""
    if ladder and ladder.get("schema") != SCHEMA:
        return [
            f"the ladder has the schema {ladder.get('schema')!r} but this program reads {SCHEMA!r}: it is not shown"
        ]
    if not ladder and (resolved.get("experiment") or {}).get("ladder"):
        return ["the profile asks for a load ladder, but none was measured"]
    return []


def _kind(name: str, found: Crossover | None, declared: bool) -> LoadKind:
    if not found:
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
    ends = found.get("interval")
    return {
        "kind": name,
        "declared": declared,
        "word": found.get("word"),
        "pays_from": found.get("pays_from"),
        "pays_until": found.get("pays_until"),
        "reaches_top": bool(found.get("reaches_top")),
        "interval": list(ends) if ends else None,
        "beyond": found.get("beyond") or None,
        "sentence": found.get("sentence") or None,
        "reasons": list(found.get("reasons") or []),
    }


def _rows(name: str, levels: Sequence[float], steps: Sequence[LadderStep], found: Crossover | None) -> list[LoadRow]:
    """A row for each level at which a kind was measured; ``found`` is what the crossover says of the kind."""
    judgements = found.get("levels") if found else None
    judged = {entry.get("level"): entry for entry in judgements or []}
    by_level: dict[float, list[LadderStep]] = {}
    for step in steps:
        if str(step.get("kind")) == name:
            by_level.setdefault(step["level"], []).append(step)
    rows: list[LoadRow] = []
    for level in levels:
        if level not in by_level:
            continue
        baseline, speculative = (_arm([step for step in by_level[level] if step.get("arm") == arm]) for arm in ARMS)
        judgement = judged.get(level)
        rows.append(
            {
                "kind": name,
                "level": level,
                "speedup": judgement.get("speedup") if judgement else None,
                "word": judgement.get("word") if judgement else None,
                "baseline": baseline,
                "speculative": speculative,
                "ended": _ended([arm for arm in (baseline, speculative) if arm]),
            }
        )
    return rows


def _ended(arms: Sequence[LoadedArm]) -> str:
    """What ended the steps, of either arm where it was not the same: ``narrow``, ``narrow / time``."""
    words = []
    for arm in arms:
        reasons = listing([ENDED_BY.get(code, code) for code in arm["ended_by"]])
        words.append(reasons or NOTHING)
    return " / ".join(dict.fromkeys(words))


_Measured = Literal[
    "output_throughput",
    "per_user_tok_s",
    "request_throughput",
    "goodput",
    "spec_decode_acceptance_rate",
    "spec_decode_acceptance_length",
]


def _arm(steps: Sequence[LadderStep]) -> LoadedArm | None:
    """What an arm's steps at one level gave, the median over its rounds; None where none was begun."""
    if not steps:
        return None
    kept = [step for step in steps if step.get("status") == OK]
    ended_by = {str(step["ended_by"]) for step in kept if step.get("ended_by")}

    def middle(name: _Measured) -> float | None:
        return _middle(step.get(name) for step in kept)

    def percentiles(name: Literal["ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"]) -> Spread:
        return _percentiles([step.get(name) for step in kept])

    acceptance = middle("spec_decode_acceptance_rate")
    return {
        "status": OK if kept else steps[-1]["status"],
        "steps": len(steps),
        "kept": len(kept),
        "ended_by": sorted(ended_by),
        "seconds": math.fsum(step.get("duration_s") or 0.0 for step in kept),
        "completed": sum(step.get("completed") or 0 for step in kept),
        "failed": sum(step.get("failed") or 0 for step in steps),
        "output_throughput": middle("output_throughput"),
        "per_user_tok_s": middle("per_user_tok_s"),
        "request_throughput": middle("request_throughput"),
        "goodput": middle("goodput"),
        "ttft_ms": percentiles("ttft_ms"),
        "tpot_ms": percentiles("tpot_ms"),
        "itl_ms": percentiles("itl_ms"),
        "e2el_ms": percentiles("e2el_ms"),
        # As in a result: percent there, a fraction here.
        "acceptance_rate": acceptance / 100.0 if acceptance is not None else None,
        "acceptance_length": middle("spec_decode_acceptance_length"),
        **_power(kept),
    }


def _percentiles(steps: Sequence[Spread | None]) -> Spread:
    """The median over the rounds of each percentile."""
    known = [step for step in steps if step]
    return {
        "median": _middle(step.get("median") for step in known),
        "p90": _middle(step.get("p90") for step in known),
        "p99": _middle(step.get("p99") for step in known),
    }


def _power(steps: Sequence[LadderStep]) -> LoadPower:
    """Mean power in W and the energy of an output token in J: of the whole GPU, and above its idling.

    Energy and tokens are of the same time, from the first request to the last answer, so not those of full load alone.
    """
    watts, joules, above = [], [], []
    for step in steps:
        power = step.get("power")
        if not power or power.get("mean_w") is None:
            continue
        watts.append(power.get("mean_w"))
        tokens, energy, net = power.get("output_tokens"), power["energy_j"], power.get("energy_above_idle_j")
        if tokens and energy is not None:
            joules.append(energy / tokens)
            if net is not None:
                above.append(net / tokens)
    return {
        "mean_w": _middle(watts),
        "joules_per_token": _middle(joules),
        "joules_per_token_above_idle": _middle(above),
    }


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return median(known) if known else None


# --- in words ---------------------------------------------------------------------------------------


def troubles(steps: Iterable[LadderStep]) -> list[str]:
    """A sentence for each step that was disturbed, restarted or not answered in full."""
    found: list[str] = []
    for step in steps:
        where = f"{step.get('arm')}, {step.get('kind')} at {shown_level(step['level'])}, round {step.get('round')}"
        status, happened = str(step.get("status")), []
        if status != OK:
            happened.append(TROUBLES.get(status, status))
        if step.get("restarted"):
            happened.append("its server was restarted")
        if step.get("failed"):
            happened.append(f"{step['failed']} of {count(int(step.get('num_prompts') or 0), 'request')} failed")
        if not happened:
            continue
        sentence = f"{where}: {'; '.join(happened)}"
        notes = "; ".join(map(str, step.get("notes") or []))
        if notes:
            sentence += f" ({notes})"
        found.append(sentence)
    return found


def remarks(ladder: Ladder) -> list[str]:
    """What is to be known of steps that count: the ladder's own notes, and each step's with how often."""
    steps_of: Counter[str] = Counter()
    for step in ladder["steps"]:
        if step.get("status") == OK:
            steps_of.update(map(str, step.get("notes") or []))
    own = [str(note) for note in ladder.get("notes") or []]
    return own + [f"{note} ({count(steps, 'step')})" for note, steps in steps_of.items()]


def with_load(verdict: Judgement, load: Load | None) -> Verdict:
    """A verdict whose sentence also says until which load speculation pays; that part alone is ``load``.

    The word stays what the experiment says. An invalid comparison, one that was too noisy, and wrong output claim
    nothing about loads.
    """
    judged = [kind for kind in load["kinds"] if kind["sentence"]] if load else []
    # A ladder may send prompts of its own: kinds that the verdict does not know by name.
    chosen = [kind for kind in judged if kind["declared"]] or judged
    silent = verdict["word"] in (INVALID, CANNOT_SAY) or verdict.get("wrong_output")
    if silent or not chosen or len(chosen) > MOST_KINDS:
        return {**verdict, "load": None}
    if len(chosen) == 1 and chosen[0]["declared"]:
        clause = f"under load: {chosen[0]['sentence']}"
    else:
        kinds_by_sentence: dict[str, list[str]] = {}
        for kind in chosen:
            kinds_by_sentence.setdefault(kind["sentence"] or "", []).append(kind["kind"])
        parts = [f"on {listing(kinds)}: {sentence}" for sentence, kinds in kinds_by_sentence.items()]
        clause = f"under load, {'; '.join(parts)}"
    return {**verdict, "sentence": f"{verdict['sentence']}; {clause}", "load": clause}


def without_claims(load: Load) -> Load:
    """A load with its speeds and without saying where it pays: for an arm whose output is wrong."""
    return {
        **load,
        "kinds": [_kind(kind["kind"], None, kind["declared"]) for kind in load["kinds"]],
        "rows": [{**row, "word": None} for row in load["rows"]],
    }
