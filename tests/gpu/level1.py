"""Level 1: llama.cpp built on the box serves random weights through site.yml, and what it shows is held against theory.

Profiles and models are the lane's own: they stand in a folder of their own while it runs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypedDict

import yaml

from drafthouse.core.errors import one_problem
from drafthouse.core.places import ROOT
from drafthouse.profiles.own_folders import PROFILES_VARIABLE
from drafthouse.report.archive import Kept, folders, read_kept
from drafthouse.report.evidence import evidence_report
from tests.gpu.clock import Clock
from tests.gpu.models import SYNTHETIC

_MEMORY_WITHIN = 0.05
_TPOT_WITHIN = 0.05
_SPEED_WITHIN = 0.15
_STOP_S = 120.0
#: The command, in this Python.
DRAFTHOUSE = (sys.executable, str(ROOT / "scripts" / "drafthouse"))


@dataclass(frozen=True)
class Place:
    """Where and how level 1 runs: words for site.yml, the box's home, a folder for what is made, reports.

    ``most_s`` is what one run may take; ``output_tokens`` is the longest answer.
    """

    words: tuple[str, ...]
    home: Path
    work: Path
    reports: Path = ROOT / "reports"
    most_s: float = 300.0
    output_tokens: int = 128
    on_gpu: bool = True


class Run(TypedDict):
    """A run's figures. Speed-ups and errors are ratios, TPOT is in ms, memory in bytes, energy in J for a token."""

    profile: str
    tokens: int
    verdict: str
    speedup: float | None
    acceptance: float | None
    cost_of_a_draft: float | None
    predicted_speedup: float | None
    memory_error: dict[str, float | None]
    tpot_error: dict[str, float | None]
    joules_per_token: dict[str, float | None]


def theory(acceptance: float, tokens: int, cost: float) -> float:
    """(1 - a^(K+1)) / ((1 - a)(1 + K·c)): the speed-up of K drafted tokens that cost c target steps each."""
    steps = tokens + 1 if acceptance >= 1 else (1 - acceptance ** (tokens + 1)) / (1 - acceptance)
    return steps / (1 + tokens * cost)


def cost_of(speedup: float, acceptance: float, tokens: int) -> float:
    """C, for which `theory` gives this speed-up."""
    return (theory(acceptance, tokens, 0.0) / speedup - 1) / tokens


def per_token(acceptance_rate: float, tokens: int) -> float:
    """A, the chance of each drafted token, of which the share ``acceptance_rate`` of all K is accepted."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        rate = sum(middle**position for position in range(1, tokens + 1)) / tokens
        low, high = (middle, high) if rate < acceptance_rate else (low, middle)
    return (low + high) / 2


def profile(
    hardware: str,
    names: Mapping[str, str],
    tokens: int,
    *,
    lookup: bool = False,
    levels: Sequence[int] = (),
    on_gpu: bool = True,
    output_tokens: int = 128,
) -> str:
    """The text of a profile of the lane: a draft model, or n-gram lookup on copying.

    ``levels``: those of a load sweep, for which the server has as many slots as the highest.
    """
    drafted: dict[str, object] = {
        "method": "draft-simple",
        "draft": names["draft"],
        "num_speculative_tokens": tokens,
        **({"options": {"draft_gpu_layers": 99}} if on_gpu else {}),
    }
    looked_up: dict[str, object] = {"method": "ngram-simple", "num_speculative_tokens": 8, "options": {"ngram_size": 3}}
    sweep = {"levels": list(levels), "seconds": 4, "rounds": 1, "kinds": ["copy-edit"]}
    data = {
        "title": "random weights of make test-gpu",
        "hardware": hardware,
        "engine": "llamacpp",
        "runtimes": ["process"],
        "target": names["target"],
        "speculation": looked_up if lookup else drafted,
        "serve": {
            "context": 8192,
            "parallel": max(levels, default=1),
            **({"gpu_layers": 99} if on_gpu else {}),
        },
        "experiment": {
            "suites": ["mixed"],
            "kinds": ["copy-edit"],
            "prompts_per_kind": {"declared": 6, "others": 1},
            "max_output_tokens": output_tokens,
            "rounds": 2,
            # No more rounds where it cannot say: the lane has its minutes.
            "budget": 0,
            # A GPU tells of its memory as a whole: side by side the arms' would be one figure.
            **({"schedule": "alternated"} if on_gpu else {}),
            **({"ladder": sweep} if levels else {}),
        },
    }
    return f"# Written by make test-gpu, which removes it again. {SYNTHETIC}\n" + yaml.safe_dump(data, sort_keys=False)


@contextmanager
def installed(entries: Mapping[str, str], profiles: Mapping[str, str]) -> Iterator[None]:
    """Have what is started meanwhile find models and profiles of the lane, in a folder beside the shipped profiles."""
    before = os.environ.get(PROFILES_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="drafthouse-gpu-lane-") as made:
        folder = Path(made)
        (folder / "catalog" / "local").mkdir(parents=True)
        for name, text in entries.items():
            (folder / "catalog" / "local" / f"{name}.yml").write_text(text)
        for name, text in profiles.items():
            (folder / f"{name}.yml").write_text(text)
        os.environ[PROFILES_VARIABLE] = os.pathsep.join(filter(None, (before, made)))
        try:
            yield
        finally:
            os.environ.pop(PROFILES_VARIABLE)
            if before is not None:
                os.environ[PROFILES_VARIABLE] = before


def run(name: str, place: Place, clock: Clock, more: Sequence[str] = (), *, stop_after: bool = True) -> Kept:
    """Run site.yml for a profile of the lane with the server that was built; return its report."""
    before = set(folders(place.reports, name))
    # A result that was kept is of models that were made before, and writes no report.
    words = ["run", name, "--inventory", "local", *(["--stop-after"] if stop_after else []), "--"]
    status = clock.run([*DRAFTHOUSE, *words, "-e", "remeasure=true", *place.words, *more], place.most_s, cwd=ROOT)
    # A run whose verdict is `invalid` fails, and has a report that says why.
    if not (new := [folder for folder in folders(place.reports, name) if folder not in before]):
        found, needed = f"status {status} and no report", "a run of site.yml with a report"
        raise one_problem("program-failed", found, needed, "read the lines above", name)
    return read_kept(new[0])


def stop(place: Place) -> None:
    """Stop what a run has left serving, and the watchdog beside it."""
    # Also at the end of the lane's time: nothing may serve on.
    Clock().run([*DRAFTHOUSE, "stop", "--inventory", "local", "--", *place.words], _STOP_S, cwd=ROOT)


def figures(kept: Kept, cost: float | None = None) -> Run:
    """The figures of a run; ``cost`` of a drafted token predicts its speed-up. Pure."""
    method = kept.resolved["method"]
    tokens = method["num_speculative_tokens"]
    speedup = kept.report["verdict"]["speedup"]
    rate = kept.report["acceptance"]["overall"]["rate"]
    found = speedup["gain"] if speedup else None
    chance = per_token(rate, tokens) if rate is not None else None
    own_cost = cost_of(found, chance, tokens) if found and chance is not None else None
    memory = evidence_report(kept, "")
    return {
        "profile": kept.report["profile"],
        "tokens": tokens,
        "verdict": kept.report["verdict"]["word"],
        "speedup": found,
        "acceptance": chance,
        "cost_of_a_draft": own_cost,
        "predicted_speedup": theory(chance, tokens, cost) if cost is not None and chance is not None else None,
        "memory_error": {
            arm: memory["held"][arm] / memory["predicted"][arm] - 1 if memory["held"][arm] else None
            for arm in memory["held"]
        },
        "tpot_error": {arm: _tpot_error(kept.results[arm]["requests"]) for arm in kept.results},
        "joules_per_token": {arm: _joules(kept, arm) for arm in kept.results},
    }


def _tpot_error(requests: Sequence[Mapping[str, object]]) -> float | None:
    """How far the client's TPOT is from the engine's own timings, by the median request."""
    pairs = []
    for one in requests:
        timings, ours = one.get("timings"), one.get("tpot_ms")
        if isinstance(timings, Mapping) and isinstance(ours, int | float) and timings.get("predicted_per_token_ms"):
            pairs.append(ours / float(timings["predicted_per_token_ms"]) - 1)
    return median(pairs) if pairs else None


def _joules(kept: Kept, arm: str) -> float | None:
    cost = kept.report["cost"]
    power = cost["arms"][arm]["power"] if cost else None
    value = power.get("joules_per_output_token") if power else None
    return float(value) if isinstance(value, int | float) else None


def problems(runs: Sequence[Run], *, on_gpu: bool = True) -> list[str]:
    """What does not agree: memory, speed by theory, both clocks; energy that was not read. Pure."""
    wrong = []
    for one in runs:
        where = f"{one['profile']}, K={one['tokens']}"
        if one["verdict"] == "invalid":
            wrong.append(f"{where}: invalid")
        if on_gpu:
            wrong += [
                f"{where}, {arm}: memory {'not read' if error is None else f'{error:+.1%} of what was predicted'}"
                for arm, error in one["memory_error"].items()
                if error is None or abs(error) > _MEMORY_WITHIN
            ]
            wrong += [f"{where}, {arm}: no energy" for arm, value in one["joules_per_token"].items() if not value]
        wrong += [
            f"{where}, {arm}: the client's TPOT is {error:+.1%} of the engine's own"
            for arm, error in one["tpot_error"].items()
            if error is not None and abs(error) > _TPOT_WITHIN
        ]
        said, found = one["predicted_speedup"], one["speedup"]
        if said and found and abs(found / said - 1) > _SPEED_WITHIN:
            wrong.append(f"{where}: {found:.2f}x, where theory says {said:.2f}x")
    return wrong
