"""A printed profile, resolved and rendered, is the command that was pasted: of the corpus' commands, one by one.

What the catalogue does not have, an entry is made for, as one has to be for the profile to resolve: small enough to
fit, with the head that the method needs.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.engines.read_flags import read_given
from drafthouse.profiles.arms import STOCK
from drafthouse.profiles.catalog import Catalog
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory
from drafthouse.translate.translator import Translation
from tests.unit.translate.test_corpus import FLAGS, HOUSE, LLAMA, TEXTS, regions, translated

SUITES = {suite: list(data["kinds"]) for suite, data in load_suites([], ROOT).items()}
#: What the site, the catalogue's entry of a model, the key's file and the launcher say, and no profile does.
_OWNED = {"host", "port", "served-model-name", "model", "api-key", "per-request-spec-decode-metrics"}
_MTP = "mtp"


def one_command(name: str) -> Translation | None:
    """The translation of a snippet that is one command of vLLM with nothing that is left to fill in."""
    gaps = any(mark in TEXTS[name] for mark in ("...", "<", "$", "docker", "kind:", "command:"))
    if gaps or name in LLAMA or len(regions(TEXTS[name])) != 1:
        return None
    found = translated(name)
    return None if isinstance(found, str) or len(found) != 1 or found[0].left_out else found[0]


NAMES = [name for name in TEXTS if one_command(name)]


def catalog_for(one: Translation) -> Catalog:
    """The catalogue with entries for the models of a translation."""
    models: Any = copy.deepcopy(HOUSE.models)
    profile: Any = one.profile
    spec = profile["speculation"]
    target, draft, method = profile["target"], spec.get("draft"), spec["method"]
    like: Any = {**models["qwen3-32b"], "weight_bytes": 4_000_000_000, "layers": 1, "kv_heads": 1}
    like["context"] = 1_000_000
    for name in (target, draft):
        if name and name not in models:
            models[name] = {**like, "name": name, "folder": name.strip("/").replace("/", "-")}
            models[name]["source"] = {"hub": {"repo": "a/b", "revision": "0" * 40}}
    entry = HOUSE.engines[one.engine]["methods"].get(method)
    if entry and entry["draft"] == "builtin" and not draft:
        models[target]["builtin_head"] = {"kind": entry.get("head", method), "layers": 1}
    elif draft and entry and (entry["draft"] == "head" or entry.get("or_head")):
        models[draft] |= {"kind": "head", "head_for": target, "head_method": entry.get("head", method)}
        models[draft] |= {"weight_bytes": 100_000_000}
    elif draft:
        models[draft] |= {"weight_bytes": 100_000_000, "parameters": 50_000_000}
        if entry and entry.get("trained"):
            models[draft]["head_method"] = method
    hardware: Any = copy.deepcopy(HOUSE.hardware)
    hardware[profile["hardware"]]["devices"] = 64  # however many a command asks for
    return Catalog(hardware, models, HOUSE.engines, {"pasted": profile}, flags=HOUSE.flags)


def meaning(words: list[str], engine: str, version: str, names: Mapping[str, str]) -> dict[str, Any]:
    """What the words of a command set, by names in full; ``names`` are the models by their paths."""
    table = FLAGS.of(engine, HOUSE.flags[engine].get(version))
    found: dict[str, Any] = {}
    for given in read_given(words, table):
        if given.name == "" or given.name in _OWNED:
            continue
        value = given.value
        if isinstance(value, str) and value.startswith("{"):
            value = json.loads(value)
        head, dot, key = given.name.partition(".")
        if dot and head == "speculative-config":
            found.setdefault(head, {})[key] = int(value) if value.isdigit() else value
        else:
            found[given.name] = (
                str(value) if isinstance(value, (int, float, str)) and value not in (True, False) else value
            )
    if isinstance(spec := found.get("speculative-config"), dict):
        spec["method"] = _MTP if spec["method"].endswith("_mtp") else spec["method"]
        if "model" in spec:
            spec["model"] = names.get(spec["model"], spec["model"]).rstrip("/")
    for name in ("max-model-len", "gpu-memory-utilization"):
        if name in found:
            found[name] = float(found[name])
    return found


def difference(name: str) -> str:
    """Return in what the rendered command of a snippet's profile differs from the snippet, '' for nothing."""
    one = one_command(name)
    assert one
    profile: Any = one.profile
    catalog = catalog_for(one)
    site: Any = site_of_inventory(HOUSE.hardware[profile["hardware"]]["inventory"])
    site["runtime"] = "process"
    try:
        resolved = resolve(catalog, "pasted", site, SUITES)
    except DrafthouseError as error:
        return f"does not resolve: {error.problems[0].found}"
    paths = {part["path"]: part["name"] for part in (resolved["target"], resolved["draft"]) if part}
    speculates = "speculative-config" in " ".join(word.replace("_", "-") for word in regions(TEXTS[name]))
    arm = resolved["arms"]["speculative" if speculates else "baseline"]
    rendered = meaning([word for flag in arm["flags"] for word in flag], one.engine, one.version, paths)
    (region,) = regions(TEXTS[name])
    region = region.replace("$'", "'").replace("\\\n", " ").split(" 2>&1")[0]
    pasted = meaning(shlex.split(region, comments=True)[2:], one.engine, one.version, {})
    wrong = [key for key in {**pasted, **rendered} if pasted.get(key) != rendered.get(key)]
    # A context that does not fit is chosen, and said, where the command names none.
    wrong = [key for key in wrong if not (key == "max-model-len" and key not in pasted)]
    return "; ".join(f"{key}: pasted {pasted.get(key)}, rendered {rendered.get(key)}" for key in wrong)


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 60
    assert STOCK not in NAMES


def test_a_rendered_profile_is_the_pasted_command() -> None:
    wrong = {name: said for name in NAMES if (said := difference(name))}
    assert len(wrong) <= 0.07 * len(NAMES), "\n".join(f"{name}: {said}" for name, said in wrong.items())


@pytest.mark.parametrize("name", ["c207", "c443", "c892"])
def test_these_are_among_them(name: str) -> None:
    assert name in NAMES
