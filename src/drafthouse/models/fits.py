"""Find hardware and drafts for a model. Pure; ``catalog`` is the catalogue (models, engines, ...) with all profiles."""

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
    from drafthouse.profiles.catalog import Catalog
    from drafthouse.profiles.catalog_types import HardwareEntry, ModelEntry
    from drafthouse.profiles.profile_types import Profile
    from drafthouse.profiles.resolved_types import ExpectedSpeed, Hardware

#: Bits per weight, scales included, of the precisions in which models are usually published.
PRECISIONS = {"BF16": 16.0, "FP8": 8.25, "4-bit": 4.5}


@dataclass(frozen=True)
class Fitting:
    """A model on one kind of hardware."""

    hardware: str  # id in the catalogue
    name: str
    devices: int
    memory: int  # bytes of all devices
    sold: str  # the memory by its marketing name (`2 x 24 GB`)
    longest: int  # most tokens of one sequence; 0 if the model does not fit
    limit: float | None  # tokens/s of one sequence that the memory bandwidth allows; None if that is unknown
    smaller: tuple[str, ...]  # if the context does not fit, the `PRECISIONS` in which it would


def engine_for(catalog: Catalog, model: ModelEntry, asked: str | None = None) -> EngineEntry:
    """The engine to plan with: ``asked``, else the one in most profiles of those that read the model's format."""
    engines = {name: engine for name, engine in catalog.engines.items() if model["format"] in engine["formats"]}
    if asked is not None and asked not in engines:
        raise one_problem(
            "unknown-value",
            f"the engine '{asked}'",
            f"one that reads {model['format']}: {', '.join(sorted(engines))}",
            did_you_mean(asked, engines),
            "--engine",
        )
    profile_counts = Counter(profile["engine"] for profile in _valid_profiles(catalog))
    # Of engines with equally many profiles the first by name, so that the choice is always the same.
    return engines[asked or max(sorted(engines), key=profile_counts.__getitem__)]


def fitting(model: ModelEntry, engine: EngineEntry, key: str, hardware: HardwareEntry, context: int) -> Fitting:
    """How ``model`` fits on ``hardware`` (``key`` in the catalogue) with one sequence of ``context`` tokens."""
    devices = split_over(model, engine, hardware)
    longest = _longest(model, engine, key, hardware, context)
    read = read_for_a_token(model)
    bandwidth = hardware["bandwidth_gb_s"] * GB
    if not engine.get("layer_split"):  # with a layer split, one device after the other reads its layers
        bandwidth *= devices

    smaller = []
    for name, bits in PRECISIONS.items():
        size = round(model["parameters"] * bits / 8)
        quantised: ModelEntry = {**model, "weight_bytes": size}
        fits = longest < context and size < model["weight_bytes"]
        if fits and _longest(quantised, engine, key, hardware, context) >= context:
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
    """The memory of ``devices`` cards by its marketing name: ``24 GB``, ``2 x 24 GB``."""
    card = f"{hardware.get('sold_gb') or round(hardware['memory_mib'] / 1024)} GB"
    if devices == 1:
        return card
    return f"{devices} x {card}"


def split_over(model: ModelEntry, engine: EngineEntry, hardware: HardwareEntry) -> int:
    """Number of devices for a model: all, or the most among which its attention heads can be divided evenly."""
    if engine.get("layer_split"):
        return hardware["devices"]
    if "devices_option" not in engine:
        return 1
    return math.gcd(hardware["devices"], model["heads"])


def _one_sequence(model: ModelEntry, engine: EngineEntry, hardware: HardwareEntry, context: int) -> Options:
    """The options of a server for one sequence of ``context`` tokens, over the devices of ``hardware``."""
    options: Options = {engine["context_option"]: context, engine["sequences_option"]: 1}
    if "devices_option" in engine:
        options[engine["devices_option"]] = split_over(model, engine, hardware)
    return options


def _longest(model: ModelEntry, engine: EngineEntry, key: str, hardware: HardwareEntry, context: int) -> int:
    """The longest context that fits for one sequence if ``context`` is wanted, in tokens; 0 for none."""
    sizes = Sizes(
        engine=engine,
        hardware={"id": key, **hardware},
        target=model,
        draft=None,
        builtin=None,
        serve=_one_sequence(model, engine, hardware, context),
        method_options={},
        tokens=0,
    )
    return sizes.fit("baseline")["longest_context"]


def cards_in(word: str) -> tuple[int, str]:
    """Number and name of the cards in ``word``: (2, "3090") for ``2x3090``, (1, "24GB") for ``24GB``."""
    match = re.fullmatch(r"([1-9]\d?) ?x ?(.+)", word)
    if match is None:
        return 1, word
    return int(match[1]), match[2]


def hardware_named(word: str, hardware: Container[str]) -> str:
    """The catalogue's name for a usual one: rtx3090 for ``3090``, rtx3090x2 for ``2x3090``; else ``word`` itself."""
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


def hardware_of_catalogue(word: str, catalog: Catalog) -> str:
    """The catalogue's name by `hardware_named`. Raises DrafthouseError if the catalogue has no such card."""
    name = hardware_named(word, catalog.hardware)
    if name not in catalog.hardware:
        needed, do = f"one of: {', '.join(sorted(catalog.hardware))}", did_you_mean(name, catalog.hardware)
        raise one_problem("unknown-value", f"'{name}'", needed, do, "--gpu")
    return name


_AMOUNT = r"(\d{1,12}(?:\.\d{1,6})?)"


def memory_of(text: str) -> int | None:
    """The MiB in ``24GB`` (24 x 10^9 bytes) or ``24GiB``; None for any other text."""
    match = re.fullmatch(_AMOUNT + r" *(g|gb|gib)", text, re.IGNORECASE)
    if match is None:
        return None
    if match[2].lower() == "gib":
        return round(float(match[1]) * 1024)
    return round(float(match[1]) * (GB / MIB))


def kv_gb(model: ModelEntry, engine: EngineEntry, tokens: int) -> float:
    """The size of the KV cache of ``tokens`` tokens over all devices, in GB (10^9 bytes)."""
    return kv_bytes_per_token(model, engine["kv_bytes_per_value"]) * tokens / GB


def published(catalog: Catalog, target: str) -> list[Profile]:
    """The profiles of a target with a published or measured acceptance rate (their `expect`)."""
    profiles = []
    for profile in _valid_profiles(catalog):
        if "expect" in profile and find_model(profile["target"], catalog.models) == target:
            profiles.append(profile)
    return profiles


def expected_there(catalog: Catalog, profile: Profile, hardware: Hardware, context: int) -> ExpectedSpeed | None:
    """The expected speed-up for one user if the profile's models and method ran on ``hardware`` instead.

    None if the draft leaves no room for a sequence of ``context`` tokens, with the profile's share of the memory on its
    own hardware and the engine's elsewhere.
    """
    engine = catalog.engines[profile["engine"]]
    target = _model(catalog, profile["target"])
    speculation = profile["speculation"]
    assert target  # the profile is valid, so its models are in the catalogue
    draft, method = _model(catalog, speculation.get("draft", "")), engine["methods"][speculation["method"]]
    serve, share = _one_sequence(target, engine, hardware, context), engine.get("share_option")
    if share and share in profile["serve"] and profile["hardware"] == hardware["id"]:
        serve[share] = profile["serve"][share]

    sizes = Sizes(
        engine=engine,
        hardware=hardware,
        target=target,
        draft=draft,
        builtin=None if draft else builtin_head(target, speculation["method"], method),
        serve=serve,
        method_options={},
        tokens=int(speculation["num_speculative_tokens"]),
    )
    if sizes.fit("speculative")["longest_context"] < context:
        return None
    return sizes.expectation(profile.get("expect"), users=1, one_pass=method.get("one_pass", False))


def _model(catalog: Catalog, word: str) -> ModelEntry | None:
    return catalog.models.get(find_model(word, catalog.models) or "")


Draft = tuple["DraftKind", str, str]
"""A candidate for the draft: its kind, its name in the catalogue, and the reason for it."""


def drafts_for(catalog: Catalog, target: str) -> list[Draft]:
    """The candidates for a target's draft, best evidence first.

    Their order: drafts of profiles with an `expect`, the head inside the target, heads made for the target, heads
    whose shapes fit, models with the same vocabulary and fewer parameters (the smallest first).
    """
    model = catalog.models[target]
    published_drafts: dict[str, Draft] = {}
    for profile in published(catalog, target):
        if draft := find_model(profile["speculation"].get("draft", ""), catalog.models):
            expect = profile["expect"]
            published_drafts[draft] = (
                catalog.models[draft]["kind"],
                draft,
                f"acceptance {expect['acceptance']:.2f}: {expect['source']}",
            )
    drafts = [*published_drafts.values()]
    if "builtin_head" in model:
        drafts.append(("builtin", target, "the head inside the checkpoint: nothing to download"))
    # Rank 0: heads made for the target. 1: other heads. From 2: models, by their parameters.
    ranked: list[tuple[int, Draft]] = []
    for key, candidate in catalog.models.items():
        if key in published_drafts or key == target:
            continue
        if candidate["kind"] == "head" and candidate.get("head_for") == target:
            ranked.append((0, ("head", key, f"made for it, {candidate.get('head_method')}")))
        elif candidate["kind"] == "head" and target in candidate.get("works_on", ()):
            ranked.append((1, ("head", key, f"its shapes fit; trained for {candidate.get('head_for')}")))
        elif may_draft(candidate, model):
            ratio = candidate["parameters"] / model["parameters"]
            why = f"same vocabulary, {ratio:.1%} of its parameters"
            if ratio >= 1 / 3:
                why += "; a third or more rarely pays"
            ranked.append((2 + candidate["parameters"], ("model", key, why)))
    return drafts + [draft for _, draft in sorted(ranked)]


def _valid_profiles(catalog: Catalog) -> list[Profile]:
    """The profiles whose files have no problems."""
    return [profile for name, profile in catalog.profiles.items() if name not in catalog.broken]
