"""Read a draft head's configuration: method, shape, and target (or "verifier"), whose hidden states it reads. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.documents import Json
from ..core.errors import one_problem
from ..profiles.model_names import find_model
from .shape import Config, Shape, shape_of, text_part

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import ModelEntry, Speculators

#: A profile's method, by the `algorithm` of a speculators configuration, and by a part of the architecture's name.
_ALGORITHMS = {"eagle3": "eagle3", "peagle": "peagle", "dflash": "dflash", "dspark": "dspark"}
_ARCHITECTURES = {
    **{"Eagle3": "eagle3", "DFlashDraftModel": "dflash", "DFlash2DraftModel": "dflash", "DSparkModel": "dspark"},
    **{"Gemma4Assistant": "mtp", "MuseGlimmerAssistant": "dflash", "DSparkDraftModel": "dspark"},
    # Before MLPSpeculatorPreTrainedModel, which is the end of "ArcticMLPSpeculatorPreTrainedModel".
    **{"ArcticLSTMSpeculator": "arctic", "ArcticMLPSpeculator": "arctic"},
    **{"MLPSpeculatorPreTrainedModel": "mlp_speculator", "MedusaModel": "medusa"},
}
#: Heads without attention: the keys of their width and of the number of tokens that they draft, by method.
_NO_ATTENTION = {
    "medusa": ("hidden_size", "num_heads"),
    "mlp_speculator": ("emb_dim", "n_predict"),
    "arctic": ("emb_dim", "n_predict"),
}
#: Context of heads without attention, which have no limit (vLLM sets 2^20 as well).
_NO_CONTEXT = 1 << 20
#: Keys of the number of values that a head reads per token of its target.
_READS = ("target_hidden_size", "backbone_hidden_size", "input_hidden_dim")


def head_method(config: Config, where: str) -> str | None:
    """The method of a head; None for a whole model. Raises DrafthouseError for a head that no engine supports."""
    algorithm = str(_speculators(config).get("algorithm") or "")
    names = config.get("architectures")
    architectures = ""
    if isinstance(names, list):
        architectures = " ".join(map(str, names))
    if algorithm in _ALGORITHMS and "transformer_layer_config" in config:
        return _ALGORITHMS[algorithm]
    for architecture_part, method in _ARCHITECTURES.items():
        if architecture_part not in architectures:
            continue
        if method == "eagle3" and config.get("parallel_drafting") is True:
            return "peagle"
        return method
    if "medusa_num_heads" in config:
        reason = "Medusa in its authors' own format, which no engine here loads (vLLM needs architectures: MedusaModel)"
    elif (algorithm and algorithm not in _ALGORITHMS) or re.search(r"Hydra|Speculator", architectures):
        reason = f"a head of the kind {algorithm or architectures}, which no engine in the catalogue supports"
    else:
        return None
    needed = f"a model, or a head for {', '.join(sorted({*_ALGORITHMS.values(), *_ARCHITECTURES.values()}))}"
    raise one_problem("model-shape-unknown", reason, needed, "choose another head", where)


def head_shape(config: Config, method: str, where: str) -> Shape:
    """The shape of a head. Raises NoShape if keys are missing."""
    if keys := _NO_ATTENTION.get(method):
        # Arctic's configurations write some numbers as texts. One layer and head of size 1: almost no KV cache.
        return shape_of(
            {
                "model_type": config.get("model_type"),
                "hidden_size": _integer(config.get(keys[0])),
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "head_dim": 1,
                "vocab_size": _integer(config.get("vocab_size")),
                "max_position_embeddings": _NO_CONTEXT,
            },
            where,
        )
    merged = {**config, **_part(config, "transformer_layer_config")}
    if type(config.get("draft_vocab_size")) is int:
        merged["vocab_size"] = config["draft_vocab_size"]
    return shape_of(merged, where)


def most_tokens(config: Config, method: str) -> int | None:
    """The most tokens that a head can draft in one step; None if its configuration sets no limit.

    The first position of a block is the last accepted token (the anchor). DFlash drafts no token there; DSpark does,
    if its configuration does not deny it: vLLM's default of K is the block (`config/speculative.py` of 0.32.0).
    """
    if keys := _NO_ATTENTION.get(method):
        return _integer(config.get(keys[1]))
    block = config.get("block_size")
    if method not in ("dflash", "dspark") or type(block) is not int or block < 2:
        return None
    drafts = block if config.get("sample_from_anchor", method == "dspark") is True else block - 1
    return max(drafts, _proposed(config) or 0)


def speculators_of(config: Config) -> Speculators | None:
    """The target and draft tokens that an engine uses if it serves the head's repository; None if it names none."""
    target, tokens = verifier_of(config), _proposed(config)
    if not target or not tokens:
        return None
    return {"target": target, "tokens": tokens}


def _proposed(config: Config) -> int | None:
    """The number of draft tokens in a head's configuration; None if it sets none."""
    proposed = _speculators(config).get("proposal_methods")
    if not isinstance(proposed, list) or not proposed or not isinstance(proposed[0], Mapping):
        return None
    tokens = proposed[0].get("speculative_tokens")
    if type(tokens) is not int or tokens < 1:
        return None
    return tokens


def verifier_of(config: Config) -> str | None:
    """The repository that a head's configuration names as its target; None if it names none."""
    named = _part(_speculators(config), "verifier").get("name_or_path")
    if not named:
        return None
    return str(named)


def target_of(config: Config, shape: Shape, models: Mapping[str, ModelEntry], head_for: str | None, where: str) -> str:
    """The catalogue name of a head's target: ``head_for``, else its configuration's. Raises DrafthouseError."""
    named = head_for or verifier_of(config)
    target = None
    found, do = "a head that does not name its target", "add --for MODEL"
    if named:
        target = find_model(named, models)
        found = f"a head for {named}, which is not in the catalogue"
        do = f"drafthouse model add {named}, then run this again"
    if target is None:
        raise one_problem("draft-of-another-target", found, "the target's entry in the catalogue", do, where)
    hidden = _hidden_read(config) or shape.hidden
    if head_for is None or hidden == models[target]["hidden"]:
        return target
    raise one_problem(
        "draft-of-another-target",
        f"a head that reads {hidden} values per token, but '{target}' has {models[target]['hidden']}",
        "the model that the head was trained for",
        "pass it as --for",
        where,
    )


def _hidden_read(config: Config) -> int | None:
    """The number of values that a head reads per token of its target; None if it is not in the configuration."""
    for part in (text_part(config), config):
        for key in _READS:
            if number := _integer(part.get(key)):
                return number
    return None


def _speculators(config: Config) -> Config:
    return _part(config, "speculators_config")


def _part(config: Config, key: str) -> Config:
    """The JSON object of a key; empty if there is none."""
    part = config.get(key)
    if isinstance(part, Mapping):
        return part
    return {}


def _integer(value: Json) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if type(value) is not int:
        return None
    return value
