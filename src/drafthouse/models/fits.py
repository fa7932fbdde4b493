"""Which hardware a model fits on, with which context, and how fast the memory lets it decode. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.errors import DrafthouseError, Problem, did_you_mean
from ..profiles.memory_fit import GB, MIB, decode_limit, fit_arm, kv_bytes_per_token, read_for_a_token
from ..profiles.token_counts import counted

if TYPE_CHECKING:
    from ..engines.entry_types import DraftKind, EngineEntry
    from ..profiles.catalog import House
    from ..profiles.catalog_types import HardwareEntry, ModelEntry

#: Bits a weight in the precisions that people publish: the dtype itself, FP8, and 4 bits with their scales.
PRECISIONS = {"BF16": 16.0, "FP8": 8.25, "4-bit": 4.5}


@dataclass(frozen=True)
class Fitting:
    """A model on one kind of hardware; sizes in bytes. ``longest``: tokens of one sequence, 0 where it does not fit.

    ``limit`` is tokens per second of one sequence that reading the weights allows; None where the bandwidth is not
    known. ``smaller``: the precisions, in the order of `PRECISIONS`, in which the same model would fit.
    """

    hardware: str
    name: str
    devices: int
    memory: int
    longest: int
    limit: float | None
    smaller: tuple[str, ...]


def engine_for(house: House, model: ModelEntry, asked: str | None = None) -> EngineEntry:
    """Return the engine to plan with: the one that is asked for, else the one that most profiles of the format use."""
    reads = {name: engine for name, engine in house.engines.items() if model["format"] in engine["formats"]}
    if asked is not None and asked not in reads:
        raise DrafthouseError(
            Problem(
                "unknown-value",
                f"the engine '{asked}'",
                f"one that reads {model['format']}: {', '.join(sorted(reads))}",
                did_you_mean(asked, reads),
                "--engine",
            )
        )
    used = Counter(str(profile.get("engine")) for profile in house.profiles.values())
    return reads[asked or max(sorted(reads), key=lambda name: used[name])]


def fitting(
    model: ModelEntry, engine: EngineEntry, key: str, hardware: HardwareEntry, context: int, sequences: int = 1
) -> Fitting:
    """Return how ``model`` fits on ``hardware``, split over all of its devices, with ``context`` tokens a sequence."""
    devices = max(n for n in range(1, hardware["devices"] + 1) if hardware["devices"] % n == 0 and _splits(model, n))
    longest = _longest(model, engine, hardware, devices, context, sequences)
    read = read_for_a_token(model)
    bandwidth = hardware["bandwidth_gb_s"] * GB * devices
    smaller = []
    for name, bits in PRECISIONS.items():
        size = round(model["parameters"] * bits / 8)
        other: ModelEntry = {**model, "weight_bytes": size}
        if size < model["weight_bytes"] and _longest(other, engine, hardware, devices, context, sequences) >= context:
            smaller.append(name)
    return Fitting(
        hardware=key,
        name=hardware["name"],
        devices=devices,
        memory=hardware["memory_mib"] * MIB * devices,
        longest=longest,
        limit=decode_limit(read, bandwidth) if bandwidth else None,
        smaller=tuple(smaller) if longest < context else (),
    )


def _splits(model: ModelEntry, devices: int) -> bool:
    return model["heads"] % devices == 0


def _longest(
    model: ModelEntry, engine: EngineEntry, hardware: HardwareEntry, devices: int, context: int, sequences: int
) -> int:
    share = engine.get("share_default", 1.0) if hardware["kind"] == "gpu" else 1.0
    fit = fit_arm(
        memory=hardware["memory_mib"] * MIB,
        utilization=share if engine["reserves"] == "share" else 1.0,
        cache_share=share if engine["reserves"] == "share_of_free" else 1.0,
        devices=devices,
        draft_devices=devices,
        target=model,
        draft=None,
        builtin=None,
        drafted=0,
        overhead=engine["overhead_mib"] * MIB,
        bytes_per_value=engine["kv_bytes_per_value"],
        context=context,
        sequences=sequences,
        context_is_shared=engine["context_is_shared"],
        reserves_share=False,
    )
    return fit["longest_context"] // sequences


def memory_of(text: str) -> int | None:
    """Return the MiB of a memory as people write it: ``24GB`` (10^9 bytes), ``24GiB``; None for anything else."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(gib|gb|g)", text, re.IGNORECASE)
    return round(float(found[1]) * (1024 if found[2].lower() == "gib" else GB / MIB)) if found else None


def tokens_of(text: str) -> int | None:
    """Return a context as people write it: ``32k`` or ``1M`` (1,024 each), or ``40960``; None for anything else."""
    return counted(text.upper()) or None


def kv_gb(model: ModelEntry, engine: EngineEntry, tokens: int) -> float:
    """Return the KV cache of ``tokens`` tokens in GB over all devices."""
    return kv_bytes_per_token(model, engine["kv_bytes_per_value"]) * tokens / GB


Draft = tuple["DraftKind", str, str]
"""What may draft: its kind, its name in the catalogue, and why."""


def drafts_for(house: House, target: str) -> list[Draft]:
    """Return what may draft for a target, best evidence first: (kind, name, why).

    First what profiles measured or were published with (their `expect`), then heads made for it, the head inside it,
    heads whose shapes fit, smaller models of the same vocabulary, the smallest first.
    """
    model = house.models[target]
    shown: dict[str, Draft] = {}
    for profile in house.profiles.values():
        draft = (profile.get("speculation") or {}).get("draft")
        expect = profile.get("expect")
        if profile.get("target") == target and draft in house.models and expect:
            kind = house.models[draft]["kind"]
            shown[draft] = (kind, draft, f"acceptance {expect['acceptance']:.2f}: {expect['source']}")
    rows = [*shown.values()]
    if "builtin_head" in model:
        rows.append(("builtin", target, "the head inside the checkpoint: nothing to download"))
    others: list[tuple[int, Draft]] = []
    for key, other in house.models.items():
        if key in shown or key == target:
            continue
        if other["kind"] == "head" and other.get("head_for") == target:
            others.append((0, ("head", key, f"made for it, {other.get('head_method')}")))
        elif other["kind"] == "head" and target in other.get("works_on", ()):
            others.append((1, ("head", key, f"its shapes fit; trained for {other.get('head_for')}")))
        elif _may_draft(other, model):
            ratio = other["parameters"] / model["parameters"]
            seldom = ", and a third or more seldom pays" if ratio >= 1 / 3 else ""
            why = f"same vocabulary, {ratio:.1%} of its parameters{seldom}"
            others.append((2 + other["parameters"], ("model", key, why)))
    return rows + [row for _, row in sorted(others)]


def _may_draft(draft: ModelEntry, target: ModelEntry) -> bool:
    alike = all(draft[key] == target[key] for key in ("tokenizer", "format", "vocab"))
    return draft["kind"] == "model" and alike and draft["parameters"] < target["parameters"]
