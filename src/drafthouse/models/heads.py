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
    architectures = " ".join(map(str, names)) if isinstance(names, list) else ""
    if algorithm in _ALGORITHMS and "transformer_layer_config" in config:
        return _ALGORITHMS[algorithm]
    for end, method in _ARCHITECTURES.items():
        if end in architectures:
            return "peagle" if method == "eagle3" and config.get("parallel_drafting") is True else method
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
        numbers = {key: _number(config.get(key)) for key in (*plain, "vocab_size")}
        return shape_of(
            {
                "model_type": config.get("model_type"),
                "hidden_size": numbers[plain[0]],
                **{"num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 1},
                "vocab_size": numbers["vocab_size"],
                "max_position_embeddings": _NO_CONTEXT,
            },
            where,
        )
    layer = config.get("transformer_layer_config")
    merged = {**config, **(layer if isinstance(layer, Mapping) else {})}
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
    return {"target": target, "tokens": tokens} if target and tokens else None


def _proposed(config: Config) -> int | None:
    """How many tokens a head's own configuration has it draft."""
    proposed = _speculators(config).get("proposal_methods")
    first = proposed[0] if isinstance(proposed, list) and proposed else None
    tokens = first.get("speculative_tokens") if isinstance(first, Mapping) else None
    return tokens if type(tokens) is int and tokens > 0 else None


def verifier_of(config: Config) -> str | None:
    """The repository that a head's own configuration names as its target."""
    verifier = _speculators(config).get("verifier")
    named = verifier.get("name_or_path") if isinstance(verifier, Mapping) else None
    return str(named) if named else None


def target_of(config: Config, shape: Shape, models: Mapping[str, ModelEntry], head_for: str | None, where: str) -> str:
    """The catalogue's name of the model whose hidden states a head reads. Raises DrafthouseError."""
    asked = head_for or verifier_of(config)
    target = find_model(asked, models) if asked else None
    if target is None:
        do = f"drafthouse model add {asked}, then run this again" if asked else "add --for MODEL"
        raise one_problem(
            "draft-of-another-target",
            f"a head for {asked}, which is not in the catalogue" if asked else "a head that does not name its target",
            "the target's entry in the catalogue",
            do,
            where,
        )
    says = (_number(part.get(key)) for part in (text_part(config), config) for key in _READS)
    hidden = next(filter(None, says), shape.hidden)
    if head_for is None or hidden == models[target]["hidden"]:
        return target
    raise one_problem(
        "draft-of-another-target",
        f"a head that reads {hidden} values per token, but '{target}' has {models[target]['hidden']}",
        "the model that the head was trained for",
        "pass it as --for",
        where,
    )


def _speculators(config: Config) -> Config:
    part = config.get("speculators_config")
    return part if isinstance(part, Mapping) else {}


def _number(value: Json) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if type(value) is int else None
