"""Make a model's catalogue entry from its configuration and tensor headers, which `repository.py` reads. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..core.errors import one_problem
from ..core.plain_text import printable
from ..profiles.model_names import find_model
from .heads import head_method, head_shape, most_tokens, speculators_of, target_of, verifier_of
from .shape import Config, Shape, shape_of
from .tensor_totals import TensorKind, Totals, head_tensors, totals_of, unexplained

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import ModelEntry, ModelSource

#: A head's matrix that joins the target's hidden state with the next token; and dtypes of packed quantised weights.
_JOINING = re.compile(r"(?:^|\.)(?:fc|eh_proj)\.")
_PACKED_DTYPES = ("U8", "I32")
#: Copies of the weights in other formats than safetensors, which are not downloaded.
_COPIES = ("original/*", "metal/*", "*.bin", "*.pth", "*.pt", "*.onnx", "*.msgpack", "*.h5", "onnx/*")


@dataclass(frozen=True)
class Facts:
    """A model's repository or local folder (``path``), without weights; ``files`` are sizes in bytes by name."""

    repo: str
    commit: str
    config: Config
    files: Mapping[str, int]
    tensors: Mapping[str, TensorKind]
    generation: Config = field(default_factory=dict)
    license: str = "unknown"
    gated: bool = False
    tokenizer_hash: str | None = None
    path: str | None = None
    branch: str = ""
    """The branch or tag that the user named; "" for a commit or none."""
    file: str = ""
    """The GGUF file (of a split model the first, while ``files`` has all); "" for safetensors."""
    chats: bool = True
    """True if the model has a chat template; base models have none."""


@dataclass(frozen=True)
class NewEntry:
    """A catalogue entry with its name, and notes for the user on what was assumed."""

    id: str
    entry: ModelEntry
    notes: tuple[str, ...]


def made_entry(facts: Facts, models: Mapping[str, ModelEntry], *, head_for: str | None = None) -> NewEntry:
    """The catalogue entry of a model; ``models`` are the catalogue's other entries.

    ``head_for`` is the target of a head whose files name none. Raises DrafthouseError if data for the entry is missing.
    """
    if not facts.tensors:
        raise one_problem(
            "no-weights",
            "no safetensors file with a readable header",
            "weights as safetensors, or one GGUF file (org/name:file.gguf)",
            "use a repository that has them",
            facts.repo,
        )
    notes: list[str] = []
    if method := head_method(facts.config, facts.repo):
        entry = _head_entry(facts, method, models, head_for, notes)
    else:
        entry = _model_entry(facts, models, notes)
    file = re.sub(r"(?:-\d{5}-of-\d{5})?\.gguf$", "", facts.file)
    # Notes contain names from the repository, and are printed on a terminal and in a comment of the entry's file.
    return NewEntry(entry_id(file or facts.repo), entry, tuple(map(printable, notes)))


def _head_entry(
    facts: Facts, method: str, models: Mapping[str, ModelEntry], head_for: str | None, notes: list[str]
) -> ModelEntry:
    """The entry of a draft head; its tokenizer is its target's."""
    shape = head_shape(facts.config, method, facts.repo)
    target = target_of(facts.config, shape, models, head_for, facts.repo)
    verifier = verifier_of(facts.config)
    if verifier and find_model(verifier, models) != target:
        notes.append(f"its configuration names {verifier} as its target")
    notes += shape.unsure
    entry = _common_entry(facts, shape, totals_of(facts.tensors, shape), models[target]["tokenizer"])
    entry["kind"] = "head"
    entry["head_method"], entry["head_for"] = method, target
    if most_draft_tokens := most_tokens(facts.config, method):
        entry["max_speculative_tokens"] = most_draft_tokens
    if speculators := speculators_of(facts.config):
        entry["speculators"] = speculators
    if isinstance(facts.config.get("speculators_config"), Mapping):
        entry["layout"] = "speculators"
    return entry


def _model_entry(facts: Facts, models: Mapping[str, ModelEntry], notes: list[str]) -> ModelEntry:
    """The entry of a target model or draft model."""
    shape = shape_of(facts.config, facts.repo)
    shape = replace(shape, unsure=(*shape.unsure, *unexplained(facts.tensors, shape)))
    tokenizer = _tokenizer(facts, shape, models, notes)
    notes += shape.unsure
    totals = totals_of(facts.tensors, shape)
    entry = _common_entry(facts, shape, totals, tokenizer)
    if "pard_token" in facts.config:
        entry["head_method"] = "pard"
    _add_target_keys(entry, facts, shape, totals, notes)
    return entry


def _common_entry(facts: Facts, shape: Shape, totals: Totals, tokenizer: str) -> ModelEntry:
    """The entry's keys that models and heads share."""
    entry: ModelEntry = {
        "name": facts.repo,
        "kind": "model",
        "format": "safetensors",
        "folder": facts.repo.strip("/").replace("/", "-"),
        "license": facts.license,
        "source": _source(facts),
        "weight_bytes": _weight_bytes(facts),
        "parameters": totals.parameters,
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab": shape.vocab,
        "context": shape.context,
        "tokenizer": tokenizer,
    }
    if facts.file:
        entry["format"], entry["file"] = "gguf", facts.file
    if facts.gated:
        entry["gated"] = True
    if shape.may_be_more:
        entry["bound"] = "about"
    elif shape.unsure:
        entry["bound"] = "at most"
    return entry


def entry_id(repo: str) -> str:
    """The catalogue name of a repository: its own name without the owner, in lower case."""
    name = repo.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9._+-]+", "-", name.lower()).strip("-._+") or "model"


def _add_target_keys(entry: ModelEntry, facts: Facts, shape: Shape, totals: Totals, notes: list[str]) -> None:
    if not facts.chats:
        notes.append(
            "it has no chat template, as is usual for base models: chat requests need one, so use the instruct model,"
            " or name a template in the profile"
        )
    entry["served_name"] = facts.repo.rpartition("/")[2]
    if shape.quantization:
        entry["quantization"] = shape.quantization
    if shape.traits:
        entry["traits"] = list(shape.traits)
    # Only if a token reads clearly less than all weights: unused experts, or an embedding of which it reads a row.
    if totals.read < 0.97 * entry["weight_bytes"]:
        entry["read_bytes"] = totals.read
    if shape.experts:
        entry["experts"] = {"used": shape.experts[1], "of": shape.experts[0]}
    if shape.cached_layers != shape.layers:
        entry["kv_layers"] = shape.cached_layers
        if shape.window_bytes:
            entry["window_bytes"] = shape.window_bytes
        elif "hybrid" in shape.traits:
            notes.append("the recurrent state of its other layers is not counted: add state_bytes for many sequences")
    temperature = facts.generation.get("temperature")
    if isinstance(temperature, (int, float)) and 0 <= temperature <= 2:
        entry["temperature"] = float(temperature)
    _add_builtin_head(entry, facts, shape, totals, notes)
    if isinstance(facts.config.get("speculators_config"), Mapping):
        notes.append(
            "it has a speculators_config: an engine may speculate with it by default, so profiles name it as a draft"
        )


def _add_builtin_head(entry: ModelEntry, facts: Facts, shape: Shape, totals: Totals, notes: list[str]) -> None:
    """Add the MTP head inside the target's checkpoint, or a note why it cannot be used."""
    head_names = head_tensors(facts.tensors, shape)
    packed = [name for name in head_names if _JOINING.search(name) and facts.tensors[name].dtype in _PACKED_DTYPES]
    if packed:
        notes.append(
            f"{packed[0]} of its MTP head is in 4 bits, so almost no draft token is accepted: use an export that"
            " keeps it as trained"
        )
    elif head_names:
        entry["builtin_head"] = {
            "kind": "mtp",
            "layers": shape.mtp_layers or 1,
            "tensors": _globs(head_names),
            "weight_bytes": totals.head,
        }
    elif shape.mtp_layers:
        notes.append(
            f"its config.json names {shape.mtp_layers} MTP layer(s), but none of its files has their tensors: this"
            " export cannot speculate by itself"
        )


def _globs(names: list[str]) -> list[str]:
    """Glob patterns for a head's tensors: their names up to the head's prefix, without duplicates."""
    return list(dict.fromkeys(re.sub(r"((?:mtp|nextn|layers\.\d+)\.).*", r"\1*", name) for name in names))


def _source(facts: Facts) -> ModelSource:
    if facts.path:
        return {"path": facts.path}
    copies = [pattern for pattern in _COPIES if fnmatch.filter(facts.files, pattern)]
    source: ModelSource = {"hub": {"repo": facts.repo, "revision": facts.commit}}
    if facts.branch:
        source["hub"]["branch"] = facts.branch
    if facts.file:
        source["hub"]["allow"] = sorted(facts.files)
    elif copies:
        source["hub"]["ignore"] = copies
    return source


def _weight_bytes(facts: Facts) -> int:
    """Bytes of the weight files that an engine loads: the GGUF files, or the safetensors at the top level."""
    if facts.file:
        return sum(facts.files.values())
    return sum(size for name, size in facts.files.items() if name.endswith(".safetensors") and "/" not in name)


# --- the vocabulary ---------------------------------------------------------------------------------------


def _tokenizer(facts: Facts, shape: Shape, models: Mapping[str, ModelEntry], notes: list[str]) -> str:
    """The entry's `tokenizer`, a name for its vocabulary; models with equal names may be paired as target and draft.

    If all catalogue models with as many tokens have one name, it is that; the vocabularies are compared after download.
    """
    names: set[str] = set()
    for model in models.values():
        if model["kind"] == "model" and model["vocab"] == shape.vocab:
            names.add(model["tokenizer"])
    if len(names) == 1:
        name = names.pop()
        notes.append(
            f"its {shape.vocab:,} tokens are assumed to be those of '{name}', as their number is equal; they are"
            " compared one by one once draft and target are there"
        )
        return name
    if facts.tokenizer_hash:
        return f"sha256-{facts.tokenizer_hash[:16]}"
    return entry_id(facts.repo)
