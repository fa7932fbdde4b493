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
from ...bench.sweep.ladder_types import Crossover, Ladder, LadderStep, LevelVerdict, Spread
from ...bench.sweep.plan import SCHEMA
from ...core.format import NOTHING, count, listing, shown_level
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
    for name in sorted(names, key=lambda name: name not in declared):  # stable: else in the ladder's order
        kinds.append(_kind(name, crossover.get(name), name in declared))
        own = [step for step in steps if str(step.get("kind")) == name]
        rows += _rows(name, levels, own, crossover.get(name))
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
    """What a reader must know before the loads: a ladder that is lacking, or that cannot be read."""
    if ladder and ladder.get("schema") != SCHEMA:
        return [
            f"the ladder has the schema {ladder.get('schema')!r} but this program reads {SCHEMA!r}: it is not shown"
        ]
    if not ladder and (resolved.get("experiment") or {}).get("ladder"):
        return ["the profile asks for a load ladder, but none was measured"]
    return []


def _kind(name: str, found: Crossover | None, declared: bool) -> LoadKind:
    """What the crossover says of a kind; nothing where it was not computed."""
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
    interval = found.get("interval")
    return {
        "kind": name,
        "declared": declared,
        "word": found.get("word"),
        "pays_from": found.get("pays_from"),
        "pays_until": found.get("pays_until"),
        "reaches_top": bool(found.get("reaches_top")),
        "interval": list(interval) if interval else None,
        "beyond": found.get("beyond") or None,
        "sentence": found.get("sentence") or None,
        "reasons": list(found.get("reasons") or []),
    }


def _rows(name: str, levels: Sequence[float], steps: Sequence[LadderStep], found: Crossover | None) -> list[LoadRow]:
    """A row for each level at which a kind has steps; ``steps`` are those of the kind."""
    judged: dict[float, LevelVerdict] = {}
    if found:
        judged = {entry["level"]: entry for entry in found.get("levels") or []}
    rows: list[LoadRow] = []
    for level in levels:
        here = [step for step in steps if step.get("level") == level]
        if not here:
            continue
        baseline, speculative = _arm(here, "baseline"), _arm(here, "speculative")
        verdict = judged.get(level)
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
    """What ended the steps, of either arm where it was not the same: ``narrow``, ``narrow / time``."""
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
    """What an arm's steps at one level gave, the median over its rounds; None where none was begun."""
    own = [step for step in steps if step.get("arm") == arm]
    if not own:
        return None
    whole = [step for step in own if step.get("status") == OK]

    def middle(name: _Measured) -> float | None:
        return _middle(step.get(name) for step in whole)

    def percentiles(name: Literal["ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"]) -> Spread:
        return _percentiles([step.get(name) for step in whole])

    acceptance = middle("spec_decode_acceptance_rate")
    rate = None if acceptance is None else acceptance / 100.0
    ended_by = {str(step["ended_by"]) for step in whole if step.get("ended_by")}
    seconds = math.fsum(step.get("duration_s") or 0.0 for step in whole)
    completed = sum(step.get("completed") or 0 for step in whole)
    failed = sum(step.get("failed") or 0 for step in own)
    return {
        "status": OK if whole else own[-1]["status"],
        "steps": len(own),
        "kept": len(whole),
        "ended_by": sorted(ended_by),
        "seconds": seconds,
        "completed": completed,
        "failed": failed,
        "output_throughput": middle("output_throughput"),
        "per_user_tok_s": middle("per_user_tok_s"),
        "request_throughput": middle("request_throughput"),
        "goodput": middle("goodput"),
        "ttft_ms": percentiles("ttft_ms"),
        "tpot_ms": percentiles("tpot_ms"),
        "itl_ms": percentiles("itl_ms"),
        "e2el_ms": percentiles("e2el_ms"),
        # As in a result: percent there, a fraction here.
        "acceptance_rate": rate,
        "acceptance_length": middle("spec_decode_acceptance_length"),
        **_power(whole),
    }


def _percentiles(steps: Sequence[Spread | None]) -> Spread:
    """The median over the rounds of each percentile."""

    def middle(name: Literal["median", "p90", "p99"]) -> float | None:
        return _middle(step.get(name) for step in steps if step)

    return {"median": middle("median"), "p90": middle("p90"), "p99": middle("p99")}


def _power(steps: Sequence[LadderStep]) -> LoadPower:
    """Mean power in W and the energy of an output token in J: of the whole GPU, and above its idling.

    Energy and tokens are of the same time, from the first request to the last answer, so not those of full load alone.
    """
    watts, joules, above_idle = [], [], []
    for step in steps:
        power = step.get("power")
        if not power or power.get("mean_w") is None:
            continue
        watts.append(power["mean_w"])
        tokens, energy = power.get("output_tokens"), power["energy_j"]
        if not tokens or energy is None:
            continue
        joules.append(energy / tokens)
        net = power.get("energy_above_idle_j")
        if net is not None:
            above_idle.append(net / tokens)
    return {
        "mean_w": _middle(watts),
        "joules_per_token": _middle(joules),
        "joules_per_token_above_idle": _middle(above_idle),
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
        sentence = f"{where}: {'; '.join(reasons)}"
        notes = "; ".join(map(str, step.get("notes") or []))
        if notes:
            sentence += f" ({notes})"
        found.append(sentence)
    return found


def remarks(ladder: Ladder) -> list[str]:
    """What is to be known of steps that count: the ladder's own notes, and each step's with how often."""
    steps_of_note: Counter[str] = Counter()
    for step in ladder["steps"]:
        if step.get("status") == OK:
            steps_of_note.update(map(str, step.get("notes") or []))
    own = [str(note) for note in ladder.get("notes") or []]
    return own + [f"{note} ({count(steps, 'step')})" for note, steps in steps_of_note.items()]


def with_load(verdict: Judgement, load: Load | None) -> Verdict:
    """A verdict whose sentence also says until which load speculation pays; that part alone is ``load``.

    The word stays what the experiment says. An invalid comparison, one that was too noisy, and wrong output claim
    nothing about loads.
    """
    silent = verdict["word"] in (INVALID, CANNOT_SAY) or verdict.get("wrong_output")
    if not load or silent:
        return {**verdict, "load": None}
    judged = [kind for kind in load["kinds"] if kind["sentence"]]
    # A ladder may send prompts of its own: kinds that the verdict does not know by name.
    chosen = [kind for kind in judged if kind["declared"]] or judged
    if not chosen or len(chosen) > MOST_KINDS:
        return {**verdict, "load": None}
    if len(chosen) == 1 and chosen[0]["declared"]:
        tail = f"under load: {chosen[0]['sentence']}"
    else:
        kinds_by_sentence: dict[str, list[str]] = {}
        for kind in chosen:
            kinds_by_sentence.setdefault(kind["sentence"] or "", []).append(kind["kind"])
        parts = [f"on {listing(kinds)}: {sentence}" for sentence, kinds in kinds_by_sentence.items()]
        tail = f"under load, {'; '.join(parts)}"
    return {**verdict, "sentence": f"{verdict['sentence']}; {tail}", "load": tail}


def without_claims(load: Load) -> Load:
    """A load with its speeds and without saying where it pays: for an arm whose output is wrong."""
    return {
        **load,
        "kinds": [_kind(kind["kind"], None, kind["declared"]) for kind in load["kinds"]],
        "rows": [{**row, "word": None} for row in load["rows"]],
    }
