"""Ladders, gates and costs of known numbers, as the box measures them, for the report and its page."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drafthouse.analysis.crossover import crossovers_of
from drafthouse.report.data.build import build_report
from drafthouse.report.report_types import Arm
from drafthouse.report.writer import to_json
from tests.support.builders import make_pair, make_resolved

Change = Callable[[Any, Any, Any], None]

LEVELS = (1, 2, 4, 8, 16, 32)
# Speed-up at one user by kind, and the level at which it is gone.
GAINS = {"copy-edit": (2.4, 24.0), "creative": (0.97, 1.0)}
LIMITS = {"ttft_ms": 1000.0, "tpot_ms": 50.0}


def spread(median: float) -> dict[str, float]:
    return {"median": median, "p90": median * 1.3, "p99": median * 1.9}


def gain_at(level: float, kind: str) -> float:
    """How much faster speculation is: falls with the load, through 1 at the kind's level."""
    first, gone = GAINS[kind]
    return first * (1 / first) ** (min(level, 4 * gone) / gone) ** 0.6 if first > 1 else first


def make_step(arm: str, level: int, number: int, kind: str, chance: random.Random, prompts: int) -> Any:
    gain = 1.0 if arm == "baseline" else gain_at(level, kind)
    own = random.Random(kind)
    tpot = 12.0 * (1 + level / 24) / gain
    by_prompt = {
        f"{kind}-{n}": [tpot * own.lognormvariate(0, 0.08) * chance.lognormvariate(0, 0.01) for _ in range(3)]
        for n in range(1, prompts + 1)
    }
    speed = 1000.0 / tpot
    return {
        "level": level,
        "arm": arm,
        "round": number,
        "kind": kind,
        "status": "ok",
        "ended_by": "narrow" if level > 1 else "time",
        "started_unix_s": 1_795_000_000.0 + 60 * level,
        "duration_s": 20.0,
        "num_prompts": 3 * prompts,
        "completed": 3 * prompts,
        "failed": 0,
        "restarted": False,
        "output_throughput": speed * level,
        "per_user_tok_s": speed,
        "request_throughput": speed * level / 128,
        "goodput": speed * level / 128 if tpot < LIMITS["tpot_ms"] else 0.0,
        "ttft_ms": spread(40.0 + 3 * level),
        "tpot_ms": spread(tpot),
        "itl_ms": spread(tpot * gain),
        "e2el_ms": spread(40 + tpot * 127),
        "tpot_by_prompt": by_prompt,
        "tpot_interval": {"median": tpot, "low": tpot * 0.98, "high": tpot * 1.02, "n": 3 * prompts},
        "spec_decode_acceptance_rate": None if arm == "baseline" else 81.0 if kind == "copy-edit" else 22.5,
        "spec_decode_acceptance_length": None if arm == "baseline" else 3.4 if kind == "copy-edit" else 1.4,
        "foreign": None,
        "notes": [],
        "power": None,
    }


def make_ladder(
    kinds: Sequence[str] = ("copy-edit", "creative"),
    levels: Sequence[int] = LEVELS,
    *,
    rounds: int = 2,
    prompts: int = 12,
    limits: Mapping[str, float] | None = None,
    seed: int = 3,
) -> Any:
    """A measured ladder of both arms with its crossover, as ladder.json holds it."""
    chance = random.Random(seed)
    ladder: Any = {
        "schema": "drafthouse.ladder/1",
        "profile": "cpu-smollm2-ngram",
        "key": "0123456789abcdef",
        "load": "closed",
        "unit": "concurrent requests",
        "levels": list(levels),
        "limits": dict(limits) if limits else None,
        "rounds": rounds,
        "kinds": list(kinds),
        "steps": [
            make_step(arm, level, number, kind, chance, prompts)
            for number in range(1, rounds + 1)
            for arm in ("baseline", "speculative")
            for kind in kinds
            for level in levels
        ],
    }
    return with_crossover(ladder)


def with_crossover(ladder: Any) -> Any:
    """Fill the crossover again, after a test changed the steps."""
    ladder["crossover"] = crossovers_of(ladder, resamples=400)
    return ladder


def power(mean_w: float, seconds: float = 60.0) -> Any:
    """What the box reads of a GPU's power."""
    return {
        "source": "nvml",
        "why": None,
        "devices": ["NVIDIA RTX PRO 6000"],
        "gpus": 1,
        "idle_w": 62.0,
        "mean_w": mean_w,
        "energy_j": mean_w * seconds,
        "energy_above_idle_j": (mean_w - 62.0) * seconds,
        "seconds": seconds,
    }


def full_report_input(speedups: Mapping[str, float] | None = None) -> tuple[Any, ...]:
    """Arguments of build_report with everything there: a ladder, power, a price, a stock arm, the articles' suite."""
    base, spec = make_pair(speedups, articles=True)
    base["power"], spec["power"] = power(310.0), power(342.0)
    base["engine"]["ready_s"], spec["engine"]["ready_s"] = 41.5, 48.25
    resolved = make_resolved(suites=["mixed", "articles"])
    resolved["site"] |= {"price_per_hour": 1.89, "currency": "EUR"}
    stock = copy.deepcopy(base) | {"arm": "stock"}
    for request in stock["requests"]:
        request["tpot_ms"] *= 1.2
    return base, spec, resolved, "box-7", stock, make_ladder(limits=LIMITS)


def differing() -> tuple[dict[Arm, Any], Any]:
    """Both arms' results, of which one answer differs in the middle, one ends early and one begins a line."""
    said = "Mix the flour with the milk, and <b>wait</b> for an hour before you bake it. " * 8
    other = {
        "copy-edit-1": said[:300] + "X" + said[301:],
        "chat-1": said[:90],
        "creative-2": said[:40] + "\n" + said[40:],
    }
    base, spec = make_pair(text=lambda arm, prompt, _: other.get(prompt, said) if arm == "speculative" else said)
    return {"baseline": base, "speculative": spec}, make_resolved()


def keep(reports: Path, date: str, change: Change | None = None, ladder: Any = None, **pair: Any) -> Path:
    """Keep a report as write_report would, without its pages, which nobody compares."""
    base, spec = make_pair(**pair)
    resolved = make_resolved()
    base["date"] = spec["date"] = date
    if change:
        change(base, spec, resolved)
    report = build_report(base, spec, resolved, ladder=ladder)
    folder = reports / str(report["profile"]) / f"{date}-{report['host']}"
    folder.mkdir(parents=True)
    for name, data in (("baseline", base), ("speculative", spec), ("report", {**report, "resolved": resolved})):
        (folder / f"{name}.json").write_text(to_json(data), "utf-8")
    return folder
