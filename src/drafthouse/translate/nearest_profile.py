"""Find the models and profiles that match a pasted command, and choose what a command leaves out.

A profile matches the command if engine, target, method and draft agree. It is near if the engine and the target agree
but the method or the draft does not. The hardware is always chosen, as no command names it; a context if the command's
does not fit; K, the number of tokens drafted in a step, and a speculation if the command has none.

``catalog`` is the catalogue with all profiles. ``similar`` are the names of the matching profiles and then of the near
ones, the best first (`profiles_like`); it is empty if the catalogue lacks the target.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..profiles.catalog import Catalog
from ..profiles.draft_compat import USUAL_TOKENS
from ..profiles.heads import builtin_head, method_for_head
from ..profiles.memory_fit import context_that_fits
from ..profiles.model_names import find_model
from ..profiles.sizes import Sizes
from ..profiles.token_counts import tokens_in

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, Options
    from drafthouse.profiles.catalog_types import ModelEntry
    from drafthouse.profiles.profile_types import Profile, Speculation
    from drafthouse.profiles.resolved_types import Fit, Hardware


def catalogue_id(catalog: Catalog, name: str) -> str | None:
    """The catalogue id for a model's id, repository or path in a command; None if it is not in the catalogue."""
    stripped = name.rstrip("/")
    return find_model(stripped, catalog.models) or find_model(stripped.lower(), catalog.models)


def guessed_catalogue_id(catalog: Catalog, name: str) -> str | None:
    """The catalogue id of the model with this folder or file name (a guess: another model may have it too)."""
    stripped = name.rstrip("/").lower()
    last_part = stripped.rsplit("/", 1)[-1]
    is_path = stripped.startswith(("/", "~", "./", "../"))
    for key, model in catalog.models.items():
        if "file" in model:
            if last_part == model["file"].lower():
                return key
            continue  # a folder of GGUF files may have several models
        if "/" in stripped and not is_path:
            continue  # `owner/name` is another owner's repository, not this model
        repo = repository(model).lower()
        folders = {model["folder"].lower(), repo.replace("/", "-")}
        if is_path:
            folders.add(repo.rsplit("/", 1)[-1])
        # ``folders`` contains "" for a model without a repository.
        if last_part and last_part in folders:
            return key
    return None


def repository(model: ModelEntry) -> str:
    """A model's repository on the Hub; "" for a model from another source."""
    hub = model["source"].get("hub")
    return hub["repo"] if hub else ""


def nearest_models(catalog: Catalog, name: str, kind: str, formats: Sequence[str]) -> list[str]:
    """The ids of at most three models of this kind and these formats whose names are most similar to ``name``."""
    last_part = name.rstrip("/").rsplit("/", 1)[-1].lower()
    id_by_name: dict[str, str] = {}
    for key, model in catalog.models.items():
        if model["kind"] == kind and model["format"] in formats:
            own_name = model.get("file") or repository(model).rsplit("/", 1)[-1] or key
            id_by_name[own_name.lower()] = key
    return [id_by_name[similar] for similar in difflib.get_close_matches(last_part, list(id_by_name), n=3, cutoff=0.5)]


@dataclass(frozen=True)
class ProfilePlan:
    """The contents of the profile that a command stands for."""

    engine_id: str
    engine: EngineEntry
    target: str | None  # catalogue id; None: the catalogue lacks the model
    draft: str | None  # catalogue id, or the command's name if the catalogue lacks the model; None: no draft
    method: str
    serve: Options  # the command's options, by the names of the engine's entry


def profiles_like(catalog: Catalog, wanted: ProfilePlan, target_name: str) -> tuple[list[str], list[str]]:
    """The names of the profiles that match a command, and of those near it.

    If the catalogue lacks the target, none matches, and the second list has instead the profiles of the model whose
    name is most similar to ``target_name``, or without such a model the profiles with the command's method.
    """
    nearest = nearest_models(catalog, target_name, "model", wanted.engine["formats"])
    target = wanted.target or (nearest[0] if nearest else None)
    matching: list[str] = []
    near: list[str] = []
    for name, profile in sorted(catalog.profiles.items()):
        if name in catalog.broken or profile["engine"] != wanted.engine_id:
            continue
        spec = profile["speculation"]
        if target and find_model(profile["target"], catalog.models) != target:
            continue
        if not target and spec["method"] != wanted.method:
            continue
        profile_draft = find_model(spec["draft"], catalog.models) if "draft" in spec else None
        if wanted.target is not None and (spec["method"], profile_draft) == (wanted.method, wanted.draft):
            matching.append(name)
        else:
            near.append(name)
    # First those with the same method: values that the command lacks are taken from the first one.
    near.sort(key=lambda name: catalog.profiles[name]["speculation"]["method"] != wanted.method)
    return matching, near


def differences(profile: Profile, other: Profile) -> list[str]:
    """The differences of a translated profile from another profile: ``serve.x: 1 (there 2)``, "there" is ``other``."""
    lines = []
    for part, ours, theirs in (
        ("speculation", dict(profile["speculation"]), dict(other["speculation"])),
        ("serve", dict(profile.get("serve") or {}), dict(other.get("serve") or {})),
    ):
        for key in {**ours, **theirs}:
            if ours.get(key) != theirs.get(key):
                lines.append(f"{part}.{key}: {ours.get(key, 'not set')} (there {theirs.get(key, 'not set')})")
    return lines


def choose_hardware(catalog: Catalog, wanted: ProfilePlan, similar: Sequence[str]) -> tuple[str, str]:
    """The hardware for a profile, and the reason.

    It is the first of these that exists:

    1. that of the first of ``similar`` that has enough GPUs, and room for the models at some context;
    2. if none has enough NVIDIA GPUs, the one with the most devices: the profile will not resolve, as the reason says;
    3. if the target is unknown, the one with the least memory that has enough GPUs;
    4. the smallest that fits both models at the command's context;
    5. the largest with enough GPUs, though it is too small.
    """
    devices = _devices(wanted)
    for profile in similar:
        name = catalog.profiles[profile]["hardware"]
        if catalog.hardware[name]["devices"] >= devices and _has_room(catalog, wanted, name):
            return name, f"as in the profile {profile}; a command does not say what it runs on"
    ranked = sorted(
        catalog.hardware, key=lambda key: catalog.hardware[key]["memory_mib"] * catalog.hardware[key]["devices"]
    )
    able = [
        key for key in ranked if catalog.hardware[key]["kind"] == "gpu" and catalog.hardware[key]["devices"] >= devices
    ]
    if not able:
        most = max(catalog.hardware, key=lambda key: catalog.hardware[key]["devices"])
        why = f"no hardware in the catalogue has {devices} GPUs, so the profile does not resolve"
        return most, f"{why}: add yours to profiles/catalog/hardware.yml, or lower the number"
    target = catalog.models.get(wanted.target or "")
    if target is None:
        return able[0], f"the smallest with {devices} GPU{'s' * (devices > 1)}: the catalogue does not know the weights"
    for key in able:
        if _fit(catalog, wanted, key)["left"] >= 0:
            return key, "the smallest in the catalogue that fits it; a command does not say what it runs on"
    return able[-1], "the largest in the catalogue, but too small for it"


def _devices(wanted: ProfilePlan) -> int:
    """The number of GPUs of a command: its tensor-parallel size times its pipeline-parallel size."""
    option = wanted.engine.get("devices_option")
    tensor_parallel = int(wanted.serve.get(option, 1)) if option else 1
    return tensor_parallel * int(wanted.serve.get("pipeline_parallel_size", 1))


def choose_context(
    catalog: Catalog, wanted: ProfilePlan, hardware: str, similar: Sequence[str]
) -> tuple[int, str] | None:
    """A shorter context in tokens that fits, and the reason; 0 tokens if not even 1,024 fit.

    None if no other context is needed, because that of the command, or else of the model, fits. None also if that
    cannot be computed, because the target is unknown or the hardware is no GPU.
    """
    target = catalog.models.get(wanted.target or "")
    if target is None or catalog.hardware[hardware]["kind"] != "gpu":
        return None
    fit = _fit(catalog, wanted, hardware)
    if fit["left"] >= 0:
        return None
    option = wanted.engine["context_option"]
    longest = context_that_fits(fit, shared=wanted.engine["context_is_shared"])
    why = f"{fit['context']} tokens do not fit on {catalog.hardware[hardware]['name']}"
    for name in similar:
        tokens = tokens_in((catalog.profiles[name].get("serve") or {}).get(option))
        if tokens and tokens <= longest:
            return tokens, f"{why}; as in the profile {name}"
    # Rounded down to a multiple of 1024, as the memory that is needed is an estimate.
    return longest // 1024 * 1024, f"{why}; about this many do"


def _fit(catalog: Catalog, wanted: ProfilePlan, hardware_id: str) -> Fit:
    """The memory of the speculative arm on one device of the hardware. The target has to be in the catalogue."""
    target = catalog.models[wanted.target or ""]
    draft = catalog.models.get(wanted.draft or "")
    hardware: Hardware = {"id": hardware_id, **catalog.hardware[hardware_id]}
    builtin = None
    if draft is None:
        builtin = builtin_head(target, wanted.method, wanted.engine["methods"].get(wanted.method))
    sizes = Sizes(
        engine=wanted.engine,
        hardware=hardware,
        target=target,
        draft=draft,
        builtin=builtin,
        serve=wanted.serve,
        method_options={},
        tokens=_default_k(wanted.engine, wanted.method),
    )
    return sizes.fit("speculative")


def _has_room(catalog: Catalog, wanted: ProfilePlan, hardware_id: str) -> bool:
    """True if the target is unknown, or the hardware has room for it with at least some context."""
    if wanted.target is None:
        return True
    fit = _fit(catalog, wanted, hardware_id)
    return fit["left"] >= 0 or context_that_fits(fit, shared=wanted.engine["context_is_shared"]) > 0


def choose_tokens(catalog: Catalog, engine: EngineEntry, method: str, similar: Sequence[str]) -> tuple[int, str]:
    """K for a command that sets none, and the reason.

    It is that of the first of ``similar`` with the same method, else the default of the method.
    """
    for name in similar:
        spec = catalog.profiles[name]["speculation"]
        if spec["method"] == method:
            return spec["num_speculative_tokens"], f"the command names none; as in the profile {name}"
    return _default_k(engine, method), "the command names none; a usual number to start with"


def _default_k(engine: EngineEntry, method: str) -> int:
    """The default K of a method, or `USUAL_TOKENS` if the engine lacks the method."""
    entry = engine["methods"].get(method)
    return entry.get("usual_tokens", USUAL_TOKENS) if entry else USUAL_TOKENS


def guess_method(catalog: Catalog, engine: EngineEntry, draft: str) -> str:
    """The method for a draft: by the catalogue if it has the draft, else by a word in the draft's name.

    ``draft`` is "" if the command speculates without a draft model, as suffix decoding does. If the command's
    `--speculative-config` has neither a method nor a model, the caller passes the names of its keys, joined, and the
    last three words of the table guess from these.
    """
    model = catalog.models.get(catalogue_id(catalog, draft) or guessed_catalogue_id(catalog, draft) or "")
    if model:
        kind = model.get("head_method", "draft_model")
        # For a plain draft model `method_for_head` returns None, and `draft_model` is the method.
        return method_for_head(engine, kind, "head") or kind
    name = draft.lower()
    for word, method in (
        ("eagle3", "eagle3"),
        ("eagle-", "eagle"),
        ("medusa", "medusa"),
        ("accelerator", "mlp_speculator"),
        ("dflash", "dflash"),
        ("dspark", "dspark"),
        ("-assistant", "mtp"),  # Gemma 4's heads for multi-token prediction have this suffix
        # Keys of a configuration without method and draft. One with only a number of tokens means the built-in head.
        ("suffix", "suffix"),
        ("prompt_lookup", "ngram"),
        ("num_speculative_tokens", "mtp"),
    ):
        if word in name:
            return method
    return "suffix" if not draft and "suffix" in engine["methods"] else "draft_model"


def choose_speculation(catalog: Catalog, wanted: ProfilePlan, similar: Sequence[str]) -> tuple[Speculation, str]:
    """A speculation for a command without one, since a profile always has a speculative arm; and the reason.

    It is the first of these that exists: that of the first of ``similar``, the head built into the target, a head of
    the catalogue for the target, a prompt lookup.
    """
    if similar:
        spec: Speculation = {**catalog.profiles[similar[0]]["speculation"]}
        return spec, f"the command has none; as in the profile {similar[0]}"
    target = catalog.models.get(wanted.target or "")
    if target and (head := target.get("builtin_head")):
        method = method_for_head(wanted.engine, head["kind"], "builtin")
        if method:
            spec = {"method": method, "num_speculative_tokens": _default_k(wanted.engine, method)}
            return spec, "the command has none; the target has this head"
    for key, model in catalog.models.items():
        method = method_for_head(wanted.engine, model.get("head_method", ""), "head")
        if wanted.target and model.get("head_for") == wanted.target and method:
            tokens = _default_k(wanted.engine, method)
            spec = {"method": method, "draft": key, "num_speculative_tokens": tokens}
            return spec, "the command has none; the catalogue has this head for the target"
    # A prompt lookup (n-gram) copies draft tokens from the text so far.
    lookups = [key for key, method in wanted.engine["methods"].items() if method["draft"] == "lookup"]
    method = "ngram"  # also for an engine without a lookup: the resolver then says which methods it has
    if lookups and method not in lookups:
        method = lookups[0]
    spec = {"method": method, "num_speculative_tokens": USUAL_TOKENS}
    return spec, "the command has none; a lookup needs no draft model"


def slug(text: str) -> str:
    """The last component of a path or repository as part of a profile's name; "model" if nothing of it is left.

    Such a name has lower-case letters, digits and dashes.
    """
    last_part = text.rstrip("/").rsplit("/", 1)[-1].removesuffix(".gguf")
    return re.sub(r"[^a-z0-9]+", "-", last_part.lower()).strip("-") or "model"
