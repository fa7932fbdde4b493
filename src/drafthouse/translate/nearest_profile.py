"""Find models, hardware and profiles for a pasted command in ``house``, the catalogue with all profiles.

A profile is the same as the command if engine, target, method and draft agree, and near it if only some of them do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..profiles.catalog import House
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


def catalogue_id(house: House, name: str) -> str | None:
    """The catalogue id for a model's id, repository or path in a command; None if it is not in the catalogue."""
    stripped = name.rstrip("/")
    return find_model(stripped, house.models) or find_model(stripped.lower(), house.models)


def guessed_catalogue_id(house: House, name: str) -> str | None:
    """The catalogue id of the model with this folder or file name (a guess: another model may have it too)."""
    stripped = name.rstrip("/").lower()
    last_part = stripped.rsplit("/", 1)[-1]
    for key, model in house.models.items():
        repo = repository(model).lower()
        if "file" in model:
            if last_part == model["file"].lower():
                return key
            continue  # a folder of GGUF files may have several models
        is_path = stripped.startswith(("/", "~", "./", "../"))
        folders = {model["folder"].lower(), repo.replace("/", "-"), repo.rsplit("/", 1)[-1] if is_path else ""}
        # `owner/name` is another owner's repository: only a path or a name alone is guessed.
        if (is_path or "/" not in stripped) and last_part in folders - {""}:
            return key
    return None


def repository(model: ModelEntry) -> str:
    """A model's repository on the Hub; "" for a model from another source."""
    hub = model["source"].get("hub")
    return hub["repo"] if hub else ""


def nearest_models(house: House, name: str, kind: str, formats: Sequence[str]) -> list[str]:
    """The ids of up to three models of this kind and these formats with the names most similar to ``name``."""
    last_part = name.rstrip("/").rsplit("/", 1)[-1].lower()
    id_by_name: dict[str, str] = {}
    for key, model in house.models.items():
        if model["kind"] == kind and model["format"] in formats:
            id_by_name[(model.get("file", repository(model).rsplit("/", 1)[-1]) or key).lower()] = key
    return [id_by_name[similar] for similar in difflib.get_close_matches(last_part, list(id_by_name), n=3, cutoff=0.5)]


@dataclass(frozen=True)
class ProfilePlan:
    """The contents of the wanted profile; a model is None if it is not in the catalogue (or there is no draft)."""

    engine_id: str
    engine: EngineEntry
    target: str | None
    draft: str | None
    method: str
    serve: Options


def profiles_like(house: House, wanted: ProfilePlan, target_name: str) -> tuple[list[str], list[str]]:
    """The profiles with the same engine, target, method and draft; and the near ones.

    Near profiles have another draft or method. If the catalogue does not have the target, they are those of the model
    with the most similar name to ``target_name``.
    """
    nearest = nearest_models(house, target_name, "model", wanted.engine["formats"])
    target = wanted.target or (nearest[0] if nearest else None)
    same: list[str] = []
    near: list[str] = []
    for name, profile in sorted(house.profiles.items()):
        if name in house.broken or profile["engine"] != wanted.engine_id:
            continue
        spec = profile["speculation"]
        if target and find_model(profile["target"], house.models) != target:
            continue
        if not target and spec["method"] != wanted.method:
            continue
        profile_draft = find_model(spec["draft"], house.models) if "draft" in spec else None
        if wanted.target is not None and (spec["method"], profile_draft) == (wanted.method, wanted.draft):
            same.append(name)
        else:
            near.append(name)
    # First those with the same method: values that the command lacks are taken from the first one.
    near.sort(key=lambda name: house.profiles[name]["speculation"]["method"] != wanted.method)
    return same, near


def differences(profile: Profile, other: Profile) -> list[str]:
    """The differences of a translated profile from another profile, as lines ``serve.x: 1 (there 2)``."""
    lines = []
    for part, settings, others in (
        ("speculation", dict(profile["speculation"]), dict(other["speculation"])),
        ("serve", dict(profile.get("serve") or {}), dict(other.get("serve") or {})),
    ):
        for key in {**settings, **others}:
            if settings.get(key) != others.get(key):
                lines.append(f"{part}.{key}: {settings.get(key, 'not set')} (there {others.get(key, 'not set')})")
    return lines


def choose_hardware(house: House, wanted: ProfilePlan, profiles: Sequence[str]) -> tuple[str, str]:
    """The hardware for a profile, and the reason.

    It is that of the first of ``profiles`` whose hardware has room for the command's settings at some context; else the
    smallest that fits both models at the command's context, or has enough devices if the target is unknown.
    """
    # GPUs of the command: those that share a layer (tensor parallel), times the stages of the pipeline.
    devices = int(wanted.serve.get(wanted.engine.get("devices_option", ""), 1))
    devices *= int(wanted.serve.get("pipeline_parallel_size", 1))
    for profile in profiles:
        name = house.profiles[profile]["hardware"]
        if house.hardware[name]["devices"] >= devices and _has_room(house, wanted, name):
            return name, f"as in the profile {profile}; a command does not say what it runs on"
    ranked = sorted(house.hardware, key=lambda key: house.hardware[key]["memory_mib"] * house.hardware[key]["devices"])
    able = [key for key in ranked if house.hardware[key]["kind"] == "gpu" and house.hardware[key]["devices"] >= devices]
    if not able:
        most = max(house.hardware, key=lambda key: house.hardware[key]["devices"])
        why = f"no hardware in the catalogue has {devices} GPUs, so the profile does not resolve"
        return most, f"{why}: add yours to profiles/catalog/hardware.yml, or lower the number"
    target = house.models.get(wanted.target or "")
    if target is None:
        return able[0], f"the smallest with {devices} GPU{'s' * (devices > 1)}: the catalogue does not know the weights"
    for key in able:
        if _fit(house, wanted, key)["left"] >= 0:
            return key, "the smallest in the catalogue that fits it; a command does not say what it runs on"
    return able[-1], "the largest in the catalogue, but too small for it"


def choose_context(house: House, wanted: ProfilePlan, hardware: str, profiles: Sequence[str]) -> tuple[int, str] | None:
    """A context in tokens that fits, and the reason; None if the command's (or the model's) context fits."""
    target = house.models.get(wanted.target or "")
    if target is None or house.hardware[hardware]["kind"] != "gpu":
        return None
    fit = _fit(house, wanted, hardware)
    if fit["left"] >= 0:
        return None
    option = wanted.engine["context_option"]
    longest = context_that_fits(fit, shared=wanted.engine["context_is_shared"])
    why = f"{fit['context']} tokens do not fit on {house.hardware[hardware]['name']}"
    for name in profiles:
        tokens = tokens_in((house.profiles[name].get("serve") or {}).get(option))
        if tokens and tokens <= longest:
            return tokens, f"{why}; as in the profile {name}"
    return longest // 1024 * 1024, f"{why}; about this many do"  # rounded down: memory is an estimate


def _fit(house: House, wanted: ProfilePlan, key: str) -> Fit:
    """The memory plan of both models and the KV cache on one device of the hardware ``key``."""
    target, draft = house.models[wanted.target or ""], house.models.get(wanted.draft or "")
    hardware: Hardware = {"id": key, **house.hardware[key]}
    builtin = None if draft else builtin_head(target, wanted.method, wanted.engine["methods"].get(wanted.method))
    tokens = usual_tokens(house, wanted.engine, wanted.method, ())[0]
    return Sizes(wanted.engine, hardware, target, draft, builtin, wanted.serve, {}, tokens).fit("speculative")


def _has_room(house: House, wanted: ProfilePlan, key: str) -> bool:
    """True if the target is unknown, or the hardware ``key`` has memory for it at some context."""
    if wanted.target is None:
        return True
    fit = _fit(house, wanted, key)
    return fit["left"] >= 0 or context_that_fits(fit, shared=wanted.engine["context_is_shared"]) > 0


def usual_tokens(house: House, engine: EngineEntry, method: str, profiles: Sequence[str]) -> tuple[int, str]:
    """The number of draft tokens for a command that sets none, and the reason."""
    for name in profiles:
        spec = house.profiles[name]["speculation"]
        if spec["method"] == method:
            return spec["num_speculative_tokens"], f"the command names none; as in the profile {name}"
    entry = engine["methods"].get(method)
    usual = entry.get("usual_tokens", USUAL_TOKENS) if entry else USUAL_TOKENS
    return usual, "the command names none; a usual number to start with"


def guess_method(house: House, engine: EngineEntry, draft: str) -> str:
    """The method for a draft: by the catalogue if it has the draft, else by a word in the draft's name.

    ``draft`` "": the command speculates without a draft model, as suffix decoding does; or it is the names of the keys
    of a configuration without one.
    """
    model = house.models.get(catalogue_id(house, draft) or guessed_catalogue_id(house, draft) or "")
    if model:
        kind = model.get("head_method", "draft_model")
        return method_for_head(engine, kind, "head") or kind
    name = draft.lower()
    for word, method in (
        ("eagle3", "eagle3"),
        ("eagle-", "eagle"),
        ("medusa", "medusa"),
        ("accelerator", "mlp_speculator"),
        ("dflash", "dflash"),
        ("dspark", "dspark"),
        ("-assistant", "mtp"),
        # Keys of a configuration without method and draft; by a number of tokens alone it is the head in the target.
        ("suffix", "suffix"),
        ("prompt_lookup", "ngram"),
        ("num_speculative_tokens", "mtp"),
    ):
        if word in name:
            return method
    return "suffix" if not draft and "suffix" in engine["methods"] else "draft_model"


def chosen_speculation(house: House, wanted: ProfilePlan, profiles: Sequence[str]) -> tuple[Speculation, str]:
    """A speculation for a command without one, since a profile always has a speculative arm; and the reason."""
    if profiles:
        spec: Speculation = {**house.profiles[profiles[0]]["speculation"]}
        return spec, f"the command has none; as in the profile {profiles[0]}"
    target = house.models.get(wanted.target or "")
    if target and (head := target.get("builtin_head")):
        method = method_for_head(wanted.engine, head["kind"], "builtin")
        if method:
            tokens = usual_tokens(house, wanted.engine, method, ())[0]
            spec = {"method": method, "num_speculative_tokens": tokens}
            return spec, "the command has none; the target has this head"
    for key, model in house.models.items():
        method = method_for_head(wanted.engine, model.get("head_method", ""), "head")
        if wanted.target and model.get("head_for") == wanted.target and method:
            tokens = usual_tokens(house, wanted.engine, method, ())[0]
            spec = {"method": method, "draft": key, "num_speculative_tokens": tokens}
            return spec, "the command has none; the catalogue has this head for the target"
    # A lookup copies draft tokens from the text so far.
    lookups = [key for key, method in wanted.engine["methods"].items() if method["draft"] == "lookup"]
    method = "ngram"
    if lookups and method not in lookups:
        method = lookups[0]
    spec = {"method": method, "num_speculative_tokens": USUAL_TOKENS}
    return spec, "the command has none; a lookup needs no draft model"


def slug(text: str) -> str:
    """The last part of ``text`` for a profile's name: lower-case letters, digits and dashes."""
    last_part = text.rstrip("/").rsplit("/", 1)[-1].removesuffix(".gguf")
    return re.sub(r"[^a-z0-9]+", "-", last_part.lower()).strip("-") or "model"
