"""A catalogue entry from what a repository's own small files say. Pure; `repository.py` reads them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.errors import one_problem
from ..core.plain_text import printable
from ..profiles.model_names import find_model
from .heads import head_method, head_shape, most_tokens, speculators_of, target_of, verifier_of
from .shape import Config, Shape, shape_of
from .tensor_totals import TensorKind, Totals, head_tensors, totals_of

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import ModelEntry, ModelSource

#: The matrix that joins a target's state with the next token, by its name, and dtypes that hold several values in one.
_JOINING = re.compile(r"(?:^|\.)(?:fc|eh_proj)\.")
_PACKED_DTYPES = ("U8", "I32")
#: Weights that engines load are these; the same ones may lie there again in other formats.
_AGAIN = ("original/*", "metal/*", "*.bin", "*.pth", "*.pt", "*.onnx", "*.msgpack", "*.h5", "onnx/*")


@dataclass(frozen=True)
class Found:
    """A repository, or a folder of this machine (``path``): sizes in bytes by file, tensors by name."""

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
    """What it was asked for by, where that is no commit."""
    file: str = ""
    """The GGUF file, where the model is one; of several the first, and ``files`` are all of them."""
    chats: bool = True
    """Whether it has a chat template; base models have none."""


@dataclass(frozen=True)
class Made:
    """An entry with its name, and in sentences what was assumed or should be known."""

    id: str
    entry: ModelEntry
    notes: tuple[str, ...]


def made_entry(found: Found, models: Mapping[str, ModelEntry], *, head_for: str | None = None) -> Made:
    """The catalogue's entry of a repository; ``models`` are those that are known already.

    ``head_for`` is the target of a head whose files do not name it. Raises DrafthouseError.
    """
    if not found.tensors:
        raise one_problem(
            "no-weights",
            "no safetensors file with a readable header",
            "weights as safetensors, or one GGUF file (org/name:file.gguf)",
            "use a repository that has them",
            found.repo,
        )
    notes: list[str] = []
    if method := head_method(found.config, found.repo):
        entry = _head_entry(found, method, models, head_for, notes)
    else:
        entry = _model_entry(found, models, notes)
    file = re.sub(r"(?:-\d{5}-of-\d{5})?\.gguf$", "", found.file)
    # Names in them are a repository's own text: they go to a terminal and into a comment of the entry's file.
    return Made(entry_id(file or found.repo), entry, tuple(map(printable, notes)))


def _head_entry(
    found: Found, method: str, models: Mapping[str, ModelEntry], head_for: str | None, notes: list[str]
) -> ModelEntry:
    """The entry of a head, whose vocabulary is its target's."""
    shape = head_shape(found.config, method, found.repo)
    target = target_of(found.config, shape, models, head_for, found.repo)
    named = verifier_of(found.config)
    if named and find_model(named, models) != target:
        notes.append(f"its configuration names {named} as its target")
    notes += shape.unsure
    entry = _common_entry(found, shape, totals_of(found.tensors, shape), models[target]["tokenizer"])
    entry["kind"] = "head"
    entry["head_method"], entry["head_for"] = method, target
    if most := most_tokens(found.config, method):
        entry["max_speculative_tokens"] = most
    if config := speculators_of(found.config):
        entry["speculators"] = config
    if isinstance(found.config.get("speculators_config"), Mapping):
        entry["layout"] = "speculators"
    return entry


def _model_entry(found: Found, models: Mapping[str, ModelEntry], notes: list[str]) -> ModelEntry:
    """The entry of a model that is served, or drafts as a whole model."""
    shape = shape_of(found.config, found.repo)
    tokenizer = _tokenizer(found, shape, models, notes)
    notes += shape.unsure
    totals = totals_of(found.tensors, shape)
    entry = _common_entry(found, shape, totals, tokenizer)
    _add_target_keys(entry, found, shape, totals, notes)
    return entry


def _common_entry(found: Found, shape: Shape, totals: Totals, tokenizer: str) -> ModelEntry:
    """What the entries of models and heads both have."""
    entry: ModelEntry = {
        "name": found.repo,
        "kind": "model",
        "format": "safetensors",
        "folder": found.repo.strip("/").replace("/", "-"),
        "license": found.license,
        "source": _source(found),
        "weight_bytes": _weight_bytes(found),
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
    if found.file:
        entry["format"], entry["file"] = "gguf", found.file
    if found.gated:
        entry["gated"] = True
    if shape.unsure:
        entry["bound"] = "at most"
    return entry


def entry_id(repo: str) -> str:
    """The name that a repository has in the catalogue: its own, in small letters."""
    name = repo.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9._+-]+", "-", name.lower()).strip("-._+") or "model"


def _add_target_keys(entry: ModelEntry, found: Found, shape: Shape, totals: Totals, notes: list[str]) -> None:
    if not found.chats:
        notes.append(
            "it has no chat template, as is usual for base models: chat requests need one, so use the instruct model,"
            " or name a template in the profile"
        )
    entry["served_name"] = found.repo.rpartition("/")[2]
    if shape.quantization:
        entry["quantization"] = shape.quantization
    if shape.traits:
        entry["traits"] = list(shape.traits)
    if totals.read < 0.97 * entry["weight_bytes"]:
        entry["read_bytes"] = totals.read
    if shape.experts:
        entry["experts"] = {"used": shape.experts[1], "of": shape.experts[0]}
    if shape.cached_layers != shape.layers:
        entry["kv_layers"] = shape.cached_layers
        if shape.window_bytes:
            entry["window_bytes"] = shape.window_bytes
        else:
            notes.append("the recurrent state of its other layers is not counted: add state_bytes for many sequences")
    temperature = found.generation.get("temperature")
    if isinstance(temperature, (int, float)) and 0 <= temperature <= 2:
        entry["temperature"] = float(temperature)
    _add_inner_head(entry, found, shape, totals, notes)
    if isinstance(found.config.get("speculators_config"), Mapping):
        notes.append(
            "it has a speculators_config: an engine may speculate with it by default, so profiles name it as a draft"
        )


def _add_inner_head(entry: ModelEntry, found: Found, shape: Shape, totals: Totals, notes: list[str]) -> None:
    """Add the head that the target's own weights hold, or say why it is of no use."""
    inside = head_tensors(found.tensors, shape)
    packed = [name for name in inside if _JOINING.search(name) and found.tensors[name].dtype in _PACKED_DTYPES]
    if packed:
        notes.append(
            f"{packed[0]} of its MTP head is in 4 bits, so almost no draft token is accepted: use an export that"
            " keeps it as trained"
        )
    elif inside:
        entry["builtin_head"] = {
            "kind": "mtp",
            "layers": shape.mtp_layers or 1,
            "tensors": _globs(inside),
            "weight_bytes": totals.head,
        }
    elif shape.mtp_layers:
        notes.append(
            f"its config.json names {shape.mtp_layers} MTP layer(s), but none of its files has their tensors: this"
            " export cannot speculate by itself"
        )


def _globs(names: list[str]) -> list[str]:
    """Patterns for a head's tensors: what stands before the layer's own names."""
    return list(dict.fromkeys(re.sub(r"((?:mtp|nextn|layers\.\d+)\.).*", r"\1*", name) for name in names))


def _source(found: Found) -> ModelSource:
    if found.path:
        return {"path": found.path}
    again = [pattern for pattern in _AGAIN if fnmatch.filter(found.files, pattern)]
    source: ModelSource = {"hub": {"repo": found.repo, "revision": found.commit}}
    if found.branch:
        source["hub"]["branch"] = found.branch
    if found.file:
        source["hub"]["allow"] = sorted(found.files)
    elif again:
        source["hub"]["ignore"] = again
    return source


def _weight_bytes(found: Found) -> int:
    """The bytes of the weight files that an engine loads: of safetensors those at the top of the repository."""
    if found.file:
        return sum(found.files.values())
    return sum(size for name, size in found.files.items() if name.endswith(".safetensors") and "/" not in name)


# --- the vocabulary ---------------------------------------------------------------------------------------


def _tokenizer(found: Found, shape: Shape, models: Mapping[str, ModelEntry], notes: list[str]) -> str:
    """The word for the vocabulary: that of the catalogue's models with as many entries, else one of its own.

    Equal words only let a pair through to the download; then the vocabularies themselves are compared.
    """
    words: set[str] = set()
    for model in models.values():
        if model["kind"] == "model" and model["vocab"] == shape.vocab:
            words.add(model["tokenizer"])
    if len(words) == 1:
        word = words.pop()
        notes.append(
            f"its {shape.vocab:,} tokens are assumed to be those of '{word}', as their number is equal; they are"
            " compared one by one once draft and target are there"
        )
        return word
    if found.tokenizer_hash:
        return f"sha256-{found.tokenizer_hash[:16]}"
    return entry_id(found.repo)
