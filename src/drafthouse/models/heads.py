"""Draft heads by their configuration: the method they are for, their shape, and whose hidden states they read. Pure."""

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

#: The word for a method of speculators' configurations, and a part of an architecture's name, as profiles have it.
_ALGORITHMS = {"eagle3": "eagle3", "peagle": "peagle", "dflash": "dflash", "dspark": "dspark"}
_ARCHITECTURES = {
    **{"Eagle3": "eagle3", "DFlashDraftModel": "dflash", "DFlash2DraftModel": "dflash", "DSparkModel": "dspark"},
    **{"Gemma4Assistant": "mtp", "MuseGlimmerAssistant": "dflash"},
    # One name is the end of another: the longer one first.
    **{"ArcticLSTMSpeculator": "arctic", "ArcticMLPSpeculator": "arctic"},
    **{"MLPSpeculatorPreTrainedModel": "mlp_speculator", "MedusaModel": "medusa"},
}
#: Heads without attention: where they say how wide they are, and how many tokens they draft.
_PLAIN = {
    "medusa": ("hidden_size", "num_heads"),
    "mlp_speculator": ("emb_dim", "n_predict"),
    "arctic": ("emb_dim", "n_predict"),
}
#: Neither attention nor positions: no KV cache, and no context of their own (vLLM writes 2^20).
_NO_CONTEXT = 1 << 20
#: Where a head says how many values it reads of each of its target's tokens.
_READS = ("target_hidden_size", "backbone_hidden_size", "input_hidden_dim")


def head_method(config: Config, where: str) -> str | None:
    """The method that a head is for, None for a model of its own. Raises DrafthouseError for other heads."""
    algorithm = str(_speculators(config).get("algorithm") or "")
    names = config.get("architectures")
    architectures = ""
    if isinstance(names, list):
        architectures = " ".join(map(str, names))
    if algorithm in _ALGORITHMS and "transformer_layer_config" in config:
        return _ALGORITHMS[algorithm]
    for end, method in _ARCHITECTURES.items():
        if end not in architectures:
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
    """A head's shape. Raises NoShape."""
    if plain := _PLAIN.get(method):
        # Arctic's configurations write some numbers as texts; a matrix shared by all layers is all that is cached.
        return shape_of(
            {
                "model_type": config.get("model_type"),
                "hidden_size": _number(config.get(plain[0])),
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "head_dim": 1,
                "vocab_size": _number(config.get("vocab_size")),
                "max_position_embeddings": _NO_CONTEXT,
            },
            where,
        )
    merged = {**config, **_part(config, "transformer_layer_config")}
    if type(config.get("draft_vocab_size")) is int:
        merged["vocab_size"] = config["draft_vocab_size"]
    return shape_of(merged, where)


def most_tokens(config: Config, method: str) -> int | None:
    """The most tokens that a head can draft in one step; None where its configuration sets no limit.

    A block's first place is the last accepted token, the anchor, and drafts nothing unless the head samples there too.
    """
    if plain := _PLAIN.get(method):
        return _number(config.get(plain[1]))
    block = config.get("block_size")
    if method not in ("dflash", "dspark") or type(block) is not int or block < 2:
        return None
    drafts = block if config.get("sample_from_anchor") is True else block - 1
    return max(drafts, _proposed(config) or 0)


def speculators_of(config: Config) -> Speculators | None:
    """What an engine serves that is given the head's repository as its model; None without such a part."""
    target, tokens = verifier_of(config), _proposed(config)
    if not target or not tokens:
        return None
    return {"target": target, "tokens": tokens}


def _proposed(config: Config) -> int | None:
    """How many tokens a head's own configuration has it draft."""
    proposed = _speculators(config).get("proposal_methods")
    if not isinstance(proposed, list) or not proposed or not isinstance(proposed[0], Mapping):
        return None
    tokens = proposed[0].get("speculative_tokens")
    if type(tokens) is not int or tokens < 1:
        return None
    return tokens


def verifier_of(config: Config) -> str | None:
    """The repository that a head's own configuration names as its target."""
    named = _part(_speculators(config), "verifier").get("name_or_path")
    if not named:
        return None
    return str(named)


def target_of(config: Config, shape: Shape, models: Mapping[str, ModelEntry], head_for: str | None, where: str) -> str:
    """The catalogue's name of the model whose hidden states a head reads. Raises DrafthouseError."""
    asked = head_for or verifier_of(config)
    target = None
    found, do = "a head that does not name its target", "add --for MODEL"
    if asked:
        target = find_model(asked, models)
        found = f"a head for {asked}, which is not in the catalogue"
        do = f"drafthouse model add {asked}, then run this again"
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
    """How many values a head says that it reads of each of its target's tokens; None where it says nothing."""
    for part in (text_part(config), config):
        for key in _READS:
            if number := _number(part.get(key)):
                return number
    return None


def _speculators(config: Config) -> Config:
    return _part(config, "speculators_config")


def _part(config: Config, key: str) -> Config:
    """The object below a key; an empty one where there is none."""
    part = config.get(key)
    if isinstance(part, Mapping):
        return part
    return {}


def _number(value: Json) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if type(value) is not int:
        return None
    return value
