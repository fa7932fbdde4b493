"""What a command means in the words of the catalogue: which model, which hardware, which profile is nearest."""

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
from ..profiles.token_counts import counted

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, Options
    from drafthouse.profiles.catalog_types import ModelEntry
    from drafthouse.profiles.profile_types import Profile, Speculation
    from drafthouse.profiles.resolved_types import Fit, Hardware


def called(house: House, name: str) -> str | None:
    """The catalogue's id that a command writes: the model's own, its repository or its path."""
    plain = name.rstrip("/")
    return find_model(plain, house.models) or find_model(plain.lower(), house.models)


def called_like(house: House, name: str) -> str | None:
    """The catalogue's id of the model whose folder or file is called so; it may be another one."""
    plain = name.rstrip("/").lower()
    last = plain.rsplit("/", 1)[-1]
    for key, model in house.models.items():
        repo = repository(model).lower()
        if "file" in model:
            if last == model["file"].lower():
                return key
            continue
        is_path = plain.startswith(("/", "~", "./", "../"))
        folders = {model["folder"].lower(), repo.replace("/", "-"), repo.rsplit("/", 1)[-1] if is_path else ""}
        if (is_path or "/" not in plain) and last in folders - {""}:
            return key
    return None


def repository(model: ModelEntry) -> str:
    """A model's repository on the hub, '' where it has another source."""
    hub = model["source"].get("hub")
    return hub["repo"] if hub else ""


def nearest_models(house: House, name: str, kind: str, formats: Sequence[str]) -> list[str]:
    """The ids of up to three models that are named most like ``name``, of the same kind and format."""
    last = name.rstrip("/").rsplit("/", 1)[-1].lower()
    names: dict[str, str] = {}
    for key, model in house.models.items():
        if model["kind"] == kind and model["format"] in formats:
            names[(model.get("file", repository(model).rsplit("/", 1)[-1]) or key).lower()] = key
    return [names[close] for close in difflib.get_close_matches(last, list(names), n=3, cutoff=0.5)]


@dataclass(frozen=True)
class Wanted:
    """What a profile must serve: the engine's entry, both models (None: not in the catalogue) and its options."""

    engine_id: str
    engine: EngineEntry
    target: str | None
    draft: str | None
    method: str
    serve: Options


def profiles_like(house: House, wanted: Wanted, target_name: str) -> tuple[list[str], list[str]]:
    """The profiles with the same engine, target, method and draft, and those near it.

    Near are those with another draft or method, and for a target that the catalogue does not have (by the name
    ``target_name``) those of the model that is named most like it.
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
        draft = find_model(spec["draft"], house.models) if "draft" in spec else None
        if wanted.target is not None and (spec["method"], draft) == (wanted.method, wanted.draft):
            same.append(name)
        else:
            near.append(name)
    near.sort(key=lambda name: house.profiles[name]["speculation"]["method"] != wanted.method)
    return same, near


def differences(profile: Profile, other: Profile) -> list[str]:
    """Return in what a translated profile differs from one of the house: ``serve.x: 1 (there 2)``."""
    found = []
    for part, here, there in (
        ("speculation", dict(profile["speculation"]), dict(other["speculation"])),
        ("serve", dict(profile.get("serve") or {}), dict(other.get("serve") or {})),
    ):
        for key in {**here, **there}:
            if here.get(key) != there.get(key):
                found.append(f"{part}.{key}: {here.get(key, 'not set')} (there {there.get(key, 'not set')})")
    return found


def choose_hardware(house: House, wanted: Wanted, profiles: Sequence[str]) -> tuple[str, str]:
    """The hardware for a profile, and why it was chosen.

    That of a profile with the same models, where they have room for any context with the command's own settings; else
    the smallest of the catalogue that holds both models with the command's context; where the models are not known,
    the smallest with enough devices.
    """
    devices = int(wanted.serve.get(wanted.engine.get("devices_option", ""), 1))
    devices *= int(wanted.serve.get("pipeline_parallel_size", 1))
    for profile in profiles:
        name = house.profiles[profile]["hardware"]
        if house.hardware[name]["devices"] >= devices and _has_room(house, wanted, name):
            return name, f"as in the profile {profile}; a command does not say what it runs on"
    sizes = sorted(house.hardware, key=lambda key: house.hardware[key]["memory_mib"] * house.hardware[key]["devices"])
    able = [key for key in sizes if house.hardware[key]["kind"] == "gpu" and house.hardware[key]["devices"] >= devices]
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


def choose_context(house: House, wanted: Wanted, hardware: str, profiles: Sequence[str]) -> tuple[int, str] | None:
    """A context that fits, and why, where the command's (or the model's own) does not; else None."""
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
        tokens = counted((house.profiles[name].get("serve") or {}).get(option))
        if tokens and tokens <= longest:
            return tokens, f"{why}; as in the profile {name}"
    return longest // 1024 * 1024, f"{why}; about this many do"


def _fit(house: House, wanted: Wanted, key: str) -> Fit:
    """How both models and the cache fit on one device of hardware ``key``."""
    target, draft = house.models[wanted.target or ""], house.models.get(wanted.draft or "")
    hardware: Hardware = {"id": key, **house.hardware[key]}
    builtin = None if draft else builtin_head(target, wanted.method, wanted.engine["methods"].get(wanted.method))
    tokens = usual_tokens(house, wanted.engine, wanted.method, ())[0]
    return Sizes(wanted.engine, hardware, target, draft, builtin, wanted.serve, {}, tokens).fit("speculative")


def _has_room(house: House, wanted: Wanted, key: str) -> bool:
    if wanted.target is None:
        return True
    fit = _fit(house, wanted, key)
    return fit["left"] >= 0 or context_that_fits(fit, shared=wanted.engine["context_is_shared"]) > 0


def usual_tokens(house: House, engine: EngineEntry, method: str, profiles: Sequence[str]) -> tuple[int, str]:
    """How many tokens to draft where the command does not say, and why so many."""
    for name in profiles:
        spec = house.profiles[name]["speculation"]
        if spec["method"] == method:
            return spec["num_speculative_tokens"], f"the command names none; as in the profile {name}"
    entry = engine["methods"].get(method)
    usual = entry.get("usual_tokens", USUAL_TOKENS) if entry else USUAL_TOKENS
    return usual, "the command names none; a usual number to start with"


def guess_method(house: House, engine: EngineEntry, draft: str) -> str:
    """The method for a draft: the catalogue's for a head it knows, else what its name says."""
    model = house.models.get(called(house, draft) or called_like(house, draft) or "")
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
    ):
        if word in name:
            return method
    return "suffix" if not draft and "suffix" in engine["methods"] else "draft_model"


def a_speculation(house: House, wanted: Wanted, profiles: Sequence[str]) -> tuple[Speculation, str]:
    """A speculation for a command that has none, since a profile always compares two arms; and why this."""
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
    lookups = [key for key, method in wanted.engine["methods"].items() if method["draft"] == "lookup"]
    method = "ngram"
    if lookups and method not in lookups:
        method = lookups[0]
    spec = {"method": method, "num_speculative_tokens": USUAL_TOKENS}
    return spec, "the command has none; a lookup needs no draft model"


def slug(text: str) -> str:
    """``text`` as a part of a profile's name: lower-case letters, digits and dashes."""
    last = text.rstrip("/").rsplit("/", 1)[-1].removesuffix(".gguf")
    return re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-") or "model"
