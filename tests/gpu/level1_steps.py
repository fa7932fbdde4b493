"""The steps of level 1 in their order: what proves most comes first, for the time may not do for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypedDict

from drafthouse.core.documents import Json
from tests.gpu import level1, live, models
from tests.gpu.clock import Clock
from tests.gpu.keep import FAILS, noted
from tests.gpu.level1 import Place, Run
from tests.gpu.live import Live

#: A step is not begun with less time than this.
_LEAST_S = 60.0


class Step(NamedTuple):
    """A run of site.yml: type of the weights, K, and whether it looks up n-grams or is left serving under load."""

    kind: str
    tokens: int
    what: str = "draft"

    @property
    def name(self) -> str:
        """The name of its profile."""
        return f"gpu-lane-{self.kind.lower().replace('_', '')}-k{self.tokens}-{self.what}"


#: The cost of a drafted token is taken from the first of each type.
STEPS = (
    *(Step("F16", 2), Step("F16", 2, "load"), Step("F16", 4), Step("Q4_0", 2), Step("F16", 8, "copying")),
    *(Step("F16", 8), Step("F16", 1)),
)
#: Where each run takes minutes: one of each that no other shows.
SHORT = (Step("F16", 2), Step("F16", 2, "load"))


class Level1(TypedDict):
    """What level 1 has found by now; ``left_out`` are the steps for which there was no time."""

    runs: list[Run]
    live: Live | None
    left_out: list[str]
    wrong: list[str]


def measure(
    hardware: str,
    place: Place,
    shape: models.Shape,
    clock: Clock,
    keep: Callable[[Level1], object],
    steps: Sequence[Step] = STEPS,
) -> Level1:
    """Run the steps, and call ``keep`` after each with what was found. One that fails is noted; the next ones run."""
    found: Level1 = {"runs": [], "live": None, "left_out": [], "wrong": []}
    costs: dict[str, float | None] = {}
    for step in steps:
        if clock.left_s() < _LEAST_S:
            found["left_out"].append(step.name)
            continue
        print(f"{step.name}: {clock.left_s():.0f} s left", flush=True)
        try:
            _one(step, hardware, place, shape, clock, found, costs)
        except FAILS as error:
            found["wrong"] += noted(step.name, error)
        keep(found)
    keep(found)
    return found


def _one(
    step: Step,
    hardware: str,
    place: Place,
    shape: models.Shape,
    clock: Clock,
    found: Level1,
    costs: dict[str, float | None],
) -> None:
    files = models.make(place.work / "models", shape, step.kind)
    names = {role: path.stem for role, path in files.items()}
    loaded, lookup = step.what == "load", step.what == "copying"
    text = level1.profile(
        hardware,
        names,
        step.tokens,
        lookup=lookup,
        levels=live.LEVELS if loaded else (),
        on_gpu=place.on_gpu,
        output_tokens=place.output_tokens,
    )
    with level1.installed({f"gpu-lane-{step.kind.lower()}": models.entries(files, shape)}, {step.name: text}):
        try:
            more = live.settings() if loaded else []
            kept = level1.run(step.name, place, clock, more, stop_after=not loaded)
            run = level1.figures(kept, None if lookup else costs.get(step.kind))
            costs.setdefault(step.kind, run["cost_of_a_draft"])
            found["runs"].append(run)
            found["wrong"] += level1.problems([run], on_gpu=place.on_gpu)
            if loaded:
                found["live"] = asked = live.ask(kept, place, clock)
                found["wrong"] += live.problems(asked, on_gpu=place.on_gpu)
        finally:
            if loaded:
                level1.stop(place)


def as_json(found: Level1) -> dict[str, Json]:
    """What the evidence keeps of it."""
    data: dict[str, Json] = json.loads(json.dumps(found))
    return data
