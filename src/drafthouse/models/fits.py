"""Which hardware a model fits on, with which context, and how fast the memory lets it decode. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.errors import did_you_mean, one_problem
from ..profiles.draft_compat import may_draft
from ..profiles.heads import builtin_head
from ..profiles.memory_fit import GB, MIB, decode_limit, kv_bytes_per_token, read_for_a_token
from ..profiles.model_names import find_model
from ..profiles.sizes import Sizes

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import DraftKind, EngineEntry, Options
    from drafthouse.profiles.catalog import House
    from drafthouse.profiles.catalog_types import HardwareEntry, ModelEntry
    from drafthouse.profiles.profile_types import Profile
    from drafthouse.profiles.resolved_types import ExpectedSpeed, Hardware

#: Bits a weight in the precisions that people publish: the dtype itself, FP8, and 4 bits with their scales.
PRECISIONS = {"BF16": 16.0, "FP8": 8.25, "4-bit": 4.5}


@dataclass(frozen=True)
class Fitting:
    """A model on one kind of hardware; sizes in bytes. ``longest``: tokens of one sequence, 0 where it does not fit.

    ``sold``: the memory as people call the cards. ``limit`` is tokens per second of one sequence that reading the
    weights allows; None where the bandwidth is not known. ``smaller``: the precisions, in the order of `PRECISIONS`,
    in which the same model would fit.
    """

    hardware: str
    name: str
    devices: int
    memory: int
    sold: str
    longest: int
    limit: float | None
    smaller: tuple[str, ...]


def engine_for(house: House, model: ModelEntry, asked: str | None = None) -> EngineEntry:
    """The engine to plan with: the one that is asked for, else the one that most profiles of the format use."""
    reads = {name: engine for name, engine in house.engines.items() if model["format"] in engine["formats"]}
    if asked is not None and asked not in reads:
        raise one_problem(
            "unknown-value",
            f"the engine '{asked}'",
            f"one that reads {model['format']}: {', '.join(sorted(reads))}",
            did_you_mean(asked, reads),
            "--engine",
        )
    used = Counter(profile["engine"] for profile in _right(house))
    return reads[asked or max(sorted(reads), key=used.__getitem__)]


def fitting(model: ModelEntry, engine: EngineEntry, key: str, hardware: HardwareEntry, context: int) -> Fitting:
    """How ``model`` fits on ``hardware``, as the plan would have it for one sequence of ``context`` tokens."""
    devices = split_over(model, engine, hardware)
    longest = _longest(model, engine, key, hardware, context)
    read = read_for_a_token(model)
    bandwidth = hardware["bandwidth_gb_s"] * GB
    if not engine.get("layer_split"):
        bandwidth *= devices

    smaller = []
    for name, bits in PRECISIONS.items():
        size = round(model["parameters"] * bits / 8)
        other: ModelEntry = {**model, "weight_bytes": size}
        fits = longest < context and size < model["weight_bytes"]
        if fits and _longest(other, engine, key, hardware, context) >= context:
            smaller.append(name)
    return Fitting(
        hardware=key,
        name=hardware["name"],
        devices=devices,
        memory=hardware["memory_mib"] * MIB * devices,
        sold=sold_as(hardware, devices),
        longest=longest,
        limit=decode_limit(read, bandwidth) if bandwidth else None,
        smaller=tuple(smaller),
    )


def sold_as(hardware: HardwareEntry, devices: int) -> str:
    """The memory of ``devices`` cards as they are sold: ``24 GB``, ``2 x 24 GB``."""
    card = f"{hardware.get('sold_gb') or round(hardware['memory_mib'] / 1024)} GB"
    if devices == 1:
        return card
    return f"{devices} x {card}"


def split_over(model: ModelEntry, engine: EngineEntry, hardware: HardwareEntry) -> int:
    """Return over how many devices a model is split: all, or the most that leave no head over and no group apart."""
    if engine.get("layer_split"):
        return hardware["devices"]
    if "devices_option" not in engine:
        return 1
    # The largest common divisor divides both.
    return math.gcd(hardware["devices"], model["heads"])


def _split(model: ModelEntry, engine: EngineEntry, hardware: HardwareEntry) -> Options:
    """The option of the engine that splits a model over the devices; none where it has none."""
    if "devices_option" not in engine:
        return {}
    return {engine["devices_option"]: split_over(model, engine, hardware)}


def _longest(model: ModelEntry, engine: EngineEntry, key: str, hardware: HardwareEntry, context: int) -> int:
    serve = {engine["context_option"]: context, engine["sequences_option"]: 1, **_split(model, engine, hardware)}
    sizes = Sizes(
        engine=engine,
        hardware={"id": key, **hardware},
        target=model,
        draft=None,
        builtin=None,
        serve=serve,
        method_options={},
        tokens=0,
    )
    return sizes.fit("baseline")["longest_context"]


def cards_in(word: str) -> tuple[int, str]:
    """How many cards, and of what: ``2x3090`` is two of ``3090``, ``24GB`` one of that memory."""
    found = re.fullmatch(r"([1-9]\d?) ?x ?(.+)", word)
    if found is None:
        return 1, word
    return int(found[1]), found[2]


def hardware_named(word: str, hardware: Container[str]) -> str:
    """A name of the catalogue's for what people call a card: ``3090`` and ``2x3090`` are rtx3090 and rtx3090x2."""
    if word in hardware:
        return word
    devices, card = cards_in(word.lower())
    if devices > 1:
        card += f"x{devices}"
    if card in hardware:
        return card
    if f"rtx{card}" in hardware:
        return f"rtx{card}"
    return word


def hardware_of_catalogue(word: str, house: House) -> str:
    """A name as `hardware_named` finds it. Raises DrafthouseError where the catalogue has no such card."""
    name = hardware_named(word, house.hardware)
    if name not in house.hardware:
        needed, do = f"one of: {', '.join(sorted(house.hardware))}", did_you_mean(name, house.hardware)
        raise one_problem("unknown-value", f"'{name}'", needed, do, "--gpu")
    return name


_AMOUNT = r"(\d{1,12}(?:\.\d{1,6})?)"


def memory_of(text: str) -> int | None:
    """The MiB of a memory as people write it: ``24GB`` (10^9 bytes), ``24GiB``; None for anything else."""
    found = re.fullmatch(_AMOUNT + r" *(g|gb|gib)", text, re.IGNORECASE)
    if found is None:
        return None
    if found[2].lower() == "gib":
        return round(float(found[1]) * 1024)
    return round(float(found[1]) * (GB / MIB))


def kv_gb(model: ModelEntry, engine: EngineEntry, tokens: int) -> float:
    """The KV cache of ``tokens`` tokens in GB over all devices."""
    return kv_bytes_per_token(model, engine["kv_bytes_per_value"]) * tokens / GB


def published(house: House, target: str) -> list[Profile]:
    """The profiles of a target that carry an acceptance somebody measured (their `expect`)."""
    found = []
    for profile in _right(house):
        if "expect" in profile and find_model(profile["target"], house.models) == target:
            found.append(profile)
    return found


def expected_there(house: House, profile: Profile, hardware: Hardware) -> ExpectedSpeed:
    """The speed-up to expect for one user where a profile's models and method were on other hardware."""
    engine, target = house.engines[profile["engine"]], _model(house, profile["target"])
    speculation = profile["speculation"]
    assert target  # of a profile in whose file nothing is wrong
    draft, method = _model(house, speculation.get("draft", "")), engine["methods"][speculation["method"]]

    sizes = Sizes(
        engine=engine,
        hardware=hardware,
        target=target,
        draft=draft,
        builtin=None if draft else builtin_head(target, speculation["method"], method),
        serve=_split(target, engine, hardware),
        method_options={},
        tokens=int(speculation["num_speculative_tokens"]),
    )
    return sizes.expectation(profile.get("expect"), users=1, one_pass=method.get("one_pass", False))


def _model(house: House, word: str) -> ModelEntry | None:
    return house.models.get(find_model(word, house.models) or "")


Draft = tuple["DraftKind", str, str]
"""What may draft: its kind, its name in the catalogue, and why."""


def drafts_for(house: House, target: str) -> list[Draft]:
    """What may draft for a target, best evidence first: (kind, name, why).

    First what profiles measured or were published with (their `expect`), then heads made for it, the head inside it,
    heads whose shapes fit, smaller models of the same vocabulary, the smallest first.
    """
    model = house.models[target]
    shown: dict[str, Draft] = {}
    for profile in published(house, target):
        if draft := find_model(profile["speculation"].get("draft", ""), house.models):
            expect = profile["expect"]
            shown[draft] = (
                house.models[draft]["kind"],
                draft,
                f"acceptance {expect['acceptance']:.2f}: {expect['source']}",
            )
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
        elif may_draft(other, model):
            ratio = other["parameters"] / model["parameters"]
            why = f"same vocabulary, {ratio:.1%} of its parameters"
            if ratio >= 1 / 3:
                why += "; a third or more rarely pays"
            others.append((2 + other["parameters"], ("model", key, why)))
    return rows + [row for _, row in sorted(others)]


def _right(house: House) -> list[Profile]:
    """The profiles in whose files nothing is wrong."""
    return [profile for name, profile in house.profiles.items() if name not in house.broken]
